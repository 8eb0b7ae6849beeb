// SPDX-License-Identifier: Apache-2.0
//! The agenda: a priority queue of deadlines.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Deadlines in nanoseconds of lab time, each with an item. Deadlines of one instant keep the order of insertion,
/// independent of the order of `T`.
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
    pub fn add(&mut self, time_ns: u64, item: T) {
        self.added += 1;
        self.heap.push(Reverse((time_ns, self.added, item)));
    }

    pub fn next_ns(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse(first)| first.0)
    }

    /// Removes and returns the first deadline at or before `now_ns`, with its time.
    pub fn pop_due(&mut self, now_ns: u64) -> Option<(u64, T)> {
        if self.next_ns()? > now_ns {
            return None;
        }
        self.heap.pop().map(|Reverse((time_ns, _, item))| (time_ns, item))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn deadlines_of_one_instant_keep_insertion_order() {
        let mut agenda = Agenda::default();
        agenda.add(5, "z");
        agenda.add(5, "a");
        agenda.add(4, "m");
        let due: Vec<_> = std::iter::from_fn(|| agenda.pop_due(5)).collect();
        assert_eq!(due, [(4, "m"), (5, "z"), (5, "a")]);
    }

    proptest! {
        #[test]
        fn no_deadline_is_due_early(times in prop::collection::vec(0u64..100, 0..50), now in 0u64..100) {
            let mut agenda = Agenda::default();
            times.iter().for_each(|time| agenda.add(*time, ()));
            let due: Vec<u64> = std::iter::from_fn(|| agenda.pop_due(now)).map(|(time, ())| time).collect();
            prop_assert!(due.windows(2).all(|pair| pair[0] <= pair[1]));
            prop_assert_eq!(due.len(), times.iter().filter(|time| **time <= now).count());
        }
    }
}
