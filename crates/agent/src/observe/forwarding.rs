// SPDX-License-Identifier: Apache-2.0
//! Forwarding tables: parses route messages, and checks that every node has the routes that the plan expects.

use crate::failure::{Context, Failure, Result};
use crate::netlink::address::{family, octets};
use crate::netlink::{attribute, attributes, u16_at, u32_at, Batch, Netlink};
use crate::plan::text::Prefix;
use crate::plan::{Expectation, NodeKind, Plan};
use crate::world::World;
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;

/// linux/rtnetlink.h
const RTMSG_LEN: usize = 12;
const RTM_F_FIB_MATCH: u32 = 0x2000;
const RTNH_F_DEAD: u8 = 1;
const RTNH_F_LINKDOWN: u8 = 16;
const RTNH_LEN: usize = 8;
const RTA_VIA: u16 = 18;

/// A route of an rtnetlink message.
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
    /// Whether neither RTNH_F_DEAD nor RTNH_F_LINKDOWN is set.
    pub alive: bool,
}

impl Route {
    /// Parses the payload of an RTM_NEWROUTE or RTM_DELROUTE. None if it is neither IPv4 nor IPv6.
    pub fn read(message: &[u8]) -> Option<Self> {
        let header = message.get(..RTMSG_LEN)?;
        let rest = &message[RTMSG_LEN..];
        let address = match i32::from(header[0]) {
            libc::AF_INET => attribute(rest, libc::RTA_DST).map_or(Some([0; 4].into()), ip)?,
            libc::AF_INET6 => attribute(rest, libc::RTA_DST).map_or(Some([0; 16].into()), ip)?,
            _ => return None,
        };
        let hops = match attribute(rest, libc::RTA_MULTIPATH) {
            Some(nested) => next_hops(nested),
            None => hop(u32::from_ne_bytes(header[8..12].try_into().ok()?) as u8, rest).into_iter().collect(),
        };
        Some(Self {
            to: Prefix { address, length: header[1] },
            table: attribute(rest, libc::RTA_TABLE).and_then(|t| u32_at(t, 0)).unwrap_or(header[4].into()),
            protocol: header[5],
            unicast: header[7] == libc::RTN_UNICAST,
            hops,
        })
    }
}

fn ip(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

/// Parses the next hop of a single-path route.
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

/// Parses the `struct rtnexthop` entries of a multipath route.
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

/// Checks the expected routes of all local nodes. The error names the first missing routes and the peers that should
/// have announced them.
pub fn check(world: &World<'_>) -> Result<()> {
    let (mut missing, mut reachability) = (Vec::new(), Reachability::default());
    for index in world.placement.local_nodes() {
        let node = &world.plan.nodes[index];
        if node.expects.is_empty() {
            continue;
        }
        world.lab.namespaces.enter(index)?;
        let context = || format!("node {}: its forwarding table", node.name);
        let netlink = Netlink::open(libc::NETLINK_ROUTE).with_context(context)?;
        for expectation in &node.expects {
            for (host, address) in hosts_within(world.plan, expectation) {
                let found = next_hops_to(&netlink, address).with_context(context)?;
                let (to, hops, count) = (expectation.to, expectation.hops, found.len());
                if count != hops {
                    missing
                        .push(format!("{} reaches {host} ({to}) by {count} of {hops} next hops", node.name));
                }
                let interfaces = &world.lab.interfaces[index];
                for via in &expectation.via {
                    let reached = count == hops || interfaces.get(via).is_some_and(|i| found.contains(i));
                    reachability.count(index, via, reached);
                }
            }
        }
    }
    const SHOWN: usize = 4;
    let Some(_) = missing.first() else { return Ok(()) };
    let more = missing.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    Err(Failure::new(format!(
        "routing has not converged at {} ms of lab time: {}{more}{}",
        world.now_ns() / 1_000_000,
        missing[..missing.len().min(SHOWN)].join("; "),
        reachability.table(world.plan),
    )))
}

/// By node and interface: number of hosts that are reached, and of hosts that should be.
#[derive(Default)]
struct Reachability<'p>(BTreeMap<(usize, &'p str), (usize, usize)>);

impl<'p> Reachability<'p> {
    fn count(&mut self, node: usize, interface: &'p str, reached: bool) {
        let (hosts, expected) = self.0.entry((node, interface)).or_default();
        *hosts += usize::from(reached);
        *expected += 1;
    }

