// SPDX-License-Identifier: Apache-2.0
//! Builds the lab: namespaces, links, then node by node its queues, addresses, neighbours, routes and taps, in one
//! batch of netlink requests each.

pub mod boot;
pub mod linkstate;
pub mod namespaces;
pub mod view;

use crate::failure::{Failure, Of, Result};
use crate::lab::namespaces::{write_interface_sysctls, write_sysctls, Namespaces};
use crate::lab::view::View;
use crate::netlink::link::{self, IFINFO};
use crate::netlink::{attribute, qdisc, route, u32_at, Batch, Netlink};
use crate::plan::{End, Node, Plan, Route};
use std::collections::HashMap;
use std::net::IpAddr;

/// The lab as it was built.
pub struct Lab {
    pub namespaces: Namespaces,
    /// Of each node: the index of each interface.
    pub interfaces: Vec<HashMap<String, u32>>,
    /// Of each node: what its programs see of the file system.
    pub views: Vec<View>,
}

impl Lab {
    pub fn build(plan: &Plan) -> Result<Self> {
        write_sysctls(&format!("lab {}", plan.lab), &plan.sysctls, |_| true)?;
        let namespaces = Namespaces::create(plan, false)?;
        let netlink = Netlink::open(libc::NETLINK_ROUTE).of(|| "rtnetlink".into())?;
        link::create(&netlink, plan, &namespaces)?;
        let ends = ends_by_node(plan);
        let queues = queues_by_node(plan);
        let taps = qdisc::Taps::find(plan)?;
        let mut interfaces = Vec::with_capacity(plan.nodes.len());
        for (node, ends) in ends.iter().enumerate() {
            namespaces.enter(node)?;
            let here = || format!("node {}", plan.nodes[node].name);
            let netlink = Netlink::open(libc::NETLINK_ROUTE).of(here)?;
            let found = interface_indexes(&netlink).of(here)?;
            if !plan.carries(node) {
                let far = far_interfaces(plan, node, &found);
                if !far.is_empty() {
                    bring_up_far(&netlink, plan, &far, &queues[node], &taps)?;
                }
                interfaces.push(far);
                continue;
            }
            let mut batch = Batch::default();
            for queue in &queues[node] {
                qdisc::request(&mut batch, &plan.queues[*queue], found[&plan.queues[*queue].interface]);
            }
            configure(&mut batch, plan, node, ends, &found)?;
            netlink.run(batch)?;
            write_interface_sysctls(&plan.nodes[node])?;
            for queue in &queues[node] {
                qdisc::run_tc(&plan.queues[*queue])?;
            }
            taps.attach(&queues[node], &found)?;
            interfaces.push(found);
        }
        namespaces.go_home()?;
        if plan.place.is_some() {
            bridge(plan)?;
        }
        let views = views(plan)?;
        Ok(Self { namespaces, interfaces, views })
    }

    /// The one node of a container whose kernel is the host's: its interfaces are there.
    pub fn join(plan: &Plan) -> Result<Self> {
        let namespaces = Namespaces::create(plan, true)?;
        let netlink = Netlink::open(libc::NETLINK_ROUTE).of(|| "rtnetlink".into())?;
        let found = interface_indexes(&netlink).of(|| "interfaces".into())?;
        let ends = ends_by_node(plan);
        let mut interfaces = vec![HashMap::new(); plan.nodes.len()];
        for node in (0..plan.nodes.len()).filter(|node| plan.carries(*node)) {
            let mut batch = Batch::default();
            for (end, _) in &ends[node] {
                if let Some(ifindex) = found.get(&end.interface) {
                    hardware_address(&mut batch, *ifindex, end);
                }
            }
            configure(&mut batch, plan, node, &ends[node], &found)?;
            netlink.run(batch)?;
            write_interface_sysctls(&plan.nodes[node])?;
            interfaces[node].clone_from(&found);
        }
        let views = views(plan)?;
        Ok(Self { namespaces, interfaces, views })
    }
}

/// Other agents' nodes have nothing of their own here.
fn views(plan: &Plan) -> Result<Vec<View>> {
    let nodes = plan.nodes.iter().enumerate();
    nodes
        .map(|(index, node)| if plan.carries(index) { View::create(node) } else { Ok(View::default()) })
        .collect()
}

