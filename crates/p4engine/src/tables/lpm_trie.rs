// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Longest prefix match in a trie with six bits per level. Each node has two bitmaps over packed arrays (Eatherton,
//! Varghese and Dittia, "Tree bitmap", 2004). A node's children are contiguous, so that a level costs one memory
//! access.

use alloc::vec::Vec;

const STRIDE: usize = 6;

#[derive(Debug, Clone, Copy, Default)]
struct Node {
    /// Prefixes that end in this node, at bit 2^length - 1 + the prefix's bits.
    prefix_bits: u64,
    /// Children by the next six bits.
    child_bits: u64,
    /// Index of the first value. If there is only one prefix, the value itself.
    values: u32,
    /// Index of the first child.
    children: u32,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct LpmTrie {
    nodes: Blocks<Node>,
    values: Blocks<u32>,
}

/// The node of a prefix, the prefix's bit in it, and the ancestors with the bits that lead to the next node.
struct Path {
    ancestors: Vec<(u32, u32)>,
    node_index: u32,
    bit: u32,
}

/// An allocator of arrays of up to 64 items.
#[derive(Debug, Clone, Default)]
struct Blocks<T> {
    items: Vec<T>,
    /// Free arrays by length.
    unused: Vec<Vec<u32>>,
}

impl<T: Copy + Default> Blocks<T> {
    #[inline(always)]
    fn get(&self, at: u32) -> Option<&T> {
        self.items.get(at as usize)
    }

    fn put(&mut self, at: u32, item: T) {
        if let Some(place) = self.items.get_mut(at as usize) {
            *place = item;
        }
    }

    fn allocate(&mut self, length: usize) -> u32 {
        self.unused.get_mut(length).and_then(Vec::pop).unwrap_or_else(|| {
            self.items.resize(self.items.len() + length, T::default());
            (self.items.len() - length) as u32
        })
    }

    fn free(&mut self, at: u32, length: usize) {
        if self.unused.len() <= length {
            self.unused.resize(length + 1, Vec::new());
        }
        if let Some(unused) = self.unused.get_mut(length).filter(|_| length > 0) {
            unused.push(at);
        }
    }

    fn copy(&mut self, from: u32, to: u32, length: usize) {
        let from = from as usize;
        if length > 0 {
            self.items.copy_within(from..from + length, to as usize);
        }
    }

    /// Inserts an item into an array of `length` items and returns the new array.
    fn insert(&mut self, at: u32, length: usize, index: usize, item: T) -> u32 {
        let new = self.allocate(length + 1);
        self.copy(at, new, index);
        self.put(new + index as u32, item);
        self.copy(at + index as u32, new + index as u32 + 1, length - index);
        self.free(at, length);
        new
    }

    /// Removes an item of an array of `length` items and returns the new array.
    fn remove(&mut self, at: u32, length: usize, index: usize) -> u32 {
        let new = if length > 1 { self.allocate(length - 1) } else { 0 };
        self.copy(at, new, index);
        self.copy(at + index as u32 + 1, new + index as u32, length - index - 1);
        self.free(at, length);
        new
    }
}

/// For each value of six bits, the `prefix_bits` of all prefixes that match it.
const MATCHING_PREFIXES: [u64; 64] = {
    let mut all = [0; 64];
    let mut bits = 0;
    while bits < 64 {
        let mut length = 0;
        while length < STRIDE {
            all[bits] |= 1 << ((1 << length) - 1 + (bits >> (STRIDE - length)));
            length += 1;
        }
        bits += 1;
    }
    all
};

/// Six bits of a key from bit `at` on. Bits after its end are zero.
#[inline(always)]
fn stride_bits(key: &[u64], at: usize) -> usize {
    let (word, bit) = (at / 64, at as u32 % 64);
    let high = key.get(word).copied().unwrap_or(0) << bit;
    let low = if bit > 58 { key.get(word + 1).copied().unwrap_or(0) >> (64 - bit) } else { 0 };
    ((high | low) >> 58) as usize
}

/// The number of set bits below `bit`.
#[inline(always)]
fn rank(bits: u64, bit: u32) -> usize {
    (bits & ((1u64 << (bit & 63)) - 1)).count_ones() as usize
}

fn count(bits: u64) -> usize {
    bits.count_ones() as usize
}

impl Node {
    fn is_empty(&self) -> bool {
        self.prefix_bits == 0 && self.child_bits == 0
    }

