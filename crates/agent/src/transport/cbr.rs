// SPDX-License-Identifier: Apache-2.0
//! UDP flows of constant bit rate: each datagram has its own deadline, computed from the start, so nothing drifts.
//! Receivers are drained seldom; the kernel's time stamps say when a datagram came.

use crate::failure::{Of, Result};
use crate::plan::workload::{Family, Workload};
use crate::results::flows::{FlowRecord, Status, Tally};
use crate::socket::{self, Inbox};
use crate::transport::{mark, Kind, Numbered, Transport};
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

pub const KIND: Kind = Kind {
    name: "udp",
    check: |_, workload| Settings::of(workload)?.check(),
    open: |world, part, flows| Ok(Box::new(Cbr::open(world, part, flows)?)),
};

/// `rate_bps` of payload in datagrams of `packet_bytes` of payload.
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

/// Room for every datagram between two drains and for those that wait in a sender's own queue.
const BUFFER_BYTES: i32 = 256 << 20;
/// Datagrams sent to a receiver until it is drained.
const DRAIN_EVERY: u32 = 512;
/// Where the sender is elsewhere, receivers are drained this often.
const DRAIN_INTERVAL_NS: u64 = 10_000_000;
/// Source ports, where the kernel does not choose them, begin here: one above TCP's.
const FIRST_PORT: u16 = 10_001;

struct Flow {
    local: LocalFlow,
    settings: Settings,
    sender: Option<OwnedFd>,
    /// None: another agent has it.
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

/// One socket for all flows to a node's port.
struct Receiver {
    name: String,
    socket: OwnedFd,
    flows: HashMap<SocketAddr, u32>,
    undrained: u32,
}

struct Cbr {
    /// By flow: its next datagram is due.
    sends: Topic,
    drains: Topic,
    flows: Vec<Flow>,
    receivers: Vec<Receiver>,
    inbox: Inbox,
    payload: Vec<u8>,
}

impl Cbr {
    /// Opens the receivers.
    fn open(world: &mut World<'_>, part: Part, flows: Vec<Numbered>) -> Result<Self> {
        let (sends, drains) = (world.topic(part), world.topic(part));
        let (inbox, payload) = (Inbox::new(1), Vec::new());
        let mut cbr = Self { sends, drains, flows: Vec::new(), receivers: Vec::new(), inbox, payload };
        let settings = world.plan.workloads.iter().map(Settings::of).collect::<Vec<_>>();
        let mut receivers = HashMap::new();
        for (index, local) in (0..).zip(ports::local(world.scope, flows, FIRST_PORT)) {
            let settings = *settings[local.spec.workload].as_ref().expect("`check` has read them");
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

    /// The receiver of a flow that ends here, opened if it is the first one there.
    fn receiver(
        &mut self,
        world: &World<'_>,
        spec: &FlowSpec,
        known: &mut HashMap<(usize, u16, Family), usize>,
    ) -> Result<usize> {
        let Workload { port, family, .. } = world.plan.workloads[spec.workload];
        let key = (spec.dst, port, family);
        if let Some(receiver) = known.get(&key) {
            return Ok(*receiver);
        }
        let name = format!("node {}: UDP port {port}", world.lab.namespaces.name(spec.dst));
        world.lab.namespaces.enter(spec.dst)?;
        let at = SocketAddr::new(world.plan.address(spec.dst, family), port);
        let socket = open_receiver(at).of(|| name.clone())?;
        self.receivers.push(Receiver { name, socket, flows: HashMap::new(), undrained: 0 });
        known.insert(key, self.receivers.len() - 1);
        Ok(self.receivers.len() - 1)
    }

    /// Sends a flow's next datagram; the first one opens its socket.
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
        if self.receivers[receiver].undrained >= DRAIN_EVERY {
            self.drain(world, receiver)?;
        }
        Ok(())
    }

    fn drain(&mut self, world: &World<'_>, receiver: usize) -> Result<()> {
        let Receiver { name, socket, flows: known, undrained } = &mut self.receivers[receiver];
        *undrained = 0;
        let flows = &mut self.flows;
        let each = |datagram: socket::Datagram<'_>| {
            if let Some(index) = known.get(&datagram.from) {
                let flow = &mut flows[*index as usize];
                flow.received.add(datagram.length);
                flow.last_arrival_ns = Some(world.stamp_since_epoch(datagram.time_ns));
            }
        };
        self.inbox.drain(socket, each).of(|| name.clone())
    }
}

impl Transport for Cbr {
    /// Puts the first datagram of each flow on the agenda.
    fn schedule(&mut self, world: &mut World<'_>, base_ns: u64) {
        for (index, flow) in (0..).zip(&mut self.flows) {
            flow.base_ns = base_ns;
            flow.start_ns = world.since_epoch(base_ns + flow.local.spec.start_ns);
            if flow.local.sends {
                world.agenda.add(base_ns + flow.local.spec.start_ns, self.sends.at(index));
            }
        }
        // Receivers whose senders are here are drained as these send.
        if self.flows.iter().any(|flow| flow.local.receives && !flow.local.sends) {
            world.agenda.add(base_ns, self.drains.only());
        }
    }

    /// It watches nothing: receivers are drained when there may be something.
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

    fn received(&mut self, world: &World<'_>, _at_ns: i64) -> Result<Vec<(u32, u64)>> {
        self.finish(world)?;
        let begun = self.flows.iter().filter(|flow| flow.received.bytes > 0);
        Ok(begun.map(|flow| (flow.local.id, flow.received.bytes)).collect())
    }

    /// Takes what receivers hold.
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

    /// Payload of the next datagram; the last one may be short.
    fn next_length(&self) -> usize {
        let left = self.local.spec.size_bytes.map_or(u64::MAX, |size| size - self.sent.bytes);
        left.min(self.settings.packet_bytes.into()) as usize
    }

    /// When the next datagram is due; None: there is none.
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
            tally: Tally { segments_sent: self.sent.datagrams, ..Tally::default() },
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

fn open_receiver(at: SocketAddr) -> io::Result<OwnedFd> {
    let fd = socket::open(socket::domain(at.ip()), libc::SOCK_DGRAM, 0)?;
    socket::set(&fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, BUFFER_BYTES)?;
    socket::set(&fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)?;
    socket::bind(&fd, at)?;
    Ok(fd)
}

fn open_sender(world: &World<'_>, flow: &LocalFlow) -> io::Result<(OwnedFd, SocketAddr)> {
    let LocalFlow { spec, src_port, .. } = flow;
    let workload = &world.plan.workloads[spec.workload];
    let [src, dst] = [spec.src, spec.dst].map(|node| world.plan.address(node, workload.family));
    let fd = socket::open(socket::domain(src), libc::SOCK_DGRAM | libc::SOCK_NONBLOCK, 0)?;
    socket::set(&fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, BUFFER_BYTES)?;
    mark(&fd, workload)?;
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
    fn a_stop_ends_the_row() {
        assert_eq!(deadlines(flow(8_000_000, 1000, None, Some(2_000_100))), [100, 1_000_100]);
    }

    proptest! {
        #[test]
        fn nothing_drifts(rate_bps in 1_000u64..100_000_000_000, packet_bytes in 1u32..9000, n in 1u64..1000) {
            let mut flow = flow(rate_bps, packet_bytes, None, None);
            flow.sent.bytes = n * u64::from(packet_bytes);
            let exact = 100.0 + flow.sent.bytes as f64 * 8e9 / rate_bps as f64;
            prop_assert!((flow.next_ns().unwrap() as f64 - exact).abs() <= 1.0 + exact * 1e-12);
        }
    }
}
