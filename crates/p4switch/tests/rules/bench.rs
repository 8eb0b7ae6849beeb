// SPDX-License-Identifier: Apache-2.0
//! A program with a queue that the test controls, and packets for it.

use qbed_p4engine::control::{Answer, Entry, Request, Target};
use qbed_p4engine::packet::{Arrival, Decision, Departure, Forward, Instance, Shell};
use qbed_p4engine::program::{ActionCall, Match, Program};
use qbed_p4engine::{Context, Engine};
use qbed_p4switch::load::load;

/// The queue's lengths at arrival and departure, and the waiting time of a packet.
#[derive(Debug, Clone, Copy, Default)]
pub struct Queue {
    pub found: u32,
    pub left: u32,
    pub waited_us: u64,
}

/// Result of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    Dropped,
    Sent { port: u16, bytes: Vec<u8>, cloned: bool },
}

/// A shell with a fixed random number.
#[derive(Default)]
pub struct TestShell {
    pub random: u64,
}

impl Shell for TestShell {
    fn random(&mut self) -> u64 {
        self.random
    }
    fn digest(&mut self, _: u32, _: &[u8]) {}
    fn log(&mut self, _: &str, _: &[i128]) {}
    fn failed(&mut self, message: &str) {
        panic!("{message}");
    }
}

pub struct Bench {
    engine: Engine,
    context: Context,
    pub shell: TestShell,
}

impl Bench {
    /// Load a scheme's program. 10.0.N.0/24 is routed to port N.
    pub fn new(scheme: &str) -> Self {
        Self::load(&format!("schemes/{scheme}/p4/{scheme}.json"))
    }

    /// Load a program of the repository, with the routes of `new`.
    pub fn load(path: &str) -> Self {
        let path = format!("{}/../../{path}", std::env::var("CARGO_MANIFEST_DIR").unwrap());
        let engine = Engine::load(load(&std::fs::read(path).unwrap()).unwrap()).unwrap();
        let context = engine.context();
        let mut bench = Self { engine, context, shell: TestShell::default() };
        for port in 1..=3_u8 {
            let matches = vec![Match::Lpm { value: vec![10, 0, port, 0], length: 24 }];
            bench.insert("ipv4_routes", matches, "route", &[port.into(), 1, 0]);
            bench.insert("next_hops", vec![Match::Exact(vec![0, port])], "send", &[port.into(), 0, 0]);
        }
        bench
    }

    fn program(&self) -> &Program {
        self.engine.program()
    }

    fn call(&self, table: u16, name: &str, arguments: &[u64]) -> ActionCall {
        let actions = &self.program().tables[usize::from(table)].actions;
        let named = |action: &&u16| self.program().actions[usize::from(**action)].name == name;
        let action = *actions.iter().find(named).unwrap();
        let parameters = &self.program().actions[usize::from(action)].parameters;
        assert_eq!(parameters.len(), arguments.len(), "{name}");
        let bytes =
            |(value, width): (&u64, u32)| value.to_be_bytes()[8 - width.div_ceil(8) as usize..].to_vec();
        let arguments =
            arguments.iter().zip(parameters.iter().map(|parameter| parameter.width)).map(bytes).collect();
        ActionCall { action, arguments }
    }

    fn request(&mut self, request: &Request) -> Answer {
        let answer = self.engine.control(request);
        assert!(!matches!(answer, Answer::Refused(..)), "{request:?}: {answer:?}");
        answer
    }

    fn table(&self, name: &str) -> u16 {
        self.program().tables.iter().position(|table| table.name == name).unwrap().try_into().unwrap()
    }

    pub fn insert(&mut self, table: &str, matches: Vec<Match>, action: &str, arguments: &[u64]) {
        let table = self.table(table);
        let target = Target::Call(self.call(table, action, arguments));
        let entry = Entry { matches, priority: 0, target, idle_us: 0 };
        self.request(&Request::Insert { table, entry });
    }

    pub fn set_default(&mut self, table: &str, action: &str, arguments: &[u64]) {
        let table = self.table(table);
        let target = Target::Call(self.call(table, action, arguments));
        self.request(&Request::SetDefault { table, target });
    }

    pub fn counter(&mut self, name: &str, index: u32) -> u64 {
        let at = self.program().counters.iter().position(|counter| counter.name == name).unwrap();
        match self.request(&Request::ReadCounter { counter: at.try_into().unwrap(), from: index, count: 1 }) {
            Answer::Counts(counts) => counts[0].packets,
            other => panic!("{other:?}"),
        }
    }

