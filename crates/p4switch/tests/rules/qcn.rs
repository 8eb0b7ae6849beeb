// SPDX-License-Identifier: Apache-2.0
//! QCN's congestion point (schemes/qcn/kernel/qcn_algorithm.h) with every packet sampled and every sample or none
//! reflected, and the edges of the sampling probabilities.

use crate::bench::{ones_sum, Bench, Fate, Packet, Queue};
use proptest::prelude::*;

const ALWAYS: u64 = (1 << 32) - 1;

#[derive(Debug, Clone)]
struct Point {
    buffer: u64,
    equilibrium: u64,
    weight: u64,
    scale: u64,
    bits: u32,
    capped: bool,
    reflects: bool,
}

impl Point {
    /// Write the table's default action. `sample` is the sampling probability times 2^32.
    fn set(&self, bench: &mut Bench, sample: u64) {
        let reflect = if self.reflects { ALWAYS } else { 0 };
        let inverse = (1 << 48) / self.scale;
        let (weight, bits, capped) = (self.weight, self.bits.into(), self.capped.into());
        let (buffer, equilibrium) = (self.buffer, self.equilibrium);
        let settings =
            [buffer, equilibrium, weight, self.scale, inverse, bits, sample, 0, reflect, 0, 1, capped];
        bench.set_default("qcn", "settings", &settings);
    }

    /// The quantized feedback -Fb. 0 means no congestion.
    fn quantized(&self, queue: u64, last: u64) -> u64 {
        let length = if self.capped { queue.min(2 * self.equilibrium) } else { queue };
        let signed = |value: u64| i128::from(value);
        let growth = signed(self.weight) * (signed(queue) - signed(last));
        let congestion = (signed(length) - signed(self.equilibrium) + growth).max(0);
        let max = (1_i128 << self.bits) - 1;
        let scaled = congestion.min(signed(self.scale)) * max;
        u64::try_from((scaled + signed(self.scale) - 1) / signed(self.scale)).unwrap()
    }
}

/// Header fields of a congestion point: flags, feedback and its width in bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Feedback {
    flags: u8,
    feedback: u16,
    bits: u8,
}

fn packet(kind: u8, feedback: Feedback) -> Packet {
    let mut header = vec![0; 88];
    header[..6].copy_from_slice(&[1, kind, feedback.flags, 1, 0, 8]);
    header[12..14].copy_from_slice(&feedback.feedback.to_be_bytes());
    header[14] = feedback.bits;
    let mut transport =
        [40_000_u16.to_be_bytes(), 6190_u16.to_be_bytes(), 99_u16.to_be_bytes(), [0x12, 0x34]].concat();
    transport.extend(header);
    transport.extend(b"odd");
    Packet { protocol: 17, transport, ..Packet::tcp((1, 0), (2, 0), 0, b"") }
}

fn worse(congestion: u64, bits: u32, earlier: Feedback) -> bool {
    let max = |bits: u32| (1_u64 << bits.min(16)) - 1;
    congestion > 0
        && (earlier.bits == 0
            || congestion * max(earlier.bits.into()) > u64::from(earlier.feedback) * max(bits))
}

fn point() -> impl Strategy<Value = Point> {
    let scales = prop_oneof![Just(1_u64), Just(7), Just(125), 1_u64..1 << 20];
    let weights = prop_oneof![Just(0_u64), Just(2), Just(1023)];
    let buffers = prop_oneof![Just(100_u64), Just(ALWAYS)];
    (buffers, 1_u64..200, weights, scales, 1_u32..17, any::<bool>(), any::<bool>()).prop_map(
        |(buffer, equilibrium, weight, scale, bits, capped, reflects)| Point {
            buffer,
            equilibrium,
            weight,
            scale,
            bits,
            capped,
            reflects,
        },
    )
}

