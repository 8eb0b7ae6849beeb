// SPDX-License-Identifier: Apache-2.0
//! UDP flows of constant bit rate: each datagram has its own deadline, computed from the start, so nothing drifts.
//! Receivers are drained seldom; the kernel's time stamps say when a datagram came.

use crate::clock::agenda::Action;
use crate::failure::{Of, Result};
use crate::plan::{Family, Transport};
use crate::results::{address, FlowRecord, Status, Tally};
use crate::socket::{self, Inbox};
use crate::workload::schedule::FlowSpec;
use crate::world::World;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

/// Room for every datagram between two drains and for those that wait in a sender's own queue.
const BUFFER_BYTES: i32 = 256 << 20;
/// Datagrams sent to a receiver until it is drained.
const DRAIN_EVERY: u32 = 512;
/// Where the sender is elsewhere, receivers are drained this often.
const DRAIN_INTERVAL_NS: u64 = 10_000_000;
/// Source ports where sender and receiver have different agents.
const FIRST_PLACED_PORT: u16 = 10_000;
const PLACED_PORTS: u16 = 22_000;

struct Flow {
    id: u32,
    spec: FlowSpec,
    rate_bps: u64,
    packet_bytes: u32,
    sender: Option<OwnedFd>,
    src_port: u16,
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

pub struct Udp {
    flows: Vec<Flow>,
    receivers: Vec<Receiver>,
    inbox: Inbox,
    payload: Vec<u8>,
}

impl Udp {
    /// Opens the receivers.
    pub fn new(world: &World<'_>, flows: impl Iterator<Item = (u32, FlowSpec)>) -> Result<Self> {
        let mut udp =
            Self { flows: Vec::new(), receivers: Vec::new(), inbox: Inbox::new(1), payload: Vec::new() };
        let mut index: HashMap<(usize, u16, Family), usize> = HashMap::new();
        let mut ranks: HashMap<usize, u16> = HashMap::new();
        for (id, spec) in flows {
            let workload = &world.plan.workloads[spec.workload];
            let Transport::Udp { rate_bps, packet_bytes } = workload.transport else {
                continue;
            };
            let src_port = if world.plan.place.is_some() {
                let rank = ranks.entry(spec.src).or_default();
                *rank = (*rank + 1) % PLACED_PORTS;
                FIRST_PLACED_PORT + *rank
            } else {
                0
            };
            if !world.plan.carries(spec.dst) {
                if world.plan.carries(spec.src) {
                    udp.payload.resize(udp.payload.len().max(packet_bytes as usize), 0x71);
                    udp.flows.push(Flow { src_port, ..Flow::new(id, spec, rate_bps, packet_bytes, None) });
                }
                continue;
            }
            let key = (spec.dst, workload.port, workload.family);
            let receiver = if let Some(known) = index.get(&key) {
                *known
            } else {
                let name =
                    format!("node {}: UDP port {}", world.lab.namespaces.name(spec.dst), workload.port);
                world.lab.namespaces.enter(spec.dst)?;
                let at = SocketAddr::new(address(world.plan, spec.dst, workload.family), workload.port);
                let socket = open_receiver(at).of(|| name.clone())?;
                index.insert(key, udp.receivers.len());
                udp.receivers.push(Receiver { name, socket, flows: HashMap::new(), undrained: 0 });
                udp.receivers.len() - 1
            };
            udp.payload.resize(udp.payload.len().max(packet_bytes as usize), 0x71);
            if src_port != 0 {
                let source = SocketAddr::new(address(world.plan, spec.src, workload.family), src_port);
                udp.receivers[receiver].flows.insert(source, udp.flows.len() as u32);
            }
            udp.flows.push(Flow { src_port, ..Flow::new(id, spec, rate_bps, packet_bytes, Some(receiver)) });
        }
        Ok(udp)
    }

    /// Puts the first datagram of each flow on the agenda.
    pub fn schedule(&mut self, world: &mut World<'_>, base_ns: u64) {
        for (index, flow) in (0..).zip(&mut self.flows) {
            flow.base_ns = base_ns;
            flow.start_ns = world.since_epoch(base_ns + flow.spec.start_ns);
            if world.plan.carries(flow.spec.src) {
                world.agenda.add(base_ns + flow.spec.start_ns, Action::UdpSend(index));
            }
        }
        if world.plan.place.is_some() && !self.receivers.is_empty() {
            world.agenda.add(base_ns, Action::UdpDrain);
        }
    }

