// SPDX-License-Identifier: Apache-2.0
//! Builds the lab: namespaces, links, then node by node its queues, addresses, neighbours, routes and taps, in one
//! batch of netlink requests each.

pub mod boot;
pub mod changes;
pub mod far;
pub mod linkstate;
pub mod names;
pub mod namespaces;
mod parking;
pub mod sysctls;
pub mod view;

use crate::failure::{Failure, Of, Result};
use crate::lab::namespaces::Namespaces;
use crate::lab::sysctls::{write_interface_sysctls, write_parameters, write_sysctls};
use crate::lab::view::View;
use crate::netlink::tap::Taps;
use crate::netlink::{address, link, qdisc, route, Batch, Netlink};
use crate::pipeline::Programs;
use crate::plan::{End, Node, Plan, Route};
use crate::scope::{Kernel, Presence, Scope};
use std::collections::HashMap;
use std::net::IpAddr;

/// Of a node: the index of each interface.
pub type Interfaces = HashMap<String, u32>;

/// The lab as it was built.
pub struct Lab {
    pub namespaces: Namespaces,
    /// Of each node.
    pub interfaces: Vec<Interfaces>,
    /// Of each node: what its programs see of the file system.
    pub views: Vec<View>,
    /// Of switches in P4.
    pub programs: Programs,
}

impl Lab {
    /// On a kernel of ours, where everything is made.
    pub fn build(plan: &Plan, scope: &Scope) -> Result<Self> {
        write_sysctls(&format!("lab {}", plan.lab), &plan.sysctls, |_| true)?;
        write_parameters(plan)?;
        let namespaces = Namespaces::create(plan, scope)?;
        create_links(plan, scope, &namespaces)?;
        parking::create(plan, scope, &namespaces)?;
        let programs = Programs::compile(plan, scope)?;
        let (ends, queues) = (ends_by_node(plan), queues_by_node(plan));
        let site = Site { plan, ends, queues, taps: Taps::find(plan)?, programs: &programs };
        let mut interfaces = Vec::with_capacity(plan.nodes.len());
        for node in 0..plan.nodes.len() {
            namespaces.enter(node)?;
            interfaces.push(site.build(node, scope.presence(node))?);
        }
        namespaces.go_home()?;
        if !scope.is_whole() {
            far::bridge(plan, scope)?;
        }
        Ok(Self { namespaces, interfaces, views: views(plan, scope)?, programs })
    }

    /// On the host's kernel, in a container: the one node there has its interfaces already.
    pub fn join(plan: &Plan, scope: &Scope) -> Result<Self> {
        let namespaces = Namespaces::create(plan, scope)?;
        let netlink = Netlink::open(libc::NETLINK_ROUTE).of(|| "rtnetlink".into())?;
        let found = link::indexes(&netlink).of(|| "interfaces".into())?;
        let ends = ends_by_node(plan);
        let mut interfaces = vec![Interfaces::new(); plan.nodes.len()];
        for node in scope.nodes() {
            interfaces[node].clone_from(&found);
            if plan.nodes[node].pipeline.is_some() {
                // BMv2 beside it takes each frame off its interfaces: they have no address by which the kernel would.
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
        Ok(Self { namespaces, interfaces, views: views(plan, scope)?, programs: Programs::default() })
    }
}

/// Creates the links that have an end here.
fn create_links(plan: &Plan, scope: &Scope, namespaces: &Namespaces) -> Result<()> {
    let mut batch = Batch::default();
    for index in scope.links(plan) {
        let link = &plan.links[index];
        let [a, b] = link.ends().map(|end| far::as_built(scope, index, end));
        link::request(&mut batch, link, [&a, &b], |node| namespaces.descriptor(node));
    }
    Netlink::open(libc::NETLINK_ROUTE).of(|| "rtnetlink".into())?.run(batch)
}

/// What is known of all nodes while they are built one by one.
struct Site<'a> {
    plan: &'a Plan,
    /// Of each node: its ends of links, with the opposite ends.
    ends: Vec<Vec<(&'a End, &'a End)>>,
    /// Of each node.
    queues: Vec<Vec<usize>>,
    taps: Taps<'a>,
    programs: &'a Programs,
}

impl Site<'_> {
    /// Builds what of a node is here, in its namespace, where the thread is.
    fn build(&self, node: usize, presence: Presence) -> Result<Interfaces> {
        let here = || format!("node {}", self.plan.nodes[node].name);
        let netlink = Netlink::open(libc::NETLINK_ROUTE).of(here)?;
        let found = link::indexes(&netlink).of(here)?;
        match presence {
            Presence::Here => self.build_node(&netlink, node, &found).map(|()| found),
            Presence::Elsewhere(kernel) => {
                let far = far::interfaces(self.plan, node, &found);
                self.bring_up_far(&netlink, node, kernel, &far).map(|()| far)
            }
        }
    }

