// SPDX-License-Identifier: Apache-2.0
//! Probes: datagrams at a fixed interval, which the peer returns immediately, as ping does. A request carries its send
//! time. The reply has the same length and DSCP, and also carries the arrival time of the request and the send time of
//! the reply. All nodes of a lab have one clock, so one-way delays are measured.

use crate::failure::{Context, Result};
use crate::plan::workload::Workload;
use crate::plan::Plan;
use crate::results::files;
use crate::results::flows::{FlowRecord, SenderCounters};
use crate::socket::{self, Datagram, ReceiveBatch};
use crate::transport::datagram::{open_sender, Ends, Options, Receiver, Receivers};
use crate::transport::{NumberedFlow, Transport, TransportKind};
use crate::workload::ports;
use crate::workload::schedule::FlowSpec;
use crate::world::token::{Part, Token, Topic};
use crate::world::{World, READABLE};
use nix::sys::epoll::EpollFlags;
use serde::Deserialize;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufWriter, Write};

pub const KIND: TransportKind = TransportKind {
    name: "probe",
    check,
    open: |world, part, flows| Ok(Box::new(Probes::open(world, part, flows)?)),
};

/// Interval of probes, and their payload.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    interval_ns: u64,
    packet_bytes: u32,
}

fn check(plan: &Plan, workload: &Workload) -> std::result::Result<(), String> {
    let Settings { interval_ns, packet_bytes } = workload.settings()?;
    if plan.duration_ns.checked_div(interval_ns).is_none_or(|probes| probes >= u64::from(u32::MAX)) {
        return Err(format!("interval_ns {interval_ns} is too short"));
    }
    if !(ProbeHeader::BYTES as u32..=65_000).contains(&packet_bytes) {
        return Err(format!("packet_bytes is not in {}..65000", ProbeHeader::BYTES));
    }
    Ok(())
}

const SOCKET: Options = &[(libc::SO_TIMESTAMPNS, 1)];

/// `probes.bin`: records of 40 bytes, little-endian: u32 flow, u32 number, i64 sent, received, replied, returned.
const FILE: &str = "probes.bin";
/// Encoding of the missing times of a lost probe.
const NO_TIME: i64 = i64::MIN;

/// Header of the payload. Times are relative to the epoch; 0 if not known yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ProbeHeader {
    flow: u32,
    /// Sequence number in the flow, from 0.
    number: u32,
    sent_ns: i64,
    received_ns: i64,
    replied_ns: i64,
}

impl ProbeHeader {
    const BYTES: usize = 32;

    fn write(self, to: &mut [u8]) {
        to[..4].copy_from_slice(&self.flow.to_le_bytes());
        to[4..8].copy_from_slice(&self.number.to_le_bytes());
        for (offset, time_ns) in (8..).step_by(8).zip([self.sent_ns, self.received_ns, self.replied_ns]) {
            to[offset..offset + 8].copy_from_slice(&time_ns.to_le_bytes());
        }
    }

    /// Parses a payload; None if it is too short.
    fn read(from: &[u8]) -> Option<Self> {
        let (head, times) = from.get(..Self::BYTES)?.split_at(8);
        let number = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("4 bytes"));
        let time = |at: usize| i64::from_le_bytes(times[at..at + 8].try_into().expect("8 bytes"));
        let (sent_ns, received_ns, replied_ns) = (time(0), time(8), time(16));
        Some(Self { flow: number(0), number: number(4), sent_ns, received_ns, replied_ns })
    }
}

struct Flow {
    ends: Ends,
    settings: Settings,
    sent: u32,
    /// Probes without a reply: sequence number and send time.
    pending: VecDeque<(u32, i64)>,
    rtt_ns: Option<u64>,
    min_rtt_ns: Option<u64>,
    /// Number of requests at the responder.
    received: u64,
}

struct Probes {
    /// By flow: the next probe is due.
    sends: Topic,
    /// By flow: replies have arrived.
    replies: Topic,
    /// By responder: requests have arrived.
    requests: Topic,
    /// Sorted by flow id.
    flows: Vec<Flow>,
    /// They reply.
    responders: Receivers,
    batch: ReceiveBatch,
    payload: Vec<u8>,
    /// None: there are no local senders.
    file: Option<BufWriter<File>>,
}

