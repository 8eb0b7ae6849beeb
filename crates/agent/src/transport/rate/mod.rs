// SPDX-License-Identifier: Apache-2.0
//! Reliable flows over UDP that the kernel module `qrate` sends and receives, each paced by its host's controller. The
//! agent starts them and, at the end, asks what became of them: between these two it is not woken for any of them,
//! unless the lab asks for a series.

mod flow;

use crate::failure::{Of, Result};
use crate::netlink::generic;
use crate::netlink::rate::{FlowState, NewFlow, Qrate, Role, MODULE};
use crate::netlink::{Batch, Netlink};
use crate::plan::controller::Signal;
use crate::plan::workload::{Connect, Workload};
use crate::plan::Plan;
use crate::results::files;
use crate::results::flows::FlowRecord;
use crate::transport::rate::flow::{Flow, RateRow};
use crate::transport::{Kind, Numbered, Transport};
use crate::workload::ports::{self, LocalFlow};
use crate::world::token::{Part, Token, Topic};
use crate::world::World;
use nix::sys::epoll::EpollFlags;
use serde::Deserialize;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufWriter, Write};

pub const KIND: Kind =
    Kind { name: "rate", check, open: |world, part, flows| Ok(Box::new(Rate::open(world, part, flows)?)) };

/// Each packet carries `payload_bytes` of payload; all else is the host's controller's.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    payload_bytes: u32,
}

fn check(plan: &Plan, workload: &Workload) -> std::result::Result<(), String> {
    let Settings { payload_bytes } = workload.settings()?;
    if !(1..=65_419).contains(&payload_bytes) {
        return Err("payload_bytes is not in 1..65419".into());
    }
    if workload.congestion_control.is_some() || workload.connect != Connect::AtStart {
        return Err("only TCP has a congestion_control, and connects before its start".into());
    }
    if workload.dscp.is_some() {
        return Err("its packets have no dscp".into());
    }
    let without = workload.endpoints().find(|(src, _)| plan.nodes[*src].controller.is_none());
    without.map_or(Ok(()), |(src, _)| Err(format!("node {} has no controller", plan.nodes[src].name)))
}

/// Source ports begin here: half a round from those of the other transports, with which UDP's are shared in containers.
const FIRST_PORT: u16 = 21_000;

struct Rate {
    /// By place in `order`: the flows that start at the instant of the first one.
    starts: Topic,
    samples: Topic,
    /// None: no flow is this transport's.
    module: Option<Qrate>,
    /// In the order of their numbers.
    flows: Vec<Flow>,
    /// Senders, in the order of their starts.
    order: Vec<u32>,
    base_ns: u64,
    /// By node: a socket of its namespace.
    sockets: BTreeMap<usize, Netlink>,
    /// Nodes that may have senders that have not ended.
    active: BTreeSet<usize>,
    series: Option<BufWriter<File>>,
}

impl Rate {
    /// Listens at all nodes in which flows end.
    fn open(world: &mut World<'_>, part: Part, flows: Vec<Numbered>) -> Result<Self> {
        let (starts, samples) = (world.topic(part), world.topic(part));
        let own = |workload: &Workload| (workload.transport == KIND.name).then(|| workload.settings());
        let settings: Vec<Option<_>> = world.plan.workloads.iter().map(own).collect();
        let in_use = settings.iter().any(Option::is_some);
        let flow = |local: LocalFlow| {
            let Some(Ok(Settings { payload_bytes })) = settings[local.spec.workload] else {
                unreachable!("`check` has read them")
            };
            Flow::new(local, payload_bytes)
        };
        let flows: Vec<Flow> =
            ports::numbered(world.scope, flows, FIRST_PORT).into_iter().map(flow).collect();
        let wanted = world.plan.flow_interval_ns > 0 && in_use;
        let mut rate = Self {
            starts,
            samples,
            module: if flows.is_empty() { None } else { Some(Qrate::find()?) },
            flows,
            order: Vec::new(),
            base_ns: 0,
            sockets: BTreeMap::new(),
            active: BTreeSet::new(),
            series: wanted.then(|| files::create("rates.ndjson")).transpose()?,
        };
        rate.listen(world)?;
        Ok(rate)
    }

    fn listen(&mut self, world: &World<'_>) -> Result<()> {
        let Some(module) = self.module else { return Ok(()) };
        let received = self.flows.iter().map(|flow| &flow.local).filter(|local| local.receives);
        let ports: BTreeSet<(usize, u16)> =
            received.map(|local| (local.spec.dst, world.plan.workloads[local.spec.workload].port)).collect();
        for (node, port) in ports {
            let mut batch = Batch::default();
            let here = format!("node {}: {MODULE}: UDP port {port}", world.lab.namespaces.name(node));
            module.listen(&mut batch, port, world.plan.nodes[node].reflect, here);
            socket(&mut self.sockets, world, node)?.run(batch)?;
        }
        Ok(())
    }

    /// Starts the flows of one instant: one batch for each node that sends.
    fn start(&mut self, world: &World<'_>, first: usize) -> Result<()> {
        let Some(module) = self.module else { return Ok(()) };
        let start_ns = |index: u32| self.flows[index as usize].local.spec.start_ns;
        let at_once =
            self.order[first..].iter().take_while(|index| start_ns(**index) == start_ns(self.order[first]));
        let mut batches: BTreeMap<usize, (Batch, Vec<u32>)> = BTreeMap::new();
        for &index in at_once {
            let flow = &self.flows[index as usize];
            let (batch, started) = batches.entry(flow.local.spec.src).or_default();
            module.start(batch, &self.new_flow(world, flow), format!("flow {}: {MODULE}", flow.local.id));
            started.push(index);
        }
        for (node, (batch, started)) in batches {
            let flows = &mut self.flows;
            let netlink = socket(&mut self.sockets, world, node)?;
            netlink.run_each(batch, |request, refused| {
                flows[started[request] as usize].error = Some(refused.into());
            })?;
            self.active.insert(node);
        }
        Ok(())
    }

