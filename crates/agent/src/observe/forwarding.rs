// SPDX-License-Identifier: Apache-2.0
//! Forwarding tables as the kernel has them: what its messages say, and whether every node can send where its plan
//! expects it to.

use crate::failure::{Failure, Of, Result};
use crate::netlink::address::{family, octets};
use crate::netlink::{attribute, attributes, u16_at, u32_at, Batch, Netlink};
use crate::plan::text::Prefix;
use crate::plan::{Expectation, NodeKind, Plan};
use crate::world::World;
use std::io;
use std::net::IpAddr;

/// linux/rtnetlink.h
const RTMSG_LEN: usize = 12;
const RTM_F_FIB_MATCH: u32 = 0x2000;
const RTNH_F_DEAD: u8 = 1;
const RTNH_F_LINKDOWN: u8 = 16;
const RTNH_LEN: usize = 8;
const RTA_VIA: u16 = 18;

/// A route as a message of rtnetlink says it.
#[derive(Debug, PartialEq, Eq)]
pub struct Route {
    pub to: Prefix,
    pub table: u32,
    pub protocol: u8,
    pub unicast: bool,
    pub hops: Vec<Hop>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Hop {
    pub ifindex: u32,
    pub gateway: Option<IpAddr>,
    /// Neither it nor its link is down.
    pub alive: bool,
}

impl Route {
    /// Reads the payload of an RTM_NEWROUTE or RTM_DELROUTE. None: not of IPv4 or IPv6.
    pub fn read(message: &[u8]) -> Option<Self> {
        let fixed = message.get(..RTMSG_LEN)?;
        let rest = &message[RTMSG_LEN..];
        let address = match i32::from(fixed[0]) {
            libc::AF_INET => attribute(rest, libc::RTA_DST).map_or(Some([0; 4].into()), ip)?,
            libc::AF_INET6 => attribute(rest, libc::RTA_DST).map_or(Some([0; 16].into()), ip)?,
            _ => return None,
        };
        let hops = match attribute(rest, libc::RTA_MULTIPATH) {
            Some(nested) => next_hops(nested),
            None => hop(u32::from_ne_bytes(fixed[8..12].try_into().ok()?) as u8, rest).into_iter().collect(),
        };
        Some(Self {
            to: Prefix { address, length: fixed[1] },
            table: attribute(rest, libc::RTA_TABLE).and_then(|t| u32_at(t, 0)).unwrap_or(fixed[4].into()),
            protocol: fixed[5],
            unicast: fixed[7] == libc::RTN_UNICAST,
            hops,
        })
    }
}

fn ip(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

/// The next hop that the attributes of a route with only one say.
fn hop(flags: u8, attributes: &[u8]) -> Option<Hop> {
    let ifindex = attribute(attributes, libc::RTA_OIF).and_then(|index| u32_at(index, 0))?;
    Some(Hop { ifindex, gateway: gateway(attributes), alive: flags & (RTNH_F_DEAD | RTNH_F_LINKDOWN) == 0 })
}

fn gateway(bytes: &[u8]) -> Option<IpAddr> {
    attributes(bytes).find_map(|(kind, payload)| match kind {
        libc::RTA_GATEWAY => ip(payload),
        RTA_VIA => ip(payload.get(2..)?), // after the family
        _ => None,
    })
}

/// A row of `struct rtnexthop`, each with its attributes.
fn next_hops(mut nested: &[u8]) -> Vec<Hop> {
    let mut hops = Vec::new();
    while let Some(length) = u16_at(nested, 0).map(usize::from).filter(|length| *length >= RTNH_LEN) {
        let Some(entry) = nested.get(..length) else { break };
        let alive = entry[2] & (RTNH_F_DEAD | RTNH_F_LINKDOWN) == 0;
        let ifindex = u32_at(entry, 4).unwrap_or(0);
        hops.push(Hop { ifindex, gateway: gateway(&entry[RTNH_LEN..]), alive });
        nested = nested.get(length.next_multiple_of(4)..).unwrap_or(&[]);
    }
    hops
}

/// Checks what every node's plan expects; the error names the first few routes that are missing.
pub fn check(world: &World<'_>) -> Result<()> {
    let mut missing = Vec::new();
    for index in world.scope.nodes() {
        let node = &world.plan.nodes[index];
        if node.expects.is_empty() {
            continue;
        }
        world.lab.namespaces.enter(index)?;
        let here = || format!("node {}: its forwarding table", node.name);
        let netlink = Netlink::open(libc::NETLINK_ROUTE).of(here)?;
        for expectation in &node.expects {
            for (host, address) in hosts_within(world.plan, expectation) {
                let found = next_hops_to(&netlink, address).of(here)?;
                if found != expectation.hops {
                    let (to, hops) = (expectation.to, expectation.hops);
                    missing
                        .push(format!("{} reaches {host} ({to}) by {found} of {hops} next hops", node.name));
                }
            }
        }
    }
    const SHOWN: usize = 4;
    let Some(_) = missing.first() else { return Ok(()) };
    let more = missing.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    Err(Failure::new(format!(
        "routing has not converged at {} ms of the guest's time: {}{more}",
        world.now_ns() / 1_000_000,
        missing[..missing.len().min(SHOWN)].join("; "),
    )))
}

fn hosts_within<'p>(plan: &'p Plan, expectation: &'p Expectation) -> impl Iterator<Item = (&'p str, IpAddr)> {
    let hosts = plan.nodes.iter().filter(|node| node.kind == NodeKind::Host);
    hosts
        .flat_map(|node| node.addresses.iter().map(|address| (node.name.as_str(), *address)))
        .filter(|(_, address)| expectation.to.contains(*address))
}

/// How many next hops that are alive the node's table has for an address; 0: no route.
fn next_hops_to(netlink: &Netlink, to: IpAddr) -> io::Result<usize> {
    let mut fixed = [0u8; RTMSG_LEN];
    fixed[0] = family(to);
    fixed[1] = if to.is_ipv4() { 32 } else { 128 };
    fixed[8..12].copy_from_slice(&RTM_F_FIB_MATCH.to_ne_bytes());
    let mut query = Batch::default();
    query.request(libc::RTM_GETROUTE, libc::NLM_F_ACK, &fixed, "route").attribute(libc::RTA_DST, &octets(to));
    let mut count = 0;
    match netlink.query(query, |message| {
        let hops = Route::read(message).map_or(Vec::new(), |route| route.hops);
        count = hops.iter().filter(|hop| hop.alive).count();
    }) {
        Err(error) if error.raw_os_error() == Some(libc::ENETUNREACH) => Ok(0),
        result => result.map(|()| count),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::HEADER_LEN;
    use proptest::prelude::*;

    /// A message as the agent's own requests are laid out.
    fn message(build: impl FnOnce(&mut Batch)) -> Vec<u8> {
        let mut batch = Batch::default();
        let mut fixed = [0u8; RTMSG_LEN];
        fixed[..8].copy_from_slice(&[libc::AF_INET as u8, 30, 0, 0, 254, 186, 0, libc::RTN_UNICAST]);
        batch.request(libc::RTM_NEWROUTE, 0, &fixed, "");
        build(&mut batch);
        batch.body().to_vec()
    }

    #[test]
    fn next_hops_that_are_down_do_not_count() {
        let bytes = message(|batch| {
            batch.attribute(libc::RTA_DST, &[10, 0, 0, 4]);
            let nest = batch.begin(libc::RTA_MULTIPATH);
            for ifindex in [3, 4] {
                let mut gateway = Batch::default();
                gateway.attribute(libc::RTA_GATEWAY, &[169, 254, 0, 1]);
                batch.next_hop(ifindex, &gateway);
            }
            batch.end(nest);
        });
        let route = Route::read(&bytes).unwrap();
        assert_eq!((route.to.to_string().as_str(), route.table, route.protocol), ("10.0.0.4/30", 254, 186));
        assert!(route.unicast && route.hops.iter().all(|hop| hop.alive));
        assert_eq!(route.hops.iter().map(|hop| hop.ifindex).collect::<Vec<_>>(), [3, 4]);
        assert_eq!(route.hops[0].gateway, Some([169, 254, 0, 1].into()));
        let mut dead = bytes;
        let flags = RTMSG_LEN + 8 + 4 + 2;
        dead[flags] = RTNH_F_DEAD;
        let alive: Vec<bool> = Route::read(&dead).unwrap().hops.iter().map(|hop| hop.alive).collect();
        assert_eq!(alive, [false, true]);
    }

    #[test]
    fn a_default_route_has_no_destination() {
        let bytes = message(|batch| {
            batch
                .u32(libc::RTA_OIF, 2)
                .attribute(RTA_VIA, &[&[10, 0][..], &[0xfe, 0x80], &[0; 13], &[9]].concat());
        });
        let route = Route::read(&bytes).unwrap();
        assert_eq!(route.to.address, IpAddr::from([0, 0, 0, 0]));
        assert_eq!(route.hops, [Hop { ifindex: 2, gateway: "fe80::9".parse().ok(), alive: true }]);
        assert!(Route::read(&[0; HEADER_LEN]).is_none());
    }

    proptest! {
        #[test]
        fn noise_is_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..100), v6: bool) {
            let mut message = vec![if v6 { libc::AF_INET6 } else { libc::AF_INET } as u8];
            message.extend(&bytes);
            Route::read(&message);
            next_hops(&bytes);
        }
    }
}
