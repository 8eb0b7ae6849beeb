// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Ternary match by tuple space search (Srinivasan, Suri and Varghese, 1999). Entries with the same mask share a hash
//! map. Masks are searched by their best priority until no other can have a better match.
//!
//! A range is represented by the common prefix of its bounds, and compared completely if the prefix matches.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use crate::tables::hash_map::HashMap;
use crate::tables::key::{Encoded, Layout};

const NONE: u32 = u32::MAX;

/// Precedence of an entry: the higher priority, then the earlier insertion.
type Rank = (u32, core::cmp::Reverse<u64>);

#[derive(Debug, Clone)]
struct Tuple {
    mask: Vec<u64>,
    best: u32,
    priorities: BTreeMap<u32, u32>,
    /// The entry with the highest rank for each masked key.
    heads: HashMap,
}

/// An entry in a chain of entries with the same mask and masked key, in the order of rank.
#[derive(Debug, Clone)]
struct Link {
    rank: Rank,
    next: u32,
    ranges: Vec<u64>,
}

#[derive(Debug, Clone)]
pub(crate) struct TupleSpace {
    /// Tuples in the order of their best priority, the highest first.
    tuples: Vec<Tuple>,
    /// Links by entry.
    links: Vec<Link>,
}

impl TupleSpace {
    pub fn new() -> TupleSpace {
        TupleSpace { tuples: Vec::new(), links: Vec::new() }
    }

    fn link(&self, entry: u32) -> Option<&Link> {
        self.links.get(entry as usize)
    }

    #[inline]
    pub fn find(&self, layout: &Layout, key: &[u64], masked: &mut [u64]) -> Option<u32> {
        let mut best: Option<(Rank, u32)> = None;
        let masked = masked.get_mut(..key.len())?;
        for tuple in &self.tuples {
            if best.is_some_and(|((priority, _), _)| priority > tuple.best) {
                break;
            }
            for ((masked, key), mask) in masked.iter_mut().zip(key).zip(&tuple.mask) {
                *masked = key & mask;
            }
            let mut next = tuple.heads.get(masked).unwrap_or(NONE);
            while let Some(link) = self.link(next) {
                if layout.ranges.is_empty() || in_ranges(layout, key, &link.ranges) {
                    if best.is_none_or(|(rank, _)| link.rank > rank) {
                        best = Some((link.rank, next));
                    }
                    break;
                }
                next = link.next;
            }
        }
        best.map(|(_, entry)| entry)
    }

    /// The entry with these matches and this priority.
    pub fn get(&self, encoded: &Encoded, priority: u32) -> Option<u32> {
        let tuple = self.tuples.iter().find(|tuple| tuple.mask == encoded.mask)?;
        let mut next = tuple.heads.get(&encoded.key)?;
        while let Some(link) = self.link(next) {
            if link.rank.0 == priority && link.ranges == encoded.ranges {
                return Some(next);
            }
            next = link.next;
        }
        None
    }

    /// Inserts an entry that does not exist yet.
    pub fn insert(&mut self, encoded: &Encoded, priority: u32, sequence: u64, entry: u32) {
        let index = self.tuples.iter().position(|tuple| tuple.mask == encoded.mask).unwrap_or_else(|| {
            let heads = HashMap::new(encoded.key.len());
            self.tuples.push(Tuple {
                mask: encoded.mask.clone(),
                best: 0,
                priorities: BTreeMap::new(),
                heads,
            });
            self.tuples.len() - 1
        });
        let rank = (priority, core::cmp::Reverse(sequence));
        let Some(tuple) = self.tuples.get_mut(index) else { return };
        let (mut before, mut next) = (NONE, tuple.heads.get(&encoded.key).unwrap_or(NONE));
        while let Some(link) = self.links.get(next as usize).filter(|link| link.rank > rank) {
            (before, next) = (next, link.next);
        }
        if self.links.len() <= entry as usize {
            self.links.resize(entry as usize + 1, Link { rank, next: NONE, ranges: vec![] });
        }
        if let Some(link) = self.links.get_mut(entry as usize) {
            *link = Link { rank, next, ranges: encoded.ranges.clone() };
        }
        match self.links.get_mut(before as usize) {
            Some(link) => link.next = entry,
            None => tuple.heads.insert(&encoded.key, entry),
        }
        *tuple.priorities.entry(priority).or_insert(0) += 1;
        self.reorder(index);
    }

    pub fn remove(&mut self, encoded: &Encoded, entry: u32) {
        let Some(index) = self.tuples.iter().position(|tuple| tuple.mask == encoded.mask) else { return };
        let (Some(tuple), Some(link)) = (self.tuples.get_mut(index), self.links.get(entry as usize)) else {
            return;
        };
        let (priority, after) = (link.rank.0, link.next);
        let (mut before, mut next) = (NONE, tuple.heads.get(&encoded.key).unwrap_or(NONE));
        while let Some(link) = self.links.get(next as usize).filter(|_| next != entry) {
            (before, next) = (next, link.next);
        }
        match self.links.get_mut(before as usize) {
            Some(link) => link.next = after,
            None if after == NONE => drop(tuple.heads.remove(&encoded.key)),
            None => tuple.heads.insert(&encoded.key, after),
        }
        if let Some(count) = tuple.priorities.get_mut(&priority) {
            *count -= 1;
            if *count == 0 {
                tuple.priorities.remove(&priority);
            }
        }
        if tuple.priorities.is_empty() {
            self.tuples.remove(index);
        } else {
            self.reorder(index);
        }
    }

    /// Updates a tuple's best priority and its position.
    fn reorder(&mut self, index: usize) {
        let Some(tuple) = self.tuples.get_mut(index) else { return };
        let best = tuple.priorities.last_key_value().map_or(0, |(priority, _)| *priority);
        tuple.best = best;
        let left = self.tuples.get(index.wrapping_sub(1)).is_none_or(|before| before.best >= best);
        let right = self.tuples.get(index + 1).is_none_or(|after| after.best <= best);
        if !left || !right {
            let tuple = self.tuples.remove(index);
            let position = self.tuples.partition_point(|other| other.best >= best);
            self.tuples.insert(position, tuple);
        }
    }
}

fn in_ranges(layout: &Layout, key: &[u64], ranges: &[u64]) -> bool {
    let mut rest = ranges;
    layout.ranges.iter().all(|(first, last)| {
        let words = last - first + 1;
        let Some((low, after)) = rest.split_at_checked(words) else { return false };
        let Some((high, after)) = after.split_at_checked(words) else { return false };
        rest = after;
        key.get(*first..=*last).is_some_and(|value| low <= value && value <= high)
    })
}
