// SPDX-License-Identifier: Apache-2.0
//! A server's end of a connection: takes a request, answers it, takes the next one.

use crate::socket;
use crate::transport::exchanges::stream::{Header, Outgoing, HEADER_BYTES};
use crate::transport::tcp::watermark::Watermark;
use std::io;
use std::os::fd::OwnedFd;

pub struct Served {
    pub socket: OwnedFd,
    pub listener: u32,
    watermark: Watermark,
    head: [u8; HEADER_BYTES as usize],
    /// Bytes of the header that are here.
    have: usize,
    /// Once it is whole.
    header: Option<Header>,
    /// Bytes of the piece that are still to come.
    left: u64,
    answer: Outgoing,
}

impl Served {
    pub fn new(socket: OwnedFd, listener: u32) -> Self {
        Self {
            socket,
            listener,
            watermark: Watermark::none(),
            head: [0; HEADER_BYTES as usize],
            have: 0,
            header: None,
            left: 0,
            answer: Outgoing::default(),
        }
    }

    /// Does what can be done now. False: the connection is over.
    pub fn go_on(&mut self, now_ns: i64) -> io::Result<bool> {
        loop {
            if !self.answer.is_over() {
                if !self.answer.push(&self.socket)? {
                    return Ok(true);
                }
                if self.header.take().is_some_and(|header| header.close) {
                    // With the answer's last segment.
                    socket::shut_down_sending(&self.socket)?;
                }
            }
            let taken = if self.have < self.head.len() {
                socket::take(&self.socket, &mut self.head[self.have..])?
            } else {
                socket::discard_at_most(&self.socket, self.left)?
            };
            match taken {
                None => return self.wait().map(|()| true),
                Some(0) => return Ok(false),
                Some(length) if self.have < self.head.len() => {
                    self.have += length;
                    if self.have < self.head.len() {
                        continue;
                    }
                    let Some(header) = Header::decode(self.head) else { return Ok(false) };
                    self.header = Some(header);
                    self.left = header.bytes - HEADER_BYTES;
                }
                Some(length) => self.left -= length as u64,
            }
            if let Some(header) = self.header.filter(|_| self.left == 0) {
                self.have = 0;
                if !header.more {
                    self.answer = Outgoing::answer(header.answer, now_ns, header.close);
                }
            }
        }
    }

    /// Until there is more of what is expected.
    fn wait(&mut self) -> io::Result<()> {
        let expected = if self.have < self.head.len() { self.head.len() - self.have } else { 0 };
        self.watermark.adapt(&self.socket, Some((expected as u64).max(self.left)))
    }
}