    fn build_node(&self, netlink: &Netlink, node: usize, interfaces: &Interfaces) -> Result<()> {
        let mut batch = Batch::default();
        let queues = &self.queues[node];
        self.request_queues(&mut batch, queues, interfaces);
        parking::bring_up(&mut batch, &self.plan.nodes[node], interfaces);
        configure(&mut batch, &self.plan.nodes[node], &self.ends[node], interfaces)?;
        netlink.run(batch)?;
        write_interface_sysctls(&self.plan.nodes[node])?;
        queues.iter().try_for_each(|queue| qdisc::run_tc(&self.plan.queues[*queue]))?;
        self.taps.attach(queues, interfaces)?;
        let node = &self.plan.nodes[node];
        let started = node.pipeline.as_ref().map_or(Ok(()), |pipeline| self.programs.start(pipeline));
        started.of(|| format!("node {}", node.name))
    }

    /// Another agent's node has its queues here if it has no kernel of ours to have them.
    fn bring_up_far(&self, netlink: &Netlink, node: usize, kernel: Kernel, far: &Interfaces) -> Result<()> {
        if far.is_empty() {
            return Ok(());
        }
        let ours =
            |queue: &usize| kernel == Kernel::Host && far.contains_key(&self.plan.queues[*queue].interface);
        let queues: Vec<usize> = self.queues[node].iter().copied().filter(ours).collect();
        let mut batch = Batch::default();
        self.request_queues(&mut batch, &queues, far);
        for (interface, ifindex) in far {
            link::up(&mut batch, *ifindex, format!("the far end of {interface}"));
        }
        netlink.run(batch)?;
        self.taps.attach(&queues, far)
    }

    fn request_queues(&self, batch: &mut Batch, queues: &[usize], interfaces: &Interfaces) {
        for queue in queues.iter().map(|queue| &self.plan.queues[*queue]) {
            qdisc::request(batch, &queue.name, &queue.qdisc, interfaces[&queue.interface]);
        }
    }
}

/// Other agents' nodes have nothing of their own here.
fn views(plan: &Plan, scope: &Scope) -> Result<Vec<View>> {
    let nodes = plan.nodes.iter().enumerate();
    nodes
        .map(|(index, node)| if scope.has(index) { View::create(node) } else { Ok(View::default()) })
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

/// Asks for a node's addresses, neighbours and routes, and for its interfaces to come up.
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
            link::allow_super_packets(batch, index(&end.interface)?, object);
        }
        link::up(batch, index(&end.interface)?, format!("node {name}: interface {}", end.interface));
    }
    for (end, peer) in ends {
        address::address_ends(batch, name, end, peer, index(&end.interface)?);
    }
    // An address that belongs to no link is the node's own: it lives on the loopback interface.
    let on_a_link = |a: &IpAddr| ends.iter().any(|(end, _)| end.addresses.iter().any(|p| p.address == *a));
    for own in node.addresses.iter().filter(|a| !on_a_link(a)) {
        let length = if own.is_ipv4() { 32 } else { 128 };
        address::address(batch, lo, *own, length, format!("node {name}: address {own} on lo"));
    }
    request_routes(batch, node, interfaces, |_| true);
    Ok(())
}

/// Asks for those of a node's routes that are wanted.
fn request_routes(batch: &mut Batch, node: &Node, interfaces: &Interfaces, wanted: impl Fn(&Route) -> bool) {
    for route in node.routes.iter().filter(|route| wanted(route)) {
        let object = format!("node {}: route to {}", node.name, route.to);
        route::request(batch, route, interfaces, object);
    }
}
