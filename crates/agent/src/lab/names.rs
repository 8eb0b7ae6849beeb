// SPDX-License-Identifier: Apache-2.0
//! Names of nodes, for programs in an interactive lab and for those that are its workload.

use crate::failure::{Of, Result};
use crate::plan::Plan;
use crate::scope::Scope;
use nix::mount::{mount, MsFlags};
use std::path::Path;

/// Where programs look names up, and what a guest puts in its place.
const HOSTS: &str = "/etc/hosts";
const NAMES: &str = "/run/qbed/hosts";

/// Lets programs call nodes by name: `ping h3`. A node's container has a file of its own, a guest
/// covers the machine's.
pub fn name_nodes(plan: &Plan, scope: &Scope) -> Result<()> {
    let names = hosts_file(plan);
    if scope.on_host_kernel() {
        return std::fs::write(HOSTS, names).of(|| HOSTS.into());
    }
    let here = || format!("naming nodes in {HOSTS}");
    let ours = Path::new(NAMES);
    std::fs::create_dir_all(ours.parent().unwrap_or(ours)).of(here)?;
    std::fs::write(ours, names).of(here)?;
    if !Path::new(HOSTS).exists() {
        return Ok(());
    }
    mount(Some(ours), HOSTS, None::<&str>, MsFlags::MS_BIND, None::<&str>).of(here)
}

fn hosts_file(plan: &Plan) -> String {
    let known = [("127.0.0.1".into(), "localhost"), ("::1".into(), "localhost")];
    let nodes = plan
        .nodes
        .iter()
        .flat_map(|node| node.addresses.iter().map(|address| (address.to_string(), node.name.as_str())));
    known.into_iter().chain(nodes).map(|(address, name)| format!("{address} {name}\n")).collect()
}
