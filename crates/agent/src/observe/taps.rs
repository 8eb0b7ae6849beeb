// SPDX-License-Identifier: Apache-2.0
//! The tap stream: /dev/qtap wakes its reader for large pieces only, and they go to `out/taps.bin` as they are.

use crate::failure::{Of, Result};
use crate::results::files;
use crate::world::token::{Part, Token};
use crate::world::{World, READABLE};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;

const DEVICE: &str = "/dev/qtap";
const FILE: &str = "out/taps.bin";
const PIECE: usize = 1 << 20;
/// On the wall clock it is moved this often (real time), however little waits.
const INTERVAL_NS: u64 = 100_000_000;

pub struct TapStream {
    device: File,
    file: File,
    buffer: Vec<u8>,
}

impl TapStream {
    /// None: this kernel has no taps.
    pub fn open(world: &mut World<'_>) -> Result<Option<Self>> {
        if !std::path::Path::new(DEVICE).exists() {
            return Ok(None);
        }
        let device = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(DEVICE);
        let device = device.of(|| DEVICE.into())?;
        let token = world.topic(Part::Taps).only();
        world.watch(&device, token, READABLE).of(|| DEVICE.into())?;
        let file = File::create(files::out("taps.bin")).of(|| FILE.into())?;
        if world.scope.on_wall_clock() {
            world.agenda.add(world.plan.epoch_ns, token);
        }
        Ok(Some(Self { device, file, buffer: vec![0; PIECE] }))
    }

    /// Moves what waits, and will again: for those who follow the stream while the lab runs.
    pub fn on_timer(&mut self, world: &mut World<'_>, token: Token, due_ns: u64) -> Result<()> {
        world.agenda.add(due_ns + world.scope.real_ns(INTERVAL_NS), token);
        self.take()
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
