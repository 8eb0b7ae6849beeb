// SPDX-License-Identifier: Apache-2.0
//! TCP flows, both ends of each. The sender connects, offers its bytes and waits; the receiver takes them and, when
//! it has the last one, closes. So the sender learns from the FIN that everything is acknowledged, its counters are
//! final, and TIME_WAIT is on the receiver's side, where it holds no ephemeral port.

mod flow;
mod info;
mod listeners;
pub mod sockets;
pub mod watermark;

use crate::failure::{Of, Result};
use crate::plan::workload::Connect;
use crate::results::files;
use crate::results::flows::FlowRecord;
use crate::socket;
use crate::transport::tcp::flow::{Flow, Phase, Receiver};
use crate::transport::tcp::info::{InfoRow, TcpInfo};
use crate::transport::tcp::listeners::Listeners;
use crate::transport::{Kind, Numbered, Transport, AHEAD_NS, CONNECT_WINDOW_NS};
use crate::workload::ports;
use crate::workload::schedule::FlowSpec;
use crate::world::token::{Part, Token, Topic};
use crate::world::{World, READABLE, WRITABLE};
use nix::sys::epoll::EpollFlags;
use serde::Deserialize;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::SocketAddr;

pub const KIND: Kind = Kind {
    name: "tcp",
    check: |_, workload| workload.settings::<Settings>().map(drop),
    open: |world, part, flows| Ok(Box::new(Tcp::open(world, part, flows)?)),
};

/// TCP is told nothing that other transports are not.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {}

/// Source ports, where the kernel does not choose them, begin here.
const FIRST_PORT: u16 = 10_000;
/// What it waits for, each by flow but for the last two.
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
    fn ask(world: &mut World<'_>, part: Part) -> Self {
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
    /// Flows that have a sender, in order, for the series.
    active: BTreeSet<u32>,
    series: Option<BufWriter<File>>,
    /// What the kernel chose where the plan does not: the same for all flows of a workload between two nodes.
    controls: HashMap<(usize, usize, usize), String>,
    /// The same by flow, from hosts that have changed theirs.
    changed: HashMap<u32, String>,
    /// Hosts that have, and what they have now.
    fickle: BTreeMap<usize, String>,
    /// Of each node: whether its sockets have to be told their address.
    bind: Vec<bool>,
}

impl Tcp {
    /// Opens the listening sockets of all flows that end here.
    fn open(world: &mut World<'_>, part: Part, flows: Vec<Numbered>) -> Result<Self> {
        let topics = Topics::ask(world, part);
        let flows: Vec<Flow> =
            ports::local(world.scope, flows, FIRST_PORT).into_iter().map(Flow::new).collect();
        let series =
            (world.plan.flow_interval_ns > 0).then(|| files::create("tcpinfo.ndjson")).transpose()?;
        let received = flows.iter().map(|flow| &flow.local).filter(|local| local.receives);
        let mut listeners = Listeners::open(world, topics.listeners, received.map(|local| &local.spec))?;
        for (index, Flow { local, .. }) in (0..).zip(&flows) {
            if local.receives && local.src_port != 0 {
                let family = world.plan.workloads[local.spec.workload].family;
                let source = SocketAddr::new(world.plan.address(local.spec.src, family), local.src_port);
                listeners.expect(world, &local.spec, source, index);
            }
        }
        let bind = sockets::several_addresses(world.plan);
        Ok(Self {
            topics,
            flows,
            listeners,
            active: BTreeSet::new(),
            series,
            controls: HashMap::new(),
            changed: HashMap::new(),
            fickle: BTreeMap::new(),
            bind,
        })
    }