impl Probes {
    /// Opens the responders.
    fn open(world: &mut World<'_>, part: Part, flows: Vec<NumberedFlow>) -> Result<Self> {
        let (sends, replies, requests) = (world.topic(part), world.topic(part), world.topic(part));
        let mut probes = Self {
            sends,
            replies,
            requests,
            flows: Vec::new(),
            responders: Receivers::new(SOCKET),
            batch: ReceiveBatch::new(ProbeHeader::BYTES),
            payload: Vec::new(),
            file: None,
        };
        for mut local in ports::local_flows(world.placement, flows, 0x8000) {
            local.src_port = 0; // the header identifies the flow
            let workload = &world.plan.workloads[local.spec.workload];
            let settings: Settings = workload.settings().expect("`check` has parsed the settings");
            let responder = local.receives.then(|| probes.responder(world, &local.spec)).transpose()?;
            let length = probes.payload.len().max(settings.packet_bytes as usize);
            probes.payload.resize(length, 0x71);
            if local.sends && probes.file.is_none() {
                probes.file = Some(files::create(FILE)?);
            }
            probes.flows.push(Flow::new(Ends::new(local, responder), settings));
        }
        Ok(probes)
    }

    /// Index of a flow's responder. Watches it for the first flow.
    fn responder(&mut self, world: &World<'_>, spec: &FlowSpec) -> Result<u32> {
        let known = self.responders.list.len();
        let index = self.responders.index(world, spec)?;
        if let Some(Receiver { name, socket }) = self.responders.list.get(known) {
            world.watch(socket, self.requests.at(index), READABLE).with_context(|| name.clone())?;
        }
        Ok(index)
    }

    /// Sends a flow's next probe. Opens its socket for the first one.
    fn send(&mut self, world: &mut World<'_>, token: Token) -> Result<()> {
        let flow = &mut self.flows[token.index as usize];
        let ends = &mut flow.ends;
        if ends.sender.is_none() {
            let opened = open_sender(world, &ends.local, SOCKET)?.and_then(|(socket, source)| {
                world.watch(&socket, self.replies.at(token.index), READABLE)?;
                Ok((socket, source.port()))
            });
            match opened {
                Ok((socket, port)) => (ends.sender, ends.local.src_port) = (Some(socket), port),
                Err(error) => {
                    ends.error = Some(error.to_string().into());
                    return Ok(());
                }
            }
        }
        let Some(sender) = &flow.ends.sender else { return Ok(()) };
        let (number, sent_ns) = (flow.sent, now(world));
        ProbeHeader { flow: flow.ends.local.id, number, sent_ns, received_ns: 0, replied_ns: 0 }
            .write(&mut self.payload);
        // Without a route the probe counts as lost, as if the first switch had dropped it.
        let _ = socket::send(sender, &self.payload[..flow.settings.packet_bytes as usize]);
        flow.pending.push_back((number, sent_ns));
        flow.sent += 1;
        match flow.next_ns() {
            Some(next_ns) => world.agenda.add(next_ns, token),
            None => flow.ends.done = true,
        }
        Ok(())
    }

    /// Replies to the requests at a responder.
    fn reply(&mut self, world: &World<'_>, number: u32) -> Result<()> {
        let Receiver { name, socket } = &self.responders.list[number as usize];
        let (flows, payload) = (&mut self.flows, &mut self.payload);
        let each = |datagram: Datagram<'_>| {
            let Some(header) = ProbeHeader::read(datagram.bytes) else { return };
            let Some(flow) = find(flows, header.flow).filter(|flow| flow.ends.receiver == Some(number))
            else {
                return;
            };
            let received_ns = world.timestamp_since_epoch(datagram.time_ns);
            flow.received += 1;
            flow.ends.last_arrival_ns = Some(received_ns);
            ProbeHeader { received_ns, replied_ns: now(world), ..header }.write(payload);
            let _ = socket::send_to(socket, &payload[..datagram.length.min(payload.len())], datagram.from);
        };
        self.batch.drain(socket, each).with_context(|| name.clone())
    }

    /// Records the replies at a flow's sender.
    fn receive_replies(&mut self, world: &World<'_>, index: u32) -> Result<()> {
        let flow = &mut self.flows[index as usize];
        let (Some(sender), Some(file)) = (flow.ends.sender.take(), &mut self.file) else { return Ok(()) };
        let mut written = Ok(());
        let drained = self.batch.drain(&sender, |datagram| {
            let header = ProbeHeader::read(datagram.bytes).filter(|header| header.flow == flow.ends.local.id);
            let Some(header) = header else { return };
            let returned_ns = world.timestamp_since_epoch(datagram.time_ns);
            if let (Some(sent_ns), Ok(())) = (flow.on_reply(header.number, returned_ns), &written) {
                let times = [sent_ns, header.received_ns, header.replied_ns, returned_ns];
                written = write(file, header.flow, header.number, times);
            }
        });
        flow.ends.sender = Some(sender);
        match drained {
            // An ICMP error of a router: the probe stays lost.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
            result => result.and(written).with_context(|| format!("flow {}: replies", flow.ends.local.id)),
        }
    }
}

