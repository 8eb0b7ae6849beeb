// SPDX-License-Identifier: Apache-2.0
//! Changes of links, queues and hosts while the lab runs.

use crate::failure::{Context, Failure, Result};
use crate::lab::{sysctls, Lab};
use crate::netlink::{link, qdisc, Batch, Netlink};
use crate::placement::{Kernel, Location, Placement};
use crate::plan::{ChangeKind, Plan, CONGESTION_CONTROL};

/// Applies a change, if its object is local. Open sockets are changed by their transport.
pub fn apply(plan: &Plan, placement: &Placement, lab: &Lab, kind: &ChangeKind) -> Result<()> {
    if !is_local(plan, placement, lab, kind) {
        return Ok(());
    }
    match kind {
        ChangeKind::Link(change) => {
            let planned = &plan.links[change.link];
            let end = planned.end(change.end);
            let object = format!("link {}: its end at {}", planned.name, plan.nodes[end.node].name);
            run_request(lab, end.node, &end.interface, object.clone(), |batch, ifindex| {
                link::change(batch, ifindex, change, object);
            })
        }
        ChangeKind::Queue(change) => {
            let queue = &plan.queues[change.queue];
            run_request(
                lab,
                queue.node,
                &queue.interface,
                format!("queue {}", queue.name),
                |batch, ifindex| {
                    qdisc::change(batch, &queue.name, &change.qdisc, ifindex);
                },
            )
        }
        ChangeKind::Node(change) => {
            lab.namespaces.enter(change.node)?;
            let sysctls = [(CONGESTION_CONTROL.to_owned(), change.congestion_control.clone())].into();
            sysctls::write_sysctls(&format!("node {}", plan.nodes[change.node].name), &sysctls, |_| true)
        }
    }
}

/// Whether this agent applies a change. Link ends and queues need the lab's kernel: those of a node on the container
/// host's kernel are in the guests of its neighbours, each of which has the stub of its own link.
fn is_local(plan: &Plan, placement: &Placement, lab: &Lab, kind: &ChangeKind) -> bool {
    let (node, interface) = match kind {
        ChangeKind::Node(change) => return placement.is_local(change.node),
        ChangeKind::Link(change) => {
            let end = plan.links[change.link].end(change.end);
            (end.node, &end.interface)
        }
        ChangeKind::Queue(change) => {
            let queue = &plan.queues[change.queue];
            (queue.node, &queue.interface)
        }
    };
    match placement.location(node) {
        Location::Local => !placement.on_host_kernel(),
        Location::Remote(Kernel::Host) => lab.interfaces[node].contains_key(interface),
        Location::Remote(Kernel::Qbed) | Location::InPart(_) => false,
    }
}

/// Runs one netlink request on an interface of a node.
fn run_request(
    lab: &Lab,
    node: usize,
    interface: &str,
    object: String,
    request: impl FnOnce(&mut Batch, u32),
) -> Result<()> {
    let ifindex = lab.interfaces[node].get(interface);
    let ifindex = *ifindex.ok_or_else(|| Failure::new(format!("{object}: the interface does not exist")))?;
    lab.namespaces.enter(node)?;
    let netlink = Netlink::open(libc::NETLINK_ROUTE).with_context(|| object)?;
    let mut batch = Batch::default();
    request(&mut batch, ifindex);
    netlink.run(batch)
}
