// SPDX-License-Identifier: Apache-2.0
//! The tap stream: /dev/qtap wakes its reader for large pieces only, and they go to `out/taps.bin` as they are.

use crate::failure::{Of, Result};
use crate::results;
use crate::world::{Token, World, READABLE};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;

const DEVICE: &str = "/dev/qtap";
const FILE: &str = "out/taps.bin";
const PIECE: usize = 1 << 20;

pub struct TapStream {
    device: File,
    file: File,
    buffer: Vec<u8>,
}

impl TapStream {
    /// None: this kernel has no taps.
    pub fn open(world: &World<'_>) -> Result<Option<Self>> {
        if !std::path::Path::new(DEVICE).exists() {
            return Ok(None);
        }
        let device = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(DEVICE);
        let device = device.of(|| DEVICE.into())?;
        world.watch(&device, Token::Taps, READABLE).of(|| DEVICE.into())?;
        let file = File::create(results::out("taps.bin")).of(|| FILE.into())?;
        Ok(Some(Self { device, file, buffer: vec![0; PIECE] }))
    }

    /// Moves everything that waits.
    pub fn take(&mut self) -> Result<()> {
        loop {
            match self.device.read(&mut self.buffer) {
                Ok(length) => self.file.write_all(&self.buffer[..length]).of(|| FILE.into())?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error).of(|| DEVICE.into()),
            }
        }
    }

    /// Moves the rest, after a flush.
    pub fn finish(mut self) -> Result<()> {
        self.take()
    }
}
