// SPDX-License-Identifier: Apache-2.0
//! A P4 switch in user space, like BMv2's simple_switch: ports, the engine's ingress, a queue per port, its egress.
//!
//! It has no clock and no threads: `receive` takes a packet and the time and returns when the packet and all its copies
//! have left. Queues are first in, first out and never full; their depths are exact.

use std::collections::{BTreeMap, VecDeque};

use qbed_p4engine::control::{Answer, Replica, Request};
use qbed_p4engine::packet::{Arrival, Departure, Forward, Instance, InvalidProgram, PreservedFields, Shell};
use qbed_p4engine::program::Program;
use qbed_p4engine::{Context, Engine};
use rand_chacha::rand_core::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Limit on resubmissions, recirculations and clones in a packet's history.
pub const MAX_PASSES: u32 = 1000;
/// Limit on replication from one packet.
pub const MAX_PACKETS: u32 = 100_000;

/// Digests and messages of the program.
#[derive(Debug)]
pub struct ProgramLog {
    pub digests: Vec<(u32, Vec<u8>)>,
    pub messages: Vec<String>,
    pub failed_asserts: Vec<String>,
    random: ChaCha8Rng,
}

/// A packet that the switch sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    pub port: u16,
    pub bytes: Vec<u8>,
}

pub struct Switch {
    engine: Engine,
    pub log: ProgramLog,
    /// Packets dropped at MAX_PASSES or MAX_PACKETS.
    pub over_limit: u64,
    arrivals: VecDeque<Arriving>,
    queues: BTreeMap<u16, VecDeque<Queued>>,
    /// Ports with packets in their queue.
    busy_ports: Vec<u16>,
    /// Allocations for reuse.
    spare_ports: Vec<u16>,
    free_contexts: Vec<Context>,
    now_us: u64,
    /// How many packets the current packet may still become.
    packets_left: u32,
}

/// A packet before ingress.
struct Arriving {
    port: u16,
    bytes: Vec<u8>,
    instance: Instance,
    preserved: Option<PreservedFields>,
    passes: u32,
}

/// A packet between ingress and egress.
struct Queued {
    ingress_port: u16,
    context: Context,
    /// The packet as it arrived, with the headers that the context has parsed.
    bytes: Vec<u8>,
    enqueued_us: u64,
    depth: u32,
    /// The length at which its clone session truncates it.
    max_bytes: Option<u32>,
    passes: u32,
}

impl ProgramLog {
    pub fn clear(&mut self) {
        self.digests.clear();
        self.messages.clear();
        self.failed_asserts.clear();
    }
}

impl Shell for ProgramLog {
    fn random(&mut self) -> u64 {
        self.random.next_u64()
    }

    fn digest(&mut self, id: u32, values: &[u8]) {
        self.digests.push((id, values.to_vec()));
    }

    fn log(&mut self, message: &str, values: &[i128]) {
        let mut text = String::new();
        let mut values = values.iter();
        let mut rest = message;
        while let Some((before, after)) = rest.split_once("{}") {
            text.push_str(before);
            text.push_str(&values.next().map_or_else(|| "{}".into(), ToString::to_string));
            rest = after;
        }
        text.push_str(rest);
        self.messages.push(text);
    }

    fn failed(&mut self, message: &str) {
        self.failed_asserts.push(message.into());
    }
}

impl Switch {
    /// `seed` determines the program's random numbers.
    pub fn new(program: Program, seed: u64) -> Result<Self, InvalidProgram> {
        let random = ChaCha8Rng::seed_from_u64(seed);
        let log =
            ProgramLog { digests: Vec::new(), messages: Vec::new(), failed_asserts: Vec::new(), random };
        let mut engine = Engine::load(program)?;
        qbed_p4native::translate(&mut engine);
        Ok(Self {
            engine,
            log,
            over_limit: 0,
            arrivals: VecDeque::new(),
            queues: BTreeMap::new(),
            busy_ports: Vec::new(),
            spare_ports: Vec::new(),
            free_contexts: Vec::new(),
            now_us: 0,
            packets_left: 0,
        })
    }