    fn has_value(&self, bit: u32) -> bool {
        self.prefix_bits >> (bit & 63) & 1 == 1
    }

    #[inline(always)]
    fn child(&self, bits: u32) -> Option<u32> {
        (self.child_bits >> (bits & 63) & 1 == 1).then(|| self.children + rank(self.child_bits, bits) as u32)
    }
}

impl LpmTrie {
    /// Adds an empty root.
    pub fn root(&mut self) -> u32 {
        let root = self.nodes.allocate(1);
        self.nodes.put(root, Node::default());
        root
    }

    /// Frees an empty root.
    pub fn free_root(&mut self, root: u32) {
        self.nodes.free(root, 1);
    }

    #[inline(always)]
    fn value(&self, node: &Node, bit: u32) -> Option<u32> {
        if node.prefix_bits & node.prefix_bits.wrapping_sub(1) == 0 {
            return Some(node.values);
        }
        self.values.get(node.values + rank(node.prefix_bits, bit) as u32).copied()
    }

    /// The value of the longest prefix below `root` that matches.
    #[inline]
    pub fn find(&self, root: u32, key: &[u64]) -> Option<u32> {
        let (mut best, mut at, mut next) = (None, 0, Some(root));
        while let Some(node) = next.and_then(|next| self.nodes.get(next)) {
            let bits = stride_bits(key, at);
            let matching = node.prefix_bits & MATCHING_PREFIXES[bits & 63];
            if let Some(longest) = matching.checked_ilog2() {
                best = Some((node, longest));
            }
            next = node.child(bits as u32);
            at += STRIDE;
        }
        best.and_then(|(node, bit)| self.value(node, bit))
    }

    /// The path to a prefix. None: the prefix has no node.
    fn path(&self, root: u32, key: &[u64], length: usize) -> Option<Path> {
        let (mut path, mut at, mut next) = (Vec::new(), 0, root);
        while at + STRIDE <= length {
            let bits = stride_bits(key, at) as u32;
            path.push((next, bits));
            next = self.nodes.get(next)?.child(bits)?;
            at += STRIDE;
        }
        Some(Path { ancestors: path, node_index: next, bit: last_bit(key, at, length) })
    }

    pub fn get(&self, root: u32, key: &[u64], length: usize) -> Option<u32> {
        let path = self.path(root, key, length)?;
        let node = self.nodes.get(path.node_index).filter(|node| node.has_value(path.bit))?;
        self.value(node, path.bit)
    }

    /// Inserts or replaces a value.
    pub fn insert(&mut self, root: u32, key: &[u64], length: usize, value: u32) {
        let (mut at, mut next) = (0, root);
        while at + STRIDE <= length {
            next = self.descend(next, stride_bits(key, at) as u32);
            at += STRIDE;
        }
        let bit = last_bit(key, at, length);
        let Some(mut node) = self.nodes.get(next).copied() else { return };
        let (values, index) = (count(node.prefix_bits), rank(node.prefix_bits, bit));
        match (node.has_value(bit), values) {
            (false, 0) | (true, 1) => node.values = value,
            (true, _) => self.values.put(node.values + index as u32, value),
            (false, 1) => {
                let old = node.values;
                node.values = self.values.allocate(2);
                self.values.put(node.values + index as u32, value);
                self.values.put(node.values + 1 - index as u32, old);
            }
            (false, _) => node.values = self.values.insert(node.values, values, index, value),
        }
        node.prefix_bits |= 1 << bit;
        self.nodes.put(next, node);
    }

