// SPDX-License-Identifier: Apache-2.0
//! The root qdisc of each planned queue, and the tap on it.

use crate::failure::{Failure, Of, Result};
use crate::netlink::{attribute, u16_at, Batch, Netlink};
use crate::plan::{Hex, Plan, Qdisc, Queue};
use std::collections::HashMap;
use std::io::Write;
use std::process::{Command, Stdio};

/// linux/rtnetlink.h
pub const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
/// `struct tcmsg`
pub const TCMSG_LEN: usize = 20;
pub const ROOT: u32 = 0xffff_ffff;
/// Handle `1:`, so that filters and classes can be added by hand.
const HANDLE: u32 = 0x1_0000;
/// Its class `1:1`, and the handle of the qdisc inside.
const CLASS: u32 = 0x1_0001;
const CHILD_HANDLE: u32 = 0x2_0000;

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

/// Asks for a queue's qdisc, and the one inside it, where the plan gives their options as bytes.
pub fn request(batch: &mut Batch, queue: &Queue, ifindex: u32) {
    let Qdisc::Raw { kind, options, child } = &queue.qdisc else {
        return;
    };
    let name = &queue.name;
    create(batch, [ifindex, HANDLE, ROOT], kind, options, format!("queue {name} (qdisc {kind})"));
    if let Some(child) = child {
        let object = format!("queue {name} (qdisc {} in {kind})", child.kind);
        create(batch, [ifindex, CHILD_HANDLE, CLASS], &child.kind, &child.options, object);
    }
}

/// A qdisc with a handle, below a parent.
fn create(batch: &mut Batch, [ifindex, handle, parent]: [u32; 3], kind: &str, options: &Hex, object: String) {
    let mut fixed = [0u8; TCMSG_LEN];
    fixed[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    fixed[8..12].copy_from_slice(&handle.to_ne_bytes());
    fixed[12..16].copy_from_slice(&parent.to_ne_bytes());
    let flags = libc::NLM_F_CREATE | libc::NLM_F_REPLACE;
    batch.request(libc::RTM_NEWQDISC, flags, &fixed, object).text(TCA_KIND, kind);
    // Without options a qdisc takes its defaults; an empty attribute would be malformed to some.
    if !options.0.is_empty() {
        batch.attribute(TCA_OPTIONS, &options.0);
    }
}

/// Runs `tc` in the namespace where the thread is, where the plan gives a command.
pub fn run_tc(queue: &Queue) -> Result<()> {
    let Qdisc::Tc(tc) = &queue.qdisc else {
        return Ok(());
    };
    let root = ["qdisc", "replace", "dev", &queue.interface, "root"];
    let arguments: Vec<&str> = root.into_iter().chain(tc.iter().map(String::as_str)).collect();
    run("tc", &arguments, "").map_err(|failure| Failure::new(format!("queue {}: {failure}", queue.name)))
}

/// Runs a program of the machine to its end, in the namespace where the thread is.
pub fn run(program: &str, arguments: &[&str], input: &str) -> Result<()> {
    let here = || format!("{program} {}", arguments.join(" "));
    let mut command = Command::new(program);
    command.args(arguments).env("PATH", crate::programs::exec::PATH);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().of(here)?;
    let mut stdin = child.stdin.take().ok_or_else(|| Failure::new(format!("{}: no stdin", here())))?;
    stdin.write_all(input.as_bytes()).of(here)?;
    drop(stdin);
    let output = child.wait_with_output().of(here)?;
    if output.status.success() {
        return Ok(());
    }
    Err(Failure::new(format!("{}: {}", here(), String::from_utf8_lossy(&output.stderr).trim())))
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