    fn new_flow<'a>(&self, world: &World<'a>, flow: &Flow) -> NewFlow<'a> {
        let spec = &flow.local.spec;
        let workload = &world.plan.workloads[spec.workload];
        NewFlow {
            flow: flow.local.id,
            addresses: [spec.src, spec.dst].map(|node| world.plan.address(node, workload.family)),
            ports: [flow.local.src_port, workload.port],
            size_bytes: spec.size_bytes,
            stop_ns: spec.stop_ns.map(|stop_ns| self.base_ns + stop_ns),
            payload_bytes: flow.payload_bytes,
            controller: world.plan.nodes[spec.src].controller.as_ref().expect("`check` has seen it"),
        }
    }

    /// Writes one row for every sender that has not ended, in the order of the flows.
    fn sample(&mut self, world: &World<'_>) -> Result<()> {
        let (Some(module), Some(series)) = (self.module, &mut self.series) else { return Ok(()) };
        let mut rows = Vec::new();
        for node in std::mem::take(&mut self.active) {
            let before = rows.len();
            let each = |role, state| rows.extend((role == Role::Sender).then_some(state));
            module.flows(&self.sockets[&node], true, each).of(|| asked(world, node))?;
            if rows.len() > before {
                self.active.insert(node);
            }
        }
        rows.sort_by_key(|state| state.flow);
        let time_ns = world.now_since_epoch();
        for state in &rows {
            let Some(index) = find(&self.flows, state.flow) else { continue };
            let controller = &world.plan.nodes[self.flows[index].local.spec.src].controller;
            let asks = controller.as_ref().is_some_and(|controller| controller.signal != Signal::Rtt);
            let row = RateRow::new(time_ns, state, asks);
            files::line(series, &row).of(|| "out/rates.ndjson".into())?;
        }
        Ok(())
    }

    /// Asks the module of every flow with an end here.
    fn ask(&mut self, world: &World<'_>) -> Result<()> {
        let Some(module) = self.module else { return Ok(()) };
        let flows = &mut self.flows;
        for (node, netlink) in &self.sockets {
            let each = |role, state: FlowState| {
                let Some(index) = find(flows, state.flow) else { return };
                match role {
                    Role::Sender => flows[index].sender = Some(state),
                    Role::Receiver => flows[index].receiver = Some(state),
                }
            };
            module.flows(netlink, false, each).of(|| asked(world, *node))?;
        }
        Ok(())
    }
}

fn find(flows: &[Flow], number: u32) -> Option<usize> {
    flows.binary_search_by_key(&number, |flow| flow.local.id).ok()
}

fn asked(world: &World<'_>, node: usize) -> String {
    format!("node {}: {MODULE}: its flows", world.lab.namespaces.name(node))
}

/// A node's socket, opened when it is first needed.
fn socket<'a>(
    sockets: &'a mut BTreeMap<usize, Netlink>,
    world: &World<'_>,
    node: usize,
) -> Result<&'a Netlink> {
    match sockets.entry(node) {
        Entry::Occupied(known) => Ok(known.into_mut()),
        Entry::Vacant(unknown) => {
            world.lab.namespaces.enter(node)?;
            Ok(unknown.insert(generic::open()?))
        }
    }
}

impl Transport for Rate {
    fn schedule(&mut self, world: &mut World<'_>, base_ns: u64) {
        self.base_ns = base_ns;
        for flow in &mut self.flows {
            flow.start_ns = world.since_epoch(base_ns + flow.local.spec.start_ns);
        }
        let local = |index: &u32| &self.flows[*index as usize].local;
        self.order = (0..self.flows.len() as u32).filter(|index| local(index).sends).collect();
        self.order.sort_by_key(|index| local(index).spec.start_ns);
        let mut last = None;
        for (place, index) in (0..).zip(&self.order) {
            let start_ns = local(index).spec.start_ns;
            if last.replace(start_ns) != Some(start_ns) {
                world.agenda.add(base_ns + start_ns, self.starts.at(place));
            }
        }
        if self.series.is_some() {
            world.agenda.add(base_ns, self.samples.only());
        }
    }

    /// It watches nothing: the module says what became of a flow when it is asked.
    fn on_ready(&mut self, _world: &mut World<'_>, _token: Token, _events: EpollFlags) -> Result<()> {
        Ok(())
    }

    fn on_timer(&mut self, world: &mut World<'_>, token: Token, due_ns: u64) -> Result<()> {
        if token.topic == self.starts {
            return self.start(world, token.index as usize);
        }
        self.sample(world)?;
        world.agenda.add(due_ns + world.plan.flow_interval_ns, token);
        Ok(())
    }

    fn received(&mut self, world: &World<'_>, _at_ns: i64) -> Result<Vec<(u32, u64)>> {
        self.ask(world)?;
        let begun = |flow: &Flow| Some((flow.local.id, flow.receiver?.received_bytes));
        Ok(self.flows.iter().filter_map(begun).collect())
    }

    fn push(&mut self) -> Result<()> {
        self.series.as_mut().map_or(Ok(()), |series| series.flush()).of(|| "out/rates.ndjson".into())
    }

    fn finish(&mut self, world: &World<'_>) -> Result<()> {
        self.ask(world)?;
        self.series.take().map_or(Ok(()), |mut series| series.flush()).of(|| "out/rates.ndjson".into())
    }

    fn records<'a>(&'a self, world: &World<'a>) -> Vec<FlowRecord<'a>> {
        self.flows.iter().map(|flow| flow.record(world)).collect()
    }
}