impl Transport for Probes {
    /// Schedules the first probe of each flow.
    fn schedule(&mut self, world: &mut World<'_>, base_ns: u64) {
        for (index, flow) in (0..).zip(&mut self.flows) {
            flow.ends.schedule(world, base_ns, self.sends, index);
        }
    }

    fn on_ready(&mut self, world: &mut World<'_>, token: Token, _events: EpollFlags) -> Result<()> {
        if token.topic == self.requests {
            self.reply(world, token.index)
        } else {
            self.receive_replies(world, token.index)
        }
    }

    fn on_timer(&mut self, world: &mut World<'_>, token: Token, _due_ns: u64) -> Result<()> {
        self.send(world, token)
    }

    fn received_bytes(&mut self, _world: &World<'_>, _at_ns: i64) -> Result<Vec<(u32, u64)>> {
        let active = self.flows.iter().filter(|flow| flow.received > 0);
        Ok(active.map(|flow| (flow.ends.local.id, flow.received_bytes())).collect())
    }

    /// Records pending replies, and the probes without a reply as lost.
    fn finish(&mut self, world: &mut World<'_>) -> Result<()> {
        for index in 0..self.flows.len() {
            if !self.flows[index].pending.is_empty() {
                self.receive_replies(world, index as u32)?;
            }
        }
        let Some(file) = &mut self.file else { return Ok(()) };
        let lost =
            self.flows.iter().flat_map(|flow| flow.pending.iter().map(|probe| (flow.ends.local.id, probe)));
        for (flow, (number, sent_ns)) in lost {
            write(file, flow, *number, [*sent_ns, NO_TIME, NO_TIME, NO_TIME])
                .with_context(|| format!("out/{FILE}"))?;
        }
        file.flush().with_context(|| format!("out/{FILE}"))
    }

    fn records<'a>(&'a self, world: &World<'a>) -> Vec<FlowRecord<'a>> {
        self.flows.iter().map(|flow| flow.record(world)).collect()
    }
}

impl Flow {
    fn new(ends: Ends, settings: Settings) -> Self {
        let (pending, rtt_ns) = (VecDeque::new(), None);
        Self { ends, settings, sent: 0, pending, rtt_ns, min_rtt_ns: None, received: 0 }
    }

    /// Deadline of the next probe; None after the last.
    fn next_ns(&self) -> Option<u64> {
        self.ends.due_ns(self.settings.interval_ns.checked_mul(self.sent.into())?)
    }

    /// Records a reply and returns the probe's send time. None if the probe has a reply already.
    fn on_reply(&mut self, number: u32, returned_ns: i64) -> Option<i64> {
        let index = self.pending.binary_search_by_key(&number, |probe| probe.0).ok()?;
        let (_, sent_ns) = self.pending.remove(index)?;
        let rtt_ns = u64::try_from(returned_ns - sent_ns).ok();
        self.rtt_ns = rtt_ns.or(self.rtt_ns);
        self.min_rtt_ns = self.min_rtt_ns.into_iter().chain(rtt_ns).min();
        Some(sent_ns)
    }

    fn received_bytes(&self) -> u64 {
        self.received * u64::from(self.settings.packet_bytes)
    }