    pub fn register(&mut self, name: &str, index: u32) -> u64 {
        let at = self.program().arrays.iter().position(|array| array.name == name).unwrap();
        match self.request(&Request::ReadRegister { array: at.try_into().unwrap(), from: index, count: 1 }) {
            Answer::Values(values) => values[0].iter().fold(0, |value, byte| value << 8 | u64::from(*byte)),
            other => panic!("{other:?}"),
        }
    }

    /// A packet arrives at `port` and stays in its queue.
    pub fn arrive(&mut self, port: u16, packet: &[u8], now_us: u64) -> Decision {
        let length = packet.len().try_into().unwrap();
        let arrival =
            Arrival { port, length, now_us, instance: Instance::Normal, preserved: None, checksum: None };
        self.engine.ingress(&mut self.context, packet, &arrival, &mut self.shell)
    }

    /// A packet arrives at `port` and leaves its queue at `now_us`.
    pub fn pass(&mut self, port: u16, packet: &[u8], now_us: u64, queue: Queue) -> Fate {
        let arrived_us = now_us - queue.waited_us;
        let decision = self.arrive(port, packet, arrived_us);
        let Forward::Unicast { port, .. } = decision.forward else { return Fate::Dropped };
        let departure = Departure {
            port,
            now_us,
            enqueued_us: arrived_us,
            enqueued_depth: queue.found,
            dequeued_depth: queue.left,
        };
        let emission = self.engine.egress(&mut self.context, packet, &departure, &mut self.shell);
        if emission.drop {
            return Fate::Dropped;
        }
        let mut bytes = self.context.headers().to_vec();
        bytes.extend_from_slice(&packet[emission.replaced as usize..]);
        Fate::Sent { port, bytes, cloned: decision.clone.or(emission.clone).is_some() }
    }

    /// Send clones of session 1 to port 510.
    pub fn open_session(&mut self) {
        let replicas = vec![qbed_p4engine::control::Replica { port: 510, instance: 0 }];
        let clone = qbed_p4engine::control::CloneSession { replicas, truncate_bytes: 0 };
        self.request(&Request::SetCloneSession { session: 1, clone: Some(clone) });
    }
}

fn fold(words: impl Iterator<Item = u32>) -> u16 {
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

pub fn ones_sum(bytes: &[u8]) -> u16 {
    fold(bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0))))
}

/// An IPv4 packet, from 10.0.N.1 to 10.0.M.1, in a frame of zero addresses.
#[derive(Debug, Clone)]
pub struct Packet {
    pub from: u8,
    pub to: u8,
    pub protocol: u8,
    pub ecn: u8,
    pub hops: u8,
    pub transport: Vec<u8>,
}

impl Packet {
    pub fn tcp(from: (u8, u16), to: (u8, u16), flags: u8, payload: &[u8]) -> Self {
        let mut transport = [from.1.to_be_bytes(), to.1.to_be_bytes()].concat();
        transport.extend([0, 0, 0, 1, 0, 0, 0, 2, 0x50, flags, 0, 100, 0x12, 0x34, 0, 0]);
        transport.extend(payload);
        Self { from: from.0, to: to.0, protocol: 6, ecn: 0, hops: 64, transport }
    }

    pub fn frame(&self) -> Vec<u8> {
        let total = u16::try_from(20 + self.transport.len()).unwrap().to_be_bytes();
        let mut ip = vec![0x45, self.ecn, total[0], total[1], 0, 7, 0, 0, self.hops, self.protocol, 0, 0];
        ip.extend([10, 0, self.from, 1, 10, 0, self.to, 1]);
        let check = (!ones_sum(&ip)).to_be_bytes();
        ip[10..12].copy_from_slice(&check);
        [&[0; 12], &[8, 0][..], &ip, &self.transport].concat()
    }

    /// The frame after plain forwarding.
    pub fn forwarded(&self) -> Vec<u8> {
        Self { hops: self.hops - 1, ..self.clone() }.frame()
    }

    /// The result of plain forwarding to its port.
    pub fn sent(&self) -> Fate {
        Fate::Sent { port: self.to.into(), bytes: self.forwarded(), cloned: false }
    }
}
