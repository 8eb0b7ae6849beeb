// SPDX-License-Identifier: Apache-2.0
//! A client's end of a connection: writes a request and reads the response.

use crate::results::exchanges::Exchange;
use crate::socket;
use crate::transport::exchanges::stream::{Header, Outgoing, Response, HEADER_BYTES, REPORT_BYTES};
use crate::transport::tcp::watermark::Watermark;
use std::io;
use std::os::fd::OwnedFd;

/// Piece size of requests that are sent for a time, which end with a complete piece.
const PIECE_BYTES: u64 = 16 * 1024;
/// TCP_NOTSENT_LOWAT of such requests.
pub const UNSENT_BYTES: i32 = 32 * 1024;

pub struct ClientConnection {
    pub socket: OwnedFd,
    /// Index of the client.
    pub client: u32,
    /// Number among the client's connections.
    pub number: u32,
    pub connected: bool,
    /// The current exchange.
    pub pending: Option<PendingExchange>,
    watermark: Watermark,
    request: Outgoing,
}

pub struct PendingExchange {
    pub exchange: Exchange,
    response: Response,
    /// Missing bytes of the response.
    left: u64,
    report: [u8; REPORT_BYTES as usize],
    /// End of sending for a time, since the epoch. None: the request has a size, or its last piece was sent.
    sends_until_ns: Option<i64>,
}

impl PendingExchange {
    /// `sends_for_ns`: duration of sending, for a request without a size.
    pub fn new(exchange: Exchange, response: Response, sends_for_ns: Option<u64>) -> Self {
        let sends_until_ns = sends_for_ns.map(|time| exchange.start_ns.saturating_add_unsigned(time));
        Self {
            exchange,
            response,
            left: response.bytes(),
            report: [0; REPORT_BYTES as usize],
            sends_until_ns,
        }
    }

    /// The next piece of the request, or the whole request if it has a size.
    fn next_piece(&mut self, now_ns: i64, close: bool) -> Outgoing {
        let header = |bytes, more| Header { bytes, more, close, response: self.response };
        let header = match self.sends_until_ns {
            None => return Outgoing::request(header(self.exchange.request_bytes, false)),
            Some(until_ns) if now_ns < until_ns => header(PIECE_BYTES, true),
            Some(_) => header(HEADER_BYTES, false),
        };
        self.exchange.request_bytes += header.bytes;
        if !header.more {
            self.sends_until_ns = None;
        }
        Outgoing::request(header)
    }

    /// Reads available bytes of the response. Returns true when it is complete.
    fn receive(&mut self, socket: &OwnedFd, now_ns: i64) -> io::Result<bool> {
        while self.left > 0 {
            let from = REPORT_BYTES.saturating_sub(self.left) as usize;
            let received = match self.response {
                Response::Bytes(_) => socket::discard_up_to(socket, self.left)?,
                Response::Report => socket::read(socket, &mut self.report[from..])?,
            };
            match received {
                None => return Ok(false),
                Some(0) => return Err(io::Error::from_raw_os_error(libc::ECONNRESET)),
                Some(length) => self.left -= length as u64,
            }
            if matches!(self.response, Response::Bytes(_)) {
                self.exchange.first_byte_ns.get_or_insert(now_ns);
            }
        }
        self.exchange.end_ns = Some(match self.response {
            Response::Bytes(_) => now_ns,
            Response::Report => i64::from_le_bytes(self.report),
        });
        Ok(true)
    }
}

impl ClientConnection {
    pub fn new(socket: OwnedFd, client: u32, number: u32) -> Self {
        let (watermark, request) = (Watermark::unset(), Outgoing::default());
        Self { socket, client, number, connected: false, pending: None, watermark, request }
    }

    /// Starts an exchange. `advance` sends the request. `close`: the server closes the connection after the response.
    pub fn start(&mut self, mut pending: PendingExchange, close: bool) {
        self.request = pending.next_piece(pending.exchange.start_ns, close);
        self.pending = Some(pending);
    }

    /// Makes progress without blocking. Returns true when the response is complete.
    pub fn advance(&mut self, now_ns: i64) -> io::Result<bool> {
        let Some(pending) = self.pending.as_mut().filter(|_| self.connected) else { return Ok(false) };
        while self.request.send(&self.socket)? && pending.sends_until_ns.is_some() {
            self.request = pending.next_piece(now_ns, false);
        }
        if pending.receive(&self.socket, now_ns)? {
            return Ok(true);
        }
        // Wake up at the first byte and then at the last one.
        let started = pending.left < pending.response.bytes();
        self.watermark.adapt(&self.socket, Some(if started { pending.left } else { 1 }))?;
        Ok(false)
    }
}
