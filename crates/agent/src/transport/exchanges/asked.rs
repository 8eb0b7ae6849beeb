// SPDX-License-Identifier: Apache-2.0
//! A client's end of a connection: sends a request, takes the answer.

use crate::results::exchanges::Exchange;
use crate::socket;
use crate::transport::exchanges::stream::{Answer, Header, Outgoing, HEADER_BYTES, REPORT_BYTES};
use crate::transport::tcp::watermark::Watermark;
use std::io;
use std::os::fd::OwnedFd;

/// What is sent for a time is sent in pieces of so many bytes, so that it ends with the one that is begun.
const PIECE_BYTES: u64 = 16 * 1024;
/// And the socket holds so much of it unsent.
pub const UNSENT_BYTES: i32 = 32 * 1024;

pub struct Asked {
    pub socket: OwnedFd,
    /// Among the transport's.
    pub client: u32,
    /// Among its client's.
    pub number: u32,
    pub connected: bool,
    /// What it is asked now.
    pub pending: Option<Pending>,
    watermark: Watermark,
    request: Outgoing,
}

pub struct Pending {
    pub exchange: Exchange,
    answer: Answer,
    /// Bytes of the answer that are still to come.
    left: u64,
    report: [u8; REPORT_BYTES as usize],
    /// Pieces follow until then (since the epoch).
    sends_until_ns: Option<i64>,
}

impl Pending {
    /// `sends_for_ns`: instead of the exchange's bytes.
    pub fn new(exchange: Exchange, answer: Answer, sends_for_ns: Option<u64>) -> Self {
        let sends_until_ns = sends_for_ns.map(|time| exchange.start_ns.saturating_add_unsigned(time));
        Self { exchange, answer, left: answer.bytes(), report: [0; REPORT_BYTES as usize], sends_until_ns }
    }

    /// The next piece of the request, or all of it.
    fn piece(&mut self, now_ns: i64, close: bool) -> Outgoing {
        let header = |bytes, more| Header { bytes, more, close, answer: self.answer };
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

    /// Takes what there is of the answer. True: that was the end of it.
    fn take(&mut self, socket: &OwnedFd, now_ns: i64) -> io::Result<bool> {
        while self.left > 0 {
            let from = REPORT_BYTES.saturating_sub(self.left) as usize;
            let taken = match self.answer {
                Answer::Bytes(_) => socket::discard_at_most(socket, self.left)?,
                Answer::Report => socket::take(socket, &mut self.report[from..])?,
            };
            match taken {
                None => return Ok(false),
                Some(0) => return Err(io::Error::from_raw_os_error(libc::ECONNRESET)),
                Some(length) => self.left -= length as u64,
            }
            if matches!(self.answer, Answer::Bytes(_)) {
                self.exchange.first_byte_ns.get_or_insert(now_ns);
            }
        }
        self.exchange.end_ns = Some(match self.answer {
            Answer::Bytes(_) => now_ns,
            Answer::Report => i64::from_le_bytes(self.report),
        });
        Ok(true)
    }
}

impl Asked {
    pub fn new(socket: OwnedFd, client: u32, number: u32) -> Self {
        let (watermark, request) = (Watermark::none(), Outgoing::default());
        Self { socket, client, number, connected: false, pending: None, watermark, request }
    }

    /// Makes ready what `go_on` will send.
    pub fn ask(&mut self, mut pending: Pending, close: bool) {
        self.request = pending.piece(pending.exchange.start_ns, close);
        self.pending = Some(pending);
    }

    /// Does what can be done now. True: the answer is here.
    pub fn go_on(&mut self, now_ns: i64) -> io::Result<bool> {
        let Some(pending) = self.pending.as_mut().filter(|_| self.connected) else { return Ok(false) };
        while self.request.push(&self.socket)? && pending.sends_until_ns.is_some() {
            self.request = pending.piece(now_ns, false);
        }
        if pending.take(&self.socket, now_ns)? {
            return Ok(true);
        }
        // Woken by the first byte, then by the last one.
        let begun = pending.left < pending.answer.bytes();
        self.watermark.adapt(&self.socket, Some(if begun { pending.left } else { 1 }))?;
        Ok(false)
    }
}
