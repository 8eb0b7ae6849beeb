// SPDX-License-Identifier: Apache-2.0
//! TCP flows, both ends of each. The sender connects, offers its bytes and waits; the receiver takes them and, when
//! it has the last one, closes. So the sender learns from the FIN that everything is acknowledged, its counters are
//! final, and TIME_WAIT is on the receiver's side, where it holds no ephemeral port.

mod info;
mod listeners;
mod watermark;

use crate::clock::agenda::Action;
use crate::failure::{Of, Result};
use crate::plan::{Connect, Family, Link, Plan, Workload};
use crate::results::{self, address, FlowRecord, Status, Tally};
use crate::socket::{self, PATTERN_MAX};
use crate::transport::tcp::info::{InfoRow, TcpInfo};
use crate::transport::tcp::listeners::Listeners;
use crate::transport::tcp::watermark::Watermark;
use crate::workload::schedule::FlowSpec;
use crate::world::{Token, World, READABLE, WRITABLE};
use nix::sys::epoll::EpollFlags;
use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

struct Flow {
    /// Its number among all flows of the lab.
    id: u32,
    spec: FlowSpec,
    sender: Option<OwnedFd>,
    receiver: Option<Receiver>,
    src_port: u16,
    phase: Phase,
    sent_bytes: u64,
    received_bytes: u64,
    start_ns: i64,
    connected_ns: Option<i64>,
    end_ns: Option<i64>,
    tally: Tally,
    error: Option<Box<str>>,
}

struct Receiver {
    socket: OwnedFd,
    watermark: Watermark,
}

/// What the sender may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Connecting or connected ahead of its start.
    Early,
    Sending,
    /// Everything is offered, or its time is over.
    Quiet,
}

/// `connect: before` flows connect within this time ahead of the workloads' start, evenly spaced so that their SYNs
/// meet no queue.
pub const CONNECT_AHEAD_NS: u64 = 1_000_000_000;
const CONNECT_WINDOW_NS: u64 = 500_000_000;

pub struct Tcp {
    flows: Vec<Flow>,
    listeners: Listeners,
    /// Flows that have a sender, in order, for the series.
    active: BTreeSet<u32>,
    series: Option<BufWriter<File>>,
    /// What the kernel chose where the plan does not: the same for all flows of a workload between two nodes.
    controls: HashMap<(usize, usize, usize), String>,
    /// Of each node: whether its sockets have to be told their address.
    bind: Vec<bool>,
}

impl Tcp {
    /// Opens the listening sockets of all flows that end here.
    pub fn new(world: &World<'_>, flows: impl Iterator<Item = (u32, FlowSpec)>) -> Result<Self> {
        let plan = world.plan;
        let mut ports = Ports::default();
        // Every agent numbers all flows, and keeps its own.
        let flows =
            flows.map(|(id, spec)| Flow { src_port: ports.next(plan, spec.src), ..Flow::new(id, spec) });
        let flows: Vec<Flow> =
            flows.filter(|flow| plan.carries(flow.spec.src) || plan.carries(flow.spec.dst)).collect();
        let series =
            (world.plan.flow_interval_ns > 0).then(|| results::create("tcpinfo.ndjson")).transpose()?;
        let received = flows.iter().map(|flow| &flow.spec).filter(|spec| plan.carries(spec.dst));
        let mut listeners = Listeners::open(world, received)?;
        for (index, flow) in (0..).zip(&flows) {
            if plan.place.is_some() && plan.carries(flow.spec.dst) {
                let family = plan.workloads[flow.spec.workload].family;
                let source = SocketAddr::new(address(plan, flow.spec.src, family), flow.src_port);
                listeners.expect(world, &flow.spec, source, index);
            }
        }
        let bind = several_addresses(world.plan);
        Ok(Self { flows, listeners, active: BTreeSet::new(), series, controls: HashMap::new(), bind })
    }

    /// Puts all flows on the agenda. Their times count from `base_ns` (CLOCK_MONOTONIC).
    pub fn schedule(&mut self, world: &mut World<'_>, base_ns: u64) {
        let early = |flow: &&mut Flow| world.plan.workloads[flow.spec.workload].connect == Connect::Before;
        let spacing_ns = CONNECT_WINDOW_NS / self.flows.iter_mut().filter(early).count().max(1) as u64;
        let mut connect_ns = base_ns.saturating_sub(CONNECT_AHEAD_NS);
        for (index, flow) in (0..).zip(&mut self.flows) {
            let start_ns = base_ns + flow.spec.start_ns;
            flow.start_ns = world.since_epoch(start_ns);
            if !world.plan.carries(flow.spec.src) {
                flow.phase = Phase::Quiet;
                continue;
            }
            if world.plan.workloads[flow.spec.workload].connect == Connect::Before {
                world.agenda.add(connect_ns, Action::TcpConnect(index));
                world.agenda.add(start_ns, Action::TcpBegin(index));
                connect_ns += spacing_ns;
            } else {
                flow.phase = Phase::Sending;
                world.agenda.add(start_ns, Action::TcpConnect(index));
            }
            if let Some(stop_ns) = flow.spec.stop_ns {
                world.agenda.add(base_ns + stop_ns, Action::TcpStop(index));
            }
        }
    }

