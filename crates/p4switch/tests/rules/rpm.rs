// SPDX-License-Identifier: Apache-2.0
//! Reverse path congestion marking: Algorithm 1 with the additions of schemes/rpm/README.md, with few registers for
//! many flows.

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
const FIN: u8 = 0x01;

/// CRCs with reflected bits, from their definitions.
fn crc(bytes: &[u8], polynomial: u32, start: u32) -> u32 {
    bytes.iter().fold(start, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| crc >> 1 ^ if crc & 1 == 1 { polynomial } else { 0 })
    })
}

/// Host and port of the source and of the destination.
type Flow = ((u8, u16), (u8, u16));

/// Index and signature of a flow's register.
fn register((from, to): Flow) -> (u64, u32) {
    let key = [&[10, 0, from.0, 1, 10, 0, to.0, 1][..], &from.1.to_be_bytes(), &to.1.to_be_bytes()].concat();
    let signature = !crc(&key, 0xedb8_8320, u32::MAX);
    (u64::from(crc(&key, 0xa001, 0)) & MASK, signature.max(2))
}

#[derive(Default, Clone)]
struct Register {
    holder: u32,
    reverse_us: u64,
    pending: u64,
    closing: bool,
}

#[derive(Default)]
struct Rpm {
    registers: BTreeMap<u64, Register>,
    codel: Codel,
    counters: BTreeMap<&'static str, u64>,
}

impl Rpm {
    fn count(&mut self, name: &'static str, by: u64) {
        *self.counters.entry(name).or_default() += by;
    }

