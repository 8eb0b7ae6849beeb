// SPDX-License-Identifier: Apache-2.0
//! UDP flows of constant bit rate. The deadline of each datagram is computed from the start, so that errors do not
//! accumulate. Receivers are drained rarely; arrival times are the kernel's timestamps.

use crate::failure::{Context, Result};
use crate::plan::workload::Workload;
use crate::results::flows::{FlowRecord, SenderCounters};
use crate::socket::{self, ReceiveBatch};
use crate::transport::datagram::{open_sender, Ends, Options, Receiver, Receivers};
use crate::transport::{NumberedFlow, Transport, TransportKind};
use crate::workload::ports;
use crate::world::token::{Part, Token, Topic};
use crate::world::World;
use nix::sys::epoll::EpollFlags;
use serde::Deserialize;
use std::collections::HashMap;
use std::net::SocketAddr;

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
const SENDER: Options = &[(libc::SO_SNDBUFFORCE, BUFFER_BYTES)];
const RECEIVER: Options = &[(libc::SO_RCVBUFFORCE, BUFFER_BYTES), (libc::SO_TIMESTAMPNS, 1)];
/// Number of datagrams to a receiver between two drains.
const DATAGRAMS_PER_DRAIN: u32 = 512;
/// Interval of drains if a sender is remote.
const DRAIN_INTERVAL_NS: u64 = 10_000_000;
/// First source port if the kernel does not choose it: one above TCP's.
const FIRST_PORT: u16 = 10_001;

struct Flow {
    ends: Ends,
    settings: Settings,
    sent: Count,
    received: Count,
}

#[derive(Default)]
struct Count {
    datagrams: u64,
    bytes: u64,
}

/// The senders of a receiver.
#[derive(Default)]
struct Senders {
    flows: HashMap<SocketAddr, u32>,
    /// Datagrams since the last drain.
    undrained: u32,
}

struct Cbr {
    /// By flow: the next datagram is due.
    sends: Topic,
    drains: Topic,
    flows: Vec<Flow>,
    receivers: Receivers,
    /// By receiver.
    senders: Vec<Senders>,
    batch: ReceiveBatch,
    payload: Vec<u8>,
}

impl Cbr {
    /// Opens the receivers.
    fn open(world: &mut World<'_>, part: Part, flows: Vec<NumberedFlow>) -> Result<Self> {
        let (sends, drains) = (world.topic(part), world.topic(part));
        let (receivers, batch) = (Receivers::new(RECEIVER), ReceiveBatch::new(1));
        let mut cbr = Self {
            sends,
            drains,
            flows: Vec::new(),
            receivers,
            senders: Vec::new(),
            batch,
            payload: Vec::new(),
        };
        let settings = world.plan.workloads.iter().map(Settings::of).collect::<Vec<_>>();
        for (index, local) in (0..).zip(ports::local_flows(world.placement, flows, FIRST_PORT)) {
            let settings = *settings[local.spec.workload].as_ref().expect("`check` has parsed the settings");
            let receiver = local.receives.then(|| cbr.receivers.index(world, &local.spec)).transpose()?;
            cbr.senders.resize_with(cbr.receivers.list.len(), Senders::default);
            if let Some(receiver) = receiver.filter(|_| local.src_port != 0) {
                let family = world.plan.workloads[local.spec.workload].family;
                let source = SocketAddr::new(world.plan.address(local.spec.src, family), local.src_port);
                cbr.senders[receiver as usize].flows.insert(source, index);
            }
            cbr.payload.resize(cbr.payload.len().max(settings.packet_bytes as usize), 0x71);
            cbr.flows.push(Flow::new(Ends::new(local, receiver), settings));
        }
        Ok(cbr)
    }

    /// Sends a flow's next datagram. Opens its socket for the first one.
    fn send(&mut self, world: &mut World<'_>, token: Token) -> Result<()> {
        let flow = &mut self.flows[token.index as usize];
        let ends = &mut flow.ends;
        if ends.sender.is_none() && ends.error.is_none() {
            match open_sender(world, &ends.local, SENDER)? {
                Ok((socket, source)) => {
                    ends.local.src_port = source.port();
                    ends.sender = Some(socket);
                    if let Some(receiver) = ends.receiver {
                        self.senders[receiver as usize].flows.insert(source, token.index);
                    }
                }
                Err(error) => ends.error = Some(error.to_string().into()),
            }
        }
        let Some(sender) = &flow.ends.sender else { return Ok(()) };
        let length = flow.next_length();
        match socket::send(sender, &self.payload[..length]) {
            Ok(_) => flow.sent.add(length),
            Err(error) => {
                flow.ends.error = Some(error.to_string().into());
                flow.ends.sender = None;
                return Ok(());
            }
        }
        if let Some(next_ns) = flow.next_ns() {
            world.agenda.add(next_ns, token);
        } else {
            flow.ends.sender = None;
            flow.ends.done = true;
        }
        let Some(receiver) = flow.ends.receiver.map(|receiver| receiver as usize) else { return Ok(()) };
        self.senders[receiver].undrained += 1;
        if self.senders[receiver].undrained >= DATAGRAMS_PER_DRAIN {
            self.drain(world, receiver)?;
        }
        Ok(())
    }