    fn record<'a>(&'a self, world: &World<'a>) -> FlowRecord<'a> {
        let sent = u64::from(self.sent);
        FlowRecord {
            received_bytes: self.received_bytes(),
            sent_bytes: sent * u64::from(self.settings.packet_bytes),
            counters: SenderCounters {
                segments_sent: sent,
                rtt_ns: self.rtt_ns,
                min_rtt_ns: self.min_rtt_ns,
                ..SenderCounters::default()
            },
            segments_received: Some(self.received),
            ..self.ends.record(world)
        }
    }
}

/// The flow with an id.
fn find(flows: &mut [Flow], id: u32) -> Option<&mut Flow> {
    let index = flows.binary_search_by_key(&id, |flow| flow.ends.local.id).ok()?;
    Some(&mut flows[index])
}

/// The current time. On the wall clock the agent's work takes time, so the clock is read again.
fn now(world: &World<'_>) -> i64 {
    if world.placement.on_wall_clock() {
        world.clock.invalidate();
    }
    world.now_since_epoch()
}

fn write(file: &mut impl Write, flow: u32, number: u32, times_ns: [i64; 4]) -> io::Result<()> {
    let mut record = [0; 40];
    record[..4].copy_from_slice(&flow.to_le_bytes());
    record[4..8].copy_from_slice(&number.to_le_bytes());
    for (offset, time_ns) in (8..).step_by(8).zip(times_ns) {
        record[offset..offset + 8].copy_from_slice(&time_ns.to_le_bytes());
    }
    file.write_all(&record)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::ports::LocalFlow;
    use proptest::prelude::*;

    fn flow(interval_ns: u64, stop_ns: Option<u64>) -> Flow {
        let spec = FlowSpec { workload: 0, src: 0, dst: 1, size_bytes: None, start_ns: 100, stop_ns };
        let local = LocalFlow { id: 7, spec, sends: true, receives: true, src_port: 0 };
        Flow::new(Ends::new(local, Some(0)), Settings { interval_ns, packet_bytes: 64 })
    }

    #[test]
    fn spacing_is_exact_until_the_stop() {
        let mut flow = flow(1_000, Some(3_100));
        flow.ends.base_ns = 5;
        let mut due = Vec::new();
        loop {
            flow.sent += 1;
            match flow.next_ns() {
                Some(next_ns) => due.push(next_ns),
                None => break,
            }
        }
        assert_eq!(due, [1_105, 2_105], "no probe is due at the stop (3,100)");
    }

    #[test]
    fn each_reply_counts_once_in_any_order() {
        let mut flow = flow(1_000, None);
        flow.pending.extend([(0, 100), (1, 1_100), (2, 2_100)]);
        assert_eq!(flow.on_reply(1, 1_900), Some(1_100));
        assert_eq!(flow.on_reply(1, 2_000), None);
        assert_eq!(flow.on_reply(0, 2_000), Some(100));
        assert_eq!(flow.on_reply(3, 2_000), None);
        assert_eq!((flow.rtt_ns, flow.min_rtt_ns), (Some(1_900), Some(800)));
        assert_eq!(flow.pending, [(2, 2_100)]);
    }

    #[test]
    fn a_record_has_the_documented_layout() {
        let mut bytes = Vec::new();
        write(&mut bytes, 1, 2, [3, 4, 5, NO_TIME]).unwrap();
        let words: Vec<u32> =
            bytes[..8].chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect();
        let times: Vec<i64> =
            bytes[8..].chunks(8).map(|time| i64::from_le_bytes(time.try_into().unwrap())).collect();
        assert_eq!((words, times), (vec![1, 2], vec![3, 4, 5, i64::MIN]));
    }

    proptest! {
        #[test]
        fn headers_round_trip(
            flow: u32, number: u32, sent_ns: i64, received_ns: i64, replied_ns: i64, length in ProbeHeader::BYTES..200
        ) {
            let header = ProbeHeader { flow, number, sent_ns, received_ns, replied_ns };
            let mut payload = vec![0x71; length];
            header.write(&mut payload);
            prop_assert_eq!(ProbeHeader::read(&payload), Some(header));
            prop_assert!(payload[ProbeHeader::BYTES..].iter().all(|byte| *byte == 0x71));
        }

        #[test]
        fn short_datagrams_are_ignored(payload in prop::collection::vec(any::<u8>(), 0..ProbeHeader::BYTES)) {
            prop_assert_eq!(ProbeHeader::read(&payload), None);
        }
    }
}
