// SPDX-License-Identifier: Apache-2.0
//! /dev/qp4 (kernel/include/uapi/qbed/qp4.h): a request is one write, its answer what is read then.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

/// Of the network namespace of who opens it.
pub const DEVICE: &str = "/dev/qp4";
const HEADER: usize = 8;

#[derive(Debug, Clone, Copy)]
pub enum Command {
    Load = 1,
    Attach = 2,
    Control = 4,
    Counters = 5,
    Events = 6,
    /// The port by which packets go to and come from who asks.
    CpuPort = 7,
    PacketOut = 8,
}

/// `enum qp4_event_kind`
pub const DIGEST: u32 = 1;
pub const PACKET: u32 = 4;

/// `struct qp4_event` and its bytes: of a digest the fields' values, of a packet all of it.
#[derive(Debug, PartialEq, Eq)]
pub struct Event<'a> {
    pub kind: u32,
    /// The digest's, or the CPU port.
    pub id: u32,
    pub time_ns: u64,
    pub bytes: &'a [u8],
}

const EVENT_BYTES: usize = 24;

/// Of what `Command::Events` was answered, one behind the other.
pub fn events(mut data: &[u8]) -> impl Iterator<Item = Event<'_>> {
    std::iter::from_fn(move || {
        let (head, rest) = data.split_at_checked(EVENT_BYTES)?;
        let number = |at: usize| head.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes);
        let length = number(16)? as usize;
        let bytes = rest.get(..length)?;
        data = rest.get(length.next_multiple_of(8)..).unwrap_or_default();
        let time_ns = head.get(8..16)?.try_into().ok().map(u64::from_ne_bytes)?;
        Some(Event { kind: number(0)?, id: number(4)?, time_ns, bytes })
    })
}

/// The P4 switch of the network namespace in which it was opened.
pub struct Device(File);

impl Device {
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        File::options().read(true).write(true).open(path).map(Self)
    }

    /// The answer's bytes; an error has the module's own words.
    pub fn ask(&mut self, command: Command, value: u32, bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut request = Vec::with_capacity(HEADER + bytes.len());
        request.extend((command as u32).to_ne_bytes());
        request.extend(value.to_ne_bytes());
        request.extend(bytes);
        let written = self.0.write(&request)?;
        if written != request.len() {
            return Err(io::Error::other(format!("it took {written} of {} bytes", request.len())));
        }
        let mut answer = Vec::new();
        self.0.read_to_end(&mut answer)?;
        let Some((header, rest)) = answer.split_at_checked(HEADER) else {
            return Err(io::Error::other("it did not answer"));
        };
        match u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) {
            0 => Ok(rest.to_vec()),
            errno => {
                let error = io::Error::from_raw_os_error(errno as i32);
                let words = String::from_utf8_lossy(rest).into_owned();
                Err(if words.is_empty() { error } else { io::Error::new(error.kind(), words) })
            }
        }
    }
}

/// Readable when the program has said something.
impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the kernel writes it.
    fn written(kind: u32, id: u32, bytes: &[u8]) -> Vec<u8> {
        let mut event = [kind.to_ne_bytes(), id.to_ne_bytes()].concat();
        event.extend(7u64.to_ne_bytes());
        event.extend((bytes.len() as u32).to_ne_bytes());
        event.extend([0; 4]);
        event.extend(bytes);
        event.resize(event.len().next_multiple_of(8), 0);
        event
    }

    #[test]
    fn events_come_one_behind_the_other() {
        let data = [written(1, 5, b"abc"), written(2, 0, b""), written(4, 510, b"12345678")].concat();
        let event = |kind, id, bytes| Event { kind, id, time_ns: 7, bytes };
        let expected = [event(DIGEST, 5, &b"abc"[..]), event(2, 0, b""), event(PACKET, 510, b"12345678")];
        assert_eq!(events(&data).collect::<Vec<_>>(), expected);
        assert_eq!(events(&data[..30]).count(), 1, "the last is cut off");
        assert_eq!(events(&data[..26]).count(), 0);
    }
}