    /// A node's child, which is created if it does not exist.
    fn descend(&mut self, parent: u32, bits: u32) -> u32 {
        let Some(mut node) = self.nodes.get(parent).copied() else { return parent };
        if let Some(child) = node.child(bits) {
            return child;
        }
        let index = rank(node.child_bits, bits);
        node.children = self.nodes.insert(node.children, count(node.child_bits), index, Node::default());
        node.child_bits |= 1 << bits;
        self.nodes.put(parent, node);
        node.children + index as u32
    }

    /// Removes a prefix and empty nodes other than the root. Returns whether the root is empty.
    pub fn remove(&mut self, root: u32, key: &[u64], length: usize) -> bool {
        if let Some(mut path) = self.path(root, key, length) {
            self.remove_value(path.node_index, path.bit);
            let mut last = path.node_index;
            while let Some((parent, bits)) = path.ancestors.pop() {
                let Some(mut node) = self.nodes.get(parent).copied() else { break };
                if !self.nodes.get(last).is_some_and(Node::is_empty) {
                    break;
                }
                node.children =
                    self.nodes.remove(node.children, count(node.child_bits), rank(node.child_bits, bits));
                node.child_bits &= !(1 << bits);
                self.nodes.put(parent, node);
                last = parent;
            }
        }
        self.nodes.get(root).is_some_and(Node::is_empty)
    }

    fn remove_value(&mut self, node_index: u32, bit: u32) {
        let Some(mut node) = self.nodes.get(node_index).copied().filter(|node| node.has_value(bit)) else {
            return;
        };
        let (values, index) = (count(node.prefix_bits), rank(node.prefix_bits, bit));
        match values {
            1 => {}
            2 => {
                let left = self.values.get(node.values + 1 - index as u32).copied().unwrap_or(0);
                self.values.free(node.values, 2);
                node.values = left;
            }
            _ => node.values = self.values.remove(node.values, values, index),
        }
        node.prefix_bits &= !(1 << bit);
        self.nodes.put(node_index, node);
    }
}

/// A prefix's bit in the node at bit `at` of the key.
fn last_bit(key: &[u64], at: usize, length: usize) -> u32 {
    let rest = length - at;
    (1 << rest) - 1 + (stride_bits(key, at) as u32 >> (STRIDE - rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    fn matches(key: u64, prefix: u64, length: usize) -> bool {
        length == 0 || (key ^ prefix) >> (64 - length) == 0
    }

    fn cut(key: u64, length: usize) -> u64 {
        if length == 0 {
            0
        } else {
            key >> (64 - length) << (64 - length)
        }
    }

    proptest! {
        /// Keys that share many bits, prefixes of all lengths, two tries in one.
        #[test]
        fn results_equal_a_list(steps in prop::collection::vec((0..3u8, 0..3u8, 0..65usize, any::<bool>()), 1..200)) {
            let keys = [0u64, 0xffff_0000_1234_0000, 0xffff_0000_1234_8001];
            let mut trie = LpmTrie::default();
            let roots = [trie.root(), trie.root()];
            let mut model = BTreeMap::new();
            for (number, (insert, key, length, second)) in steps.into_iter().enumerate() {
                let (root, prefix) = (roots[usize::from(second)], cut(keys[usize::from(key)], length));
                if insert > 0 {
                    trie.insert(root, &[prefix], length, number as u32);
                    model.insert((root, prefix, length), number as u32);
                } else if model.remove(&(root, prefix, length)).is_some() {
                    let empty = trie.remove(root, &[prefix], length);
                    prop_assert_eq!(empty, !model.keys().any(|(other, ..)| *other == root));
                }
                for root in roots {
                    for key in keys {
                        let matching = model
                            .iter()
                            .filter(|((other, prefix, length), _)| *other == root && matches(key, *prefix, *length));
                        let best = matching.max_by_key(|((_, _, length), _)| *length);
                        prop_assert_eq!(trie.find(root, &[key]), best.map(|(_, value)| *value));
                    }
                    prop_assert_eq!(trie.get(root, &[prefix], length), model.get(&(root, prefix, length)).copied());
                }
            }
        }
    }
}
