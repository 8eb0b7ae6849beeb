// SPDX-License-Identifier: Apache-2.0
//! The root qdisc of each planned queue.

use crate::failure::{Failure, Result};
use crate::machine;
use crate::netlink::Batch;
use crate::plan::text::Hex;
use crate::plan::{Qdisc, Queue};

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

/// Asks for a queue's qdisc, and the one inside it, where the plan gives their options as bytes.
pub fn request(batch: &mut Batch, name: &str, qdisc: &Qdisc, ifindex: u32) {
    tell(batch, name, qdisc, ifindex, libc::NLM_F_CREATE | libc::NLM_F_REPLACE);
}

/// Asks for other parameters of a queue that is there; what waits in it stays.
pub fn change(batch: &mut Batch, name: &str, qdisc: &Qdisc, ifindex: u32) {
    tell(batch, name, qdisc, ifindex, 0);
}

fn tell(batch: &mut Batch, name: &str, qdisc: &Qdisc, ifindex: u32, flags: i32) {
    let Qdisc::Raw { kind, options, child } = qdisc else {
        return;
    };
    write(batch, [ifindex, HANDLE, ROOT], kind, options, (flags, format!("queue {name} (qdisc {kind})")));
    if let Some(child) = child {
        let object = format!("queue {name} (qdisc {} in {kind})", child.kind);
        write(batch, [ifindex, CHILD_HANDLE, CLASS], &child.kind, &child.options, (flags, object));
    }
}

/// A qdisc with a handle, below a parent.
fn write(
    batch: &mut Batch,
    [ifindex, handle, parent]: [u32; 3],
    kind: &str,
    options: &Hex,
    (flags, object): (i32, String),
) {
    let mut fixed = [0u8; TCMSG_LEN];
    fixed[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    fixed[8..12].copy_from_slice(&handle.to_ne_bytes());
    fixed[12..16].copy_from_slice(&parent.to_ne_bytes());
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
    machine::run("tc", &arguments, "")
        .map_err(|failure| Failure::new(format!("queue {}: {failure}", queue.name)))
}
