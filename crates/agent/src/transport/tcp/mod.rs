// SPDX-License-Identifier: Apache-2.0
//! TCP flows. The sender connects and writes its bytes; the receiver reads them and closes the connection after the
//! last one. When the FIN arrives at the sender, all bytes are acknowledged and its counters are final. TIME_WAIT is
//! on the receiver's side, where it occupies no ephemeral port.

mod flow;
mod info;
mod listeners;
pub mod sockets;
mod statistics;
pub mod watermark;

use crate::failure::{Context, Result};
use crate::plan::workload::Connect;
use crate::results::flow_samples::Kind;
use crate::results::flows::FlowRecord;
use crate::socket;
use crate::transport::tcp::flow::{Flow, Phase, Receiver};
use crate::transport::tcp::info::TcpInfo;
use crate::transport::tcp::listeners::Listeners;
use crate::transport::{NumberedFlow, Transport, TransportKind, CONNECT_WINDOW_NS, LEAD_TIME_NS};
use crate::workload::ports;
use crate::workload::schedule::FlowSpec;
use crate::world::token::{Part, Token, Topic};
use crate::world::{World, READABLE, WRITABLE};
use nix::sys::epoll::EpollFlags;
use serde::Deserialize;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::net::SocketAddr;

pub const KIND: TransportKind = TransportKind {
    name: "tcp",
    check: |_, workload| workload.settings::<Settings>().map(drop),
    open: |world, part, flows| Ok(Box::new(Tcp::open(world, part, flows)?)),
};

/// TCP has no settings besides the common ones.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {}

/// First source port if the kernel does not choose it.
const FIRST_PORT: u16 = 10_000;

/// Topics, by flow unless noted.
struct Topics {
    connects: Topic,
    begins: Topic,
    stops: Topic,
    senders: Topic,
    receivers: Topic,
    /// By listener.
    listeners: Topic,
    samples: Topic,
}

impl Topics {
    fn new(world: &mut World<'_>, part: Part) -> Self {
        let mut topic = || world.topic(part);
        Self {
            connects: topic(),
            begins: topic(),
            stops: topic(),
            senders: topic(),
            receivers: topic(),
            listeners: topic(),
            samples: topic(),
        }
    }
}

struct Tcp {
    topics: Topics,
    flows: Vec<Flow>,
    listeners: Listeners,
    /// Flows with an open sender, for the samples.
    active: BTreeSet<u32>,
    /// Congestion control of flows by (workload, source, destination), as read from closed senders.
    controls: HashMap<(usize, usize, usize), String>,
    /// Congestion control by flow, for flows of hosts in `changed_controls`.
    controls_by_flow: HashMap<u32, String>,
    /// New congestion control of hosts that have changed it.
    changed_controls: BTreeMap<usize, String>,
    /// Whether a node's sockets must be bound to an address.
    must_bind: Vec<bool>,
}

impl Tcp {
    /// Opens the listening sockets of all flows with a local receiver.
    fn open(world: &mut World<'_>, part: Part, flows: Vec<NumberedFlow>) -> Result<Self> {
        let topics = Topics::new(world, part);
        let flows: Vec<Flow> =
            ports::local_flows(world.placement, flows, FIRST_PORT).into_iter().map(Flow::new).collect();
        let received = flows.iter().map(|flow| &flow.local).filter(|local| local.receives);
        let mut listeners = Listeners::open(world, topics.listeners, received.map(|local| &local.spec))?;
        for (index, Flow { local, .. }) in (0..).zip(&flows) {
            if local.receives && local.src_port != 0 {
                let family = world.plan.workloads[local.spec.workload].family;
                let source = SocketAddr::new(world.plan.address(local.spec.src, family), local.src_port);
                listeners.expect(world, &local.spec, source, index);
            }
        }
        let must_bind = sockets::multihomed(world.plan);
        Ok(Self {
            topics,
            flows,
            listeners,
            active: BTreeSet::new(),
            controls: HashMap::new(),
            controls_by_flow: HashMap::new(),
            changed_controls: BTreeMap::new(),
            must_bind,
        })
    }

