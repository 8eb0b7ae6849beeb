// SPDX-License-Identifier: Apache-2.0
//! UDP flows of constant bit rate. The deadline of each datagram is computed from the start, so that errors do not
//! accumulate. Receivers are drained rarely; arrival times are the kernel's timestamps.

use crate::failure::{Context, Result};
use crate::plan::workload::{Family, Workload};
use crate::results::flows::{FlowRecord, SenderCounters, Status};
use crate::socket::{self, ReceiveBatch};
use crate::transport::{set_dscp, NumberedFlow, Transport, TransportKind};
use crate::workload::ports::{self, LocalFlow};
use crate::workload::schedule::FlowSpec;
use crate::world::token::{Part, Token, Topic};
use crate::world::World;
use nix::sys::epoll::EpollFlags;
use serde::Deserialize;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

pub const KIND: TransportKind = TransportKind {
    name: "udp",
    check: |_, workload| Settings::of(workload)?.check(),
    open: |world, part, flows| Ok(Box::new(Cbr::open(world, part, flows)?)),
};

/// Rate of payload bits, and payload per datagram.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    rate_bps: u64,
    packet_bytes: u32,
}

impl Settings {
    fn of(workload: &Workload) -> std::result::Result<Self, String> {
        workload.settings()
    }

    fn check(self) -> std::result::Result<(), String> {
        if self.rate_bps == 0 {
            return Err("rate_bps is 0".into());
        }
        if !(1..=65_000).contains(&self.packet_bytes) {
            return Err("packet_bytes is not in 1..65000".into());
        }
        Ok(())
    }
}

/// Socket buffer size: for all datagrams between two drains, and for those in the sender's queue.
const BUFFER_BYTES: i32 = 256 << 20;
/// Number of datagrams to a receiver between two drains.
const DATAGRAMS_PER_DRAIN: u32 = 512;
/// Interval of drains if a sender is remote.
const DRAIN_INTERVAL_NS: u64 = 10_000_000;
/// First source port if the kernel does not choose it: one above TCP's.
const FIRST_PORT: u16 = 10_001;

struct Flow {
    local: LocalFlow,
    settings: Settings,
    sender: Option<OwnedFd>,
    /// Index in `receivers`; None: the receiver is remote.
    receiver: Option<usize>,
    base_ns: u64,
    start_ns: i64,
    last_arrival_ns: Option<i64>,
    sent: Count,
    received: Count,
    done: bool,
    error: Option<Box<str>>,
}

#[derive(Default)]
struct Count {
    datagrams: u64,
    bytes: u64,
}

/// The socket of all flows to a node's port.
struct Receiver {
    name: String,
    socket: OwnedFd,
    flows: HashMap<SocketAddr, u32>,
    /// Datagrams since the last drain.
    undrained: u32,
}

struct Cbr {
    /// By flow: the next datagram is due.
    sends: Topic,
    drains: Topic,
    flows: Vec<Flow>,
    receivers: Vec<Receiver>,
    batch: ReceiveBatch,
    payload: Vec<u8>,
}

impl Cbr {
    /// Opens the receivers.
    fn open(world: &mut World<'_>, part: Part, flows: Vec<NumberedFlow>) -> Result<Self> {
        let (sends, drains) = (world.topic(part), world.topic(part));
        let (batch, payload) = (ReceiveBatch::new(1), Vec::new());
        let mut cbr = Self { sends, drains, flows: Vec::new(), receivers: Vec::new(), batch, payload };
        let settings = world.plan.workloads.iter().map(Settings::of).collect::<Vec<_>>();
        let mut receivers = HashMap::new();
        for (index, local) in (0..).zip(ports::local_flows(world.placement, flows, FIRST_PORT)) {
            let settings = *settings[local.spec.workload].as_ref().expect("`check` has parsed the settings");
            let receiver = local.receives.then(|| cbr.receiver(world, &local.spec, &mut receivers));
            let receiver = receiver.transpose()?;
            if let Some(receiver) = receiver.filter(|_| local.src_port != 0) {
                let family = world.plan.workloads[local.spec.workload].family;
                let source = SocketAddr::new(world.plan.address(local.spec.src, family), local.src_port);
                cbr.receivers[receiver].flows.insert(source, index);
            }
            cbr.payload.resize(cbr.payload.len().max(settings.packet_bytes as usize), 0x71);
            cbr.flows.push(Flow::new(local, settings, receiver));
        }
        Ok(cbr)
    }