    /// Drains all receivers.
    fn drain_all(&mut self, world: &World<'_>) -> Result<()> {
        (0..self.senders.len()).try_for_each(|receiver| self.drain(world, receiver))
    }

    fn drain(&mut self, world: &World<'_>, receiver: usize) -> Result<()> {
        let Receiver { name, socket } = &self.receivers.list[receiver];
        let Senders { flows: by_source, undrained } = &mut self.senders[receiver];
        *undrained = 0;
        let flows = &mut self.flows;
        let each = |datagram: socket::Datagram<'_>| {
            if let Some(index) = by_source.get(&datagram.from) {
                let flow = &mut flows[*index as usize];
                flow.received.add(datagram.length);
                flow.ends.last_arrival_ns = Some(world.timestamp_since_epoch(datagram.time_ns));
            }
        };
        self.batch.drain(socket, each).with_context(|| name.clone())
    }
}

impl Transport for Cbr {
    /// Schedules the first datagram of each flow.
    fn schedule(&mut self, world: &mut World<'_>, base_ns: u64) {
        for (index, flow) in (0..).zip(&mut self.flows) {
            flow.ends.schedule(world, base_ns, self.sends, index);
        }
        // Receivers with local senders are drained after every `DATAGRAMS_PER_DRAIN` datagrams.
        if self.flows.iter().any(|flow| flow.ends.local.receives && !flow.ends.local.sends) {
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
        self.drain_all(world)
    }

    fn received_bytes(&mut self, world: &World<'_>, _at_ns: i64) -> Result<Vec<(u32, u64)>> {
        self.drain_all(world)?;
        let active = self.flows.iter().filter(|flow| flow.received.bytes > 0);
        Ok(active.map(|flow| (flow.ends.local.id, flow.received.bytes)).collect())
    }

    fn finish(&mut self, world: &mut World<'_>) -> Result<()> {
        self.drain_all(world)
    }

    fn records<'a>(&'a self, world: &World<'a>) -> Vec<FlowRecord<'a>> {
        self.flows.iter().map(|flow| flow.record(world)).collect()
    }
}

impl Flow {
    fn new(ends: Ends, settings: Settings) -> Self {
        Self { ends, settings, sent: Count::default(), received: Count::default() }
    }

    /// Payload bytes of the next datagram. The last one may be shorter.
    fn next_length(&self) -> usize {
        let left = self.ends.local.spec.size_bytes.map_or(u64::MAX, |size| size - self.sent.bytes);
        left.min(self.settings.packet_bytes.into()) as usize
    }

    /// Deadline of the next datagram; None after the last.
    fn next_ns(&self) -> Option<u64> {
        let offset = u128::from(self.sent.bytes) * 8 * 1_000_000_000 / u128::from(self.settings.rate_bps);
        let left = self.ends.local.spec.size_bytes.is_none_or(|size| self.sent.bytes < size);
        self.ends.due_ns(u64::try_from(offset).ok()?).filter(|_| left)
    }

    fn record<'a>(&'a self, world: &World<'a>) -> FlowRecord<'a> {
        FlowRecord {
            received_bytes: self.received.bytes,
            sent_bytes: self.sent.bytes,
            counters: SenderCounters { segments_sent: self.sent.datagrams, ..SenderCounters::default() },
            segments_received: Some(self.received.datagrams),
            ..self.ends.record(world)
        }
    }
}

impl Count {
    fn add(&mut self, length: usize) {
        self.datagrams += 1;
        self.bytes += length as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{ports::LocalFlow, schedule::FlowSpec};
    use proptest::prelude::*;

    fn flow(rate_bps: u64, packet_bytes: u32, size_bytes: Option<u64>, stop_ns: Option<u64>) -> Flow {
        let spec = FlowSpec { workload: 0, src: 0, dst: 1, size_bytes, start_ns: 100, stop_ns };
        let local = LocalFlow { id: 0, spec, sends: true, receives: false, src_port: 0 };
        Flow::new(Ends::new(local, None), Settings { rate_bps, packet_bytes })
    }

    fn deadlines(mut flow: Flow) -> Vec<u64> {
        let mut times = vec![flow.ends.local.spec.start_ns];
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