/// What stands here for another agent's node: its ends of the links to ours.
fn far_interfaces(plan: &Plan, node: usize, home: &HashMap<String, u32>) -> HashMap<String, u32> {
    let links = plan.links.iter().enumerate();
    let ends = links.flat_map(|(index, link)| link.ends().map(|end| (index, end)));
    let far = ends.filter(|(_, end)| end.node == node);
    far.filter_map(|(index, end)| {
        let ifindex = home.get(&link::far_device(index))?;
        Some((end.interface.clone(), *ifindex))
    })
    .collect()
}

/// The links of this container's node, in the order of their `vec` devices (one for each interface of the container).
pub fn links_here(plan: &Plan) -> impl Iterator<Item = usize> + '_ {
    let links = plan.links.iter().enumerate();
    links.filter(|(_, link)| link.ends().iter().any(|end| plan.carries(end.node))).map(|(index, _)| index)
}

/// Joins each link's far device with the interface of the container that carries it.
fn bridge(plan: &Plan) -> Result<()> {
    let mut commands = String::new();
    for (number, link) in links_here(plan).enumerate() {
        let (outside, far) = (format!("vec{number}"), link::far_device(link));
        for (from, to) in [(&outside, &far), (&far, &outside)] {
            commands += &format!("qdisc add dev {from} ingress\n");
            commands +=
                &format!("filter add dev {from} ingress matchall action mirred egress redirect dev {to}\n");
        }
    }
    let netlink = Netlink::open(libc::NETLINK_ROUTE).of(|| "rtnetlink".into())?;
    let found = interface_indexes(&netlink).of(|| "interfaces".into())?;
    let mut batch = Batch::default();
    for number in 0..links_here(plan).count() {
        let name = format!("vec{number}");
        let ifindex = found.get(&name).ok_or_else(|| Failure::new(format!("the guest has no {name}")))?;
        up(&mut batch, *ifindex, name);
    }
    netlink.run(batch)?;
    for number in 0..links_here(plan).count() {
        // Frames that came together stay apart: joined, they would be one packet to a queue. (Opening sets it anew.)
        qdisc::run("ethtool", &["-K", &format!("vec{number}"), "gro", "off"], "")?;
    }
    qdisc::run("tc", &["-batch", "-"], &commands)
}

/// Its queues are here if it has no kernel of ours to have them.
fn bring_up_far(
    netlink: &Netlink,
    plan: &Plan,
    far: &HashMap<String, u32>,
    queues: &[usize],
    taps: &qdisc::Taps<'_>,
) -> Result<()> {
    let on_host_kernel =
        |queue: usize| plan.place.as_ref().is_some_and(|place| place.on_host_kernel(plan.queues[queue].node));
    let ours = |queue: &usize| on_host_kernel(*queue) && far.contains_key(&plan.queues[*queue].interface);
    let ours: Vec<usize> = queues.iter().copied().filter(ours).collect();
    let mut batch = Batch::default();
    for queue in &ours {
        qdisc::request(&mut batch, &plan.queues[*queue], far[&plan.queues[*queue].interface]);
    }
    for (interface, ifindex) in far {
        up(&mut batch, *ifindex, format!("the far end of {interface}"));
    }
    netlink.run(batch)?;
    taps.attach(&ours, far)
}