    fn connect(&mut self, world: &World<'_>, index: u32) -> Result<()> {
        let flow = &mut self.flows[index as usize];
        let local = &mut flow.local;
        world.lab.namespaces.enter(local.spec.src)?;
        let bind = match local.src_port {
            0 => self.must_bind[local.spec.src].then_some(0),
            port => Some(port),
        };
        let ends = [local.spec.src, local.spec.dst];
        let watched = (self.topics.senders.at(index), WRITABLE);
        match sockets::connect(world, local.spec.workload, ends, bind, watched) {
            Ok((sender, source)) => {
                local.src_port = source.port();
                if local.receives {
                    self.listeners.expect(world, &local.spec, source, index);
                }
                flow.sender = Some(sender);
                self.active.insert(index);
            }
            Err(error) => {
                let workload = &world.plan.workloads[local.spec.workload];
                let [from, to] = ends.map(|node| world.plan.address(node, workload.family));
                let problem = format!("connecting {from} to {to} port {}: {error}", workload.port);
                flow.error = Some(problem.into());
            }
        }
        Ok(())
    }

    /// Starts sending on a connection that was opened before the flow's start.
    fn begin(&mut self, world: &mut World<'_>, index: u32) -> Result<()> {
        let flow = &mut self.flows[index as usize];
        if flow.phase == Phase::Waiting {
            flow.phase = Phase::Sending;
            if flow.connected_ns.is_some() {
                let result = flow.send();
                return self.fail_on_error(world, index, result);
            }
        }
        Ok(())
    }

    fn stop(&mut self, world: &mut World<'_>, index: u32) -> Result<()> {
        let flow = &mut self.flows[index as usize];
        if flow.phase == Phase::Finished {
            return Ok(());
        }
        flow.phase = Phase::Finished;
        let Some(sender) = &flow.sender else { return Ok(()) };
        if flow.connected_ns.is_some() {
            let result = socket::shut_down_sending(sender);
            self.fail_on_error(world, index, result)
        } else {
            self.close_sender(world, index)
        }
    }

    fn on_listener(&mut self, world: &World<'_>, listener: u32) -> Result<()> {
        let Some(mut connection) = self.listeners.accept(listener)? else { return Ok(()) };
        let flow = &mut self.flows[connection.flow as usize];
        let context = || format!("flow {}: its receiver", flow.local.id);
        connection.watermark.adapt(&connection.socket, flow.remaining()).with_context(context)?;
        world
            .watch(&connection.socket, self.topics.receivers.at(connection.flow), READABLE)
            .with_context(context)?;
        flow.receiver = Some(Receiver { socket: connection.socket, watermark: connection.watermark });
        Ok(())
    }

    fn on_sender(&mut self, world: &mut World<'_>, index: u32, events: EpollFlags) -> Result<()> {
        let flow = &mut self.flows[index as usize];
        let Some(sender) = &flow.sender else { return Ok(()) };
        let closing = EpollFlags::EPOLLERR | EpollFlags::EPOLLHUP | EpollFlags::EPOLLRDHUP;
        if events.intersects(closing) {
            let error = if flow.end_ns.is_none() { socket::pending_error(sender) } else { None };
            return match error {
                Some(error) => self.fail(world, index, &error),
                // The receiver has closed the connection: all bytes are acknowledged.
                None => self.close_sender(world, index),
            };
        }
        if flow.connected_ns.is_none() {
            flow.connected_ns = Some(world.now_since_epoch());
            // The host's congestion control may have changed during the handshake. It is set now, because DCTCP needs
            // the negotiated ECN.
            let explicit = world.plan.workloads[flow.local.spec.workload].congestion_control.is_some();
            let name = self.changed_controls.get(&flow.local.spec.src).filter(|_| !explicit);
            let set = name.map_or(Ok(()), |name| {
                socket::set_text(sender, libc::IPPROTO_TCP, libc::TCP_CONGESTION, name)
            });
            if let Err(error) = set {
                return self.fail(world, index, &error);
            }
        }
        if flow.phase == Phase::Sending {
            let result = flow.send();
            return self.fail_on_error(world, index, result);
        }
        Ok(())
    }