    /// Index of a flow's receiver. Opens it for the first flow.
    fn receiver(
        &mut self,
        world: &World<'_>,
        spec: &FlowSpec,
        receivers: &mut HashMap<(usize, u16, Family), usize>,
    ) -> Result<usize> {
        let Workload { port, family, .. } = world.plan.workloads[spec.workload];
        let key = (spec.dst, port, family);
        if let Some(receiver) = receivers.get(&key) {
            return Ok(*receiver);
        }
        let name = format!("node {}: UDP port {port}", world.lab.namespaces.name(spec.dst));
        world.lab.namespaces.enter(spec.dst)?;
        let address = SocketAddr::new(world.plan.address(spec.dst, family), port);
        let socket = open_receiver(address).with_context(|| name.clone())?;
        self.receivers.push(Receiver { name, socket, flows: HashMap::new(), undrained: 0 });
        receivers.insert(key, self.receivers.len() - 1);
        Ok(self.receivers.len() - 1)
    }

    /// Sends a flow's next datagram. Opens its socket for the first one.
    fn send(&mut self, world: &mut World<'_>, token: Token) -> Result<()> {
        let flow = &mut self.flows[token.index as usize];
        if flow.sender.is_none() && flow.error.is_none() {
            world.lab.namespaces.enter(flow.local.spec.src)?;
            match open_sender(world, &flow.local) {
                Ok((socket, source)) => {
                    flow.local.src_port = source.port();
                    flow.sender = Some(socket);
                    if let Some(receiver) = flow.receiver {
                        self.receivers[receiver].flows.insert(source, token.index);
                    }
                }
                Err(error) => flow.error = Some(error.to_string().into()),
            }
        }
        let Some(sender) = &flow.sender else { return Ok(()) };
        let length = flow.next_length();
        match socket::send(sender, &self.payload[..length]) {
            Ok(_) => flow.sent.add(length),
            Err(error) => {
                flow.error = Some(error.to_string().into());
                flow.sender = None;
                return Ok(());
            }
        }
        if let Some(next_ns) = flow.next_ns() {
            world.agenda.add(next_ns, token);
        } else {
            flow.sender = None;
            flow.done = true;
        }
        let Some(receiver) = flow.receiver else { return Ok(()) };
        self.receivers[receiver].undrained += 1;
        if self.receivers[receiver].undrained >= DATAGRAMS_PER_DRAIN {
            self.drain(world, receiver)?;
        }
        Ok(())
    }

    fn drain(&mut self, world: &World<'_>, receiver: usize) -> Result<()> {
        let Receiver { name, socket, flows: by_source, undrained } = &mut self.receivers[receiver];
        *undrained = 0;
        let flows = &mut self.flows;
        let each = |datagram: socket::Datagram<'_>| {
            if let Some(index) = by_source.get(&datagram.from) {
                let flow = &mut flows[*index as usize];
                flow.received.add(datagram.length);
                flow.last_arrival_ns = Some(world.timestamp_since_epoch(datagram.time_ns));
            }
        };
        self.batch.drain(socket, each).with_context(|| name.clone())
    }
}

impl Transport for Cbr {
    /// Schedules the first datagram of each flow.
    fn schedule(&mut self, world: &mut World<'_>, base_ns: u64) {
        for (index, flow) in (0..).zip(&mut self.flows) {
            flow.base_ns = base_ns;
            flow.start_ns = world.since_epoch(base_ns + flow.local.spec.start_ns);
            if flow.local.sends {
                world.agenda.add(base_ns + flow.local.spec.start_ns, self.sends.at(index));
            }
        }
        // Receivers with local senders are drained after every `DATAGRAMS_PER_DRAIN` datagrams.
        if self.flows.iter().any(|flow| flow.local.receives && !flow.local.sends) {
            world.agenda.add(base_ns, self.drains.only());
        }
    }

    /// Unused: receivers are drained periodically and are not watched.
    fn on_ready(&mut self, _world: &mut World<'_>, _token: Token, _events: EpollFlags) -> Result<()> {
        Ok(())
    }

    fn on_timer(&mut self, world: &mut World<'_>, token: Token, due_ns: u64) -> Result<()> {
        if token.topic == self.sends {
            return self.send(world, token);
        }
        world.agenda.add(due_ns + DRAIN_INTERVAL_NS, token);
        self.finish(world)
    }

    fn received_bytes(&mut self, world: &World<'_>, _at_ns: i64) -> Result<Vec<(u32, u64)>> {
        self.finish(world)?;
        let active = self.flows.iter().filter(|flow| flow.received.bytes > 0);
        Ok(active.map(|flow| (flow.local.id, flow.received.bytes)).collect())
    }

    /// Drains all receivers.
    fn finish(&mut self, world: &World<'_>) -> Result<()> {
        (0..self.receivers.len()).try_for_each(|receiver| self.drain(world, receiver))
    }

    fn records<'a>(&'a self, world: &World<'a>) -> Vec<FlowRecord<'a>> {
        self.flows.iter().map(|flow| flow.record(world)).collect()
    }
}

impl Flow {
    fn new(local: LocalFlow, settings: Settings, receiver: Option<usize>) -> Self {
        Self {
            local,
            settings,
            sender: None,
            receiver,
            base_ns: 0,
            start_ns: 0,
            last_arrival_ns: None,
            sent: Count::default(),
            received: Count::default(),
            done: false,
            error: None,
        }
    }

