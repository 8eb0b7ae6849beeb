// SPDX-License-Identifier: Apache-2.0
//! Recirculation ports of P4 switches. In the kernel such a port is a link within the switch's namespace whose peer
//! end stays down. Packets wait in the port's queue and are recirculated; packets that reach the wire are dropped and
//! counted.

use crate::failure::{Context, Result};
use crate::lab::namespaces::Namespaces;
use crate::lab::Interfaces;
use crate::netlink::{link, qdisc, Batch, Netlink};
use crate::placement::Placement;
use crate::plan::pipeline::RecirculationPort;
use crate::plan::text::Mac;
use crate::plan::{End, Link, Node, Plan};

fn ports(node: &Node) -> &[RecirculationPort] {
    node.pipeline.as_ref().map_or(&[], |pipeline| &pipeline.recirculation)
}

/// Creates the recirculation ports of local nodes.
pub fn create(plan: &Plan, placement: &Placement, namespaces: &Namespaces) -> Result<()> {
    if placement.local_nodes().all(|node| ports(&plan.nodes[node]).is_empty()) {
        return Ok(());
    }
    let mtus = plan.links.iter().flat_map(|link| link.ends().map(|end| (end.node, link.mtu)));
    let mut largest = vec![0; plan.nodes.len()];
    mtus.for_each(|(node, mtu)| largest[node] = mtu.max(largest[node]));
    let mut batch = Batch::default();
    for node in placement.local_nodes() {
        for port in ports(&plan.nodes[node]) {
            let [interface, peer] = [port.interface.clone(), port.peer()];
            let name = format!("port {} of {}", port.port, plan.nodes[node].name);
            let link = Link { name, mtu: largest[node], a: end(node, interface, 0), b: end(node, peer, 1) };
            link::request(&mut batch, &link, link.ends(), None, |node| namespaces.descriptor(node));
        }
    }
    Netlink::open(libc::NETLINK_ROUTE).with_context(|| "rtnetlink".into())?.run(batch)
}

/// A link end without addresses and without a rate limit.
fn end(node: usize, interface: String, side: u8) -> End {
    let mac = Mac([2, 1, 0, 0, 0, side]);
    let rate_bps = link::RATE_NONE_BPS;
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

/// Requests the queues of a node's recirculation ports and brings them up.
pub fn bring_up(batch: &mut Batch, node: &Node, interfaces: &Interfaces) {
    for port in ports(node) {
        let ifindex = interfaces[&port.interface];
        let name = format!("{}:{}", node.name, port.interface);
        qdisc::request(batch, &name, &port.qdisc, ifindex);
        link::up(batch, ifindex, name);
    }
}
