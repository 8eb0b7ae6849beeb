// SPDX-License-Identifier: Apache-2.0
//! Takes links down and up while the lab runs.

use crate::failure::{Context, Failure, Result};
use crate::lab::{request_routes, Lab};
use crate::netlink::{address, link, Batch, Netlink};
use crate::placement::Placement;
use crate::plan::{LinkEvent, LinkState, Plan};

/// Sets the state of a link's local ends.
pub fn set(plan: &Plan, placement: &Placement, lab: &Lab, event: &LinkEvent) -> Result<()> {
    let planned = &plan.links[event.link];
    let ends = [(&planned.a, &planned.b), (&planned.b, &planned.a)];
    for (end, peer) in ends.into_iter().filter(|(end, _)| placement.is_local(end.node)) {
        let node = &plan.nodes[end.node];
        let context = || format!("link {}: its end at {}", planned.name, node.name);
        lab.namespaces.enter(end.node)?;
        let netlink = Netlink::open(libc::NETLINK_ROUTE).with_context(context)?;
        let interfaces = &lab.interfaces[end.node];
        let missing = || Failure::new(format!("{}: the interface does not exist", context()));
        let ifindex = *interfaces.get(&end.interface).ok_or_else(missing)?;
        let mut batch = Batch::default();
        match event.state {
            LinkState::Down => link::down(&mut batch, ifindex, context()),
            LinkState::Up => {
                link::up(&mut batch, ifindex, context());
                // The kernel has removed permanent neighbours, IPv6 addresses and routes when the link went down.
                address::configure_end(&mut batch, &node.name, end, peer, ifindex);
                request_routes(&mut batch, node, interfaces, |route| {
                    route.via.iter().any(|hop| hop.interface == end.interface)
                });
            }
        }
        netlink.run(batch)?;
    }
    Ok(())
}
