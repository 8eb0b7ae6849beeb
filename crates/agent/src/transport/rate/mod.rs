// SPDX-License-Identifier: Apache-2.0
//! Reliable flows over UDP in the kernel module `qrate`, paced by the controller of the sending host. The agent starts
//! the flows and reads their state at the end. In between it is not woken, unless the plan has a time series.

mod flow;

use crate::failure::{Context, Result};
use crate::netlink::generic;
use crate::netlink::rate::{FlowState, NewFlow, Qrate, Role, MODULE};
use crate::netlink::{Batch, Netlink};
use crate::plan::controller::Signal;
use crate::plan::workload::{Connect, Workload};
use crate::plan::Plan;
use crate::results::flow_samples::Kind;
use crate::results::flows::FlowRecord;
use crate::transport::rate::flow::{sample_values, Flow};
use crate::transport::{NumberedFlow, Transport, TransportKind};
use crate::workload::ports::{self, LocalFlow};
use crate::world::token::{Part, Token, Topic};
use crate::world::World;
use nix::sys::epoll::EpollFlags;
use serde::Deserialize;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

pub const KIND: TransportKind = TransportKind {
    name: "rate",
    check,
    open: |world, part, flows| Ok(Box::new(Rate::open(world, part, flows)?)),
};

/// Payload per packet. All other settings belong to the host's controller.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    payload_bytes: u32,
}

fn check(plan: &Plan, workload: &Workload) -> std::result::Result<(), String> {
    let Settings { payload_bytes } = workload.settings()?;
    if !(1..=65_487).contains(&payload_bytes) {
        return Err("payload_bytes is not in 1..65487".into());
    }
    if workload.congestion_control.is_some() || workload.connect != Connect::AtStart {
        return Err("only TCP supports congestion_control and connect: before".into());
    }
    if workload.dscp.is_some() {
        return Err("dscp is not supported".into());
    }
    let without = workload.endpoints().find(|(src, _)| plan.nodes[*src].controller.is_none());
    without.map_or(Ok(()), |(src, _)| Err(format!("node {} has no controller", plan.nodes[src].name)))
}

/// First source port: half the port range away from those of the other UDP transports, which share it in containers.
const FIRST_PORT: u16 = 21_000;

struct Rate {
    /// By position in `order` of the first flow of each start time.
    starts: Topic,
    samples: Topic,
    /// None: there are no flows.
    module: Option<Qrate>,
    /// Sorted by flow id.
    flows: Vec<Flow>,
    /// Indexes of flows with a local sender, by start time.
    order: Vec<u32>,
    base_ns: u64,
    /// Sockets by node.
    sockets: BTreeMap<usize, Netlink>,
    /// Nodes that may have active senders.
    active: BTreeSet<usize>,
}

impl Rate {
    /// Listens at the receivers of all flows.
    fn open(world: &mut World<'_>, part: Part, flows: Vec<NumberedFlow>) -> Result<Self> {
        let (starts, samples) = (world.topic(part), world.topic(part));
        let parse = |workload: &Workload| (workload.transport == KIND.name).then(|| workload.settings());
        let settings: Vec<Option<_>> = world.plan.workloads.iter().map(parse).collect();
        let flow = |local: LocalFlow| {
            let Some(Ok(Settings { payload_bytes })) = settings[local.spec.workload] else {
                unreachable!("`check` has parsed the settings")
            };
            Flow::new(local, payload_bytes)
        };
        let flows: Vec<Flow> =
            ports::local_flows_with_ports(world.placement, flows, FIRST_PORT).into_iter().map(flow).collect();
        let mut rate = Self {
            starts,
            samples,
            module: if flows.is_empty() { None } else { Some(Qrate::find()?) },
            flows,
            order: Vec::new(),
            base_ns: 0,
            sockets: BTreeMap::new(),
            active: BTreeSet::new(),
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
            let object = format!("node {}: {MODULE}: UDP port {port}", world.lab.namespaces.name(node));
            module.listen(&mut batch, port, world.plan.nodes[node].reflect, object);
            socket(&mut self.sockets, world, node)?.run(batch)?;
        }
        Ok(())
    }

