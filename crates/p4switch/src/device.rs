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
