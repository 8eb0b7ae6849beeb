// SPDX-License-Identifier: Apache-2.0
//! Packet captures in nanosecond pcap. The kernel timestamps and buffers the frames. The agent reads them
//! periodically, so that a captured packet does not wake it.

use crate::failure::{Context, Failure, Result};
use crate::results::files;
use crate::socket::{self, Datagram, ReceiveBatch};
use crate::world::token::{Part, Token};
use crate::world::World;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::OwnedFd;

/// Interval of reads: a 100 Gb/s link in both directions stays far below BUFFER_BYTES.
const DRAIN_INTERVAL_NS: u64 = 1_000_000;
const BUFFER_BYTES: i32 = 128 << 20;
/// Magic number of pcap with nanosecond timestamps.
const MAGIC: u32 = 0xa1b2_3c4d;
const LINKTYPE_ETHERNET: u32 = 1;
/// Larger than any frame.
const SNAPLEN_MAX: u32 = 65_536;

struct Capture {
    name: String,
    socket: OwnedFd,
    batch: ReceiveBatch,
    file: BufWriter<File>,
}

pub struct Captures {
    captures: Vec<Capture>,
    drains: Token,
}

impl Captures {
    /// Opens the sockets and schedules the first read.
    pub fn open(world: &mut World<'_>) -> Result<Self> {
        let open = |plan: &crate::plan::Capture| {
            let name = format!("capture {}", plan.name);
            world.lab.namespaces.enter(plan.node)?;
            let ifindex = world.lab.interfaces[plan.node][&plan.interface];
            let socket = open_socket(ifindex).with_context(|| name.clone())?;
            let snaplen = plan.snaplen.min(SNAPLEN_MAX);
            let mut file = files::create(&format!("{}.pcap", plan.name.replace(':', "-")))?;
            file.write_all(&file_header(snaplen)).with_context(|| name.clone())?;
            Ok(Capture { name, socket, batch: ReceiveBatch::new(snaplen as usize), file })
        };
        let local = world.plan.captures.iter().filter(|plan| world.placement.is_local(plan.node));
        let captures = local.map(open).collect::<Result<_>>()?;
        let captures = Self { captures, drains: world.topic(Part::Captures).only() };
        captures.schedule(world);
        Ok(captures)
    }

    fn schedule(&self, world: &mut World<'_>) {
        if !self.captures.is_empty() {
            world.agenda.add(world.now_ns().max(world.plan.epoch_ns) + DRAIN_INTERVAL_NS, self.drains);
        }
    }

    pub fn on_timer(&mut self, world: &mut World<'_>) -> Result<()> {
        self.drain(world)?;
        self.schedule(world);
        Ok(())
    }

    fn drain(&mut self, world: &World<'_>) -> Result<()> {
        self.captures.iter_mut().try_for_each(|capture| capture.drain(world))
    }

    pub fn finish(&mut self, world: &World<'_>) -> Result<()> {
        self.drain(world)?;
        for capture in &mut self.captures {
            capture.file.flush().with_context(|| capture.name.clone())?;
            let statistics: libc::tpacket_stats =
                socket::get(&capture.socket, libc::SOL_PACKET, libc::PACKET_STATISTICS)
                    .with_context(|| capture.name.clone())?;
            if statistics.tp_drops > 0 {
                let lost = format!("{}: {} frames were lost", capture.name, statistics.tp_drops);
                return Err(Failure::new(lost));
            }
        }
        Ok(())
    }
}

impl Capture {
    fn drain(&mut self, world: &World<'_>) -> Result<()> {
        let mut result = Ok(());
        let file = &mut self.file;
        let mut each = |frame: Datagram<'_>| {
            // Frames before the epoch are part of the set-up.
            if let Ok(time_ns) = u64::try_from(world.timestamp_since_epoch(frame.time_ns)) {
                let header = frame_header(time_ns, frame.bytes.len() as u32, frame.length as u32);
                let written = file.write_all(&header).and_then(|()| file.write_all(frame.bytes));
                result = std::mem::replace(&mut result, Ok(())).and(written);
            }
        };
        while let Err(error) = self.batch.drain(&self.socket, &mut each) {
            // Reported once when the link goes down. Frames captured before are still in the socket, and the capture
            // continues when the link is up again.
            if error.raw_os_error() != Some(libc::ENETDOWN) {
                return Err(error).with_context(|| self.name.clone());
            }
        }
        result.with_context(|| self.name.clone())
    }
}

fn open_socket(ifindex: u32) -> io::Result<OwnedFd> {
    let fd = socket::open(libc::AF_PACKET, libc::SOCK_RAW, 0)?;
    socket::set(&fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, BUFFER_BYTES)?;
    socket::set(&fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)?;
    socket::bind_link(&fd, ifindex)?;
    Ok(fd)
}

fn words<const N: usize>(words: [u32; N]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn file_header(snaplen: u32) -> Vec<u8> {
    const VERSION_2_4: u32 = 2 | 4 << 16;
    words([MAGIC, VERSION_2_4, 0, 0, snaplen, LINKTYPE_ETHERNET])
}

fn frame_header(time_ns: u64, captured: u32, length: u32) -> Vec<u8> {
    let (seconds, nanoseconds) = (time_ns / 1_000_000_000, time_ns % 1_000_000_000);
    words([seconds as u32, nanoseconds as u32, captured, length])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_nanosecond_pcap() {
        assert_eq!(file_header(128)[..8], [0x4d, 0x3c, 0xb2, 0xa1, 2, 0, 4, 0]);
        assert_eq!(file_header(128).len(), 24);
        assert_eq!(frame_header(3_000_000_005, 64, 1514), words([3, 5, 64, 1514]));
    }
}