    /// Runs the program without machine code from now on.
    pub fn interpret(&mut self) {
        self.engine.translate(|_| None);
    }

    pub fn program(&self) -> &Program {
        self.engine.program()
    }

    pub fn control(&mut self, request: &Request) -> Answer {
        self.engine.control(request)
    }

    /// Send a packet through the switch and return what leaves, in this order.
    pub fn receive(&mut self, port: u16, bytes: Vec<u8>, now_us: u64) -> Vec<Sent> {
        let mut sent = Vec::new();
        self.now_us = self.now_us.max(now_us);
        self.packets_left = MAX_PACKETS;
        self.enqueue_ingress(Arriving {
            port,
            bytes,
            instance: Instance::Normal,
            preserved: None,
            passes: 0,
        });
        loop {
            while let Some(arriving) = self.arrivals.pop_front() {
                self.ingress(arriving);
            }
            if self.busy_ports.is_empty() {
                return sent;
            }
            // One from each queue in turn, by port.
            let mut ports = std::mem::take(&mut self.busy_ports);
            std::mem::swap(&mut self.busy_ports, &mut self.spare_ports);
            ports.sort_unstable();
            for port in ports.drain(..) {
                sent.extend(self.egress(port));
            }
            self.spare_ports = ports;
        }
    }

    fn enqueue_ingress(&mut self, arriving: Arriving) {
        if self.admit(arriving.passes) {
            self.arrivals.push_back(arriving);
        }
    }

    /// Count a packet against the limits. False: it is dropped.
    fn admit(&mut self, passes: u32) -> bool {
        let admitted = passes <= MAX_PASSES && self.packets_left > 0;
        if admitted {
            self.packets_left -= 1;
        } else {
            self.over_limit += 1;
        }
        admitted
    }

    fn context(&mut self) -> Context {
        self.free_contexts.pop().unwrap_or_else(|| self.engine.context())
    }

    fn ingress(&mut self, packet: Arriving) {
        let mut context = self.context();
        let arrival = Arrival {
            port: packet.port,
            length: packet.bytes.len() as u32,
            now_us: self.now_us,
            instance: packet.instance,
            preserved: packet.preserved.as_ref(),
            checksum: None,
        };
        let front = front(&self.engine, &packet.bytes);
        let decision = self.engine.ingress(&mut context, front, &arrival, &mut self.log);
        if let Some(session) = decision.clone {
            self.clone_ingress(session, &context, &packet);
        }
        if decision.resubmit {
            let preserved = Some(context.resubmit_fields().clone());
            let Arriving { port, bytes, passes, .. } = packet;
            self.enqueue_ingress(Arriving {
                port,
                bytes,
                instance: Instance::Resubmitted,
                preserved,
                passes: passes + 1,
            });
            self.free_contexts.push(context);
            return;
        }
        let queued = Queued {
            ingress_port: packet.port,
            context,
            bytes: packet.bytes,
            enqueued_us: 0,
            depth: 0,
            max_bytes: None,
            passes: packet.passes,
        };
        match decision.forward {
            Forward::Drop => self.free_contexts.push(queued.context),
            Forward::Unicast { port, .. } => self.enqueue(port, queued),
            Forward::Multicast { group } => {
                let replicas = self.engine.group(group).map(<[Replica]>::to_vec).unwrap_or_default();
                self.replicate(&queued, &replicas, Instance::Replicated);
                self.free_contexts.push(queued.context);
            }
        }
    }

