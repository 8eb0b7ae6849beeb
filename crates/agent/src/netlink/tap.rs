// SPDX-License-Identifier: Apache-2.0
//! Queue taps: requests to the kernel module qtap.

use crate::failure::Result;
use crate::netlink::{generic, Batch};
use crate::plan::Plan;
use std::collections::HashMap;

/// kernel/include/uapi/qbed/qtap.h
mod qtap {
    pub const VERSION: u8 = 1;
    pub const ATTACH: u8 = 1;
    pub const FLUSH: u8 = 2;
    pub const PUSH: u8 = 4;
    pub const IFINDEX: u16 = 1;
    pub const ID: u16 = 2;
    pub const FLAGS: u16 = 3;
    pub const INTERVAL: u16 = 4;
    pub const START: u16 = 5;
    pub const BIN_BYTES: u16 = 6;
    pub const BOUNDS: u16 = 9;
    pub const FLAG_EVENTS: u32 = 1;
    pub const FLAG_SOJOURN: u32 = 2;
}

/// The taps of a plan's queues.
pub struct Taps<'a> {
    plan: &'a Plan,
    family: u16,
}

impl<'a> Taps<'a> {
    pub fn find(plan: &'a Plan) -> Result<Self> {
        let family = generic::family("qtap")?;
        Ok(Self { plan, family })
    }

    /// Attaches taps to queues of one node. The thread must be in the node's namespace.
    pub fn attach(&self, queues: &[usize], interfaces: &HashMap<String, u32>) -> Result<()> {
        if queues.is_empty() {
            return Ok(());
        }
        let mut batch = Batch::default();
        let bounds: Vec<u8> =
            self.plan.bounds_ns().iter().flat_map(|ns| (self.plan.epoch_ns + ns).to_ne_bytes()).collect();
        for &id in queues {
            let queue = &self.plan.queues[id];
            let mut flags = if queue.observe.events { qtap::FLAG_EVENTS } else { 0 };
            flags |= if self.plan.sojourn { qtap::FLAG_SOJOURN } else { 0 };
            let header = [qtap::ATTACH, qtap::VERSION, 0, 0];
            batch
                .request(self.family, 0, &header, format!("queue {}: its tap", queue.name))
                .u32(qtap::IFINDEX, interfaces[&queue.interface])
                .u32(qtap::ID, id as u32)
                .u32(qtap::FLAGS, flags)
                .u64(qtap::INTERVAL, queue.observe.interval_ns)
                .u64(qtap::START, self.plan.epoch_ns)
                .u32(qtap::BIN_BYTES, queue.observe.bin_bytes);
            if !bounds.is_empty() {
                batch.attribute(qtap::BOUNDS, &bounds);
            }
        }
        generic::open()?.run(batch)
    }

    /// Makes every tap emit its last interval, summary and histogram.
    pub fn flush(&self) -> Result<()> {
        self.run_command(qtap::FLUSH, "flushing the taps")
    }

    /// Makes every tap emit its complete intervals.
    pub fn push(&self) -> Result<()> {
        self.run_command(qtap::PUSH, "reading the taps")
    }

    fn run_command(&self, command: u8, object: &str) -> Result<()> {
        let mut batch = Batch::default();
        batch.request(self.family, 0, &[command, qtap::VERSION, 0, 0], object);
        generic::open()?.run(batch)
    }
}
