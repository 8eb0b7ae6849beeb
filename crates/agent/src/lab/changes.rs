// SPDX-License-Identifier: Apache-2.0
//! Links, queues and hosts that have other settings from some instant on.

use crate::failure::{Failure, Of, Result};
use crate::lab::{sysctls, Lab};
use crate::netlink::{link, qdisc, Batch, Netlink};
use crate::plan::{Changed, Plan, CONGESTION_CONTROL};
use crate::scope::{Kernel, Presence, Scope};

/// Makes a change of what this agent has, at this instant. (Sockets that are open are their transport's.)
pub fn make(plan: &Plan, scope: &Scope, lab: &Lab, what: &Changed) -> Result<()> {
    if !is_here(plan, scope, lab, what) {
        return Ok(());
    }
    match what {
        Changed::Link(change) => {
            let planned = &plan.links[change.link];
            let end = planned.end(change.end);
            let object = format!("link {}: its end at {}", planned.name, plan.nodes[end.node].name);
            ask(lab, end.node, &end.interface, object.clone(), |batch, ifindex| {
                link::change(batch, ifindex, change, object);
            })
        }
        Changed::Queue(change) => {
            let queue = &plan.queues[change.queue];
            ask(lab, queue.node, &queue.interface, format!("queue {}", queue.name), |batch, ifindex| {
                qdisc::change(batch, &queue.name, &change.qdisc, ifindex);
            })
        }
        Changed::Node(change) => {
            lab.namespaces.enter(change.node)?;
            let wanted = [(CONGESTION_CONTROL.to_owned(), change.congestion_control.clone())].into();
            sysctls::write_sysctls(&format!("node {}", plan.nodes[change.node].name), &wanted, |_| true)
        }
    }
}

/// A host is where its agent is. A link's end and a queue are in a kernel of ours: of a node on the container host's, in
/// the guest of each neighbour, which has the far end of its own link only.
fn is_here(plan: &Plan, scope: &Scope, lab: &Lab, what: &Changed) -> bool {
    let (node, interface) = match what {
        Changed::Node(change) => return scope.has(change.node),
        Changed::Link(change) => {
            let end = plan.links[change.link].end(change.end);
            (end.node, &end.interface)
        }
        Changed::Queue(change) => {
            let queue = &plan.queues[change.queue];
            (queue.node, &queue.interface)
        }
    };
    match scope.presence(node) {
        Presence::Here => !scope.on_host_kernel(),
        Presence::Elsewhere(Kernel::Host) => lab.interfaces[node].contains_key(interface),
        Presence::Elsewhere(Kernel::Qbed) => false,
    }
}

fn ask(
    lab: &Lab,
    node: usize,
    interface: &str,
    object: String,
    request: impl FnOnce(&mut Batch, u32),
) -> Result<()> {
    let ifindex = lab.interfaces[node].get(interface);
    let ifindex = *ifindex.ok_or_else(|| Failure::new(format!("{object}: the interface is gone")))?;
    lab.namespaces.enter(node)?;
    let netlink = Netlink::open(libc::NETLINK_ROUTE).of(|| object)?;
    let mut batch = Batch::default();
    request(&mut batch, ifindex);
    netlink.run(batch)
}
