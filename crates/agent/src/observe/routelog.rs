// SPDX-License-Identifier: Apache-2.0
//! What changes in the forwarding tables, and when: `out/routes.ndjson`. Kept where routes can change at all, that is
//! in plans with programs or with events.

use crate::failure::{Of, Result};
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
    /// By node: this agent's.
    subscriptions: BTreeMap<usize, Subscription>,
    names: Vec<HashMap<u32, String>>,
    file: BufWriter<File>,
}

/// Whether routes can change.
fn wanted(plan: &Plan) -> bool {
    !plan.events.is_empty() || plan.nodes.iter().any(|node| !node.programs.is_empty())
}

impl RouteLog {
    pub fn open(world: &mut World<'_>) -> Result<Self> {
        if !wanted(world.plan) {
            return Ok(Self(None));
        }
        let mut subscriptions = BTreeMap::new();
        let topic = world.topic(Part::Routes);
        for index in world.scope.nodes() {
            let here = || format!("node {}: changes of its routes", world.plan.nodes[index].name);
            world.lab.namespaces.enter(index)?;
            let subscription = Subscription::open(libc::NETLINK_ROUTE, &GROUPS).of(here)?;
            world.watch(&subscription, topic.at(index as u32), READABLE).of(here)?;
            subscriptions.insert(index, subscription);
        }
        let turned =
            |of: &HashMap<String, u32>| of.iter().map(|(name, index)| (*index, name.clone())).collect();
        let names = world.lab.interfaces.iter().map(turned).collect();
        Ok(Self(Some(Log { subscriptions, names, file: files::create(FILE)? })))
    }

    /// Records what a node's kernel tells.
    pub fn take(&mut self, world: &World<'_>, node: u32) -> Result<()> {
        self.0.as_mut().map_or(Ok(()), |log| log.take(world, node as usize))
    }

    /// Records that a link was taken down or brought up.
    pub fn link(&mut self, world: &World<'_>, node: usize, link: &str, state: LinkState) -> Result<()> {
        let Some(log) = &mut self.0 else { return Ok(()) };
        let change = if state == LinkState::Up { Change::Up } else { Change::Down };
        let (node, time_ns) = (world.plan.nodes[node].name.as_str(), world.now_since_epoch());
        let row = Row { time_ns, node, change, link: Some(link), to: None, protocol: None, via: Vec::new() };
        files::line(&mut log.file, &row).of(|| FILE.into())
    }

    pub fn finish(&mut self, world: &World<'_>) -> Result<()> {
        let Some(log) = &mut self.0 else { return Ok(()) };
        let nodes: Vec<usize> = log.subscriptions.keys().copied().collect();
        nodes.into_iter().try_for_each(|node| log.take(world, node))?;
        log.file.flush().of(|| FILE.into())
    }
}

impl Log {
    fn take(&mut self, world: &World<'_>, node: usize) -> Result<()> {
        let name = world.plan.nodes[node].name.as_str();
        let here = || format!("node {name}: changes of its routes");
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
            let written = files::line(file, &row);
            result = std::mem::replace(&mut result, Ok(())).and(written);
        };
        self.subscriptions[&node].drain(each).of(here)?;
        result.of(|| FILE.into())
    }
}

/// Of the main table, and of addresses that are not the link's own.
fn is_forwarding(route: &Route) -> bool {
    let of_the_link = match route.to.address {
        IpAddr::V4(_) => false,
        IpAddr::V6(v6) => v6.is_unicast_link_local() || v6.is_multicast(),
    };
    route.unicast && route.table == u32::from(libc::RT_TABLE_MAIN) && !of_the_link
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