    fn clone_ingress(&mut self, session: u16, original: &Context, packet: &Arriving) {
        let Some(session) = self.engine.session(session).cloned() else { return };
        let mut context = self.context();
        let arrival = Arrival {
            port: packet.port,
            length: packet.bytes.len() as u32,
            now_us: self.now_us,
            instance: Instance::IngressClone,
            preserved: Some(original.clone_fields()),
            checksum: None,
        };
        let front = front(&self.engine, &packet.bytes);
        self.engine.parse_clone(&mut context, front, &arrival, &mut self.log);
        let max_bytes = (session.truncate_bytes > 0).then_some(session.truncate_bytes);
        let queued = Queued {
            ingress_port: packet.port,
            context,
            bytes: packet.bytes.clone(),
            enqueued_us: 0,
            depth: 0,
            max_bytes,
            passes: packet.passes + 1,
        };
        self.replicate(&queued, &session.replicas, Instance::IngressClone);
        self.free_contexts.push(queued.context);
    }

    fn replicate(&mut self, original: &Queued, replicas: &[Replica], instance: Instance) {
        for replica in replicas {
            let mut context = self.context();
            self.engine.copy(&original.context, &mut context, instance, replica.instance);
            let Queued { ingress_port, max_bytes, passes, .. } = *original;
            let bytes = original.bytes.clone();
            let copy = Queued { ingress_port, context, bytes, enqueued_us: 0, depth: 0, max_bytes, passes };
            if self.admit(passes) {
                self.enqueue(replica.port, copy);
            }
        }
    }

    fn enqueue(&mut self, port: u16, mut packet: Queued) {
        packet.enqueued_us = self.now_us;
        let queue = self.queues.entry(port).or_default();
        packet.depth = queue.len() as u32;
        if queue.is_empty() {
            self.busy_ports.push(port);
        }
        queue.push_back(packet);
    }

    fn egress(&mut self, port: u16) -> Option<Sent> {
        let queue = self.queues.get_mut(&port)?;
        let mut packet = queue.pop_front()?;
        if !queue.is_empty() {
            self.busy_ports.push(port);
        }
        let departure = Departure {
            port,
            now_us: self.now_us,
            enqueued_us: packet.enqueued_us,
            enqueued_depth: packet.depth,
            dequeued_depth: queue.len() as u32,
        };
        let front = front(&self.engine, &packet.bytes);
        let emission = self.engine.egress(&mut packet.context, front, &departure, &mut self.log);
        if let Some(session) = emission.clone.and_then(|session| self.engine.session(session).cloned()) {
            let max_bytes = packet.max_bytes;
            packet.max_bytes = (session.truncate_bytes > 0).then_some(session.truncate_bytes);
            packet.passes += 1;
            self.replicate(&packet, &session.replicas, Instance::EgressClone);
            packet.passes -= 1;
            packet.max_bytes = max_bytes;
        }
        let sent = (!emission.drop).then(|| {
            let (mut bytes, headers) = (packet.bytes, packet.context.headers());
            let replaced = (emission.replaced as usize).min(bytes.len());
            match bytes.get_mut(..headers.len()) {
                Some(front) if headers.len() == replaced => front.copy_from_slice(headers),
                _ => drop(bytes.splice(..replaced, headers.iter().copied())),
            }
            let limit = [emission.truncate_bytes, packet.max_bytes].into_iter().flatten().min();
            bytes.truncate(limit.map_or(usize::MAX, |limit| limit as usize));
            bytes
        });
        let preserved = emission.recirculate.then(|| packet.context.resubmit_fields().clone());
        self.free_contexts.push(packet.context);
        match (sent, emission.recirculate) {
            (Some(bytes), true) => {
                let passes = packet.passes + 1;
                self.enqueue_ingress(Arriving {
                    port: packet.ingress_port,
                    bytes,
                    instance: Instance::Recirculated,
                    preserved,
                    passes,
                });
                None
            }
            (sent, _) => sent.map(|bytes| Sent { port, bytes }),
        }
    }
}

/// The front of a packet that the engine can read, as in the kernel.
fn front<'a>(engine: &Engine, bytes: &'a [u8]) -> &'a [u8] {
    let reach = engine.lookahead_bytes().map_or(usize::MAX, |reach| reach as usize);
    bytes.get(..reach).unwrap_or(bytes)
}
