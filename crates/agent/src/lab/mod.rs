// SPDX-License-Identifier: Apache-2.0
//! Builds the lab: namespaces and links, then for each node its queues, addresses, neighbours, routes and taps, with
//! one batch of netlink requests per node.

pub mod boot;
pub mod changes;
pub mod hosts_file;
pub mod link_state;
pub mod namespaces;
pub mod peer_stub;
mod recirculation;
pub mod sysctls;
pub mod view;

use crate::failure::{Context, Failure, Result};
use crate::lab::namespaces::Namespaces;
use crate::lab::sysctls::{write_interface_sysctls, write_parameters, write_sysctls};
use crate::lab::view::View;
use crate::netlink::tap::Taps;
use crate::netlink::{address, link, qdisc, route, Batch, Netlink};
use crate::pipeline::Programs;
use crate::placement::{Kernel, Location, Placement};
use crate::plan::{End, Node, Plan, Route};
use std::collections::HashMap;
use std::net::IpAddr;

/// Interface indexes of a node, by name.
pub type Interfaces = HashMap<String, u32>;

/// The lab after its construction.
pub struct Lab {
    pub namespaces: Namespaces,
    /// By node.
    pub interfaces: Vec<Interfaces>,
    /// File system views of programs, by node.
    pub views: Vec<View>,
    /// Programs of P4 switches.
    pub programs: Programs,
}

impl Lab {
    /// Builds the lab in a guest. `folder`: that of the plan.
    pub fn build(plan: &Plan, placement: &Placement, folder: &str) -> Result<Self> {
        write_sysctls(&format!("lab {}", plan.lab), &plan.sysctls, |_| true)?;
        write_parameters(plan)?;
        let namespaces = Namespaces::create(plan, placement)?;
        create_links(plan, placement, &namespaces)?;
        recirculation::create(plan, placement, &namespaces)?;
        let programs = Programs::read(plan, placement, folder)?;
        let (ends, queues) = (ends_by_node(plan), queues_by_node(plan));
        let builder = NodeBuilder { plan, ends, queues, taps: Taps::find(plan)?, programs: &programs };
        let mut interfaces = peer_stub::find(plan, placement)?;
        for (node, interfaces) in interfaces.iter_mut().enumerate() {
            match placement.location(node) {
                Location::Local => {
                    namespaces.enter(node)?;
                    *interfaces = builder.build_node(node)?;
                }
                Location::Remote(kernel) => {
                    namespaces.enter(node)?;
                    builder.build_stubs(node, kernel, interfaces)?;
                }
                Location::InPart(_) => {}
            }
        }
        namespaces.enter_root()?;
        if placement.is_container() {
            peer_stub::bridge(plan, placement)?;
        }
        Ok(Self { namespaces, interfaces, views: views(plan, placement)?, programs })
    }

    /// Configures the local node on the host's kernel. Its interfaces already exist in the container.
    pub fn join(plan: &Plan, placement: &Placement) -> Result<Self> {
        let namespaces = Namespaces::create(plan, placement)?;
        let netlink = Netlink::open(libc::NETLINK_ROUTE).with_context(|| "rtnetlink".into())?;
        let found = link::indexes(&netlink).with_context(|| "interfaces".into())?;
        let ends = ends_by_node(plan);
        let mut interfaces = vec![Interfaces::new(); plan.nodes.len()];
        for node in placement.local_nodes() {
            interfaces[node].clone_from(&found);
            if plan.nodes[node].pipeline.is_some() {
                // BMv2 in a sidecar receives all frames; without addresses the kernel does not process them.
                continue;
            }
            let mut batch = Batch::default();
            for (end, _) in &ends[node] {
                if let Some(ifindex) = found.get(&end.interface) {
                    link::hardware_address(&mut batch, *ifindex, end);
                }
            }
            configure(&mut batch, &plan.nodes[node], &ends[node], &found)?;
            netlink.run(batch)?;
            write_interface_sysctls(&plan.nodes[node])?;
        }
        Ok(Self { namespaces, interfaces, views: views(plan, placement)?, programs: Programs::default() })
    }
}

/// Creates all links with a local end.
fn create_links(plan: &Plan, placement: &Placement, namespaces: &Namespaces) -> Result<()> {
    let mut batch = Batch::default();
    for index in placement.local_links(plan) {
        let link = &plan.links[index];
        let cut = peer_stub::cut(plan, placement, index);
        let mut ends = link.ends();
        // The peer of a cut link's request is the stub.
        ends.sort_by_key(|end| cut.is_some() && !placement.is_local(end.node));
        let [a, b] = ends.map(|end| peer_stub::local_end(placement, index, end));
        link::request(&mut batch, link, [&a, &b], cut, |node| namespaces.descriptor(node));
    }
    Netlink::open(libc::NETLINK_ROUTE).with_context(|| "rtnetlink".into())?.run(batch)
}

