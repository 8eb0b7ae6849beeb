// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! A hash map from keys of a fixed number of words to numbers, with open addressing, linear probing and removal by
//! backward shift.

use alloc::vec::Vec;

const EMPTY: u32 = u32::MAX;

#[derive(Debug, Clone)]
pub(crate) struct HashMap {
    /// Words of a key.
    width: usize,
    /// Indices of items, or `EMPTY`. The size is a power of two.
    cells: Vec<u32>,
    /// Keys, each followed by its value.
    items: Vec<u64>,
    unused: Vec<u32>,
    len: usize,
}

#[inline(always)]
fn mix(hash: u64, word: u64) -> u64 {
    let product = u128::from(hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (product as u64) ^ (product >> 64) as u64
}

#[inline(always)]
fn hash(key: &[u64]) -> u64 {
    key.iter().fold(0x243f_6a88_85a3_08d3, |hash, word| mix(hash, *word))
}

impl HashMap {
    pub fn new(width: usize) -> HashMap {
        HashMap { width, cells: Vec::new(), items: Vec::new(), unused: Vec::new(), len: 0 }
    }

    fn mask(&self) -> usize {
        self.cells.len().wrapping_sub(1)
    }

    #[inline(always)]
    fn item(&self, item: u32) -> (&[u64], u32) {
        let first = item as usize * (self.width + 1);
        match self.items.get(first..first + self.width + 1) {
            Some([key @ .., value]) => (key, *value as u32),
            _ => (&[], 0),
        }
    }

    fn put(&mut self, item: u32, key: &[u64], value: u32) {
        let first = item as usize * (self.width + 1);
        if let Some([stored @ .., old]) = self.items.get_mut(first..first + self.width + 1) {
            stored.copy_from_slice(key);
            *old = u64::from(value);
        }
    }

    /// The cell that contains the key, its item and its value.
    #[inline(always)]
    fn find(&self, key: &[u64]) -> Option<(usize, u32, u32)> {
        let mut cell = hash(key) as usize & self.mask();
        loop {
            let item = *self.cells.get(cell)?;
            if item == EMPTY {
                return None;
            }
            // A loop over a few words is faster than memcmp.
            let (stored, value) = self.item(item);
            if stored.iter().zip(key).all(|(stored, word)| stored == word) {
                return Some((cell, item, value));
            }
            cell = (cell + 1) & self.mask();
        }
    }

    #[inline(always)]
    pub fn get(&self, key: &[u64]) -> Option<u32> {
        self.find(key).map(|(.., value)| value)
    }

    /// Inserts or replaces a value.
    pub fn insert(&mut self, key: &[u64], value: u32) {
        if let Some((_, item, _)) = self.find(key) {
            self.put(item, key, value);
            return;
        }
        if (self.len + 1) * 2 > self.cells.len() {
            self.grow();
        }
        let item = self.unused.pop().unwrap_or_else(|| {
            self.items.resize(self.items.len() + self.width + 1, 0);
            (self.items.len() / (self.width + 1)) as u32 - 1
        });
        self.put(item, key, value);
        self.link(item);
        self.len += 1;
    }

    pub fn remove(&mut self, key: &[u64]) -> Option<u32> {
        let (cell, item, value) = self.find(key)?;
        self.unused.push(item);
        self.len -= 1;
        self.close(cell);
        Some(value)
    }

    /// Empties a cell. Later items of the same probe sequence move up.
    fn close(&mut self, mut hole: usize) {
        let mut cell = hole;
        loop {
            cell = (cell + 1) & self.mask();
            let item = self.cells.get(cell).copied().unwrap_or(EMPTY);
            if item == EMPTY {
                break;
            }
            let home = hash(self.item(item).0) as usize & self.mask();
            let from_home = cell.wrapping_sub(home) & self.mask();
            let from_hole = cell.wrapping_sub(hole) & self.mask();
            if from_home >= from_hole {
                self.set(hole, item);
                hole = cell;
            }
        }
        self.set(hole, EMPTY);
    }

    fn set(&mut self, cell: usize, item: u32) {
        if let Some(old) = self.cells.get_mut(cell) {
            *old = item;
        }
    }

    fn link(&mut self, item: u32) {
        let mut cell = hash(self.item(item).0) as usize & self.mask();
        while self.cells.get(cell).is_some_and(|other| *other != EMPTY) {
            cell = (cell + 1) & self.mask();
        }
        self.set(cell, item);
    }

    fn grow(&mut self) {
        let items: Vec<u32> = self.cells.iter().copied().filter(|item| *item != EMPTY).collect();
        let cells = (self.cells.len() * 2).max(8);
        self.cells.clear();
        self.cells.resize(cells, EMPTY);
        items.into_iter().for_each(|item| self.link(item));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    proptest! {
        /// Few keys and many removals give long probe sequences with gaps.
        #[test]
        fn results_equal_a_btree_map(steps in prop::collection::vec((any::<bool>(), 0..40u64, any::<u16>()), 0..400)) {
            let (mut map, mut model) = (HashMap::new(2), BTreeMap::new());
            for (insert, key, value) in steps {
                let words = [key % 7, key];
                if insert {
                    map.insert(&words, value.into());
                    model.insert(words, u32::from(value));
                } else {
                    prop_assert_eq!(map.remove(&words), model.remove(&words));
                }
                for key in 0..40 {
                    let words = [key % 7, key];
                    prop_assert_eq!(map.get(&words), model.get(&words).copied());
                }
                prop_assert_eq!(map.len, model.len());
            }
        }
    }
}