    pub fn connect(&mut self, world: &World<'_>, index: u32) -> Result<()> {
        let flow = &mut self.flows[index as usize];
        let workload = &world.plan.workloads[flow.spec.workload];
        world.lab.namespaces.enter(flow.spec.src)?;
        let bind = match flow.src_port {
            0 => self.bind[flow.spec.src].then_some(0),
            port => Some(port),
        };
        match open_sender(world, workload, &flow.spec, bind, index) {
            Ok((sender, source)) => {
                flow.src_port = source.port();
                if world.plan.place.is_none() {
                    self.listeners.expect(world, &flow.spec, source, index);
                }
                flow.sender = Some(sender);
                self.active.insert(index);
            }
            Err(error) => flow.error = Some(error.to_string().into()),
        }
        Ok(())
    }

    pub fn begin(&mut self, index: u32) {
        let flow = &mut self.flows[index as usize];
        if flow.phase == Phase::Early {
            flow.phase = Phase::Sending;
            if flow.connected_ns.is_some() {
                let result = flow.offer();
                self.settle(index, result);
            }
        }
    }

    pub fn stop(&mut self, index: u32) {
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

    pub fn on_listener(&mut self, world: &World<'_>, listener: u32) -> Result<()> {
        let Some(mut connection) = self.listeners.accept(listener)? else { return Ok(()) };
        let flow = &mut self.flows[connection.flow as usize];
        let here = || format!("flow {}: its receiver", flow.id);
        connection.watermark.adapt(&connection.socket, flow.remaining()).of(here)?;
        world.watch(&connection.socket, Token::Receiver(connection.flow), READABLE).of(here)?;
        flow.receiver = Some(Receiver { socket: connection.socket, watermark: connection.watermark });
        Ok(())
    }

    pub fn on_sender(&mut self, world: &World<'_>, index: u32, events: EpollFlags) {
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
        }
        if flow.phase == Phase::Sending {
            let result = flow.offer();
            self.settle(index, result);
        }
    }

    pub fn on_receiver(&mut self, world: &World<'_>, index: u32, events: EpollFlags) {
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
    pub fn sample(&mut self, world: &World<'_>) -> Result<()> {
        let Some(series) = &mut self.series else {
            return Ok(());
        };
        let time_ns = world.now_since_epoch();
        for index in &self.active {
            let flow = &self.flows[*index as usize];
            if let (Some(sender), Some(_)) = (&flow.sender, flow.connected_ns) {
                let info = TcpInfo::read(sender).of(|| format!("flow {}: TCP_INFO", flow.id))?;
                let written = results::line(series, &InfoRow::new(flow.id, time_ns, &info));
                written.of(|| "out/tcpinfo.ndjson".into())?;
            }
        }
        Ok(())
    }

    /// Takes what receivers still hold and reads the counters of senders that are still open.
    pub fn finish(&mut self, world: &World<'_>) -> Result<()> {
        for index in 0..self.flows.len() as u32 {
            self.on_receiver(world, index, EpollFlags::EPOLLRDHUP);
            if self.flows[index as usize].sender.is_some() {
                self.close_sender(index);
            }
        }
        self.series.take().map_or(Ok(()), |mut series| series.flush()).of(|| "out/tcpinfo.ndjson".into())
    }

    pub fn records<'a>(&'a self, world: &World<'a>) -> impl Iterator<Item = FlowRecord<'a>> {
        let plan = world.plan;
        self.flows.iter().map(move |flow| {
            let workload = &plan.workloads[flow.spec.workload];
            let key = (flow.spec.workload, flow.spec.src, flow.spec.dst);
            FlowRecord {
                flow: flow.id,
                workload: workload.id,
                label: &workload.label,
                transport: "tcp",
                congestion_control: self.controls.get(&key).map(String::as_str),
                src: flow.spec.src,
                dst: flow.spec.dst,
                src_address: address(plan, flow.spec.src, workload.family),
                dst_address: address(plan, flow.spec.dst, workload.family),
                src_port: flow.src_port,
                dst_port: workload.port,
                size_bytes: flow.spec.size_bytes,
                start_ns: flow.start_ns,
                connected_ns: flow.connected_ns,
                end_ns: flow.end_ns,
                received_bytes: flow.received_bytes,
                sent_bytes: flow.sent_bytes,
                status: flow.status(),
                error: flow.error.as_deref().map(str::to_owned),
                tally: flow.tally,
                segments_received: None,
            }
        })
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
        let FlowSpec { workload, src, dst, .. } = flow.spec;
        if let Entry::Vacant(unknown) = self.controls.entry((workload, src, dst)) {
            if let Ok(name) = socket::congestion_control(&sender) {
                unknown.insert(name);
            }
        }
    }
}

impl Flow {
    fn new(id: u32, spec: FlowSpec) -> Self {
        Self {
            id,
            spec,
            sender: None,
            receiver: None,
            src_port: 0,
            phase: Phase::Early,
            sent_bytes: 0,
            received_bytes: 0,
            start_ns: 0,
            connected_ns: None,
            end_ns: None,
            tally: Tally::default(),
            error: None,
        }
    }

