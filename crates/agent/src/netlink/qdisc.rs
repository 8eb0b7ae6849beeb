// SPDX-License-Identifier: Apache-2.0
//! Requests for the root qdiscs of queues.

use crate::failure::{Failure, Result};
use crate::netlink::Batch;
use crate::plan::text::Hex;
use crate::plan::{Qdisc, Queue};
use crate::subprocess;

/// linux/rtnetlink.h
pub const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
/// `struct tcmsg`
pub const TCMSG_LEN: usize = 20;
pub const ROOT: u32 = 0xffff_ffff;
/// Handle `1:`, so that users can add filters and classes.
const HANDLE: u32 = 0x1_0000;
/// Class `1:1`, and the handle of the child qdisc in it.
const CLASS: u32 = 0x1_0001;
const CHILD_HANDLE: u32 = 0x2_0000;

/// Requests the creation of a queue's qdisc and its child. Does nothing for `Qdisc::Tc`.
pub fn request(batch: &mut Batch, name: &str, qdisc: &Qdisc, ifindex: u32) {
    request_all(batch, name, qdisc, ifindex, libc::NLM_F_CREATE | libc::NLM_F_REPLACE);
}

/// Requests new parameters of an existing qdisc. Packets in the queue are kept.
pub fn change(batch: &mut Batch, name: &str, qdisc: &Qdisc, ifindex: u32) {
    request_all(batch, name, qdisc, ifindex, 0);
}

fn request_all(batch: &mut Batch, name: &str, qdisc: &Qdisc, ifindex: u32, flags: i32) {
    let Qdisc::Raw { kind, options, child } = qdisc else {
        return;
    };
    request_one(
        batch,
        [ifindex, HANDLE, ROOT],
        kind,
        options,
        (flags, format!("queue {name} (qdisc {kind})")),
    );
    if let Some(child) = child {
        let object = format!("queue {name} (qdisc {} in {kind})", child.kind);
        request_one(batch, [ifindex, CHILD_HANDLE, CLASS], &child.kind, &child.options, (flags, object));
    }
}

/// Requests a qdisc with a handle at a parent.
fn request_one(
    batch: &mut Batch,
    [ifindex, handle, parent]: [u32; 3],
    kind: &str,
    options: &Hex,
    (flags, object): (i32, String),
) {
    let mut header = [0u8; TCMSG_LEN];
    header[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    header[8..12].copy_from_slice(&handle.to_ne_bytes());
    header[12..16].copy_from_slice(&parent.to_ne_bytes());
    batch.request(libc::RTM_NEWQDISC, flags, &header, object).text(TCA_KIND, kind);
    // Without options a qdisc uses its defaults. Some qdiscs reject an empty attribute.
    if !options.0.is_empty() {
        batch.attribute(TCA_OPTIONS, &options.0);
    }
}

/// Runs the `tc` command of a `Qdisc::Tc` in the thread's current namespace.
pub fn run_tc(queue: &Queue) -> Result<()> {
    let Qdisc::Tc(tc) = &queue.qdisc else {
        return Ok(());
    };
    let root = ["qdisc", "replace", "dev", &queue.interface, "root"];
    let arguments: Vec<&str> = root.into_iter().chain(tc.iter().map(String::as_str)).collect();
    subprocess::run("tc", &arguments, "")
        .map_err(|failure| Failure::new(format!("queue {}: {failure}", queue.name)))
}
