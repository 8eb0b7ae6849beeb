// SPDX-License-Identifier: Apache-2.0
//! Peer stubs: if the peer of a link is a remote node, a stub device in the root namespace is the link's other end. In a
//! container it is bridged to the interface to the remote agent. In a part of a lab in virtual time, qlink exchanges its
//! frames with the other part.

use crate::failure::{Context, Failure, Result};
use crate::lab::Interfaces;
use crate::netlink::link::{self, Cut};
use crate::netlink::{Batch, Netlink};
use crate::placement::{Kernel, Location, Placement};
use crate::plan::{End, Plan};
use crate::subprocess;
use std::borrow::Cow;

/// Name of a link's stub device.
fn stub_name(link: usize) -> String {
    format!("peer{link}")
}

/// A link end as this agent creates it. A stub for a node on the host's kernel transmits with the plan's settings,
/// because that node has no qlink. A stub for a remote guest forwards immediately, because the guest's qlink has
/// already applied rate, delay, jitter and loss.
pub fn local_end<'p>(placement: &Placement, link: usize, end: &'p End) -> Cow<'p, End> {
    match placement.location(end.node) {
        Location::Local => Cow::Borrowed(end),
        Location::Remote(Kernel::Host) | Location::InPart(_) => {
            Cow::Owned(End { interface: stub_name(link), ..end.clone() })
        }
        Location::Remote(Kernel::Qbed) => Cow::Owned(End {
            interface: stub_name(link),
            rate_bps: link::RATE_NONE_BPS,
            delay_ns: 0,
            overhead_bytes: 0,
            loss: 0.0,
            jitter_ns: 0,
            reordering: false,
            ..end.clone()
        }),
    }
}

/// How qlink exchanges the frames of a link with another part; None if both ends are in this part, or in a container.
pub fn cut(plan: &Plan, placement: &Placement, link: usize) -> Option<Cut> {
    plan.links[link].ends().into_iter().find_map(|end| match placement.location(end.node) {
        Location::InPart(part) => Some(Cut { part, link: link as u32 }),
        Location::Local | Location::Remote(_) => None,
    })
}

/// Stubs of remote nodes, by node and by the plan's interface names. The thread is in the root namespace, which has them.
pub fn find(plan: &Plan, placement: &Placement) -> Result<Vec<Interfaces>> {
    let mut stubs = vec![Interfaces::new(); plan.nodes.len()];
    if placement.is_complete() {
        return Ok(stubs);
    }
    let context = || "the stubs of links".into();
    let netlink = Netlink::open(libc::NETLINK_ROUTE).with_context(context)?;
    let root = link::indexes(&netlink).with_context(context)?;
    for index in placement.local_links(plan) {
        for end in plan.links[index].ends().into_iter().filter(|end| !placement.is_local(end.node)) {
            let name = stub_name(index);
            let ifindex = root.get(&name).ok_or_else(|| Failure::new(format!("{name} was not created")))?;
            stubs[end.node].insert(end.interface.clone(), *ifindex);
        }
    }
    Ok(stubs)
}

/// The guest's vector devices (`vec0`, `vec1`, ...), which are attached to the container's interfaces, with their
/// links.
pub fn vector_devices<'p>(
    plan: &'p Plan,
    placement: &'p Placement,
) -> impl Iterator<Item = (String, usize)> + 'p {
    placement.local_links(plan).enumerate().map(|(number, link)| (format!("vec{number}"), link))
}

/// Connects each link's stub with its vector device.
pub fn bridge(plan: &Plan, placement: &Placement) -> Result<()> {
    let netlink = Netlink::open(libc::NETLINK_ROUTE).with_context(|| "rtnetlink".into())?;
    let found = link::indexes(&netlink).with_context(|| "interfaces".into())?;
    let index =
        |name: &str| found.get(name).copied().ok_or_else(|| Failure::new(format!("the guest has no {name}")));
    let pairs: Vec<_> =
        vector_devices(plan, placement).map(|(vector, link)| (vector, stub_name(link))).collect();
    let mut batch = Batch::default();
    for (vector, stub) in &pairs {
        link::border(&mut batch, index(stub)?, index(vector)?, format!("{stub} at {vector}"));
        link::up(&mut batch, index(vector)?, vector.clone());
    }
    netlink.run(batch)?;
    if !placement.merges_frames() {
        // Bringing a device up enables GRO.
        for device in pairs.iter().flat_map(|(vector, stub)| [vector, stub]) {
            subprocess::run("ethtool", &["-K", device, "gro", "off"], "")?;
        }
    }
    Ok(())
}
