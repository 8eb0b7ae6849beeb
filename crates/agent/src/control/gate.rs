// SPDX-License-Identifier: Apache-2.0
//! The gate to the host: JSON lines over /dev/qgate. In virtual time a read blocks the whole guest, in the host, until
//! the host answers; no virtual time passes meanwhile.

use crate::control::message::{Command, Event};
use crate::failure::{Context, Failure, Result};
use nix::fcntl::{fcntl, FcntlArg, FdFlag};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

const DEVICE: &str = "/dev/qgate";

/// A command, or an error text if the line is not a valid command.
pub type Received = std::result::Result<Command, String>;

pub struct Gate {
    reader: BufReader<File>,
    /// Incomplete line of a non-blocking gate.
    partial: Vec<u8>,
}

impl AsFd for Gate {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.get_ref().as_fd()
    }
}

impl Gate {
    /// Opens the gate of a guest: non-blocking on the wall clock, blocking in virtual time.
    pub fn open(nonblocking: bool) -> Result<Self> {
        let flags = if nonblocking { libc::O_NONBLOCK } else { 0 };
        let device = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(flags)
            .open(DEVICE)
            .with_context(|| DEVICE.into())?;
        Ok(Self { reader: BufReader::new(device), partial: Vec::new() })
    }

    /// Uses an inherited stream. It is set close-on-exec, so that it ends with this process.
    pub fn from_descriptor(descriptor: OwnedFd) -> Result<Self> {
        fcntl(&descriptor, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).with_context(|| "the gate".into())?;
        Ok(Self { reader: BufReader::new(descriptor.into()), partial: Vec::new() })
    }

    /// Returns the commands that have arrived on a non-blocking gate. The end of the stream is `stop`.
    pub fn try_receive(&mut self) -> Result<Vec<Received>> {
        let mut buffer = [0; 1 << 16];
        match self.reader.get_mut().read(&mut buffer) {
            Ok(0) => return Ok(vec![Ok(Command::Stop)]),
            Ok(length) => self.partial.extend_from_slice(&buffer[..length]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Vec::new()),
            Err(error) => return Err(Failure::new(format!("{DEVICE}: reading: {error}"))),
        }
        Ok(take_lines(&mut self.partial).iter().map(|line| parse(line)).collect())
    }

    pub fn send(&mut self, event: &Event) -> Result<()> {
        let mut line = serde_json::to_vec(event).with_context(|| DEVICE.into())?;
        line.push(b'\n');
        self.reader.get_mut().write_all(&line).with_context(|| format!("{DEVICE}: writing"))
    }

    /// Blocks until the host's next command. The end of the stream is `stop`.
    pub fn receive(&mut self) -> Result<Received> {
        let mut line = String::new();
        let length =
            self.reader.read_line(&mut line).map_err(|e| Failure::new(format!("{DEVICE}: reading: {e}")))?;
        if length == 0 {
            return Ok(Ok(Command::Stop));
        }
        Ok(parse(line.as_bytes()))
    }
}

/// Removes all complete, non-empty lines from a receive buffer and returns them without line ends.
pub fn take_lines(buffer: &mut Vec<u8>) -> Vec<Vec<u8>> {
    let Some(end) = buffer.iter().rposition(|byte| *byte == b'\n') else { return Vec::new() };
    let rest = buffer.split_off(end + 1);
    let complete = std::mem::replace(buffer, rest);
    complete.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(<[u8]>::to_vec).collect()
}

fn parse(line: &[u8]) -> Received {
    let text = || String::from_utf8_lossy(line).trim_end().to_owned();
    serde_json::from_slice(line).map_err(|error| format!("not a command: {error}: {}", text()))
}

#[cfg(test)]
mod tests {
    use super::take_lines;

    #[test]
    fn incomplete_lines_stay_in_the_buffer() {
        let mut buffer = b"one\n\ntwo\nthr".to_vec();
        assert_eq!(take_lines(&mut buffer), [b"one".to_vec(), b"two".to_vec()]);
        assert_eq!(buffer, b"thr");
        assert!(take_lines(&mut buffer).is_empty());
    }
}
