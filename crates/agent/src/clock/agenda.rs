// SPDX-License-Identifier: Apache-2.0
//! What has to happen when: a heap of deadlines.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Times are nanoseconds of CLOCK_MONOTONIC. At one instant, deadlines keep the order in which they were added; what they
/// are for (`T`) has no say in it.
pub struct Agenda<T> {
    heap: BinaryHeap<Reverse<(u64, u64, T)>>,
    added: u64,
}

impl<T: Ord> Default for Agenda<T> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), added: 0 }
    }
}

impl<T: Ord> Agenda<T> {
    pub fn add(&mut self, time_ns: u64, what: T) {
        self.added += 1;
        self.heap.push(Reverse((time_ns, self.added, what)));
    }

    pub fn next_ns(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse(first)| first.0)
    }

    /// What is due first at `now_ns`, with its own time.
    pub fn take_due(&mut self, now_ns: u64) -> Option<(u64, T)> {
        if self.next_ns()? > now_ns {
            return None;
        }
        self.heap.pop().map(|Reverse((time_ns, _, what))| (time_ns, what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn deadlines_of_one_instant_keep_their_order() {
        let mut agenda = Agenda::default();
        agenda.add(5, "z");
        agenda.add(5, "a");
        agenda.add(4, "m");
        let due: Vec<_> = std::iter::from_fn(|| agenda.take_due(5)).collect();
        assert_eq!(due, [(4, "m"), (5, "z"), (5, "a")]);
    }

    proptest! {
        #[test]
        fn nothing_happens_before_its_time(times in prop::collection::vec(0u64..100, 0..50), now in 0u64..100) {
            let mut agenda = Agenda::default();
            times.iter().for_each(|time| agenda.add(*time, ()));
            let due: Vec<u64> = std::iter::from_fn(|| agenda.take_due(now)).map(|(time, ())| time).collect();
            prop_assert!(due.windows(2).all(|pair| pair[0] <= pair[1]));
            prop_assert_eq!(due.len(), times.iter().filter(|time| **time <= now).count());
        }
    }
}
