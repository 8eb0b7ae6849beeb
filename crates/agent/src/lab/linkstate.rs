// SPDX-License-Identifier: Apache-2.0
//! Links that go down and come up while the lab runs.

use crate::failure::{Failure, Of, Result};
use crate::lab::{request_routes, Lab};
use crate::netlink::{address, link, Batch, Netlink};
use crate::plan::{LinkEvent, LinkState, Plan};
use crate::scope::Scope;

/// Sets both ends of a link (those at this agent's nodes), at this instant.
pub fn set(plan: &Plan, scope: &Scope, lab: &Lab, event: &LinkEvent) -> Result<()> {
    let planned = &plan.links[event.link];
    let ends = [(&planned.a, &planned.b), (&planned.b, &planned.a)];
    for (end, peer) in ends.into_iter().filter(|(end, _)| scope.has(end.node)) {
        let node = &plan.nodes[end.node];
        let here = || format!("link {}: its end at {}", planned.name, node.name);
        lab.namespaces.enter(end.node)?;
        let netlink = Netlink::open(libc::NETLINK_ROUTE).of(here)?;
        let interfaces = &lab.interfaces[end.node];
        let lost = || Failure::new(format!("{}: the interface is gone", here()));
        let ifindex = *interfaces.get(&end.interface).ok_or_else(lost)?;
        let mut batch = Batch::default();
        match event.state {
            LinkState::Down => link::down(&mut batch, ifindex, here()),
            LinkState::Up => {
                link::up(&mut batch, ifindex, here());
                // The kernel forgot them when the link went down: permanent neighbours, IPv6 addresses, routes.
                address::address_ends(&mut batch, &node.name, end, peer, ifindex);
                request_routes(&mut batch, node, interfaces, |route| {
                    route.via.iter().any(|hop| hop.interface == end.interface)
                });
            }
        }
        netlink.run(batch)?;
    }
    Ok(())
}
