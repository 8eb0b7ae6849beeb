// SPDX-License-Identifier: Apache-2.0
//! A switch in user space, as BMv2's simple_switch is one: ports, the engine's ingress, a queue a port, its egress.
//!
//! There is no clock and no thread: `receive` takes a packet and the time, and returns when nothing is on its way any more.
//! Queues are first in, first out and never full; their depths are exact.

use std::collections::{BTreeMap, VecDeque};

use qbed_p4engine::control::{Answer, Replica, Request};
use qbed_p4engine::packet::{Arrival, Departure, Forward, Instance, Kept, Shell, Unfit};
use qbed_p4engine::program::Program;
use qbed_p4engine::{Context, Engine};
use rand_chacha::rand_core::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// How often a packet, or a clone of it, may come back to ingress or be cloned again.
const MOST_ROUNDS: u32 = 1000;
/// How many packets one packet may become.
const MOST_PACKETS: u32 = 100_000;

/// What the program said while packets went through it.
#[derive(Debug)]
pub struct Notes {
    pub digests: Vec<(u32, Vec<u8>)>,
    pub messages: Vec<String>,
    /// Asserts that did not hold.
    pub failed: Vec<String>,
    random: ChaCha8Rng,
}

/// A packet that left by a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    pub port: u16,
    pub bytes: Vec<u8>,
}

pub struct Switch {
    engine: Engine,
    pub notes: Notes,
    /// Packets that were given up since they went round for ever.
    pub endless: u64,
    arrivals: VecDeque<Arriving>,
    queues: BTreeMap<u16, VecDeque<Queued>>,
    /// Ports whose queue is not empty.
    waiting: Vec<u16>,
    /// Used again and again, as contexts are.
    spare_ports: Vec<u16>,
    spare: Vec<Context>,
    now_us: u64,
    /// Of the packets that one packet may become.
    left: u32,
}

/// On the way to ingress.
struct Arriving {
    port: u16,
    bytes: Vec<u8>,
    instance: Instance,
    kept: Option<Kept>,
    rounds: u32,
}

/// On the way to egress.
struct Queued {
    /// Where the original came in.
    came: u16,
    context: Context,
    /// As it came in; the context knows how much of it was parsed.
    bytes: Vec<u8>,
    enqueued_us: u64,
    depth: u32,
    /// Of a clone session: at most so many bytes leave.
    most_bytes: Option<u32>,
    rounds: u32,
}

impl Notes {
    /// Forgets what was said so far.
    pub fn clear(&mut self) {
        self.digests.clear();
        self.messages.clear();
        self.failed.clear();
    }
}

impl Shell for Notes {
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
        while let Some((before, behind)) = rest.split_once("{}") {
            text.push_str(before);
            text.push_str(&values.next().map_or_else(|| "{}".into(), ToString::to_string));
            rest = behind;
        }
        text.push_str(rest);
        self.messages.push(text);
    }

    fn failed(&mut self, message: &str) {
        self.failed.push(message.into());
    }
}

impl Switch {
    /// Its random numbers are those of the seed.
    pub fn new(program: Program, seed: u64) -> Result<Self, Unfit> {
        let random = ChaCha8Rng::seed_from_u64(seed);
        let notes = Notes { digests: Vec::new(), messages: Vec::new(), failed: Vec::new(), random };
        Ok(Self {
            engine: Engine::load(program)?,
            notes,
            endless: 0,
            arrivals: VecDeque::new(),
            queues: BTreeMap::new(),
            waiting: Vec::new(),
            spare_ports: Vec::new(),
            spare: Vec::new(),
            now_us: 0,
            left: 0,
        })
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
        self.left = MOST_PACKETS;
        self.arrive(Arriving { port, bytes, instance: Instance::Normal, kept: None, rounds: 0 });
        loop {
            while let Some(arriving) = self.arrivals.pop_front() {
                self.ingress(arriving);
            }
            if self.waiting.is_empty() {
                return sent;
            }
            // One from each queue in turn, by port.
            let mut ports = std::mem::take(&mut self.waiting);
            std::mem::swap(&mut self.waiting, &mut self.spare_ports);
            ports.sort_unstable();
            for port in ports.drain(..) {
                sent.extend(self.egress(port));
            }
            self.spare_ports = ports;
        }
    }

    fn arrive(&mut self, arriving: Arriving) {
        if self.may_go_on(arriving.rounds) {
            self.arrivals.push_back(arriving);
        }
    }

    fn may_go_on(&mut self, rounds: u32) -> bool {
        let may = rounds <= MOST_ROUNDS && self.left > 0;
        if may {
            self.left -= 1;
        } else {
            self.endless += 1;
        }
        may
    }

    fn context(&mut self) -> Context {
        self.spare.pop().unwrap_or_else(|| self.engine.context())
    }