fn feedback() -> impl Strategy<Value = Feedback> {
    let bits = prop_oneof![Just(0_u8), Just(1), Just(6), Just(16), Just(17)];
    (any::<bool>(), any::<u16>(), bits).prop_map(|(last, feedback, bits)| {
        let max = ((1_u32 << bits.min(16)) - 1) as u16;
        Feedback { flags: if last { 2 } else { 0 }, feedback: feedback & max, bits }
    })
}

/// A packet's arrival. `left` is the queue's length after the previous departure, None if there was none.
#[derive(Debug, Clone)]
struct Step {
    left: Option<u32>,
    arrived: Feedback,
    is_data: bool,
}

fn step() -> impl Strategy<Value = Step> {
    let left = prop::option::weighted(0.7, 0_u32..150);
    (left, feedback(), prop::bool::weighted(0.9)).prop_map(|(left, arrived, is_data)| Step {
        left,
        arrived,
        is_data,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn the_worst_congestion_is_written_and_reflected(
        point in point(), steps in prop::collection::vec(step(), 500),
    ) {
        let mut bench = Bench::new("qcn");
        bench.open_session();
        point.set(&mut bench, ALWAYS);
        let (mut queue, mut last) = (0_u64, 0_u64);
        for Step { left, arrived, is_data } in steps {
            let sent = packet(if is_data { 1 } else { 2 }, arrived);
            let mut expected = arrived;
            let mut cloned = false;
            let fits = queue < point.buffer;
            if is_data && fits {
                let congestion = point.quantized(queue, std::mem::replace(&mut last, queue));
                if worse(congestion, point.bits, arrived) {
                    cloned = point.reflects;
                    let flags = arrived.flags | u8::from(cloned);
                    let bits = point.bits.try_into().unwrap();
                    expected = Feedback { flags, feedback: congestion.try_into().unwrap(), bits };
                }
            }
            queue += 1;
            let Some(left) = left else {
                prop_assert_eq!(bench.arrive(1, &sent.frame(), 7).clone.is_some(), cloned);
                continue;
            };
            queue = left.into();
            let got = bench.pass(1, &sent.frame(), 10, Queue { found: 0, left, waited_us: 3 });
            let Fate::Sent { port: 2, bytes, cloned: is_cloned } = got else { panic!("{got:?}") };
            let mut expected = packet(if is_data { 1 } else { 2 }, expected);
            prop_assert_eq!(ones_sum(&bytes[34..]), ones_sum(&sent.transport), "the checksum is updated");
            expected.transport[6..8].copy_from_slice(&bytes[40..42]);
            prop_assert_eq!((bytes, is_cloned), (expected.forwarded(), cloned));
        }
    }
}

/// The program's default settings: it samples 1 to 25 % of packets, with the maximum from a -Fb of 125 packets.
#[test]
fn the_sampling_probability_is_that_of_the_slides() {
    let frame = packet(1, Feedback { flags: 0, feedback: 0, bits: 0 }).frame();
    for queue in [0_u32, 20, 25, 40, 50, 1000] {
        // The last sample found an empty queue, and w is 2.
        let congestion = (3.0 * f64::from(queue) - 25.0).clamp(0.0, 125.0);
        let probability = 0.01 + 0.24 * congestion / 125.0;
        for (random, sampled) in [(probability - 1e-6, 1), (probability + 1e-6, 0)] {
            let mut bench = Bench::new("qcn");
            bench.open_session();
            bench.shell.random = (random * 2_f64.powi(64)) as u64;
            // Set the queue's length by an acknowledgement.
            let acknowledgement = packet(2, Feedback { flags: 0, feedback: 0, bits: 0 }).frame();
            bench.pass(1, &acknowledgement, 8, Queue { found: 0, left: queue, waited_us: 3 });
            bench.pass(1, &frame, 10, Queue { found: queue, left: 0, waited_us: 3 });
            assert_eq!(bench.counter("sampled", 2), sampled, "{queue} {random}");
        }
    }
}
