// SPDX-License-Identifier: Apache-2.0
//! /etc/hosts with the names of all nodes, for interactive labs and launches.

use crate::failure::{Context, Result};
use crate::placement::Placement;
use crate::plan::Plan;
use nix::mount::{mount, MsFlags};
use std::path::Path;

const HOSTS: &str = "/etc/hosts";
/// File that a guest mounts over /etc/hosts.
const REPLACEMENT: &str = "/run/qbed/hosts";

/// Makes node names resolvable (`ping h3`). A container on the host's kernel overwrites its file; a guest mounts over
/// the machine's.
pub fn write(plan: &Plan, placement: &Placement) -> Result<()> {
    let content = content(plan);
    if placement.on_host_kernel() {
        return std::fs::write(HOSTS, content).with_context(|| HOSTS.into());
    }
    let context = || format!("writing node names to {HOSTS}");
    let replacement = Path::new(REPLACEMENT);
    std::fs::create_dir_all(replacement.parent().unwrap_or(replacement)).with_context(context)?;
    std::fs::write(replacement, content).with_context(context)?;
    if !Path::new(HOSTS).exists() {
        return Ok(());
    }
    mount(Some(replacement), HOSTS, None::<&str>, MsFlags::MS_BIND, None::<&str>).with_context(context)
}

fn content(plan: &Plan) -> String {
    let local = [("127.0.0.1".into(), "localhost"), ("::1".into(), "localhost")];
    let nodes = plan
        .nodes
        .iter()
        .flat_map(|node| node.addresses.iter().map(|address| (address.to_string(), node.name.as_str())));
    local.into_iter().chain(nodes).map(|(address, name)| format!("{address} {name}\n")).collect()
}