    fn ingress(&mut self, packet: Arriving) {
        let mut context = self.context();
        let arrival = Arrival {
            port: packet.port,
            length: packet.bytes.len() as u32,
            now_us: self.now_us,
            instance: packet.instance,
            kept: packet.kept.as_ref(),
        };
        let front = front(&self.engine, &packet.bytes);
        let decision = self.engine.ingress(&mut context, front, &arrival, &mut self.notes);
        if let Some(session) = decision.clone {
            self.clone_ingress(session, &context, &packet);
        }
        if decision.resubmit {
            let kept = Some(context.again_kept().clone());
            let Arriving { port, bytes, rounds, .. } = packet;
            self.arrive(Arriving { port, bytes, instance: Instance::Resubmitted, kept, rounds: rounds + 1 });
            self.spare.push(context);
            return;
        }
        let queued = Queued {
            came: packet.port,
            context,
            bytes: packet.bytes,
            enqueued_us: 0,
            depth: 0,
            most_bytes: None,
            rounds: packet.rounds,
        };
        match decision.forward {
            Forward::Drop => self.spare.push(queued.context),
            Forward::Unicast { port, .. } => self.enqueue(port, queued),
            Forward::Multicast { group } => {
                let replicas = self.engine.group(group).map(<[Replica]>::to_vec).unwrap_or_default();
                self.replicate(&queued, &replicas, Instance::Replicated);
                self.spare.push(queued.context);
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
            kept: Some(original.clone_kept()),
        };
        let front = front(&self.engine, &packet.bytes);
        self.engine.parse_clone(&mut context, front, &arrival, &mut self.notes);
        let most_bytes = (session.truncate_bytes > 0).then_some(session.truncate_bytes);
        let queued = Queued {
            came: packet.port,
            context,
            bytes: packet.bytes.clone(),
            enqueued_us: 0,
            depth: 0,
            most_bytes,
            rounds: packet.rounds + 1,
        };
        self.replicate(&queued, &session.replicas, Instance::IngressClone);
        self.spare.push(queued.context);
    }

    fn replicate(&mut self, original: &Queued, replicas: &[Replica], instance: Instance) {
        for replica in replicas {
            let mut context = self.context();
            self.engine.copy(&original.context, &mut context, instance, replica.instance);
            let Queued { came, most_bytes, rounds, .. } = *original;
            let bytes = original.bytes.clone();
            let copy = Queued { came, context, bytes, enqueued_us: 0, depth: 0, most_bytes, rounds };
            if self.may_go_on(rounds) {
                self.enqueue(replica.port, copy);
            }
        }
    }

    fn enqueue(&mut self, port: u16, mut packet: Queued) {
        packet.enqueued_us = self.now_us;
        let queue = self.queues.entry(port).or_default();
        packet.depth = queue.len() as u32;
        if queue.is_empty() {
            self.waiting.push(port);
        }
        queue.push_back(packet);
    }

    fn egress(&mut self, port: u16) -> Option<Sent> {
        let queue = self.queues.get_mut(&port)?;
        let mut packet = queue.pop_front()?;
        if !queue.is_empty() {
            self.waiting.push(port);
        }
        let departure = Departure {
            port,
            now_us: self.now_us,
            enqueued_us: packet.enqueued_us,
            enqueued_depth: packet.depth,
            dequeued_depth: queue.len() as u32,
        };
        let front = front(&self.engine, &packet.bytes);
        let emission = self.engine.egress(&mut packet.context, front, &departure, &mut self.notes);
        if let Some(session) = emission.clone.and_then(|session| self.engine.session(session).cloned()) {
            let most_bytes = packet.most_bytes;
            packet.most_bytes = (session.truncate_bytes > 0).then_some(session.truncate_bytes);
            packet.rounds += 1;
            self.replicate(&packet, &session.replicas, Instance::EgressClone);
            packet.rounds -= 1;
            packet.most_bytes = most_bytes;
        }
        let sent = (!emission.drop).then(|| {
            let (mut bytes, headers) = (packet.bytes, packet.context.headers());
            let replaced = (emission.replaced as usize).min(bytes.len());
            match bytes.get_mut(..headers.len()) {
                Some(front) if headers.len() == replaced => front.copy_from_slice(headers),
                _ => drop(bytes.splice(..replaced, headers.iter().copied())),
            }
            let most = [emission.truncate_bytes, packet.most_bytes].into_iter().flatten().min();
            bytes.truncate(most.map_or(usize::MAX, |most| most as usize));
            bytes
        });
        let kept = emission.recirculate.then(|| packet.context.again_kept().clone());
        self.spare.push(packet.context);
        match (sent, emission.recirculate) {
            (Some(bytes), true) => {
                let rounds = packet.rounds + 1;
                self.arrive(Arriving {
                    port: packet.came,
                    bytes,
                    instance: Instance::Recirculated,
                    kept,
                    rounds,
                });
                None
            }
            (sent, _) => sent.map(|bytes| Sent { port, bytes }),
        }
    }
}

/// What the engine is shown of a packet: no more than it asks for, as in the kernel.
fn front<'a>(engine: &Engine, bytes: &'a [u8]) -> &'a [u8] {
    let reach = engine.reach().map_or(usize::MAX, |reach| reach as usize);
    bytes.get(..reach).unwrap_or(bytes)
}
