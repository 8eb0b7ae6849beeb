// SPDX-License-Identifier: Apache-2.0
//! Ports of switches in P4 that have no link: to the kernel a link within the switch's own namespace, whose far end never
//! comes up. What the program sends there waits in the port's queue and is taken back by recirculation; what it puts onto
//! the wire all the same is lost, and counted.

use crate::failure::{Of, Result};
use crate::lab::namespaces::Namespaces;
use crate::lab::Interfaces;
use crate::netlink::{link, qdisc, Batch, Netlink};
use crate::plan::pipeline::Parking;
use crate::plan::text::Mac;
use crate::plan::{End, Link, Node, Plan};
use crate::scope::Scope;

fn of(node: &Node) -> &[Parking] {
    node.pipeline.as_ref().map_or(&[], |pipeline| &pipeline.parking)
}

/// Creates those of the nodes that are here.
pub fn create(plan: &Plan, scope: &Scope, namespaces: &Namespaces) -> Result<()> {
    if scope.nodes().all(|node| of(&plan.nodes[node]).is_empty()) {
        return Ok(());
    }
    let mtus = plan.links.iter().flat_map(|link| link.ends().map(|end| (end.node, link.mtu)));
    let mut largest = vec![0; plan.nodes.len()];
    mtus.for_each(|(node, mtu)| largest[node] = mtu.max(largest[node]));
    let mut batch = Batch::default();
    for node in scope.nodes() {
        for parking in of(&plan.nodes[node]) {
            let [near, far] = [parking.interface.clone(), parking.far()];
            let name = format!("port {} of {}", parking.port, plan.nodes[node].name);
            let made = Link { name, mtu: largest[node], a: end(node, near, 0), b: end(node, far, 1) };
            link::request(&mut batch, &made, made.ends(), |node| namespaces.descriptor(node));
        }
    }
    Netlink::open(libc::NETLINK_ROUTE).of(|| "rtnetlink".into())?.run(batch)
}

/// An end that has a name and an address, and no wire.
fn end(node: usize, interface: String, side: u8) -> End {
    let mac = Mac([2, 1, 0, 0, 0, side]);
    let rate_bps = link::AT_ONCE_BPS;
    End {
        node,
        interface,
        mac,
        addresses: vec![],
        rate_bps,
        delay_ns: 0,
        overhead_bytes: 0,
        loss: 0.0,
        queue: 0,
        jitter_ns: 0,
        reordering: false,
    }
}

/// Asks for a node's to have their queues and to come up.
pub fn bring_up(batch: &mut Batch, node: &Node, interfaces: &Interfaces) {
    for parking in of(node) {
        let ifindex = interfaces[&parking.interface];
        let name = format!("{}:{}", node.name, parking.interface);
        qdisc::request(batch, &name, &parking.qdisc, ifindex);
        link::up(batch, ifindex, name);
    }
}
