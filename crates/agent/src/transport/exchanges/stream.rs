// SPDX-License-Identifier: Apache-2.0
//! What goes over an exchange's connection. A request begins with a header, so that a server needs to know nothing of
//! its clients, wherever these are: how long it is, and how long its answer shall be. What is sent for a time is of
//! several pieces, each with such a header.

use crate::socket::{self, PATTERN_MAX};
use std::io;
use std::os::fd::OwnedFd;

pub const HEADER_BYTES: u64 = 16;
/// Bytes of the answer that is the time at which the server had everything.
pub const REPORT_BYTES: u64 = 8;

const MORE: u64 = 1 << 63;
const CLOSE: u64 = 1 << 62;
const REPORT: u64 = u64::MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Of this piece, the header counted in.
    pub bytes: u64,
    /// Another piece follows, and there is no answer to this one.
    pub more: bool,
    /// The server closes the connection behind its answer.
    pub close: bool,
    pub answer: Answer,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    Bytes(u64),
    /// Since the epoch.
    Report,
}

impl Answer {
    pub fn bytes(self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Report => REPORT_BYTES,
        }
    }
}

impl Header {
    pub fn encode(self) -> [u8; HEADER_BYTES as usize] {
        let flag = |set: bool, flag: u64| if set { flag } else { 0 };
        let first = self.bytes | flag(self.more, MORE) | flag(self.close, CLOSE);
        let second = match self.answer {
            Answer::Bytes(bytes) => bytes,
            Answer::Report => REPORT,
        };
        let mut bytes = [0; HEADER_BYTES as usize];
        bytes[..8].copy_from_slice(&first.to_le_bytes());
        bytes[8..].copy_from_slice(&second.to_le_bytes());
        bytes
    }

    /// None: no client of ours wrote this.
    pub fn decode(bytes: [u8; HEADER_BYTES as usize]) -> Option<Self> {
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let (first, second) = (word(0), word(8));
        let answer = if second == REPORT { Answer::Report } else { Answer::Bytes(second) };
        let header = Self {
            bytes: first & !(MORE | CLOSE),
            more: first & MORE != 0,
            close: first & CLOSE != 0,
            answer,
        };
        (header.bytes >= HEADER_BYTES).then_some(header)
    }
}

/// What is on its way into a socket: some bytes that mean something, then some that do not.
#[derive(Debug, Default)]
pub struct Outgoing {
    head: [u8; HEADER_BYTES as usize],
    /// What of `head` has not been taken.
    from: usize,
    until: usize,
    left: u64,
    /// What follows at once, so that a short segment waits for it.
    followed: bool,
}

impl Outgoing {
    pub fn request(header: Header) -> Self {
        let (head, left) = (header.encode(), header.bytes - HEADER_BYTES);
        Self { head, from: 0, until: head.len(), left, followed: header.more }
    }

    pub fn answer(answer: Answer, now_ns: i64, close: bool) -> Self {
        let mut outgoing = Self { followed: close, ..Self::default() };
        match answer {
            Answer::Bytes(bytes) => outgoing.left = bytes,
            Answer::Report => {
                outgoing.until = REPORT_BYTES as usize;
                outgoing.head[..outgoing.until].copy_from_slice(&now_ns.to_le_bytes());
            }
        }
        outgoing
    }

    pub fn is_over(&self) -> bool {
        self.from == self.until && self.left == 0
    }

    /// Offers what is left. True when the socket has taken everything.
    pub fn push(&mut self, socket: &OwnedFd) -> io::Result<bool> {
        while self.from < self.until {
            let more = self.left > 0 || self.followed;
            let Some(taken) = socket::offer(socket, &self.head[self.from..self.until], more)? else {
                return Ok(false);
            };
            self.from += taken;
        }
        while self.left > 0 {
            let length = self.left.min(PATTERN_MAX as u64) as usize;
            let more = self.left > length as u64 || self.followed;
            let Some(taken) = socket::send_pattern(socket, length, more)? else { return Ok(false) };
            self.left -= taken as u64;
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_header_arrives_as_it_was_sent(
            bytes in HEADER_BYTES..CLOSE, more: bool, close: bool, response in prop::option::of(0..REPORT)
        ) {
            let answer = response.map_or(Answer::Report, Answer::Bytes);
            let header = Header { bytes, more, close, answer };
            prop_assert_eq!(Header::decode(header.encode()), Some(header));
        }

        #[test]
        fn what_no_client_wrote_is_no_header_or_a_piece_with_room_for_one(bytes: [u8; 16]) {
            prop_assert!(Header::decode(bytes).is_none_or(|header| header.bytes >= HEADER_BYTES));
        }
    }
}
