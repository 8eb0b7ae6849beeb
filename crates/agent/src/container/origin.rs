// SPDX-License-Identifier: Apache-2.0
//! Origin of lab time for a lab that was deployed by hand, without a `go` command.

use crate::failure::{Context, Result};
use nix::sys::time::TimeValLike;
use std::fs;
use std::io::ErrorKind;

/// File in the folder that all nodes of a lab share.
const ORIGIN: &str = "/qbed-lab/origin";

/// Returns the common origin: the time at which the first node called this. That node writes it to `ORIGIN`.
pub fn shared_origin() -> Result<i64> {
    let context = || ORIGIN.to_owned();
    let now =
        nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).with_context(|| "clock".into())?;
    let now_ns = now.num_nanoseconds();
    let temporary = format!("{ORIGIN}.{}-{now_ns}", std::process::id());
    // The hard link makes the write atomic for readers.
    fs::write(&temporary, now_ns.to_string()).with_context(context)?;
    let linked = fs::hard_link(&temporary, ORIGIN);
    let _ = fs::remove_file(&temporary);
    match linked {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error).with_context(context),
        _ => fs::read_to_string(ORIGIN).with_context(context)?.trim().parse().with_context(context),
    }
}