    fn on_receiver(&mut self, world: &mut World<'_>, index: u32, events: EpollFlags) -> Result<()> {
        let flow = &mut self.flows[index as usize];
        let result = flow.receive(world);
        // After the last bytes of a stopped flow, the next read returns the end of the stream.
        let result = match result {
            Ok(()) if events.contains(EpollFlags::EPOLLRDHUP) => flow.receive(world),
            result => result,
        };
        self.fail_on_error(world, index, result)
    }

    /// Writes one record per flow with a connected sender, and one of its statistics.
    fn sample(&self, world: &mut World<'_>) -> Result<()> {
        let time_ns = world.now_since_epoch();
        let Some(samples) = &mut world.flow_samples else { return Ok(()) };
        for index in &self.active {
            let flow = &self.flows[*index as usize];
            if let (Some(sender), Some(_)) = (&flow.sender, flow.connected_ns) {
                let info =
                    TcpInfo::read(sender).with_context(|| format!("flow {}: TCP_INFO", flow.local.id))?;
                samples.write(Kind::Tcp, flow.local.id, time_ns, info.sample())?;
                let found = statistics::read(sender, &world.plan.flow_statistics)
                    .with_context(|| format!("flow {}: TCP_CC_INFO", flow.local.id))?;
                if let Some(values) = found {
                    samples.write(Kind::Statistics, flow.local.id, time_ns, values)?;
                }
            }
        }
        Ok(())
    }

    fn fail_on_error(&mut self, world: &mut World<'_>, index: u32, result: io::Result<()>) -> Result<()> {
        result.or_else(|error| self.fail(world, index, &error))
    }

    fn fail(&mut self, world: &mut World<'_>, index: u32, error: &io::Error) -> Result<()> {
        let flow = &mut self.flows[index as usize];
        if flow.end_ns.is_none() {
            flow.error = Some(error.to_string().into());
        }
        flow.receiver = None;
        self.close_sender(world, index)
    }

    fn close_sender(&mut self, world: &mut World<'_>, index: u32) -> Result<()> {
        let flow = &mut self.flows[index as usize];
        let Some(sender) = flow.sender.take() else { return Ok(()) };
        self.active.remove(&index);
        if let Ok(info) = TcpInfo::read(&sender) {
            flow.counters = info.into();
        }
        let time_ns = world.now_since_epoch();
        if let (Some(samples), Ok(Some(values))) =
            (&mut world.flow_samples, statistics::read(&sender, &world.plan.flow_statistics))
        {
            samples.write(Kind::Statistics, flow.local.id, time_ns, values)?;
        }
        let FlowSpec { workload, src, dst, .. } = flow.local.spec;
        if self.changed_controls.contains_key(&src) {
            if let Ok(name) = socket::congestion_control(&sender) {
                self.controls_by_flow.insert(index, name);
            }
        } else if let Entry::Vacant(entry) = self.controls.entry((workload, src, dst)) {
            if let Ok(name) = socket::congestion_control(&sender) {
                entry.insert(name);
            }
        }
        Ok(())
    }
}

impl Transport for Tcp {
    fn schedule(&mut self, world: &mut World<'_>, base_ns: u64) {
        let topics = &self.topics;
        let early = |flow: &&Flow| world.plan.workloads[flow.local.spec.workload].connect == Connect::Before;
        let spacing_ns = CONNECT_WINDOW_NS / self.flows.iter().filter(early).count().max(1) as u64;
        let mut connect_ns = base_ns.saturating_sub(LEAD_TIME_NS);
        for (index, flow) in (0..).zip(&mut self.flows) {
            let spec = &flow.local.spec;
            let start_ns = base_ns + spec.start_ns;
            flow.start_ns = world.since_epoch(start_ns);
            if !flow.local.sends {
                flow.phase = Phase::Finished;
                continue;
            }
            if world.plan.workloads[spec.workload].connect == Connect::Before {
                world.agenda.add(connect_ns, topics.connects.at(index));
                world.agenda.add(start_ns, topics.begins.at(index));
                connect_ns += spacing_ns;
            } else {
                flow.phase = Phase::Sending;
                world.agenda.add(start_ns, topics.connects.at(index));
            }
            if let Some(stop_ns) = spec.stop_ns {
                world.agenda.add(base_ns + stop_ns, topics.stops.at(index));
            }
        }
        if world.plan.flow_interval_ns > 0 {
            world.agenda.add(base_ns, topics.samples.only());
        }
    }

