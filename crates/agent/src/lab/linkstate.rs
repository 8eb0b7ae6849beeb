// SPDX-License-Identifier: Apache-2.0
//! Links that go down and come up while the lab runs.

use crate::failure::{Failure, Of, Result};
use crate::lab;
use crate::netlink::{Batch, Netlink};
use crate::plan::{LinkEvent, LinkState};
use crate::world::World;

/// Sets both ends of a link (those at this agent's nodes), at this instant.
pub fn set(world: &World<'_>, event: &LinkEvent) -> Result<()> {
    let link = &world.plan.links[event.link];
    let ends = [(&link.a, &link.b), (&link.b, &link.a)];
    for (end, peer) in ends.into_iter().filter(|(end, _)| world.plan.carries(end.node)) {
        let node = &world.plan.nodes[end.node];
        let here = || format!("link {}: its end at {}", link.name, node.name);
        world.lab.namespaces.enter(end.node)?;
        let netlink = Netlink::open(libc::NETLINK_ROUTE).of(here)?;
        let interfaces = &world.lab.interfaces[end.node];
        let lost = || Failure::new(format!("{}: the interface is gone", here()));
        let ifindex = *interfaces.get(&end.interface).ok_or_else(lost)?;
        let mut batch = Batch::default();
        match event.state {
            LinkState::Down => lab::flags(&mut batch, ifindex, 0, here()),
            LinkState::Up => {
                lab::flags(&mut batch, ifindex, libc::IFF_UP as u32, here());
                // The kernel forgot them when the link went down: permanent neighbours, IPv6 addresses, routes.
                lab::address_ends(&mut batch, &node.name, end, peer, ifindex);
                lab::routes_of(&mut batch, node, interfaces, |route| {
                    route.via.iter().any(|hop| hop.interface == end.interface)
                });
            }
        }
        netlink.run(batch)?;
    }
    Ok(())
}
