// SPDX-License-Identifier: Apache-2.0
//! `out/routes.ndjson`: changes of the forwarding tables. Written if routes can change: in plans with programs or
//! events.

use crate::failure::{Context, Result};
use crate::netlink::Subscription;
use crate::observe::forwarding::Route;
use crate::plan::{LinkState, Plan};
use crate::results::files;
use crate::world::token::Part;
use crate::world::{World, READABLE};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::net::IpAddr;

const FILE: &str = "routes.ndjson";
/// linux/rtnetlink.h: RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV6_ROUTE
const GROUPS: [u32; 2] = [7, 11];

#[derive(Debug, Serialize)]
struct Row<'a> {
    time_ns: i64,
    node: &'a str,
    change: Change,
    #[serde(skip_serializing_if = "Option::is_none")]
    link: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    protocol: Option<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    via: Vec<Via<'a>>,
}

#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "lowercase")]
enum Change {
    Set,
    Removed,
    Up,
    Down,
}

#[derive(Debug, Serialize)]
struct Via<'a> {
    interface: &'a str,
    gateway: Option<IpAddr>,
}

pub struct RouteLog(Option<Log>);

struct Log {
    /// By local node.
    subscriptions: BTreeMap<usize, Subscription>,
    /// Interface names by node and index.
    names: Vec<HashMap<u32, String>>,
    file: BufWriter<File>,
}

/// Whether routes can change.
fn is_needed(plan: &Plan) -> bool {
    !plan.events.is_empty() || plan.nodes.iter().any(|node| !node.programs.is_empty())
}

impl RouteLog {
    pub fn open(world: &mut World<'_>) -> Result<Self> {
        if !is_needed(world.plan) {
            return Ok(Self(None));
        }
        let mut subscriptions = BTreeMap::new();
        let topic = world.topic(Part::Routes);
        for index in world.placement.local_nodes() {
            let context = || format!("node {}: changes of its routes", world.plan.nodes[index].name);
            world.lab.namespaces.enter(index)?;
            let subscription = Subscription::open(libc::NETLINK_ROUTE, &GROUPS).with_context(context)?;
            world.watch(&subscription, topic.at(index as u32), READABLE).with_context(context)?;
            subscriptions.insert(index, subscription);
        }
        let inverted =
            |map: &HashMap<String, u32>| map.iter().map(|(name, index)| (*index, name.clone())).collect();
        let names = world.lab.interfaces.iter().map(inverted).collect();
        Ok(Self(Some(Log { subscriptions, names, file: files::create(FILE)? })))
    }

    /// Records the pending notifications of a node.
    pub fn drain(&mut self, world: &World<'_>, node: u32) -> Result<()> {
        self.0.as_mut().map_or(Ok(()), |log| log.drain(world, node as usize))
    }

    /// Records that a link was taken down or brought up.
    pub fn link(&mut self, world: &World<'_>, node: usize, link: &str, state: LinkState) -> Result<()> {
        let Some(log) = &mut self.0 else { return Ok(()) };
        let change = if state == LinkState::Up { Change::Up } else { Change::Down };
        let (node, time_ns) = (world.plan.nodes[node].name.as_str(), world.now_since_epoch());
        let row = Row { time_ns, node, change, link: Some(link), to: None, protocol: None, via: Vec::new() };
        files::write_line(&mut log.file, &row).with_context(|| FILE.into())
    }

    pub fn finish(&mut self, world: &World<'_>) -> Result<()> {
        let Some(log) = &mut self.0 else { return Ok(()) };
        let nodes: Vec<usize> = log.subscriptions.keys().copied().collect();
        nodes.into_iter().try_for_each(|node| log.drain(world, node))?;
        log.file.flush().with_context(|| FILE.into())
    }
}

impl Log {
    fn drain(&mut self, world: &World<'_>, node: usize) -> Result<()> {
        let name = world.plan.nodes[node].name.as_str();
        let context = || format!("node {name}: changes of its routes");
        let time_ns = world.now_since_epoch();
        let names = &self.names[node];
        let file = &mut self.file;
        let mut result = Ok(());
        let each = |kind: u16, message: &[u8]| {
            let change = match kind {
                libc::RTM_NEWROUTE => Change::Set,
                libc::RTM_DELROUTE => Change::Removed,
                _ => return,
            };
            let Some(route) = Route::read(message).filter(is_forwarding) else { return };
            let interface = |index: &u32| names.get(index).map_or("?", String::as_str);
            let via =
                route.hops.iter().map(|hop| Via { interface: interface(&hop.ifindex), gateway: hop.gateway });
            let row = Row {
                time_ns,
                node: name,
                change,
                link: None,
                to: Some(route.to.to_string()),
                protocol: Some(protocol(route.protocol)),
                via: via.collect(),
            };
            let written = files::write_line(file, &row);
            result = std::mem::replace(&mut result, Ok(())).and(written);
        };
        self.subscriptions[&node].drain(each).with_context(context)?;
        result.with_context(|| FILE.into())
    }
}

/// Whether a route is a unicast route of the main table, not to link-local or multicast addresses.
fn is_forwarding(route: &Route) -> bool {
    let is_link_scope = match route.to.address {
        IpAddr::V4(_) => false,
        IpAddr::V6(v6) => v6.is_unicast_link_local() || v6.is_multicast(),
    };
    route.unicast && route.table == u32::from(libc::RT_TABLE_MAIN) && !is_link_scope
}

/// linux/rtnetlink.h: RTPROT_*
fn protocol(number: u8) -> &'static str {
    match number {
        2 => "kernel",
        3 => "boot",
        4 => "static",
        11 => "zebra",
        186 => "bgp",
        187 => "isis",
        188 => "ospf",
        _ => "other",
    }
}
