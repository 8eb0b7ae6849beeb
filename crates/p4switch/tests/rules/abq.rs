// SPDX-License-Identifier: Apache-2.0
//! The states of Active Buffer Queueing (schemes/abq/kernel/abq_algorithm.h) at each arrival and departure.

use crate::bench::{Bench, Packet, Queue};
use proptest::prelude::*;

const US: u64 = 0;
const CS: u64 = 1;
const LCS: u64 = 2;

/// Tickets of released ACKs after a release: at most `count`, or all of `held` at an uncongested port.
fn release(count: u64, state: u64, released: u64, held: u64) -> u64 {
    if state == US {
        held
    } else {
        held.min(released + count)
    }
}

/// State, X and releases after an update with the queue's length.
fn next(threshold: u64, limit: u64, queue: u64, (state, x, releases): (u64, u64, u64)) -> (u64, u64, u64) {
    if queue > threshold {
        let first = limit.saturating_sub(threshold).min(threshold);
        return (CS, if state == CS { x } else { first }, releases);
    }
    if state == US || queue > x {
        return (state, x, releases);
    }
    let halved = if x / 2 < 4 { 0 } else { x / 2 };
    (if halved == 0 { US } else { LCS }, halved, releases + 1)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    /// Each departure shortens the queue by one. The program sees one arrival between two departures.
    #[test]
    fn states_follow_the_queue(threshold in 0_u64..60, limit in 0_u64..200, count in 1_u64..9,
                               arrivals in prop::collection::vec(0_u64..3, 3000)) {
        let mut bench = Bench::new("abq");
        bench.set_default("abq", "hold_above", &[threshold, limit, count]);
        bench.set_default("marking", "mark_above", &[(1 << 19) - 1]);
        let packet = Packet::tcp((1, 1000), (2, 80), 0x10, b"data");
        let ack = Packet::tcp((2, 80), (1, 1000), 0x10, b"");
        let (mut queue, mut expected) = (0, (US, 0, 0));
        let (mut held, mut released) = (0, 0);
        for (at, arrived) in arrivals.into_iter().enumerate() {
            let arrived = if at % 500 < 250 { arrived } else { arrived / 2 };
            expected = next(threshold, limit, queue + 1, expected);
            queue = (queue + arrived).saturating_sub(1);
            let releases = expected.2;
            expected = next(threshold, limit, queue, expected);
            if expected.2 > releases {
                released = release(count, expected.0, released, held);
            }
            let left = queue.try_into().unwrap();
            let seen = Queue { found: left, left, waited_us: 0 };
            prop_assert_eq!(bench.pass(1, &packet.frame(), 10, seen), packet.sent());
            let got = (bench.register("abq_state", 2), bench.register("abq_x", 2), bench.counter("releases", 2));
            prop_assert_eq!(got, expected);
            prop_assert_eq!((bench.register("abq_released", 2), bench.register("abq_tail", 2)), (released, held));
            if at % 3 == 0 {
                bench.arrive(2, &ack.frame(), 10);
                held += u64::from(expected.0 != US);
            }
            prop_assert_eq!(bench.counter("holds", 2), held);
        }
        // An empty queue always releases.
        for _ in 0..20 {
            expected = next(threshold, limit, queue + 1, expected);
            queue = 0;
            expected = next(threshold, limit, queue, expected);
            bench.pass(1, &packet.frame(), 10, Queue::default());
        }
        prop_assert_eq!((expected.0, bench.register("abq_state", 2)), (US, US));
    }
}
