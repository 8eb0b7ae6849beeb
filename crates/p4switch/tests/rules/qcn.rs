// SPDX-License-Identifier: Apache-2.0
//! The congestion point of QCN: schemes/qcn/kernel/qcn_algorithm.h, with every packet sampled and every sample reflected,
//! or none; and the probabilities at their edges.

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
    /// `settings`: sampled with the given probability, of 2^32.
    fn set(&self, bench: &mut Bench, sample: u64) {
        let reflect = if self.reflects { ALWAYS } else { 0 };
        let inverse = (1 << 48) / self.scale;
        let (weight, bits, capped) = (self.weight, self.bits.into(), self.capped.into());
        let (buffer, equilibrium) = (self.buffer, self.equilibrium);
        let settings =
            [buffer, equilibrium, weight, self.scale, inverse, bits, sample, 0, reflect, 0, 1, capped];
        bench.set_default("qcn", "settings", &settings);
    }

    /// -Fb, quantized; 0: no congestion.
    fn quantized(&self, queue: u64, last: u64) -> u64 {
        let length = if self.capped { queue.min(2 * self.equilibrium) } else { queue };
        let signed = |value: u64| i128::from(value);
        let growth = signed(self.weight) * (signed(queue) - signed(last));
        let congestion = (signed(length) - signed(self.equilibrium) + growth).max(0);
        let most = (1_i128 << self.bits) - 1;
        let steps = congestion.min(signed(self.scale)) * most;
        u64::try_from((steps + signed(self.scale) - 1) / signed(self.scale)).unwrap()
    }
}

/// The fields that a congestion point looks at: flags, feedback, its bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Said {
    flags: u8,
    feedback: u16,
    bits: u8,
}

fn packet(kind: u8, said: Said) -> Packet {
    let mut header = vec![0; 88];
    header[..6].copy_from_slice(&[1, kind, said.flags, 1, 0, 8]);
    header[12..14].copy_from_slice(&said.feedback.to_be_bytes());
    header[14] = said.bits;
    let mut transport =
        [40_000_u16.to_be_bytes(), 6190_u16.to_be_bytes(), 99_u16.to_be_bytes(), [0x12, 0x34]].concat();
    transport.extend(header);
    transport.extend(b"odd");
    Packet { protocol: 17, transport, ..Packet::tcp((1, 0), (2, 0), 0, b"") }
}

fn worse(own: u64, bits: u32, said: Said) -> bool {
    let most = |bits: u32| (1_u64 << bits.min(16)) - 1;
    own > 0 && (said.bits == 0 || own * most(said.bits.into()) > u64::from(said.feedback) * most(bits))
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

fn said() -> impl Strategy<Value = Said> {
    let bits = prop_oneof![Just(0_u8), Just(1), Just(6), Just(16), Just(17)];
    (any::<bool>(), any::<u16>(), bits).prop_map(|(last, feedback, bits)| {
        let most = ((1_u32 << bits.min(16)) - 1) as u16;
        Said { flags: if last { 2 } else { 0 }, feedback: feedback & most, bits }
    })
}

/// What a packet comes with, and how many wait when the one before it has left; None: nothing has left since.
#[derive(Debug, Clone)]
struct Step {
    left: Option<u32>,
    said: Said,
    is_data: bool,
}

fn step() -> impl Strategy<Value = Step> {
    let left = prop::option::weighted(0.7, 0_u32..150);
    (left, said(), prop::bool::weighted(0.9)).prop_map(|(left, said, is_data)| Step { left, said, is_data })
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
        for Step { left, said, is_data } in steps {
            let came = packet(if is_data { 1 } else { 2 }, said);
            let mut becomes = said;
            let mut cloned = false;
            let fits = queue < point.buffer;
            if is_data && fits {
                let own = point.quantized(queue, std::mem::replace(&mut last, queue));
                if worse(own, point.bits, said) {
                    cloned = point.reflects;
                    let flags = said.flags | u8::from(cloned);
                    let bits = point.bits.try_into().unwrap();
                    becomes = Said { flags, feedback: own.try_into().unwrap(), bits };
                }
            }
            queue += 1;
            let Some(left) = left else {
                prop_assert_eq!(bench.arrive(1, &came.frame(), 7).clone.is_some(), cloned);
                continue;
            };
            queue = left.into();
            let got = bench.pass(1, &came.frame(), 10, Queue { found: 0, left, waited_us: 3 });
            let Fate::Sent { port: 2, bytes, cloned: was } = got else { panic!("{got:?}") };
            let mut expected = packet(if is_data { 1 } else { 2 }, becomes);
            prop_assert_eq!(ones_sum(&bytes[34..]), ones_sum(&came.transport), "the checksum covers what changed");
            expected.transport[6..8].copy_from_slice(&bytes[40..42]);
            prop_assert_eq!((bytes, was), (expected.forwarded(), cloned));
        }
    }
}

/// Without an entry, the program's own settings: 1 to 25 % of packets, the most from a -Fb of 125 packets on.
#[test]
fn the_program_samples_as_often_as_the_slides_say() {
    let frame = packet(1, Said { flags: 0, feedback: 0, bits: 0 }).frame();
    for queue in [0_u32, 20, 25, 40, 50, 1000] {
        // The last sample found an empty queue, and w is 2.
        let congestion = (3.0 * f64::from(queue) - 25.0).clamp(0.0, 125.0);
        let probability = 0.01 + 0.24 * congestion / 125.0;
        for (random, sampled) in [(probability - 1e-6, 1), (probability + 1e-6, 0)] {
            let mut bench = Bench::new("qcn");
            bench.open_session();
            bench.shell.random = (random * 2_f64.powi(64)) as u64;
            // An acknowledgement leaves such a queue behind it.
            let acknowledgement = packet(2, Said { flags: 0, feedback: 0, bits: 0 }).frame();
            bench.pass(1, &acknowledgement, 8, Queue { found: 0, left: queue, waited_us: 3 });
            bench.pass(1, &frame, 10, Queue { found: queue, left: 0, waited_us: 3 });
            assert_eq!(bench.counter("sampled", 2), sampled, "{queue} {random}");
        }
    }
}