/// Builds nodes one at a time.
struct NodeBuilder<'a> {
    plan: &'a Plan,
    /// Link ends with their peer ends, by node.
    ends: Vec<Vec<(&'a End, &'a End)>>,
    /// Queue indexes by node.
    queues: Vec<Vec<usize>>,
    taps: Taps<'a>,
    programs: &'a Programs,
}

impl NodeBuilder<'_> {
    /// Builds a local node and returns its interfaces. The thread is in the node's namespace.
    fn build_node(&self, node: usize) -> Result<Interfaces> {
        let context = || format!("node {}", self.plan.nodes[node].name);
        let netlink = Netlink::open(libc::NETLINK_ROUTE).with_context(context)?;
        let interfaces = link::indexes(&netlink).with_context(context)?;
        let mut batch = Batch::default();
        let queues = &self.queues[node];
        self.request_queues(&mut batch, queues, &interfaces);
        recirculation::bring_up(&mut batch, &self.plan.nodes[node], &interfaces);
        configure(&mut batch, &self.plan.nodes[node], &self.ends[node], &interfaces)?;
        netlink.run(batch)?;
        write_interface_sysctls(&self.plan.nodes[node])?;
        queues.iter().try_for_each(|queue| qdisc::run_tc(&self.plan.queues[*queue]))?;
        self.taps.attach(queues, &interfaces)?;
        let pipeline = self.plan.nodes[node].pipeline.as_ref();
        pipeline.map_or(Ok(()), |pipeline| self.programs.start(pipeline)).with_context(context)?;
        Ok(interfaces)
    }

    /// Builds the stubs of a remote node. If it is on the host's kernel, its queues and taps are at the stubs. The
    /// thread is in the root namespace.
    fn build_stubs(&self, node: usize, kernel: Kernel, stubs: &Interfaces) -> Result<()> {
        if stubs.is_empty() {
            return Ok(());
        }
        let at_stub =
            |queue: &usize| kernel == Kernel::Host && stubs.contains_key(&self.plan.queues[*queue].interface);
        let queues: Vec<usize> = self.queues[node].iter().copied().filter(at_stub).collect();
        let mut batch = Batch::default();
        self.request_queues(&mut batch, &queues, stubs);
        for (interface, ifindex) in stubs {
            link::up(&mut batch, *ifindex, format!("the stub of {interface}"));
        }
        let context = || format!("node {}", self.plan.nodes[node].name);
        Netlink::open(libc::NETLINK_ROUTE).with_context(context)?.run(batch)?;
        self.taps.attach(&queues, stubs)
    }

    fn request_queues(&self, batch: &mut Batch, queues: &[usize], interfaces: &Interfaces) {
        for queue in queues.iter().map(|queue| &self.plan.queues[*queue]) {
            qdisc::request(batch, &queue.name, &queue.qdisc, interfaces[&queue.interface]);
        }
    }
}

/// Views of all nodes; those of remote nodes are empty.
fn views(plan: &Plan, placement: &Placement) -> Result<Vec<View>> {
    let nodes = plan.nodes.iter().enumerate();
    nodes
        .map(|(index, node)| if placement.is_local(index) { View::create(node) } else { Ok(View::default()) })
        .collect()
}

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

/// Requests a node's addresses, neighbours and routes, and brings its interfaces up.
fn configure(batch: &mut Batch, node: &Node, ends: &[(&End, &End)], interfaces: &Interfaces) -> Result<()> {
    let name = &node.name;
    let index = |interface: &str| {
        let index = interfaces.get(interface).copied();
        index.ok_or_else(|| Failure::new(format!("node {name}: interface {interface} was not created")))
    };
    let lo = index("lo")?;
    link::loopback_up(batch, lo, format!("node {name}: interface lo"));
    for (end, _) in ends {
        if node.offload.is_some() {
            let object = format!("node {name}: offload at {}", end.interface);
            link::allow_gso(batch, index(&end.interface)?, object);
        }
        link::up(batch, index(&end.interface)?, format!("node {name}: interface {}", end.interface));
    }
    for (end, peer) in ends {
        address::configure_end(batch, name, end, peer, index(&end.interface)?);
    }
    // Addresses that belong to no link are assigned to the loopback interface.
    let on_a_link = |a: &IpAddr| ends.iter().any(|(end, _)| end.addresses.iter().any(|p| p.address == *a));
    for address in node.addresses.iter().filter(|a| !on_a_link(a)) {
        let length = if address.is_ipv4() { 32 } else { 128 };
        address::address(batch, lo, *address, length, format!("node {name}: address {address} on lo"));
    }
    request_routes(batch, node, interfaces, |_| true);
    Ok(())
}

/// Requests the routes of a node that match `filter`.
fn request_routes(batch: &mut Batch, node: &Node, interfaces: &Interfaces, filter: impl Fn(&Route) -> bool) {
    for route in node.routes.iter().filter(|route| filter(route)) {
        let object = format!("node {}: route to {}", node.name, route.to);
        route::request(batch, route, interfaces, object);
    }
}