    /// Payload bytes of the next datagram. The last one may be shorter.
    fn next_length(&self) -> usize {
        let left = self.local.spec.size_bytes.map_or(u64::MAX, |size| size - self.sent.bytes);
        left.min(self.settings.packet_bytes.into()) as usize
    }

    /// Deadline of the next datagram; None after the last.
    fn next_ns(&self) -> Option<u64> {
        let offset = u128::from(self.sent.bytes) * 8 * 1_000_000_000 / u128::from(self.settings.rate_bps);
        let since_base = self.local.spec.start_ns.saturating_add(u64::try_from(offset).ok()?);
        let left = self.local.spec.size_bytes.is_none_or(|size| self.sent.bytes < size);
        let in_time = self.local.spec.stop_ns.is_none_or(|stop| since_base < stop);
        (left && in_time).then_some(self.base_ns.saturating_add(since_base))
    }

    fn record<'a>(&'a self, world: &World<'a>) -> FlowRecord<'a> {
        let status = match (&self.error, self.done) {
            (Some(_), _) => Status::Failed,
            (None, true) => Status::Complete,
            (None, false) => Status::Running,
        };
        FlowRecord {
            end_ns: self.last_arrival_ns.filter(|_| self.done || !self.local.sends),
            received_bytes: self.received.bytes,
            sent_bytes: self.sent.bytes,
            status,
            error: self.error.as_deref().map(str::to_owned),
            counters: SenderCounters { segments_sent: self.sent.datagrams, ..SenderCounters::default() },
            segments_received: Some(self.received.datagrams),
            ..FlowRecord::new(world.plan, &self.local, self.start_ns)
        }
    }
}

impl Count {
    fn add(&mut self, length: usize) {
        self.datagrams += 1;
        self.bytes += length as u64;
    }
}

fn open_receiver(address: SocketAddr) -> io::Result<OwnedFd> {
    let fd = socket::open(socket::domain(address.ip()), libc::SOCK_DGRAM, 0)?;
    socket::set(&fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, BUFFER_BYTES)?;
    socket::set(&fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)?;
    socket::bind(&fd, address)?;
    Ok(fd)
}

fn open_sender(world: &World<'_>, flow: &LocalFlow) -> io::Result<(OwnedFd, SocketAddr)> {
    let LocalFlow { spec, src_port, .. } = flow;
    let workload = &world.plan.workloads[spec.workload];
    let [src, dst] = [spec.src, spec.dst].map(|node| world.plan.address(node, workload.family));
    let fd = socket::open(socket::domain(src), libc::SOCK_DGRAM | libc::SOCK_NONBLOCK, 0)?;
    socket::set(&fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, BUFFER_BYTES)?;
    set_dscp(&fd, workload)?;
    socket::bind(&fd, SocketAddr::new(src, *src_port))?;
    socket::connect(&fd, SocketAddr::new(dst, workload.port))?;
    let port = socket::local_port(&fd)?;
    Ok((fd, SocketAddr::new(src, port)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn flow(rate_bps: u64, packet_bytes: u32, size_bytes: Option<u64>, stop_ns: Option<u64>) -> Flow {
        let spec = FlowSpec { workload: 0, src: 0, dst: 1, size_bytes, start_ns: 100, stop_ns };
        let local = LocalFlow { id: 0, spec, sends: true, receives: false, src_port: 0 };
        Flow::new(local, Settings { rate_bps, packet_bytes }, None)
    }

    fn deadlines(mut flow: Flow) -> Vec<u64> {
        let mut times = vec![flow.local.spec.start_ns];
        loop {
            flow.sent.add(flow.next_length());
            match flow.next_ns() {
                Some(time) => times.push(time),
                None => return times,
            }
        }
    }

    #[test]
    fn spacing_is_exact() {
        assert_eq!(
            deadlines(flow(8_000_000, 1000, Some(3500), None)),
            [100, 1_000_100, 2_000_100, 3_000_100]
        );
    }

    #[test]
    fn no_datagram_is_due_at_the_stop() {
        assert_eq!(deadlines(flow(8_000_000, 1000, None, Some(2_000_100))), [100, 1_000_100]);
    }

    proptest! {
        #[test]
        fn deadlines_do_not_drift(rate_bps in 1_000u64..100_000_000_000, packet_bytes in 1u32..9000, n in 1u64..1000) {
            let mut flow = flow(rate_bps, packet_bytes, None, None);
            flow.sent.bytes = n * u64::from(packet_bytes);
            let exact = 100.0 + flow.sent.bytes as f64 * 8e9 / rate_bps as f64;
            prop_assert!((flow.next_ns().unwrap() as f64 - exact).abs() <= 1.0 + exact * 1e-12);
        }
    }
}
