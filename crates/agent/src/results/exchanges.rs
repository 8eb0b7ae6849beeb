// SPDX-License-Identifier: Apache-2.0
//! `exchanges.bin`: one record per exchange, written when the exchange ends. There may be millions.

use crate::failure::{Context, Result};
use crate::results::files;
use std::fs::File;
use std::io::{self, BufWriter, Write};

const NAME: &str = "exchanges.bin";
/// Encoding of an absent time.
const NO_TIME: i64 = i64::MIN;

/// One request of a client to one server, and its response. Times are relative to the epoch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exchange {
    pub workload: u32,
    /// Number of the client in its workload.
    pub client: u32,
    /// Number of the exchange at its client. Simultaneous requests to several servers have the same number.
    pub number: u32,
    /// Number of the connection at its client, in the order of opening.
    pub connection: u32,
    pub src: u32,
    pub dst: u32,
    pub start_ns: i64,
    /// None if the connection was open before.
    pub connected_ns: Option<i64>,
    pub first_byte_ns: Option<i64>,
    pub end_ns: Option<i64>,
    pub request_bytes: u64,
    pub response_bytes: u64,
    /// Whether this response completed the exchange with all servers.
    pub last: bool,
    /// errno.
    pub error: Option<u16>,
}

impl Exchange {
    /// Encodes the record (docs/formats.md §2).
    fn encode(&self) -> [u8; 80] {
        let mut bytes = [0; 80];
        let words = [self.workload, self.client, self.number, self.connection, self.src, self.dst];
        for (slot, word) in bytes.chunks_exact_mut(4).zip(words) {
            slot.copy_from_slice(&word.to_le_bytes());
        }
        bytes[24] = u8::from(self.last);
        bytes[26..28].copy_from_slice(&self.error.unwrap_or(0).to_le_bytes());
        let time = |time: Option<i64>| time.unwrap_or(NO_TIME).to_le_bytes();
        let times = [Some(self.start_ns), self.connected_ns, self.first_byte_ns, self.end_ns].map(time);
        let sizes = [self.request_bytes, self.response_bytes].map(u64::to_le_bytes);
        for (slot, word) in bytes[32..].chunks_exact_mut(8).zip(times.iter().chain(&sizes)) {
            slot.copy_from_slice(word);
        }
        bytes
    }
}

pub struct ExchangeWriter(BufWriter<File>);

impl ExchangeWriter {
    pub fn create() -> Result<Self> {
        files::create(NAME).map(Self)
    }

    pub fn write(&mut self, exchange: &Exchange) -> Result<()> {
        self.with_file(|file| file.write_all(&exchange.encode()))
    }

    pub fn finish(&mut self) -> Result<()> {
        self.with_file(Write::flush)
    }

    fn with_file(&mut self, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> Result<()> {
        write(&mut self.0).with_context(|| format!("out/{NAME}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_the_documented_layout() {
        let exchange = Exchange {
            workload: 1,
            client: 2,
            number: 3,
            connection: 4,
            src: 5,
            dst: 6,
            start_ns: -7,
            end_ns: Some(8),
            request_bytes: 9,
            response_bytes: 10,
            last: true,
            error: Some(104),
            ..Exchange::default()
        };
        let bytes = exchange.encode();
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        let long = |at: usize| i64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        assert_eq!([0, 4, 8, 12, 16, 20].map(word), [1, 2, 3, 4, 5, 6]);
        assert_eq!((bytes[24], bytes[25], bytes[26]), (1, 0, 104));
        assert_eq!([32, 40, 48, 56, 64, 72].map(long), [-7, NO_TIME, NO_TIME, 8, 9, 10]);
    }
}