    pub fn send(&mut self, world: &mut World<'_>, index: u32) -> Result<()> {
        let flow = &mut self.flows[index as usize];
        if flow.sender.is_none() && flow.error.is_none() {
            world.lab.namespaces.enter(flow.spec.src)?;
            match open_sender(world, &flow.spec, flow.src_port) {
                Ok((socket, source)) => {
                    flow.src_port = source.port();
                    flow.sender = Some(socket);
                    if let Some(receiver) = flow.receiver {
                        self.receivers[receiver].flows.insert(source, index);
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
            world.agenda.add(next_ns, Action::UdpSend(index));
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

    /// For receivers whose senders are elsewhere: a round, and the next one.
    pub fn drain_all(&mut self, world: &mut World<'_>, due_ns: u64) -> Result<()> {
        world.agenda.add(due_ns + DRAIN_INTERVAL_NS, Action::UdpDrain);
        self.finish(world)
    }

    pub fn finish(&mut self, world: &World<'_>) -> Result<()> {
        (0..self.receivers.len()).try_for_each(|receiver| self.drain(world, receiver))
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

    pub fn records<'a>(&'a self, world: &World<'a>) -> impl Iterator<Item = FlowRecord<'a>> {
        let plan = world.plan;
        self.flows.iter().map(move |flow| {
            let workload = &plan.workloads[flow.spec.workload];
            let elsewhere = !plan.carries(flow.spec.src);
            let status = match (&flow.error, flow.done) {
                (Some(_), _) => Status::Failed,
                (None, true) => Status::Complete,
                (None, false) => Status::Running,
            };
            FlowRecord {
                flow: flow.id,
                workload: workload.id,
                label: &workload.label,
                transport: "udp",
                congestion_control: None,
                src: flow.spec.src,
                dst: flow.spec.dst,
                src_address: address(plan, flow.spec.src, workload.family),
                dst_address: address(plan, flow.spec.dst, workload.family),
                src_port: flow.src_port,
                dst_port: workload.port,
                size_bytes: flow.spec.size_bytes,
                start_ns: flow.start_ns,
                connected_ns: None,
                end_ns: flow.last_arrival_ns.filter(|_| flow.done || elsewhere),
                received_bytes: flow.received.bytes,
                sent_bytes: flow.sent.bytes,
                status,
                error: flow.error.as_deref().map(str::to_owned),
                tally: Tally { segments_sent: flow.sent.datagrams, ..Tally::default() },
                segments_received: Some(flow.received.datagrams),
            }
        })
    }
}

impl Flow {
    fn new(id: u32, spec: FlowSpec, rate_bps: u64, packet_bytes: u32, receiver: Option<usize>) -> Self {
        Self {
            id,
            spec,
            rate_bps,
            packet_bytes,
            sender: None,
            src_port: 0,
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
        let left = self.spec.size_bytes.map_or(u64::MAX, |size| size - self.sent.bytes);
        left.min(self.packet_bytes.into()) as usize
    }

    /// When the next datagram is due; None: there is none.
    fn next_ns(&self) -> Option<u64> {
        let offset = u128::from(self.sent.bytes) * 8 * 1_000_000_000 / u128::from(self.rate_bps);
        let since_base = self.spec.start_ns.saturating_add(u64::try_from(offset).ok()?);
        let left = self.spec.size_bytes.is_none_or(|size| self.sent.bytes < size);
        let in_time = self.spec.stop_ns.is_none_or(|stop| since_base < stop);
        (left && in_time).then_some(self.base_ns.saturating_add(since_base))
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

fn open_sender(world: &World<'_>, spec: &FlowSpec, port: u16) -> io::Result<(OwnedFd, SocketAddr)> {
    let workload = &world.plan.workloads[spec.workload];
    let src = address(world.plan, spec.src, workload.family);
    let dst = address(world.plan, spec.dst, workload.family);
    let fd = socket::open(socket::domain(src), libc::SOCK_DGRAM | libc::SOCK_NONBLOCK, 0)?;
    socket::set(&fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, BUFFER_BYTES)?;
    socket::bind(&fd, SocketAddr::new(src, port))?;
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
        Flow::new(0, spec, rate_bps, packet_bytes, None)
    }

    fn deadlines(mut flow: Flow) -> Vec<u64> {
        let mut times = vec![flow.spec.start_ns];
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
