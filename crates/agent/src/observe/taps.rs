// SPDX-License-Identifier: Apache-2.0
//! The tap stream: copies /dev/qtap to `out/taps.bin`. The device wakes its reader only when much data is available.

use crate::failure::{Context, Result};
use crate::results::files;
use crate::world::token::{Part, Token};
use crate::world::{World, READABLE};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;

const DEVICE: &str = "/dev/qtap";
const FILE: &str = "out/taps.bin";
const BUFFER_BYTES: usize = 1 << 20;
/// Interval of reads on the wall clock (real time), for live readers.
const INTERVAL_NS: u64 = 100_000_000;

pub struct TapStream {
    device: File,
    file: File,
    buffer: Vec<u8>,
}

impl TapStream {
    /// Returns None if the kernel has no taps.
    pub fn open(world: &mut World<'_>) -> Result<Option<Self>> {
        if !std::path::Path::new(DEVICE).exists() {
            return Ok(None);
        }
        let device = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(DEVICE);
        let device = device.with_context(|| DEVICE.into())?;
        let token = world.topic(Part::Taps).only();
        world.watch(&device, token, READABLE).with_context(|| DEVICE.into())?;
        let file = File::create(files::out_path("taps.bin")).with_context(|| FILE.into())?;
        if world.placement.on_wall_clock() {
            world.agenda.add(world.plan.epoch_ns, token);
        }
        Ok(Some(Self { device, file, buffer: vec![0; BUFFER_BYTES] }))
    }

    /// Copies available data and schedules the next read.
    pub fn on_timer(&mut self, world: &mut World<'_>, token: Token, due_ns: u64) -> Result<()> {
        world.agenda.add(due_ns + world.placement.to_lab_ns(INTERVAL_NS), token);
        self.drain()
    }

    /// Copies all available data.
    pub fn drain(&mut self) -> Result<()> {
        loop {
            match self.device.read(&mut self.buffer) {
                Ok(length) => self.file.write_all(&self.buffer[..length]).with_context(|| FILE.into())?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error).with_context(|| DEVICE.into()),
            }
        }
    }

    /// Copies the rest, after a flush.
    pub fn finish(mut self) -> Result<()> {
        self.drain()
    }
}
