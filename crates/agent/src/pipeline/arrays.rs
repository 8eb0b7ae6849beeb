// SPDX-License-Identifier: Apache-2.0
//! The elements of a program's counters, registers and meters at the end of a cell, as far as they are not zero.

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
/// Limit on the elements of a cell's arrays of more than CHUNK elements: each costs some 300 ns.
const CELL_MAX: u32 = 1 << 18;

/// The elements of large arrays that may still be read in this cell.
pub struct Budget(u32);

impl Default for Budget {
    fn default() -> Self {
        Self(CELL_MAX)
    }
}

impl Budget {
    /// Whether an array may be read. Small ones always may.
    fn take(&mut self, size: u32) -> bool {
        if size > CHUNK {
            match self.0.checked_sub(size) {
                Some(left) => self.0 = left,
                None => return false,
            }
        }
        true
    }
}

/// A counter, register or meter. An element is its index and value, its index, packets and bytes, or its index and
/// the packets by color: green, yellow, red.
#[derive(Debug, Serialize, PartialEq, Eq)]
pub struct ArrayState {
    kind: Kind,
    name: String,
    size: u32,
    /// The number of elements that are not zero; None: the array is too large or too wide to be read.
    nonzero: Option<usize>,
    elements: Vec<Vec<u64>>,
    /// The array is not read because the cell's limit was reached.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    over_limit: bool,
}

#[derive(Debug, Clone, Copy, Serialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Counter,
    Register,
    Meter,
}

/// Reads the counters and meters, except those of table entries, and the registers of a program.
pub fn read(
    program: &Program,
    budget: &mut Budget,
    mut query: impl FnMut(&Request) -> Result<Answer, String>,
) -> Result<Vec<ArrayState>, String> {
    let mut states = Vec::new();
    for (number, counter) in (0..).zip(&program.counters).filter(|(_, counter)| counter.table.is_none()) {
        let mut state = ArrayState::new(Kind::Counter, &counter.name, counter.size, 0, budget);
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
        let mut state = ArrayState::new(Kind::Register, &array.name, array.size, array.width, budget);
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
    for (number, meter) in (0..).zip(&program.meters).filter(|(_, meter)| meter.table.is_none()) {
        let mut state = ArrayState::new(Kind::Meter, &meter.name, meter.size, 0, budget);
        for (from, count) in state.chunks() {
            match query(&Request::ReadColors { meter: number, from, count })? {
                Answer::Colors(colors) => state.extend(from, colors.iter().map(|counts| counts.to_vec())),
                reply => return Err(format!("meter {}: {reply:?}", meter.name)),
            }
        }
        states.push(state);
    }
    Ok(states)
}

impl ArrayState {
    fn new(kind: Kind, name: &str, size: u32, bits: u32, budget: &mut Budget) -> Self {
        let fits = bits <= BITS_MAX && size <= SIZE_MAX;
        let is_read = fits && budget.take(size);
        let nonzero = is_read.then_some(0);
        Self {
            kind,
            name: name.to_owned(),
            size,
            nonzero,
            elements: Vec::new(),
            over_limit: fits && !is_read,
        }
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
    use super::{ArrayState, Budget, Kind, CELL_MAX, CHUNK, ELEMENTS_MAX, SIZE_MAX};

    fn array(size: u32, bits: u32) -> ArrayState {
        ArrayState::new(Kind::Register, "a", size, bits, &mut Budget::default())
    }

    #[test]
    fn arrays_are_read_in_chunks() {
        let chunks = |size| array(size, 64).chunks().collect::<Vec<_>>();
        assert_eq!(chunks(0), []);
        assert_eq!(chunks(CHUNK), [(0, CHUNK)]);
        assert_eq!(chunks(CHUNK + 3), [(0, CHUNK), (CHUNK, 3)]);
        for state in [array(9, 65), array(SIZE_MAX + 1, 1)] {
            assert_eq!((state.chunks().count(), state.nonzero, state.over_limit), (0, None, false));
        }
    }

    #[test]
    fn large_arrays_of_a_cell_have_a_limit() {
        let mut budget = Budget::default();
        let mut read = |size| ArrayState::new(Kind::Register, "a", size, 8, &mut budget).nonzero.is_some();
        for _ in 0..CELL_MAX / SIZE_MAX {
            assert!(read(SIZE_MAX) && read(CHUNK));
        }
        assert!(!read(CHUNK + 1) && read(CHUNK));
        assert!(ArrayState::new(Kind::Counter, "a", SIZE_MAX, 0, &mut budget).over_limit);
    }

    #[test]
    fn elements_are_those_that_are_not_zero_up_to_a_limit() {
        let mut state = array(10_000, 64);
        state.extend(CHUNK, [vec![0, 0], vec![3, 180], vec![0, 5]].into_iter());
        let first = u64::from(CHUNK);
        assert_eq!(state.elements, [[first + 1, 3, 180], [first + 2, 0, 5]]);
        state.extend(0, (0..2000).map(|_| vec![1, 1]));
        assert_eq!((state.nonzero, state.elements.len()), (Some(2002), ELEMENTS_MAX));
    }
}
