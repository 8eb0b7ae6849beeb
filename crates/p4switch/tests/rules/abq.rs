// SPDX-License-Identifier: Apache-2.0
//! The states of Active Buffer Queueing (schemes/abq/kernel/abq_algorithm.h) at each arrival and departure.

use crate::bench::{Bench, Packet, Queue};
use proptest::prelude::*;

const US: u64 = 0;
const CS: u64 = 1;
const LCS: u64 = 2;

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
    fn states_follow_the_queue(threshold in 0_u64..60, limit in 0_u64..200, arrivals in prop::collection::vec(0_u64..3, 3000)) {
        let mut bench = Bench::new("abq");
        bench.set_default("abq", "hold_above", &[threshold, limit]);
        bench.set_default("marking", "mark_above", &[(1 << 19) - 1]);
        let packet = Packet::tcp((1, 1000), (2, 80), 0x10, b"data");
        let (mut queue, mut expected) = (0, (US, 0, 0));
        for (at, arrived) in arrivals.into_iter().enumerate() {
            let arrived = if at % 500 < 250 { arrived } else { arrived / 2 };
            expected = next(threshold, limit, queue + 1, expected);
            queue = (queue + arrived).saturating_sub(1);
            expected = next(threshold, limit, queue, expected);
            let left = queue.try_into().unwrap();
            let seen = Queue { found: left, left, waited_us: 0 };
            prop_assert_eq!(bench.pass(1, &packet.frame(), 10, seen), packet.sent());
            let got = (bench.register("abq_state", 2), bench.register("abq_x", 2), bench.counter("releases", 2));
            prop_assert_eq!(got, expected);
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
