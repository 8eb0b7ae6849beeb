// SPDX-License-Identifier: Apache-2.0
//! The tap on each planned queue.

use crate::failure::{Failure, Of, Result};
use crate::netlink::{attribute, u16_at, Batch, Netlink};
use crate::plan::Plan;
use std::collections::HashMap;

/// linux/genetlink.h
const GENERIC_CONTROL: u16 = 0x10;
const CONTROL_GET_FAMILY: u8 = 3;
const CONTROL_FAMILY_ID: u16 = 1;
const CONTROL_FAMILY_NAME: u16 = 2;
const GENERIC_HEADER_LEN: usize = 4;

/// kernel/include/uapi/qbed/qtap.h
mod qtap {
    pub const VERSION: u8 = 1;
    pub const ATTACH: u8 = 1;
    pub const FLUSH: u8 = 2;
    pub const IFINDEX: u16 = 1;
    pub const ID: u16 = 2;
    pub const FLAGS: u16 = 3;
    pub const INTERVAL: u16 = 4;
    pub const START: u16 = 5;
    pub const BIN_BYTES: u16 = 6;
    pub const FLAG_EVENTS: u32 = 1;
}

/// The taps of a plan's queues.
pub struct Taps<'a> {
    plan: &'a Plan,
    family: u16,
}

impl<'a> Taps<'a> {
    pub fn find(plan: &'a Plan) -> Result<Self> {
        let here = || "kernel module qtap: its netlink family".to_owned();
        let netlink = Netlink::open(libc::NETLINK_GENERIC).of(here)?;
        let mut query = Batch::default();
        query
            .request(GENERIC_CONTROL, libc::NLM_F_ACK, &[CONTROL_GET_FAMILY, 1, 0, 0], "qtap")
            .text(CONTROL_FAMILY_NAME, "qtap");
        let mut family = None;
        netlink
            .dump(query, |_, message| {
                let attributes = message.get(GENERIC_HEADER_LEN..).unwrap_or(&[]);
                family = attribute(attributes, CONTROL_FAMILY_ID).and_then(|id| u16_at(id, 0));
            })
            .of(here)?;
        let family = family.ok_or_else(|| Failure::new(format!("{}: not found", here())))?;
        Ok(Self { plan, family })
    }

    /// Attaches taps to queues of the node in whose namespace the thread is.
    pub fn attach(&self, queues: &[usize], interfaces: &HashMap<String, u32>) -> Result<()> {
        if queues.is_empty() {
            return Ok(());
        }
        let mut batch = Batch::default();
        for &id in queues {
            let queue = &self.plan.queues[id];
            let flags = if queue.observe.events { qtap::FLAG_EVENTS } else { 0 };
            let fixed = [qtap::ATTACH, qtap::VERSION, 0, 0];
            batch
                .request(self.family, 0, &fixed, format!("queue {}: its tap", queue.name))
                .u32(qtap::IFINDEX, interfaces[&queue.interface])
                .u32(qtap::ID, id as u32)
                .u32(qtap::FLAGS, flags)
                .u64(qtap::INTERVAL, queue.observe.interval_ns)
                .u64(qtap::START, self.plan.epoch_ns)
                .u32(qtap::BIN_BYTES, queue.observe.bin_bytes);
        }
        let netlink = Netlink::open(libc::NETLINK_GENERIC).of(|| "generic netlink".into())?;
        netlink.run(batch)
    }

    /// Has every tap emit its last interval, summary and histogram.
    pub fn flush(&self) -> Result<()> {
        let mut batch = Batch::default();
        batch.request(self.family, 0, &[qtap::FLUSH, qtap::VERSION, 0, 0], "flushing the taps");
        Netlink::open(libc::NETLINK_GENERIC).of(|| "generic netlink".into())?.run(batch)
    }
}