    fn on_ready(&mut self, world: &mut World<'_>, token: Token, events: EpollFlags) -> Result<()> {
        if token.topic == self.topics.receivers {
            self.on_receiver(world, token.index, events)
        } else if token.topic == self.topics.senders {
            self.on_sender(world, token.index, events)
        } else {
            self.on_listener(world, token.index)
        }
    }

    fn on_timer(&mut self, world: &mut World<'_>, token: Token, due_ns: u64) -> Result<()> {
        if token.topic == self.topics.connects {
            self.connect(world, token.index)
        } else if token.topic == self.topics.begins {
            self.begin(world, token.index)
        } else if token.topic == self.topics.stops {
            self.stop(world, token.index)
        } else {
            self.sample(world)?;
            world.agenda.add(due_ns + world.plan.flow_interval_ns, token);
            Ok(())
        }
    }

    fn set_congestion_control(&mut self, world: &World<'_>, node: usize, name: &str) -> Result<()> {
        self.changed_controls.insert(node, name.to_owned());
        self.listeners.set_congestion_control(node, name)?;
        let explicit =
            |flow: &Flow| world.plan.workloads[flow.local.spec.workload].congestion_control.is_some();
        for flow in self.flows.iter().filter(|flow| !explicit(flow)) {
            let spec = &flow.local.spec;
            let sender = flow.sender.as_ref().filter(|_| spec.src == node && flow.connected_ns.is_some());
            let receiver = flow.receiver.as_ref().filter(|_| spec.dst == node);
            for socket in sender.into_iter().chain(receiver.map(|receiver| &receiver.socket)) {
                let set = socket::set_text(socket, libc::IPPROTO_TCP, libc::TCP_CONGESTION, name);
                set.with_context(|| format!("flow {}: {name}", flow.local.id))?;
            }
        }
        Ok(())
    }

    fn received_bytes(&mut self, _world: &World<'_>, at_ns: i64) -> Result<Vec<(u32, u64)>> {
        // On the wall clock a flow may have ended after `at_ns`.
        let ended = |flow: &Flow| flow.end_ns.is_some_and(|end_ns| end_ns <= at_ns);
        let active = self.flows.iter().filter(|flow| flow.local.receives && !ended(flow));
        active
            .map(|flow| {
                Ok((
                    flow.local.id,
                    flow.received_bytes().with_context(|| format!("flow {}: its receiver", flow.local.id))?,
                ))
            })
            .filter(|flow| !matches!(flow, Ok((_, 0))))
            .collect()
    }

    /// Reads pending bytes of receivers and the counters of open senders.
    fn finish(&mut self, world: &mut World<'_>) -> Result<()> {
        for index in 0..self.flows.len() as u32 {
            self.on_receiver(world, index, EpollFlags::EPOLLRDHUP)?;
            if self.flows[index as usize].sender.is_some() {
                self.close_sender(world, index)?;
            }
        }
        Ok(())
    }

    fn records<'a>(&'a self, world: &World<'a>) -> Vec<FlowRecord<'a>> {
        let control = |index: u32, FlowSpec { workload, src, dst, .. }: &FlowSpec| {
            let by_pair = || self.controls.get(&(*workload, *src, *dst));
            self.controls_by_flow.get(&index).or_else(by_pair).map(String::as_str)
        };
        (0..)
            .zip(&self.flows)
            .map(|(index, flow)| flow.record(world, control(index, &flow.local.spec)))
            .collect()
    }
}
