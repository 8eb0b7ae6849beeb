// SPDX-License-Identifier: Apache-2.0
//! `exchanges.bin`: a record of each exchange, written when it is over. There may be millions of them.

use crate::failure::{Of, Result};
use crate::results::files;
use std::fs::File;
use std::io::{self, BufWriter, Write};

const NAME: &str = "exchanges.bin";
/// In place of a time that there is not.
const NEVER: i64 = i64::MIN;

/// What a client asked of one server at one instant. Times count from the epoch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exchange {
    pub workload: u32,
    /// Among its workload's.
    pub client: u32,
    /// Among its client's; all that is asked at one instant has the same.
    pub number: u32,
    /// Among its client's, in the order in which they were opened.
    pub connection: u32,
    pub src: u32,
    pub dst: u32,
    pub start_ns: i64,
    /// Where the connection was opened for it.
    pub connected_ns: Option<i64>,
    pub first_byte_ns: Option<i64>,
    pub end_ns: Option<i64>,
    pub request_bytes: u64,
    pub response_bytes: u64,
    /// With it, all that was asked at its instant had been answered.
    pub last: bool,
    /// The system's number.
    pub error: Option<u16>,
}

impl Exchange {
    /// As `docs/formats.md` has it.
    fn bytes(&self) -> [u8; 80] {
        let mut bytes = [0; 80];
        let words = [self.workload, self.client, self.number, self.connection, self.src, self.dst];
        for (place, word) in bytes.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes[24] = u8::from(self.last);
        bytes[26..28].copy_from_slice(&self.error.unwrap_or(0).to_le_bytes());
        let time = |time: Option<i64>| time.unwrap_or(NEVER).to_le_bytes();
        let times = [Some(self.start_ns), self.connected_ns, self.first_byte_ns, self.end_ns].map(time);
        let sizes = [self.request_bytes, self.response_bytes].map(u64::to_le_bytes);
        for (place, word) in bytes[32..].chunks_exact_mut(8).zip(times.iter().chain(&sizes)) {
            place.copy_from_slice(word);
        }
        bytes
    }
}

pub struct Exchanges(BufWriter<File>);

impl Exchanges {
    pub fn create() -> Result<Self> {
        files::create(NAME).map(Self)
    }

    pub fn write(&mut self, exchange: &Exchange) -> Result<()> {
        self.of(|file| file.write_all(&exchange.bytes()))
    }

    pub fn finish(&mut self) -> Result<()> {
        self.of(Write::flush)
    }

    fn of(&mut self, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> Result<()> {
        write(&mut self.0).of(|| format!("out/{NAME}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_as_the_contract_says() {
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
        let bytes = exchange.bytes();
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        let long = |at: usize| i64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        assert_eq!([0, 4, 8, 12, 16, 20].map(word), [1, 2, 3, 4, 5, 6]);
        assert_eq!((bytes[24], bytes[25], bytes[26]), (1, 0, 104));
        assert_eq!([32, 40, 48, 56, 64, 72].map(long), [-7, NEVER, NEVER, 8, 9, 10]);
    }
}
