// SPDX-License-Identifier: Apache-2.0
//! What stands here for another agent's nodes: the far ends of our links, at home, each bridged to the interface of the
//! container that leads to the other agent.

use crate::failure::{Failure, Of, Result};
use crate::lab::Interfaces;
use crate::machine;
use crate::netlink::{link, Batch, Netlink};
use crate::plan::{End, Plan};
use crate::scope::{Kernel, Presence, Scope};
use std::borrow::Cow;

/// The name of a link's far device.
fn device(link: usize) -> String {
    format!("far{link}")
}

/// An end of a link as it is here. That of another agent's node transmits as the plan says if it has no qlink of its own
/// (its node is on the host's kernel), else at once: there, rate, delay, jitter and loss have been seen to already.
pub fn as_built<'p>(scope: &Scope, link: usize, end: &'p End) -> Cow<'p, End> {
    let device = || device(link);
    match scope.presence(end.node) {
        Presence::Here => Cow::Borrowed(end),
        Presence::Elsewhere(Kernel::Host) => Cow::Owned(End { interface: device(), ..end.clone() }),
        Presence::Elsewhere(Kernel::Qbed) => Cow::Owned(End {
            interface: device(),
            rate_bps: link::AT_ONCE_BPS,
            delay_ns: 0,
            overhead_bytes: 0,
            loss: 0.0,
            jitter_ns: 0,
            reordering: false,
            ..end.clone()
        }),
    }
}

/// Of another agent's node, what is here, by the plan's names: `home` has it under those of far devices.
pub fn interfaces(plan: &Plan, node: usize, home: &Interfaces) -> Interfaces {
    let links = plan.links.iter().enumerate();
    let ends = links.flat_map(|(index, link)| link.ends().map(|end| (index, end)));
    let far = ends.filter(|(_, end)| end.node == node);
    far.filter_map(|(index, end)| Some((end.interface.clone(), *home.get(&device(index))?))).collect()
}

/// The guest's devices that carry frames to and from the container's interfaces, each with its link's number.
pub fn devices<'p>(plan: &'p Plan, scope: &'p Scope) -> impl Iterator<Item = (String, usize)> + 'p {
    scope.links(plan).enumerate().map(|(number, link)| (format!("vec{number}"), link))
}

/// Joins each link's far device with the device behind which is the container's interface: what comes in at the one
/// goes out at the other.
pub fn bridge(plan: &Plan, scope: &Scope) -> Result<()> {
    let netlink = Netlink::open(libc::NETLINK_ROUTE).of(|| "rtnetlink".into())?;
    let found = link::indexes(&netlink).of(|| "interfaces".into())?;
    let pairs: Vec<_> = devices(plan, scope).map(|(outside, link)| (outside, device(link))).collect();
    let mut batch = Batch::default();
    let mut commands = String::new();
    for (outside, far) in &pairs {
        let ifindex =
            found.get(outside).ok_or_else(|| Failure::new(format!("the guest has no {outside}")))?;
        link::up(&mut batch, *ifindex, outside.clone());
        for (from, to) in [(outside, far), (far, outside)] {
            commands += &format!("qdisc add dev {from} ingress\n");
            commands +=
                &format!("filter add dev {from} ingress matchall action mirred egress redirect dev {to}\n");
        }
    }
    netlink.run(batch)?;
    for (outside, _) in &pairs {
        // Several packets in one large frame would be one to a queue: they are kept apart. A device that comes up joins them
        // anew, so this is said after.
        machine::run("ethtool", &["-K", outside, "gro", "off"], "")?;
    }
    machine::run("tc", &["-batch", "-"], &commands)
}