    /// The ECN bits of a departing packet. None if it is dropped.
    fn departure(&mut self, flow: Flow, ecn: u8, tcp: bool, now: u64, queue: Queue) -> Option<u8> {
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
            let closing = register.closing;
            self.count("collisions", u64::from(!closing));
        }
        self.count("forward_marks", 1);
        Some(3)
    }

    fn end(&mut self, flow: Flow) {
        let (position, signature) = register(flow);
        let register = self.registers.entry(position).or_default();
        if register.holder == signature {
            let cleared = std::mem::take(register).pending;
            self.count("cleared", cleared);
        }
    }

    /// Whether an arriving segment gets ECE.
    fn arrival(&mut self, (from, to): Flow, flags: u8, now: u64) -> bool {
        if flags & (SYN | RST) != 0 {
            self.end((from, to));
        }
        if flags & RST != 0 {
            self.end((to, from));
        }
        let marked = flags & RST == 0 && flags & ACK != 0 && self.acknowledgement((to, from), flags, now);
        if flags & FIN != 0 {
            let (position, signature) = register((from, to));
            let register = self.registers.entry(position).or_default();
            register.closing |= register.holder == signature;
        }
        marked
    }

    fn acknowledgement(&mut self, flow: Flow, flags: u8, now: u64) -> bool {
        let (position, signature) = register(flow);
        let register = self.registers.entry(position).or_default();
        let mut cleared = 0;
        if register.holder != signature {
            if register.holder != 0 && !register.closing && now - register.reverse_us <= TIMEOUT_US {
                return false;
            }
            cleared = std::mem::take(register).pending;
            register.holder = signature;
        } else if flags & SYN != 0 {
            register.closing = false;
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

/// Sum of the segment with its checksum. A correct update of the checksum keeps it.
fn residue(packet: &Packet) -> u16 {
    ones_sum(&packet.transport)
}

fn flags(acknowledges: bool) -> impl Strategy<Value = u8> {
    let of = |flags| Just(flags);
    let common = if acknowledges { [ACK, ACK | ECE, 0x18] } else { [0, 0x08, 0x08] };
    prop_oneof![30 => of(common[0]), 3 => of(common[1]), 5 => of(common[2]), 1 => of(ACK | SYN), 1 => of(ACK | RST), 1 => of(SYN),
        1 => of(RST), 2 => of(ACK | FIN), 1 => of(ACK)]
}

/// A data packet from host 1 to 2, or an acknowledgement from 2 to 1.
#[derive(Debug)]
struct Step {
    port: u16,
    ecn: u8,
    flags: u8,
    is_data: bool,
    is_tcp: bool,
}

fn packets(count: usize) -> impl Strategy<Value = Vec<Step>> {
    let ecn = prop_oneof![1 => Just(0_u8), 10 => Just(1), 10 => Just(2), 1 => Just(3)];
    let tcp = prop::bool::weighted(0.95);
    let packet = (1000_u16..1024, ecn, tcp, prop::bool::weighted(0.6));
    let packet = packet.prop_flat_map(|(port, ecn, is_tcp, is_data)| {
        flags(!is_data).prop_map(move |flags| Step { port, ecn, flags, is_data, is_tcp: is_tcp || !is_data })
    });
    prop::collection::vec(packet, count)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]
    #[test]
    fn acknowledgements_carry_decisions(times in traffic(4000), steps in packets(4000)) {
        let mut bench = Bench::new("rpm");
        bench.set_default("codel", "law", &[TARGET_US, INTERVAL_US]);
        bench.set_default("rpm", "registers", &[MASK, TIMEOUT_US, 0]);
        let mut rpm = Rpm::default();
        for ((now, queue), Step { port, ecn, flags, is_data, is_tcp }) in times.into_iter().zip(steps) {
            let (from, to) = if is_data { ((1, port), (2, 80)) } else { ((2, 80), (1, port)) };
            let mut packet = Packet { ecn: if is_data { ecn } else { 0 }, ..Packet::tcp(from, to, flags, b"data") };
            packet.protocol = if is_tcp { 6 } else { 132 };
            let marked = is_tcp && rpm.arrival((from, to), flags, now);
            // An acknowledgement does not wait: its arrival would be earlier than the previous packet.
            let queue = if is_data && flags & ACK == 0 { queue } else { Queue::default() };
            let left = if is_data { rpm.departure((from, to), ecn, is_tcp, now, queue) } else { Some(0) };
            let got = bench.pass(u16::from(from.0), &packet.frame(), now, queue);
            let Some(ecn) = left else {
                prop_assert_eq!(got, Fate::Dropped);
                continue;
            };
            let mut expected = Packet { ecn, ..packet.clone() };
            let Fate::Sent { ref bytes, .. } = got else { panic!("{got:?}") };
            if marked {
                let carried = Packet { transport: bytes[34..].to_vec(), ..packet.clone() };
                prop_assert_eq!(residue(&carried), residue(&packet), "the checksum is updated");
                expected.transport[13] |= ECE;
                expected.transport[16..18].copy_from_slice(&carried.transport[16..18]);
            }
            prop_assert_eq!(got, expected.sent());
        }
        let pending: u64 = rpm.registers.values().map(|register| register.pending).sum();
        for name in ["dropped", "marked", "ce_arrived", "collisions", "forward_marks", "reverse_marks", "ece_already_set"] {
            let counted = rpm.counters.get(name).copied().unwrap_or_default();
            prop_assert_eq!(bench.counter(name, 2), counted, "{}", name);
        }
        let balance = ["forward_marks", "ce_arrived", "reverse_marks", "ece_already_set"];
        let sum: u64 = balance.iter().map(|name| bench.counter(name, 2)).sum();
        prop_assert_eq!(bench.counter("marked", 2), sum + bench.register("cleared", 2) + pending);
    }
}

/// A connection with reused ports starts without the decisions of the previous one, in both directions.
#[test]
fn a_new_connection_with_the_same_ports_has_no_decisions() {
    let (client, server) = ((1, 5000), (2, 80));
    let full = Queue { found: 9, left: 9, waited_us: 1000 };
    for end in [None, Some(RST), Some(RST | ACK)] {
        let mut bench = Bench::new("rpm");
        bench.set_default("codel", "law", &[TARGET_US, INTERVAL_US]);
        let mut now = 9_000;
        let mut pass = |bench: &mut Bench, from: (u8, u16), to, flags, ecn, queue| {
            now += 100;
            let packet = Packet { ecn, ..Packet::tcp(from, to, flags, b"data") };
            (bench.pass(u16::from(from.0), &packet.frame(), now, queue), packet.sent())
        };
        let empty = Queue::default();
        for (from, to) in [(client, server), (server, client)] {
            pass(&mut bench, to, from, ACK, 0, empty);
            for _ in 0..200 {
                let (got, unchanged) = pass(&mut bench, from, to, 0, 2, full);
                assert_eq!(got, unchanged, "no CE: the decision waits");
            }
        }
        let marked = [bench.counter("marked", 2), bench.counter("marked", 1)];
        assert!(marked[0] > 0 && marked[1] > 0, "{marked:?}");
        if let Some(flags) = end {
            pass(&mut bench, client, server, flags, 0, empty);
            assert_eq!([bench.register("cleared", 2), bench.register("cleared", 1)], marked);
        }
        for (from, to, flags) in [(client, server, SYN), (server, client, SYN | ACK)] {
            pass(&mut bench, from, to, flags, 0, empty);
        }
        for (from, to) in [(client, server), (server, client)] {
            let (got, unchanged) = pass(&mut bench, from, to, ACK, 0, empty);
            assert_eq!(got, unchanged, "no ECE of the earlier connection");
        }
        assert_eq!([bench.register("cleared", 2), bench.register("cleared", 1)], marked);
    }
}

#[test]
fn with_one_register_per_port_any_acknowledgement_carries_a_decision() {
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
    assert_eq!(bench.counter("reverse_marks", 2), 0, "it arrived at another port");
    bench.pass(2, &acknowledgement(6), 14_001, Queue::default());
    assert_eq!(bench.counter("reverse_marks", 2), 1);
}
