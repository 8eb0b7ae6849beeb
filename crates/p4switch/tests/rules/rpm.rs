// SPDX-License-Identifier: Apache-2.0
//! Reverse path congestion marking: Algorithm 1 and what schemes/rpm/README.md adds, with few registers for many flows.

use std::collections::BTreeMap;

use crate::bench::{ones_sum, Bench, Fate, Packet, Queue};
use crate::codel::{traffic, Codel, INTERVAL_US, TARGET_US};
use proptest::prelude::*;

const MASK: u64 = 15;
const TIMEOUT_US: u64 = 20_000;
const ACK: u8 = 0x10;
const ECE: u8 = 0x40;
const RST: u8 = 0x04;
const SYN: u8 = 0x02;

/// CRCs with reflected bits, from their definitions.
fn crc(bytes: &[u8], polynomial: u32, start: u32) -> u32 {
    bytes.iter().fold(start, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| crc >> 1 ^ if crc & 1 == 1 { polynomial } else { 0 })
    })
}

/// A flow's register, and what identifies the flow in it.
fn register(flow: u16) -> (u64, u32) {
    let key = [&[10, 0, 1, 1, 10, 0, 2, 1][..], &flow.to_be_bytes(), &80_u16.to_be_bytes()].concat();
    let signature = !crc(&key, 0xedb8_8320, u32::MAX);
    (u64::from(crc(&key, 0xa001, 0)) & MASK, signature.max(2))
}

#[derive(Default, Clone)]
struct Register {
    holder: u32,
    reverse_us: u64,
    pending: u64,
}

#[derive(Default)]
struct Rpm {
    registers: BTreeMap<u64, Register>,
    codel: Codel,
    books: BTreeMap<&'static str, u64>,
}

impl Rpm {
    fn count(&mut self, what: &'static str, by: u64) {
        *self.books.entry(what).or_default() += by;
    }

    /// The ECN bits with which a packet leaves; None: it is dropped.
    fn data(&mut self, flow: u16, ecn: u8, tcp: bool, now: u64, queue: Queue) -> Option<u8> {
        if !self.codel.signals(now, queue) {
            return Some(ecn);
        }
        if ecn == 0 {
            self.count("dropped", 1);
            return None;
        }
        self.count("marked", 1);
        if ecn == 3 {
            self.count("ce_arrived", 1);
            return Some(3);
        }
        let (position, signature) = register(flow);
        let register = self.registers.entry(position).or_default();
        if tcp && register.holder != 0 && now - register.reverse_us <= TIMEOUT_US {
            if register.holder == signature {
                register.pending += 1;
                return Some(ecn);
            }
            self.count("collisions", 1);
        }
        self.count("forward_marks", 1);
        Some(3)
    }

    /// Whether the acknowledgement gets ECE.
    fn acknowledgement(&mut self, flow: u16, flags: u8, now: u64) -> bool {
        if flags & RST != 0 || flags & ACK == 0 {
            return false;
        }
        let (position, signature) = register(flow);
        let register = self.registers.entry(position).or_default();
        let mut cleared = 0;
        if register.holder != signature {
            if register.holder != 0 && now - register.reverse_us <= TIMEOUT_US {
                return false;
            }
            register.holder = signature;
            cleared = std::mem::take(&mut register.pending);
        } else if flags & SYN != 0 {
            cleared = std::mem::take(&mut register.pending);
        }
        register.reverse_us = now;
        let carries = register.pending > 0 && flags & SYN == 0;
        register.pending -= u64::from(carries);
        self.count("cleared", cleared);
        if carries {
            self.count(if flags & ECE != 0 { "ece_already_set" } else { "reverse_marks" }, 1);
        }
        carries && flags & ECE == 0
    }
}

/// TCP's checksum with a pseudo header, but for what stands in its field.
fn residue(packet: &Packet) -> u16 {
    ones_sum(&packet.transport)
}

fn flags() -> impl Strategy<Value = u8> {
    let of = |flags| Just(flags);
    prop_oneof![30 => of(ACK), 3 => of(ACK | ECE), 1 => of(ACK | SYN), 1 => of(ACK | RST), 1 => of(SYN), 5 => of(0x18)]
}