    /// Bytes that the receiver still lacks; None: nobody knows.
    fn remaining(&self) -> Option<u64> {
        self.spec.size_bytes.map(|size| size - self.received_bytes)
    }

    fn status(&self) -> Status {
        match (&self.error, self.end_ns) {
            (Some(_), _) => Status::Failed,
            (None, Some(_)) => Status::Complete,
            (None, None) => Status::Running,
        }
    }

    /// Takes what the receiver holds.
    fn take(&mut self, world: &World<'_>) -> io::Result<()> {
        let Some(receiver) = &mut self.receiver else { return Ok(()) };
        let Some(length) = socket::discard(&receiver.socket)? else { return Ok(()) };
        self.received_bytes += length as u64;
        let remaining = self.spec.size_bytes.map(|size| size - self.received_bytes);
        let ended = length == 0;
        if remaining == Some(0) || (ended && remaining.is_none()) {
            self.end_ns = Some(world.now_since_epoch());
        }
        // A flow with a size whose stream ends early was stopped: it stays without an end.
        if ended || remaining == Some(0) {
            self.receiver = None;
            return Ok(());
        }
        receiver.watermark.adapt(&receiver.socket, remaining)
    }

    /// Fills the send buffer.
    fn offer(&mut self) -> io::Result<()> {
        let Some(sender) = &self.sender else { return Ok(()) };
        loop {
            let left = self.spec.size_bytes.map_or(u64::MAX, |size| size - self.sent_bytes);
            if left == 0 {
                self.phase = Phase::Quiet;
                return Ok(());
            }
            let length = left.min(PATTERN_MAX as u64) as usize;
            let Some(taken) = socket::send_pattern(sender, length, left > length as u64)? else {
                return Ok(());
            };
            self.sent_bytes += taken as u64;
            if taken < length {
                return Ok(());
            }
        }
    }
}

/// Source ports where sender and receiver have different agents: the receiver's has to know them.
#[derive(Default)]
struct Ports(HashMap<usize, u16>);

impl Ports {
    const FIRST: u16 = 10_000;
    /// Below the kernel's own ephemeral ports.
    const COUNT: u16 = 22_000;

    /// 0: the kernel chooses.
    fn next(&mut self, plan: &Plan, src: usize) -> u16 {
        if plan.place.is_none() {
            return 0;
        }
        let used = self.0.entry(src).or_default();
        let port = Self::FIRST + *used;
        *used = (*used + 1) % Self::COUNT;
        port
    }
}

/// Of each node: whether it has more than one address of a family, so that the kernel cannot know which one is meant.
fn several_addresses(plan: &Plan) -> Vec<bool> {
    let mut addresses: Vec<BTreeSet<IpAddr>> =
        plan.nodes.iter().map(|node| node.addresses.iter().copied().collect()).collect();
    for end in plan.links.iter().flat_map(Link::ends) {
        addresses[end.node].extend(end.addresses.iter().map(|prefix| prefix.address));
    }
    let of = |all: &BTreeSet<IpAddr>, family| all.iter().filter(|a| Family::of(**a) == family).count();
    addresses.iter().map(|all| of(all, Family::V4) > 1 || of(all, Family::V6) > 1).collect()
}

/// A socket that connects, and its own address.
fn open_sender(
    world: &World<'_>,
    workload: &Workload,
    spec: &FlowSpec,
    bind: Option<u16>,
    index: u32,
) -> Result<(OwnedFd, SocketAddr)> {
    let src = address(world.plan, spec.src, workload.family);
    let dst = address(world.plan, spec.dst, workload.family);
    let open = || {
        let fd = socket::open(socket::domain(src), libc::SOCK_STREAM | libc::SOCK_NONBLOCK, 0)?;
        // The last segment is not held back; MSG_MORE keeps all others full.
        socket::set(&fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)?;
        if let Some(name) = world.plan.congestion_control(workload, spec.src) {
            socket::set_text(&fd, libc::IPPROTO_TCP, libc::TCP_CONGESTION, name)?;
        }
        if let Some(port) = bind {
            // A port of 0 is chosen at connect(), where only the four-tuple has to be free.
            let option = if port == 0 {
                (libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT)
            } else {
                (libc::SOL_SOCKET, libc::SO_REUSEADDR)
            };
            socket::set(&fd, option.0, option.1, 1)?;
            socket::bind(&fd, SocketAddr::new(src, port))?;
        }
        socket::connect(&fd, SocketAddr::new(dst, workload.port))?;
        let port = socket::local_port(&fd)?;
        world.watch(&fd, Token::Sender(index), WRITABLE)?;
        Ok::<_, io::Error>((fd, SocketAddr::new(src, port)))
    };
    open().of(|| format!("connecting {src} to {dst} port {}", workload.port))
}
