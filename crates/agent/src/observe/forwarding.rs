// SPDX-License-Identifier: Apache-2.0
//! Forwarding tables as the kernel has them: what its messages say, and whether every node can send where its plan
//! expects it to.

use crate::failure::{Failure, Of, Result};
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

/// Checks what every node's plan expects; the error names the first few routes that are missing, and the peers by which
/// they should have come.
pub fn check(world: &World<'_>) -> Result<()> {
    let (mut missing, mut ways) = (Vec::new(), Ways::default());
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
                let (to, hops, count) = (expectation.to, expectation.hops, found.len());
                if count != hops {
                    missing
                        .push(format!("{} reaches {host} ({to}) by {count} of {hops} next hops", node.name));
                }
                let interfaces = &world.lab.interfaces[index];
                for via in &expectation.via {
                    let leads = count == hops || interfaces.get(via).is_some_and(|i| found.contains(i));
                    ways.count(index, via, leads);
                }
            }
        }
    }
    const SHOWN: usize = 4;
    let Some(_) = missing.first() else { return Ok(()) };
    let more = missing.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    Err(Failure::new(format!(
        "routing has not converged at {} ms of the guest's time: {}{more}{}",
        world.now_ns() / 1_000_000,
        missing[..missing.len().min(SHOWN)].join("; "),
        ways.table(world.plan),
    )))
}

/// By a node's index and interface: to how many hosts it leads, and to how many it should.
#[derive(Default)]
struct Ways<'p>(BTreeMap<(usize, &'p str), (usize, usize)>);

impl<'p> Ways<'p> {
    fn count(&mut self, node: usize, interface: &'p str, leads: bool) {
        let (hosts, of) = self.0.entry((node, interface)).or_default();
        *hosts += usize::from(leads);
        *of += 1;
    }

    /// The peers whose routes are missing, those first that gave none at all; empty if no peer's are.
    fn table(&self, plan: &Plan) -> String {
        const SHOWN: usize = 16;
        let mut ways: Vec<_> = self.0.iter().filter(|(_, (hosts, of))| hosts < of).collect();
        ways.sort_by_key(|(_, (hosts, _))| *hosts > 0);
        let more = ways.len().saturating_sub(SHOWN);
        let mut rows = vec![["router", "peer", "interface", "leads to hosts"].map(String::from)];
        rows.extend(ways.iter().take(SHOWN).map(|((node, interface), (hosts, of))| {
            let [router, peer] =
                [*node, peer(plan, *node, interface)].map(|node| plan.nodes[node].name.clone());
            [router, peer, (*interface).into(), format!("{hosts} of {of}")]
        }));
        let [a, b, c] = [0, 1, 2].map(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0));
        let line = |[router, peer, interface, hosts]: &[String; 4]| {
            format!("\n    {router:a$}  {peer:b$}  {interface:c$}  {hosts}")
        };
        let table: String = rows.iter().map(line).collect();
        match (ways.len(), more) {
            (0, _) => String::new(),
            (_, 0) => table,
            _ => format!("{table}\n    and {more} more"),
        }
    }
}

/// The node at the other end of a node's interface.
fn peer(plan: &Plan, node: usize, interface: &str) -> usize {
    let pairs = plan.links.iter().flat_map(|link| [(&link.a, &link.b), (&link.b, &link.a)]);
    let mut theirs = pairs.filter(|(own, _)| own.node == node && own.interface == interface);
    theirs.next().map_or(node, |(_, other)| other.node)
}

fn hosts_within<'p>(plan: &'p Plan, expectation: &'p Expectation) -> impl Iterator<Item = (&'p str, IpAddr)> {
    let hosts = plan.nodes.iter().filter(|node| node.kind == NodeKind::Host);
    hosts
        .flat_map(|node| node.addresses.iter().map(|address| (node.name.as_str(), *address)))
        .filter(|(_, address)| expectation.to.contains(*address))
}

/// By which interfaces the node's table leads to an address, of those that are alive; none: no route.
fn next_hops_to(netlink: &Netlink, to: IpAddr) -> io::Result<Vec<u32>> {
    let mut fixed = [0u8; RTMSG_LEN];
    fixed[0] = family(to);
    fixed[1] = if to.is_ipv4() { 32 } else { 128 };
    fixed[8..12].copy_from_slice(&RTM_F_FIB_MATCH.to_ne_bytes());
    let mut query = Batch::default();
    query.request(libc::RTM_GETROUTE, libc::NLM_F_ACK, &fixed, "route").attribute(libc::RTA_DST, &octets(to));
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

    #[test]
    fn peers_without_routes_are_listed_and_those_of_no_way_at_all_come_first() {
        let plan = dumbbell(|_| ());
        let mut ways = Ways::default();
        assert_eq!(ways.table(&plan), "");
        for (node, interface, leads) in [(0, "eth0", true), (0, "eth0", false), (1, "eth0", false)] {
            ways.count(node, interface, leads);
        }
        let table = ways.table(&plan);
        assert_eq!(
            table.lines().collect::<Vec<_>>(),
            [
                "",
                "    router  peer  interface  leads to hosts",
                "    s1      h1    eth0       0 of 1",
                "    h1      s1    eth0       1 of 2",
            ]
        );
        let more: Vec<String> = (0..20).map(|i| format!("to{i}")).collect();
        more.iter().for_each(|interface| ways.count(1, interface, false));
        let table = ways.table(&plan);
        assert_eq!((table.lines().count(), table.lines().last()), (19, Some("    and 6 more")));
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