fn packets(count: usize) -> impl Strategy<Value = Vec<(u16, u8, u8, bool, bool)>> {
    let ecn = prop_oneof![1 => Just(0_u8), 10 => Just(1), 10 => Just(2), 1 => Just(3)];
    let tcp = prop::bool::weighted(0.95);
    prop::collection::vec((1000_u16..1024, ecn, flags(), prop::bool::weighted(0.6), tcp), count)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]
    #[test]
    fn decisions_wait_for_the_flows_acknowledgements(times in traffic(4000), what in packets(4000)) {
        let mut bench = Bench::new("rpm");
        bench.set_default("codel", "law", &[TARGET_US, INTERVAL_US]);
        bench.set_default("rpm", "registers", &[MASK, TIMEOUT_US, 0]);
        let mut rpm = Rpm::default();
        for ((now, queue), (flow, ecn, flags, is_data, tcp)) in times.into_iter().zip(what) {
            if is_data {
                let mut packet = Packet { ecn, ..Packet::tcp((1, flow), (2, 80), 0, b"data") };
                packet.protocol = if tcp { 6 } else { 132 };
                let left = rpm.data(flow, ecn, tcp, now, queue);
                let expected = left.map_or(Fate::Dropped, |ecn| Packet { ecn, ..packet.clone() }.sent());
                prop_assert_eq!(bench.pass(1, &packet.frame(), now, queue), expected);
            } else {
                let packet = Packet::tcp((2, 80), (1, flow), flags, b"");
                let marked = rpm.acknowledgement(flow, flags, now);
                let mut expected = packet.clone();
                expected.transport[13] |= if marked { ECE } else { 0 };
                let got = bench.pass(2, &packet.frame(), now, Queue::default());
                let Fate::Sent { port: 1, bytes, .. } = got else { panic!("{got:?}") };
                let carried = Packet { transport: bytes[34..].to_vec(), ..packet.clone() };
                prop_assert_eq!(residue(&carried), residue(&packet), "the checksum covers what changed");
                expected.transport[16..18].copy_from_slice(&carried.transport[16..18]);
                prop_assert_eq!(bytes, expected.forwarded());
            }
        }
        let pending: u64 = rpm.registers.values().map(|register| register.pending).sum();
        for name in ["dropped", "marked", "ce_arrived", "collisions", "forward_marks", "reverse_marks", "ece_already_set"] {
            let counted = rpm.books.get(name).copied().unwrap_or_default();
            prop_assert_eq!(bench.counter(name, 2), counted, "{}", name);
        }
        let balance = ["forward_marks", "ce_arrived", "reverse_marks", "ece_already_set"];
        let sum: u64 = balance.iter().map(|name| bench.counter(name, 2)).sum();
        prop_assert_eq!(bench.counter("marked", 2), sum + bench.register("cleared", 2) + pending);
    }
}

#[test]
fn with_one_register_a_port_any_acknowledgement_of_it_carries_a_decision() {
    let mut bench = Bench::new("rpm");
    bench.set_default("codel", "law", &[TARGET_US, INTERVAL_US]);
    bench.set_default("rpm", "registers", &[MASK, TIMEOUT_US, 1]);
    let queue = Queue { found: 9, left: 9, waited_us: 1000 };
    let acknowledgement = |flow| Packet::tcp((2, 80), (1, flow), ACK, b"").frame();
    bench.pass(2, &acknowledgement(7), 9_000, Queue::default());
    let data = Packet { ecn: 2, ..Packet::tcp((1, 5), (2, 80), 0, b"data") };
    for now in (10_000..14_000).step_by(100) {
        assert_eq!(bench.pass(1, &data.frame(), now, queue), data.sent(), "no CE: the decision waits");
    }
    assert_eq!((bench.counter("marked", 2), bench.counter("forward_marks", 2)), (1, 0));
    bench.pass(3, &acknowledgement(5), 14_000, Queue::default());
    assert_eq!(bench.counter("reverse_marks", 2), 0, "it came in by another port");
    bench.pass(2, &acknowledgement(6), 14_001, Queue::default());
    assert_eq!(bench.counter("reverse_marks", 2), 1);
}