    /// Starts all flows with the start time of `order[first]`, with one batch per sending node.
    fn start(&mut self, world: &World<'_>, first: usize) -> Result<()> {
        let Some(module) = self.module else { return Ok(()) };
        let start_ns = |index: u32| self.flows[index as usize].local.spec.start_ns;
        let starting =
            self.order[first..].iter().take_while(|index| start_ns(**index) == start_ns(self.order[first]));
        let mut batches: BTreeMap<usize, (Batch, Vec<u32>)> = BTreeMap::new();
        for &index in starting {
            let flow = &self.flows[index as usize];
            let (batch, started) = batches.entry(flow.local.spec.src).or_default();
            module.start(batch, &self.new_flow(world, flow), format!("flow {}: {MODULE}", flow.local.id));
            started.push(index);
        }
        for (node, (batch, started)) in batches {
            let flows = &mut self.flows;
            let netlink = socket(&mut self.sockets, world, node)?;
            netlink.run_each(batch, |request, error| {
                flows[started[request] as usize].error = Some(error.into());
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
            controller: world.plan.nodes[spec.src]
                .controller
                .as_ref()
                .expect("`check` requires a controller"),
        }
    }

    /// Writes one record per active sender, sorted by flow id.
    fn sample(&mut self, world: &mut World<'_>) -> Result<()> {
        let Some(module) = self.module else { return Ok(()) };
        let mut rows = Vec::new();
        for node in std::mem::take(&mut self.active) {
            let before = rows.len();
            let each = |role, state| rows.extend((role == Role::Sender).then_some(state));
            module.flows(&self.sockets[&node], true, each).with_context(|| query_name(world, node))?;
            if rows.len() > before {
                self.active.insert(node);
            }
        }
        rows.sort_by_key(|state| state.flow);
        let (plan, time_ns) = (world.plan, world.now_since_epoch());
        let Some(samples) = &mut world.flow_samples else { return Ok(()) };
        for state in &rows {
            let Some(index) = find(&self.flows, state.flow) else { continue };
            let controller = &plan.nodes[self.flows[index].local.spec.src].controller;
            let has_signal = controller.as_ref().is_some_and(|controller| controller.signal != Signal::Rtt);
            samples.write(Kind::Rate, state.flow, time_ns, sample_values(state, has_signal))?;
        }
        Ok(())
    }

    /// Reads the state of all local flow ends.
    fn read_states(&mut self, world: &World<'_>) -> Result<()> {
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
            module.flows(netlink, false, each).with_context(|| query_name(world, *node))?;
        }
        Ok(())
    }
}

fn find(flows: &[Flow], id: u32) -> Option<usize> {
    flows.binary_search_by_key(&id, |flow| flow.local.id).ok()
}

fn query_name(world: &World<'_>, node: usize) -> String {
    format!("node {}: {MODULE}: its flows", world.lab.namespaces.name(node))
}

/// A node's socket, opened at the first use.
fn socket<'a>(
    sockets: &'a mut BTreeMap<usize, Netlink>,
    world: &World<'_>,
    node: usize,
) -> Result<&'a Netlink> {
    match sockets.entry(node) {
        Entry::Occupied(entry) => Ok(entry.into_mut()),
        Entry::Vacant(entry) => {
            world.lab.namespaces.enter(node)?;
            Ok(entry.insert(generic::open()?))
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
        for (position, index) in (0..).zip(&self.order) {
            let start_ns = local(index).spec.start_ns;
            if last.replace(start_ns) != Some(start_ns) {
                world.agenda.add(base_ns + start_ns, self.starts.at(position));
            }
        }
        if world.plan.flow_interval_ns > 0 && self.module.is_some() {
            world.agenda.add(base_ns, self.samples.only());
        }
    }

    /// Unused: the transport watches no descriptors.
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

    fn received_bytes(&mut self, world: &World<'_>, _at_ns: i64) -> Result<Vec<(u32, u64)>> {
        self.read_states(world)?;
        let bytes = |flow: &Flow| Some((flow.local.id, flow.receiver?.received_bytes));
        Ok(self.flows.iter().filter_map(bytes).collect())
    }

    fn finish(&mut self, world: &mut World<'_>) -> Result<()> {
        self.read_states(world)
    }

    fn records<'a>(&'a self, world: &World<'a>) -> Vec<FlowRecord<'a>> {
        self.flows.iter().map(|flow| flow.record(world)).collect()
    }
}