fn hardware_address(batch: &mut Batch, ifindex: u32, end: &End) {
    let mut fixed = IFINFO;
    fixed[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    let object = format!("interface {}: its address", end.interface);
    batch.request(libc::RTM_NEWLINK, 0, &fixed, object).attribute(libc::IFLA_ADDRESS, &end.mac.0);
}

/// Of each node: its ends of links, with the opposite ends.
fn ends_by_node(plan: &Plan) -> Vec<Vec<(&End, &End)>> {
    let mut ends = vec![Vec::new(); plan.nodes.len()];
    for link in &plan.links {
        ends[link.a.node].push((&link.a, &link.b));
        ends[link.b.node].push((&link.b, &link.a));
    }
    ends
}

fn queues_by_node(plan: &Plan) -> Vec<Vec<usize>> {
    let mut queues = vec![Vec::new(); plan.nodes.len()];
    for (index, queue) in plan.queues.iter().enumerate() {
        queues[queue.node].push(index);
    }
    queues
}

fn interface_indexes(netlink: &Netlink) -> std::io::Result<HashMap<String, u32>> {
    let mut found = HashMap::new();
    let mut query = Batch::default();
    query.request(libc::RTM_GETLINK, libc::NLM_F_DUMP, &IFINFO, "links");
    netlink.dump(query, |_, message| {
        let name =
            message.get(IFINFO.len()..).and_then(|attributes| attribute(attributes, libc::IFLA_IFNAME));
        if let (Some(index), Some(name)) = (u32_at(message, 4), name) {
            found.insert(String::from_utf8_lossy(name).trim_end_matches('\0').to_owned(), index);
        }
    })?;
    Ok(found)
}

fn configure(
    batch: &mut Batch,
    plan: &Plan,
    node: usize,
    ends: &[(&End, &End)],
    interfaces: &HashMap<String, u32>,
) -> Result<()> {
    let name = &plan.nodes[node].name;
    let index = |interface: &str| {
        let index = interfaces.get(interface).copied();
        index.ok_or_else(|| Failure::new(format!("node {name}: interface {interface} was not created")))
    };
    let lo = index("lo")?;
    up(batch, lo, format!("node {name}: interface lo"));
    for (end, _) in ends {
        up(batch, index(&end.interface)?, format!("node {name}: interface {}", end.interface));
    }
    for (end, peer) in ends {
        address_ends(batch, name, end, peer, index(&end.interface)?);
    }
    // An address that belongs to no link is the node's own: it lives on the loopback interface.
    let on_a_link = |a: &IpAddr| ends.iter().any(|(end, _)| end.addresses.iter().any(|p| p.address == *a));
    for own in plan.nodes[node].addresses.iter().filter(|a| !on_a_link(a)) {
        let length = if own.is_ipv4() { 32 } else { 128 };
        address(batch, lo, *own, length, format!("node {name}: address {own} on lo"));
    }
    routes_of(batch, &plan.nodes[node], interfaces, |_| true);
    Ok(())
}

/// The addresses of one end of a link, and its peer's as neighbours.
pub fn address_ends(batch: &mut Batch, node: &str, end: &End, peer: &End, ifindex: u32) {
    for prefix in &end.addresses {
        let object = format!("node {node}: address {prefix} on {}", end.interface);
        address(batch, ifindex, prefix.address, prefix.length, object);
    }
    for prefix in &peer.addresses {
        let object = format!("node {node}: neighbour {} on {}", prefix.address, end.interface);
        neighbour(batch, ifindex, prefix.address, peer.mac.0, object);
    }
}

/// Those of a node's routes that are wanted.
pub fn routes_of(
    batch: &mut Batch,
    node: &Node,
    interfaces: &HashMap<String, u32>,
    wanted: impl Fn(&Route) -> bool,
) {
    for route in node.routes.iter().filter(|route| wanted(route)) {
        let object = format!("node {}: route to {}", node.name, route.to);
        route::request(batch, route, interfaces, object);
    }
}

fn up(batch: &mut Batch, ifindex: u32, object: String) {
    flags(batch, ifindex, libc::IFF_UP as u32, object);
}

/// Sets IFF_UP, or clears it.
pub fn flags(batch: &mut Batch, ifindex: u32, flags: u32, object: String) {
    let mut fixed = IFINFO;
    fixed[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    fixed[8..12].copy_from_slice(&flags.to_ne_bytes());
    fixed[12..16].copy_from_slice(&(libc::IFF_UP as u32).to_ne_bytes());
    batch.request(libc::RTM_NEWLINK, 0, &fixed, object);
}

pub fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

pub fn family(address: IpAddr) -> u8 {
    crate::socket::domain(address) as u8
}

fn address(batch: &mut Batch, ifindex: u32, address: IpAddr, length: u8, object: String) {
    let mut fixed = [family(address), length, 0, 0, 0, 0, 0, 0]; // ifaddrmsg
    fixed[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    let flags = libc::NLM_F_CREATE | libc::NLM_F_REPLACE;
    batch
        .request(libc::RTM_NEWADDR, flags, &fixed, object)
        .attribute(libc::IFA_LOCAL, &octets(address))
        .attribute(libc::IFA_ADDRESS, &octets(address))
        .u32(libc::IFA_FLAGS, libc::IFA_F_NODAD);
}

/// A permanent entry: no ARP and no neighbour discovery on the wire.
fn neighbour(batch: &mut Batch, ifindex: u32, address: IpAddr, mac: [u8; 6], object: String) {
    let mut fixed = [0u8; 12]; // ndmsg
    fixed[0] = family(address);
    fixed[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    fixed[8..10].copy_from_slice(&libc::NUD_PERMANENT.to_ne_bytes());
    batch
        .request(libc::RTM_NEWNEIGH, libc::NLM_F_CREATE | libc::NLM_F_REPLACE, &fixed, object)
        .attribute(libc::NDA_DST, &octets(address))
        .attribute(libc::NDA_LLADDR, &mac);
}
