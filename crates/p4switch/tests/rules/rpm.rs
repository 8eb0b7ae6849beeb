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
const FIN: u8 = 0x01;

/// CRCs with reflected bits, from their definitions.
fn crc(bytes: &[u8], polynomial: u32, start: u32) -> u32 {
    bytes.iter().fold(start, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| crc >> 1 ^ if crc & 1 == 1 { polynomial } else { 0 })
    })
}

/// Of a host and its port to another's.
type Flow = ((u8, u16), (u8, u16));

/// A flow's register, and what identifies the flow in it.
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
    books: BTreeMap<&'static str, u64>,
}

impl Rpm {
    fn count(&mut self, what: &'static str, by: u64) {
        *self.books.entry(what).or_default() += by;
    }

    /// The ECN bits with which a packet leaves; None: it is dropped.
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

    /// Whether the segment, of this flow, gets ECE.
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

/// TCP's checksum with a pseudo header, but for what stands in its field.
fn residue(packet: &Packet) -> u16 {
    ones_sum(&packet.transport)
}

fn flags(acknowledges: bool) -> impl Strategy<Value = u8> {
    let of = |flags| Just(flags);
    let most = if acknowledges { [ACK, ACK | ECE, 0x18] } else { [0, 0x08, 0x08] };
    prop_oneof![30 => of(most[0]), 3 => of(most[1]), 5 => of(most[2]), 1 => of(ACK | SYN), 1 => of(ACK | RST), 1 => of(SYN),
        1 => of(RST), 2 => of(ACK | FIN), 1 => of(ACK)]
}

/// Port, ECN, flags and whether it is TCP; data from host 1 to 2, or acknowledgements of them.
type What = (u16, u8, u8, bool, bool);

fn packets(count: usize) -> impl Strategy<Value = Vec<What>> {
    let ecn = prop_oneof![1 => Just(0_u8), 10 => Just(1), 10 => Just(2), 1 => Just(3)];
    let tcp = prop::bool::weighted(0.95);
    let one = (1000_u16..1024, ecn, tcp, prop::bool::weighted(0.6));
    let one = one.prop_flat_map(|(port, ecn, tcp, is_data)| {
        flags(!is_data).prop_map(move |flags| (port, ecn, flags, is_data, tcp))
    });
    prop::collection::vec(one, count)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]
    #[test]
    fn decisions_wait_for_the_flows_acknowledgements(times in traffic(4000), what in packets(4000)) {
        let mut bench = Bench::new("rpm");
        bench.set_default("codel", "law", &[TARGET_US, INTERVAL_US]);
        bench.set_default("rpm", "registers", &[MASK, TIMEOUT_US, 0]);
        let mut rpm = Rpm::default();
        for ((now, queue), (port, ecn, flags, is_data, tcp)) in times.into_iter().zip(what) {
            let (here, there) = if is_data { ((1, port), (2, 80)) } else { ((2, 80), (1, port)) };
            let tcp = tcp || !is_data;
            let mut packet = Packet { ecn: if is_data { ecn } else { 0 }, ..Packet::tcp(here, there, flags, b"data") };
            packet.protocol = if tcp { 6 } else { 132 };
            let marked = tcp && rpm.arrival((here, there), flags, now);
            // what acknowledges comes when it leaves: time does not go back
            let queue = if is_data && flags & ACK == 0 { queue } else { Queue::default() };
            let left = if is_data { rpm.departure((here, there), ecn, tcp, now, queue) } else { Some(0) };
            let got = bench.pass(u16::from(here.0), &packet.frame(), now, queue);
            let Some(ecn) = left else {
                prop_assert_eq!(got, Fate::Dropped);
                continue;
            };
            let mut expected = Packet { ecn, ..packet.clone() };
            let Fate::Sent { ref bytes, .. } = got else { panic!("{got:?}") };
            if marked {
                let carried = Packet { transport: bytes[34..].to_vec(), ..packet.clone() };
                prop_assert_eq!(residue(&carried), residue(&packet), "the checksum covers what changed");
                expected.transport[13] |= ECE;
                expected.transport[16..18].copy_from_slice(&carried.transport[16..18]);
            }
            prop_assert_eq!(got, expected.sent());
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

/// A client's port is used again: of its earlier connection nothing is left, in either direction.
#[test]
fn a_new_connection_of_the_same_ports_begins_at_zero() {
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
                let (got, as_it_came) = pass(&mut bench, from, to, 0, 2, full);
                assert_eq!(got, as_it_came, "no CE: the decision waits");
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
            let (got, as_it_came) = pass(&mut bench, from, to, ACK, 0, empty);
            assert_eq!(got, as_it_came, "no ECE of the earlier connection");
        }
        assert_eq!([bench.register("cleared", 2), bench.register("cleared", 1)], marked);
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