    fn connect(&mut self, world: &World<'_>, index: u32) -> Result<()> {
        let flow = &mut self.flows[index as usize];
        let local = &mut flow.local;
        world.lab.namespaces.enter(local.spec.src)?;
        let bind = match local.src_port {
            0 => self.bind[local.spec.src].then_some(0),
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
                let told = format!("connecting {from} to {to} port {}: {error}", workload.port);
                flow.error = Some(told.into());
            }
        }
        Ok(())
    }

    fn begin(&mut self, index: u32) {
        let flow = &mut self.flows[index as usize];
        if flow.phase == Phase::Early {
            flow.phase = Phase::Sending;
            if flow.connected_ns.is_some() {
                let result = flow.offer();
                self.settle(index, result);
            }
        }
    }

    fn stop(&mut self, index: u32) {
        let flow = &mut self.flows[index as usize];
        if flow.phase == Phase::Quiet {
            return;
        }
        flow.phase = Phase::Quiet;
        let Some(sender) = &flow.sender else { return };
        if flow.connected_ns.is_some() {
            let result = socket::shut_down_sending(sender);
            self.settle(index, result);
        } else {
            self.close_sender(index);
        }
    }

    fn on_listener(&mut self, world: &World<'_>, listener: u32) -> Result<()> {
        let Some(mut connection) = self.listeners.accept(listener)? else { return Ok(()) };
        let flow = &mut self.flows[connection.flow as usize];
        let here = || format!("flow {}: its receiver", flow.local.id);
        connection.watermark.adapt(&connection.socket, flow.remaining()).of(here)?;
        world.watch(&connection.socket, self.topics.receivers.at(connection.flow), READABLE).of(here)?;
        flow.receiver = Some(Receiver { socket: connection.socket, watermark: connection.watermark });
        Ok(())
    }

    fn on_sender(&mut self, world: &World<'_>, index: u32, events: EpollFlags) {
        let flow = &mut self.flows[index as usize];
        let Some(sender) = &flow.sender else { return };
        let closing = EpollFlags::EPOLLERR | EpollFlags::EPOLLHUP | EpollFlags::EPOLLRDHUP;
        if events.intersects(closing) {
            let error = if flow.end_ns.is_none() { socket::pending_error(sender) } else { None };
            return match error {
                Some(error) => self.fail(index, &error),
                // The receiver has closed: everything that was sent is acknowledged.
                None => self.close_sender(index),
            };
        }
        if flow.connected_ns.is_none() {
            flow.connected_ns = Some(world.now_since_epoch());
            // Changed during the handshake: before its end DCTCP would have found no ECN.
            let own = world.plan.workloads[flow.local.spec.workload].congestion_control.is_some();
            let name = self.fickle.get(&flow.local.spec.src).filter(|_| !own);
            let set = name.map_or(Ok(()), |name| {
                socket::set_text(sender, libc::IPPROTO_TCP, libc::TCP_CONGESTION, name)
            });
            if let Err(error) = set {
                return self.fail(index, &error);
            }
        }
        if flow.phase == Phase::Sending {
            let result = flow.offer();
            self.settle(index, result);
        }
    }

    fn on_receiver(&mut self, world: &World<'_>, index: u32, events: EpollFlags) {
        let flow = &mut self.flows[index as usize];
        let result = flow.take(world);
        // Behind the last bytes of a flow that was stopped is the end of its stream.
        let result = match result {
            Ok(()) if events.contains(EpollFlags::EPOLLRDHUP) => flow.take(world),
            result => result,
        };
        self.settle(index, result);
    }

    /// Writes one row for every flow that has a sender.
    fn sample(&mut self, world: &World<'_>) -> Result<()> {
        let Some(series) = &mut self.series else {
            return Ok(());
        };
        let time_ns = world.now_since_epoch();
        for index in &self.active {
            let flow = &self.flows[*index as usize];
            if let (Some(sender), Some(_)) = (&flow.sender, flow.connected_ns) {
                let info = TcpInfo::read(sender).of(|| format!("flow {}: TCP_INFO", flow.local.id))?;
                let written = files::line(series, &InfoRow::new(flow.local.id, time_ns, &info));
                written.of(|| "out/tcpinfo.ndjson".into())?;
            }
        }
        Ok(())
    }

    fn settle(&mut self, index: u32, result: io::Result<()>) {
        if let Err(error) = result {
            self.fail(index, &error);
        }
    }

    fn fail(&mut self, index: u32, error: &io::Error) {
        let flow = &mut self.flows[index as usize];
        if flow.end_ns.is_none() {
            flow.error = Some(error.to_string().into());
        }
        flow.receiver = None;
        self.close_sender(index);
    }

    fn close_sender(&mut self, index: u32) {
        let flow = &mut self.flows[index as usize];
        let Some(sender) = flow.sender.take() else { return };
        self.active.remove(&index);
        if let Ok(info) = TcpInfo::read(&sender) {
            flow.tally = info.into();
        }
        let FlowSpec { workload, src, dst, .. } = flow.local.spec;
        if self.fickle.contains_key(&src) {
            if let Ok(name) = socket::congestion_control(&sender) {
                self.changed.insert(index, name);
            }
        } else if let Entry::Vacant(unknown) = self.controls.entry((workload, src, dst)) {
            if let Ok(name) = socket::congestion_control(&sender) {
                unknown.insert(name);
            }
        }
    }
}