    /// A table of the peers with missing routes, those without any route first. Empty if no routes are missing.
    fn table(&self, plan: &Plan) -> String {
        const SHOWN: usize = 16;
        let mut incomplete: Vec<_> =
            self.0.iter().filter(|(_, (hosts, expected))| hosts < expected).collect();
        incomplete.sort_by_key(|(_, (hosts, _))| *hosts > 0);
        let more = incomplete.len().saturating_sub(SHOWN);
        let mut rows = vec![["router", "peer", "interface", "reaches hosts"].map(String::from)];
        rows.extend(incomplete.iter().take(SHOWN).map(|((node, interface), (hosts, expected))| {
            let [router, peer] =
                [*node, peer(plan, *node, interface)].map(|node| plan.nodes[node].name.clone());
            [router, peer, (*interface).into(), format!("{hosts} of {expected}")]
        }));
        let [a, b, c] = [0, 1, 2].map(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0));
        let line = |[router, peer, interface, hosts]: &[String; 4]| {
            format!("\n    {router:a$}  {peer:b$}  {interface:c$}  {hosts}")
        };
        let table: String = rows.iter().map(line).collect();
        match (incomplete.len(), more) {
            (0, _) => String::new(),
            (_, 0) => table,
            _ => format!("{table}\n    and {more} more"),
        }
    }
}

/// The node at the other end of a node's interface.
fn peer(plan: &Plan, node: usize, interface: &str) -> usize {
    let pairs = plan.links.iter().flat_map(|link| [(&link.a, &link.b), (&link.b, &link.a)]);
    let mut matching = pairs.filter(|(end, _)| end.node == node && end.interface == interface);
    matching.next().map_or(node, |(_, peer)| peer.node)
}

fn hosts_within<'p>(plan: &'p Plan, expectation: &'p Expectation) -> impl Iterator<Item = (&'p str, IpAddr)> {
    let hosts = plan.nodes.iter().filter(|node| node.kind == NodeKind::Host);
    hosts
        .flat_map(|node| node.addresses.iter().map(|address| (node.name.as_str(), *address)))
        .filter(|(_, address)| expectation.to.contains(*address))
}

/// Interfaces of the alive next hops to an address. Empty if there is no route.
fn next_hops_to(netlink: &Netlink, to: IpAddr) -> io::Result<Vec<u32>> {
    let mut header = [0u8; RTMSG_LEN];
    header[0] = family(to);
    header[1] = if to.is_ipv4() { 32 } else { 128 };
    header[8..12].copy_from_slice(&RTM_F_FIB_MATCH.to_ne_bytes());
    let mut query = Batch::default();
    query
        .request(libc::RTM_GETROUTE, libc::NLM_F_ACK, &header, "route")
        .attribute(libc::RTA_DST, &octets(to));
    let mut found = Vec::new();
    match netlink.query(query, |message| {
        let hops = Route::read(message).map_or(Vec::new(), |route| route.hops);
        found = hops.iter().filter(|hop| hop.alive).map(|hop| hop.ifindex).collect();
    }) {
        Err(error) if error.raw_os_error() == Some(libc::ENETUNREACH) => Ok(Vec::new()),
        result => result.map(|()| found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::HEADER_LEN;
    use crate::testing::dumbbell;
    use proptest::prelude::*;

    /// A route message.
    fn message(build: impl FnOnce(&mut Batch)) -> Vec<u8> {
        let mut batch = Batch::default();
        let mut header = [0u8; RTMSG_LEN];
        header[..8].copy_from_slice(&[libc::AF_INET as u8, 30, 0, 0, 254, 186, 0, libc::RTN_UNICAST]);
        batch.request(libc::RTM_NEWROUTE, 0, &header, "");
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

    #[test]
    fn peers_with_missing_routes_are_listed_those_without_any_first() {
        let plan = dumbbell(|_| ());
        let mut reachability = Reachability::default();
        assert_eq!(reachability.table(&plan), "");
        for (node, interface, reached) in [(0, "eth0", true), (0, "eth0", false), (1, "eth0", false)] {
            reachability.count(node, interface, reached);
        }
        let table = reachability.table(&plan);
        assert_eq!(
            table.lines().collect::<Vec<_>>(),
            [
                "",
                "    router  peer  interface  reaches hosts",
                "    s1      h1    eth0       0 of 1",
                "    h1      s1    eth0       1 of 2",
            ]
        );
        let more: Vec<String> = (0..20).map(|i| format!("to{i}")).collect();
        more.iter().for_each(|interface| reachability.count(1, interface, false));
        let table = reachability.table(&plan);
        assert_eq!((table.lines().count(), table.lines().last()), (19, Some("    and 6 more")));
    }

    proptest! {
        #[test]
        fn invalid_messages_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..100), v6: bool) {
            let mut message = vec![if v6 { libc::AF_INET6 } else { libc::AF_INET } as u8];
            message.extend(&bytes);
            Route::read(&message);
            next_hops(&bytes);
        }
    }
}
