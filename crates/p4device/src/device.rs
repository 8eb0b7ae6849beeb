// SPDX-License-Identifier: Apache-2.0
//! /dev/qp4 (kernel/include/uapi/qbed/qp4.h): a request is one write, its answer is the following read.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

/// The P4 switch of the network namespace in which it is opened.
pub const DEVICE: &str = "/dev/qp4";
const HEADER: usize = 8;

#[derive(Debug, Clone, Copy)]
pub enum Command {
    Load = 1,
    Attach = 2,
    Control = 4,
    Counters = 5,
    Events = 6,
    /// Set the port for PacketIn and PacketOut.
    CpuPort = 7,
    PacketOut = 8,
}

/// `enum qp4_event_kind`
pub const DIGEST: u32 = 1;
pub const PACKET: u32 = 4;

/// `struct qp4_event` with its data: the values of a digest, or a packet.
#[derive(Debug, PartialEq, Eq)]
pub struct Event<'a> {
    pub kind: u32,
    /// Digest id, or CPU port.
    pub id: u32,
    pub time_ns: u64,
    pub bytes: &'a [u8],
}

const EVENT_BYTES: usize = 24;

/// The events in an answer to `Command::Events`.
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

pub struct Device(File);

impl Device {
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        File::options().read(true).write(true).open(path).map(Self)
    }

    /// Send a request and return the answer's data. An error has the module's message.
    pub fn execute(&mut self, command: Command, value: u32, bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut request = Vec::with_capacity(HEADER + bytes.len());
        request.extend((command as u32).to_ne_bytes());
        request.extend(value.to_ne_bytes());
        request.extend(bytes);
        let written = self.0.write(&request)?;
        if written != request.len() {
            return Err(io::Error::other(format!("only {written} of {} bytes were written", request.len())));
        }
        let mut answer = Vec::new();
        self.0.read_to_end(&mut answer)?;
        let Some((header, rest)) = answer.split_at_checked(HEADER) else {
            return Err(io::Error::other("no answer"));
        };
        match u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) {
            0 => Ok(rest.to_vec()),
            errno => {
                let error = io::Error::from_raw_os_error(errno as i32);
                let message = String::from_utf8_lossy(rest).into_owned();
                Err(if message.is_empty() { error } else { io::Error::new(error.kind(), message) })
            }
        }
    }
}

/// Readable when there are events.
impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An event in the kernel's form.
    fn encoded(kind: u32, id: u32, bytes: &[u8]) -> Vec<u8> {
        let mut event = [kind.to_ne_bytes(), id.to_ne_bytes()].concat();
        event.extend(7u64.to_ne_bytes());
        event.extend((bytes.len() as u32).to_ne_bytes());
        event.extend([0; 4]);
        event.extend(bytes);
        event.resize(event.len().next_multiple_of(8), 0);
        event
    }

    #[test]
    fn events_are_decoded_in_order() {
        let data = [encoded(1, 5, b"abc"), encoded(2, 0, b""), encoded(4, 510, b"12345678")].concat();
        let event = |kind, id, bytes| Event { kind, id, time_ns: 7, bytes };
        let expected = [event(DIGEST, 5, &b"abc"[..]), event(2, 0, b""), event(PACKET, 510, b"12345678")];
        assert_eq!(events(&data).collect::<Vec<_>>(), expected);
        assert_eq!(events(&data[..30]).count(), 1, "the last one is truncated");
        assert_eq!(events(&data[..26]).count(), 0);
    }
}