impl Transport for Tcp {
    fn schedule(&mut self, world: &mut World<'_>, base_ns: u64) {
        let topics = &self.topics;
        let early = |flow: &&Flow| world.plan.workloads[flow.local.spec.workload].connect == Connect::Before;
        let spacing_ns = CONNECT_WINDOW_NS / self.flows.iter().filter(early).count().max(1) as u64;
        let mut connect_ns = base_ns.saturating_sub(AHEAD_NS);
        for (index, flow) in (0..).zip(&mut self.flows) {
            let spec = &flow.local.spec;
            let start_ns = base_ns + spec.start_ns;
            flow.start_ns = world.since_epoch(start_ns);
            if !flow.local.sends {
                flow.phase = Phase::Quiet;
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
        if self.series.is_some() {
            world.agenda.add(base_ns, topics.samples.only());
        }
    }

    fn on_ready(&mut self, world: &mut World<'_>, token: Token, events: EpollFlags) -> Result<()> {
        if token.topic == self.topics.receivers {
            self.on_receiver(world, token.index, events);
        } else if token.topic == self.topics.senders {
            self.on_sender(world, token.index, events);
        } else {
            self.on_listener(world, token.index)?;
        }
        Ok(())
    }

    fn on_timer(&mut self, world: &mut World<'_>, token: Token, due_ns: u64) -> Result<()> {
        if token.topic == self.topics.connects {
            self.connect(world, token.index)?;
        } else if token.topic == self.topics.begins {
            self.begin(token.index);
        } else if token.topic == self.topics.stops {
            self.stop(token.index);
        } else {
            self.sample(world)?;
            world.agenda.add(due_ns + world.plan.flow_interval_ns, token);
        }
        Ok(())
    }

    fn set_congestion_control(&mut self, world: &World<'_>, node: usize, name: &str) -> Result<()> {
        self.fickle.insert(node, name.to_owned());
        self.listeners.set_congestion_control(node, name)?;
        let own = |flow: &Flow| world.plan.workloads[flow.local.spec.workload].congestion_control.is_some();
        for flow in self.flows.iter().filter(|flow| !own(flow)) {
            let spec = &flow.local.spec;
            let sender = flow.sender.as_ref().filter(|_| spec.src == node && flow.connected_ns.is_some());
            let receiver = flow.receiver.as_ref().filter(|_| spec.dst == node);
            for socket in sender.into_iter().chain(receiver.map(|receiver| &receiver.socket)) {
                let set = socket::set_text(socket, libc::IPPROTO_TCP, libc::TCP_CONGESTION, name);
                set.of(|| format!("flow {}: {name}", flow.local.id))?;
            }
        }
        Ok(())
    }

    fn received(&mut self, _world: &World<'_>, at_ns: i64) -> Result<Vec<(u32, u64)>> {
        // On the wall clock one may have ended since.
        let over = |flow: &Flow| flow.end_ns.is_some_and(|end_ns| end_ns <= at_ns);
        let under_way = self.flows.iter().filter(|flow| flow.local.receives && !over(flow));
        under_way
            .map(|flow| {
                Ok((flow.local.id, flow.received().of(|| format!("flow {}: its receiver", flow.local.id))?))
            })
            .filter(|flow| !matches!(flow, Ok((_, 0))))
            .collect()
    }

    fn push(&mut self) -> Result<()> {
        self.series.as_mut().map_or(Ok(()), |series| series.flush()).of(|| "out/tcpinfo.ndjson".into())
    }

    /// Takes what receivers still hold and reads the counters of senders that are still open.
    fn finish(&mut self, world: &World<'_>) -> Result<()> {
        for index in 0..self.flows.len() as u32 {
            self.on_receiver(world, index, EpollFlags::EPOLLRDHUP);
            if self.flows[index as usize].sender.is_some() {
                self.close_sender(index);
            }
        }
        self.series.take().map_or(Ok(()), |mut series| series.flush()).of(|| "out/tcpinfo.ndjson".into())
    }

    fn records<'a>(&'a self, world: &World<'a>) -> Vec<FlowRecord<'a>> {
        let control = |index: u32, FlowSpec { workload, src, dst, .. }: &FlowSpec| {
            let known = || self.controls.get(&(*workload, *src, *dst));
            self.changed.get(&index).or_else(known).map(String::as_str)
        };
        (0..)
            .zip(&self.flows)
            .map(|(index, flow)| flow.record(world, control(index, &flow.local.spec)))
            .collect()
    }
}
