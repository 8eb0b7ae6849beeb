// SPDX-License-Identifier: Apache-2.0
//! A model of Linux's CoDel (include/net/codel_impl.h) in microseconds.

use crate::bench::{Bench, Packet, Queue};
use proptest::prelude::*;

pub const TARGET_US: u64 = 200;
pub const INTERVAL_US: u64 = 3000;

#[derive(Default)]
pub struct Codel {
    first_above: u64,
    drop_next: u64,
    pub count: u64,
    last_count: u64,
    rec_inv_sqrt: u64,
    dropping: bool,
}

impl Codel {
    fn newton(&mut self) {
        let root = self.rec_inv_sqrt << 16;
        let square = (root * root) >> 32;
        let value = (3_u64 << 32).wrapping_sub(self.count.wrapping_mul(square)) >> 2;
        self.rec_inv_sqrt = (value.wrapping_mul(root) >> 31 >> 16) & 0xffff;
    }

    fn law(&self, t: u64) -> u64 {
        t + ((INTERVAL_US * (self.rec_inv_sqrt << 16)) >> 32)
    }

    fn above(&mut self, now: u64, queue: Queue) -> bool {
        if queue.waited_us < TARGET_US || queue.left <= 1 {
            self.first_above = 0;
            return false;
        }
        if self.first_above == 0 {
            self.first_above = now + INTERVAL_US;
            return false;
        }
        now > self.first_above
    }

    /// Whether CoDel marks this packet, if all packets are ECN-capable.
    pub fn signals(&mut self, now: u64, queue: Queue) -> bool {
        let above = self.above(now, queue);
        if self.dropping {
            self.dropping = above;
            if !above || now < self.drop_next {
                return false;
            }
            self.count += 1;
            self.newton();
            self.drop_next = self.law(self.drop_next);
            return true;
        }
        if !above {
            return false;
        }
        self.dropping = true;
        let delta = self.count - self.last_count;
        if delta > 1 && now < self.drop_next + 16 * INTERVAL_US {
            self.count = delta;
            self.newton();
        } else {
            self.count = 1;
            self.rec_inv_sqrt = 0xffff;
        }
        self.last_count = self.count;
        self.drop_next = self.law(now);
        true
    }
}

/// Departure times and queues. The queue stays long for a while, except for single packets.
pub fn traffic(packets: usize) -> impl Strategy<Value = Vec<(u64, Queue)>> {
    let gap = prop_oneof![40 => 1_u64..40, 1 => 100_u64..60_000];
    let calm = (gap, 0_u64..500, 0_u32..300);
    prop::collection::vec((calm, 0_u32..200), packets).prop_map(|steps| {
        let (mut now, mut long) = (10_000, false);
        let step = |((gap, waited, left), event): ((u64, u64, u32), u32)| {
            long ^= event == 0;
            now += gap;
            let waited_us = if long && event != 1 { waited + 300 } else { waited };
            (now, Queue { found: left, left, waited_us })
        };
        steps.into_iter().map(step).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]
    #[test]
    fn the_program_marks_what_linux_marks(steps in traffic(4000)) {
        let mut bench = Bench::new("codel");
        bench.set_default("codel", "law", &[TARGET_US, INTERVAL_US, 1]);
        let (mut codel, mut marked) = (Codel::default(), 0);
        for (now, queue) in steps {
            let packet = Packet { ecn: 2, ..Packet::tcp((1, 1000), (2, 80), 0x10, b"data") };
            let signals = codel.signals(now, queue);
            marked += u64::from(signals);
            let expected = Packet { ecn: if signals { 3 } else { 2 }, ..packet.clone() };
            prop_assert_eq!(bench.pass(1, &packet.frame(), now, queue), expected.sent());
        }
        prop_assert_eq!(bench.counter("marked", 2), marked);
        prop_assert_eq!(bench.register("codel_count", 2), codel.count);
    }
}

#[test]
fn a_long_queue_is_signalled_more_and_more_often() {
    for (ecn, marks) in [(2, 1), (0, 1), (2, 0)] {
        let mut bench = Bench::new("codel");
        bench.set_default("codel", "law", &[TARGET_US, INTERVAL_US, marks]);
        let packet = Packet { ecn, ..Packet::tcp((1, 1000), (2, 80), 0x10, b"data") }.frame();
        let queue = Queue { found: 9, left: 9, waited_us: 1000 };
        let mut signalled = |from: u64| {
            for now in (from..from + 30_000).step_by(10) {
                bench.pass(1, &packet, now, queue);
            }
            (bench.counter("marked", 2), bench.counter("dropped", 2))
        };
        let (first, second) = (signalled(10_000), signalled(40_000));
        let capable = ecn == 2 && marks == 1;
        let of = |(marked, dropped): (u64, u64)| if capable { (marked, dropped) } else { (dropped, marked) };
        assert_eq!((of(first).1, of(second).1), (0, 0));
        assert!(of(first).0 > 10 && of(second).0 > 2 * of(first).0 + 5, "{first:?} {second:?}");
    }
}
