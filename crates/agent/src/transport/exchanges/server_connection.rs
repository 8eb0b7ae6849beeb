// SPDX-License-Identifier: Apache-2.0
//! A server's end of a connection: reads a request, writes the response, and repeats.

use crate::socket;
use crate::transport::exchanges::stream::{Header, Outgoing, HEADER_BYTES};
use crate::transport::tcp::watermark::Watermark;
use std::io;
use std::os::fd::OwnedFd;

pub struct ServerConnection {
    pub socket: OwnedFd,
    pub listener: u32,
    watermark: Watermark,
    head: [u8; HEADER_BYTES as usize],
    /// Received bytes of the header.
    head_length: usize,
    /// The current header, once it is complete.
    header: Option<Header>,
    /// Missing bytes of the current piece.
    left: u64,
    response: Outgoing,
}

impl ServerConnection {
    pub fn new(socket: OwnedFd, listener: u32) -> Self {
        Self {
            socket,
            listener,
            watermark: Watermark::unset(),
            head: [0; HEADER_BYTES as usize],
            head_length: 0,
            header: None,
            left: 0,
            response: Outgoing::default(),
        }
    }

    /// Makes progress without blocking. Returns false when the connection has ended.
    pub fn advance(&mut self, now_ns: i64) -> io::Result<bool> {
        loop {
            if !self.response.is_sent() {
                if !self.response.send(&self.socket)? {
                    return Ok(true);
                }
                if self.header.take().is_some_and(|header| header.close) {
                    // The FIN is sent with the last segment of the response.
                    socket::shut_down_sending(&self.socket)?;
                }
            }
            let received = if self.head_length < self.head.len() {
                socket::read(&self.socket, &mut self.head[self.head_length..])?
            } else {
                socket::discard_up_to(&self.socket, self.left)?
            };
            match received {
                None => return self.wait().map(|()| true),
                Some(0) => return Ok(false),
                Some(length) if self.head_length < self.head.len() => {
                    self.head_length += length;
                    if self.head_length < self.head.len() {
                        continue;
                    }
                    let Some(header) = Header::decode(self.head) else { return Ok(false) };
                    self.header = Some(header);
                    self.left = header.bytes - HEADER_BYTES;
                }
                Some(length) => self.left -= length as u64,
            }
            if let Some(header) = self.header.filter(|_| self.left == 0) {
                self.head_length = 0;
                if !header.more {
                    self.response = Outgoing::response(header.response, now_ns, header.close);
                }
            }
        }
    }

    /// Sets the watermark to the missing bytes of the header or the piece.
    fn wait(&mut self) -> io::Result<()> {
        let expected =
            if self.head_length < self.head.len() { self.head.len() - self.head_length } else { 0 };
        self.watermark.adapt(&self.socket, Some((expected as u64).max(self.left)))
    }
}
