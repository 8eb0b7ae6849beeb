// SPDX-License-Identifier: Apache-2.0
//! Format of an exchange's stream. A request begins with a header that has its length and the length of the response,
//! so that servers need no state of their clients. A request that is sent for a time (`on_ns`) consists of several
//! pieces, each with a header.

use crate::socket::{self, PATTERN_MAX};
use std::io;
use std::os::fd::OwnedFd;

pub const HEADER_BYTES: u64 = 16;
/// Length of a report, the time at which the server had all bytes.
pub const REPORT_BYTES: u64 = 8;

const MORE: u64 = 1 << 63;
const CLOSE: u64 = 1 << 62;
const REPORT: u64 = u64::MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Length of this piece, including the header.
    pub bytes: u64,
    /// Another piece follows, and there is no response to this one.
    pub more: bool,
    /// The server closes the connection after its response.
    pub close: bool,
    pub response: Response,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Response {
    Bytes(u64),
    /// The time at which the server had all bytes, since the epoch.
    Report,
}

impl Response {
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
        let second = match self.response {
            Response::Bytes(bytes) => bytes,
            Response::Report => REPORT,
        };
        let mut bytes = [0; HEADER_BYTES as usize];
        bytes[..8].copy_from_slice(&first.to_le_bytes());
        bytes[8..].copy_from_slice(&second.to_le_bytes());
        bytes
    }

    /// Parses a header; None if it is invalid.
    pub fn decode(bytes: [u8; HEADER_BYTES as usize]) -> Option<Self> {
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let (first, second) = (word(0), word(8));
        let response = if second == REPORT { Response::Report } else { Response::Bytes(second) };
        let header = Self {
            bytes: first & !(MORE | CLOSE),
            more: first & MORE != 0,
            close: first & CLOSE != 0,
            response,
        };
        (header.bytes >= HEADER_BYTES).then_some(header)
    }
}

/// A message that is being written to a socket: a head, followed by payload.
#[derive(Debug, Default)]
pub struct Outgoing {
    head: [u8; HEADER_BYTES as usize],
    /// Unsent range of `head`.
    from: usize,
    until: usize,
    /// Unsent bytes of payload.
    left: u64,
    /// Whether more data follow, so that a short segment is held back.
    followed: bool,
}

impl Outgoing {
    pub fn request(header: Header) -> Self {
        let (head, left) = (header.encode(), header.bytes - HEADER_BYTES);
        Self { head, from: 0, until: head.len(), left, followed: header.more }
    }

    pub fn response(response: Response, now_ns: i64, close: bool) -> Self {
        let mut outgoing = Self { followed: close, ..Self::default() };
        match response {
            Response::Bytes(bytes) => outgoing.left = bytes,
            Response::Report => {
                outgoing.until = REPORT_BYTES as usize;
                outgoing.head[..outgoing.until].copy_from_slice(&now_ns.to_le_bytes());
            }
        }
        outgoing
    }

    pub fn is_sent(&self) -> bool {
        self.from == self.until && self.left == 0
    }

    /// Writes the rest. Returns true when the socket has accepted all of it.
    pub fn send(&mut self, socket: &OwnedFd) -> io::Result<bool> {
        while self.from < self.until {
            let more = self.left > 0 || self.followed;
            let Some(accepted) = socket::write(socket, &self.head[self.from..self.until], more)? else {
                return Ok(false);
            };
            self.from += accepted;
        }
        while self.left > 0 {
            let length = self.left.min(PATTERN_MAX as u64) as usize;
            let more = self.left > length as u64 || self.followed;
            let Some(accepted) = socket::send_pattern(socket, length, more)? else { return Ok(false) };
            self.left -= accepted as u64;
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
        fn headers_round_trip(
            bytes in HEADER_BYTES..CLOSE, more: bool, close: bool, size in prop::option::of(0..REPORT)
        ) {
            let response = size.map_or(Response::Report, Response::Bytes);
            let header = Header { bytes, more, close, response };
            prop_assert_eq!(Header::decode(header.encode()), Some(header));
        }

        #[test]
        fn arbitrary_bytes_are_no_header_or_a_valid_one(bytes: [u8; 16]) {
            prop_assert!(Header::decode(bytes).is_none_or(|header| header.bytes >= HEADER_BYTES));
        }
    }
}
