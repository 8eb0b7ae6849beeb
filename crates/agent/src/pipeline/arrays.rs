// SPDX-License-Identifier: Apache-2.0
//! The elements of a program's counters and registers at the end of a cell, as far as they are not zero.

use super::number_of;
use qbed_p4engine::control::{Answer, Request};
use qbed_p4engine::program::Program;
use serde::Serialize;

/// Limits on an array: elements that are read, non-zero elements that are written, bits of a register.
const SIZE_MAX: u32 = 65_536;
const ELEMENTS_MAX: usize = 1_024;
const BITS_MAX: u32 = 64;
/// Elements of one request.
const CHUNK: u32 = 4_096;

/// A counter or register. An element is its index and value, or its index, packets and bytes.
#[derive(Debug, Serialize, PartialEq, Eq)]
pub struct ArrayState {
    kind: Kind,
    name: String,
    size: u32,
    /// The number of elements that are not zero; None: the array is too large or too wide to be read.
    nonzero: Option<usize>,
    elements: Vec<Vec<u64>>,
}

#[derive(Debug, Clone, Copy, Serialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Counter,
    Register,
}

/// Reads the counters, except those of table entries, and the registers of a program.
pub fn read(
    program: &Program,
    mut query: impl FnMut(&Request) -> Result<Answer, String>,
) -> Result<Vec<ArrayState>, String> {
    let mut states = Vec::new();
    for (number, counter) in (0..).zip(&program.counters).filter(|(_, counter)| counter.table.is_none()) {
        let mut state = ArrayState::new(Kind::Counter, &counter.name, counter.size, counter.size <= SIZE_MAX);
        for (from, count) in state.chunks() {
            let request = Request::ReadCounter { counter: number, from, count };
            match query(&request)? {
                Answer::Counts(counts) => {
                    state.extend(from, counts.iter().map(|count| vec![count.packets, count.bytes]));
                }
                reply => return Err(format!("counter {}: {reply:?}", counter.name)),
            }
        }
        states.push(state);
    }
    for (number, array) in (0..).zip(&program.arrays) {
        let is_read = array.width <= BITS_MAX && array.size <= SIZE_MAX;
        let mut state = ArrayState::new(Kind::Register, &array.name, array.size, is_read);
        for (from, count) in state.chunks() {
            match query(&Request::ReadRegister { array: number, from, count })? {
                Answer::Values(values) => {
                    state.extend(from, values.iter().map(|value| vec![number_of(value)]));
                }
                reply => return Err(format!("register {}: {reply:?}", array.name)),
            }
        }
        states.push(state);
    }
    Ok(states)
}

impl ArrayState {
    fn new(kind: Kind, name: &str, size: u32, is_read: bool) -> Self {
        Self { kind, name: name.to_owned(), size, nonzero: is_read.then_some(0), elements: Vec::new() }
    }

    /// The requests that read the array: first elements and numbers of elements.
    fn chunks(&self) -> impl Iterator<Item = (u32, u32)> {
        let size = if self.nonzero.is_some() { self.size } else { 0 };
        (0..size).step_by(CHUNK as usize).map(move |from| (from, CHUNK.min(size - from)))
    }

    /// Adds the elements from `from` on.
    fn extend(&mut self, from: u32, values: impl Iterator<Item = Vec<u64>>) {
        for (index, mut value) in
            (u64::from(from)..).zip(values).filter(|(_, value)| value.iter().any(|n| *n != 0))
        {
            *self.nonzero.get_or_insert(0) += 1;
            if self.elements.len() < ELEMENTS_MAX {
                value.insert(0, index);
                self.elements.push(value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ArrayState, Kind, CHUNK, ELEMENTS_MAX};

    #[test]
    fn arrays_are_read_in_chunks() {
        let chunks = |size| ArrayState::new(Kind::Register, "a", size, true).chunks().collect::<Vec<_>>();
        assert_eq!(chunks(0), []);
        assert_eq!(chunks(CHUNK), [(0, CHUNK)]);
        assert_eq!(chunks(CHUNK + 3), [(0, CHUNK), (CHUNK, 3)]);
        assert_eq!(ArrayState::new(Kind::Register, "a", 9, false).chunks().count(), 0);
    }

    #[test]
    fn elements_are_those_that_are_not_zero_up_to_a_limit() {
        let mut state = ArrayState::new(Kind::Counter, "a", 10_000, true);
        state.extend(CHUNK, [vec![0, 0], vec![3, 180], vec![0, 5]].into_iter());
        let first = u64::from(CHUNK);
        assert_eq!(state.elements, [[first + 1, 3, 180], [first + 2, 0, 5]]);
        state.extend(0, (0..2000).map(|_| vec![1, 1]));
        assert_eq!((state.nonzero, state.elements.len()), (Some(2002), ELEMENTS_MAX));
    }
}
