// SPDX-License-Identifier: Apache-2.0
//! Longest prefix match: a trie of six bits a level, each node two bitmaps over packed arrays (Eatherton, Varghese and
//! Dittia, "Tree bitmap", 2004), so that 100,000 prefixes take some megabytes and a look-up of 32 bits six steps at most.

use alloc::vec::Vec;

const STRIDE: usize = 6;

#[derive(Debug, Clone, Default)]
struct Node {
    /// Prefixes that end in this node: bit 2^length - 1 + their bits.
    inner: u64,
    /// Children by the next six bits.
    outer: u64,
    values: Vec<u32>,
    children: Vec<u32>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Trie {
    nodes: Vec<Node>,
    unused: Vec<u32>,
}

/// By six bits: the bits of `inner` of all prefixes that fit them.
const FITTING: [u64; 64] = {
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

/// Six bits of a row of words, from bit `at` on; zeroes behind its end.
#[inline(always)]
fn six(key: &[u64], at: usize) -> usize {
    let (word, bit) = (at / 64, at as u32 % 64);
    let high = key.get(word).copied().unwrap_or(0) << bit;
    let low = if bit > 58 { key.get(word + 1).copied().unwrap_or(0) >> (64 - bit) } else { 0 };
    ((high | low) >> 58) as usize
}

/// How many bits are set below `bit`.
#[inline(always)]
fn rank(bits: u64, bit: u32) -> usize {
    (bits & ((1u64 << (bit & 63)) - 1)).count_ones() as usize
}

impl Node {
    fn is_empty(&self) -> bool {
        self.inner == 0 && self.outer == 0
    }
}

impl Trie {
    pub fn root(&mut self) -> u32 {
        match self.unused.pop() {
            Some(node) => node,
            None => {
                self.nodes.push(Node::default());
                self.nodes.len() as u32 - 1
            }
        }
    }

    /// The value of the longest prefix below `root` that fits.
    #[inline]
    pub fn find(&self, root: u32, key: &[u64]) -> Option<u32> {
        let (mut best, mut at, mut next) = (None, 0, root);
        while let Some(node) = self.nodes.get(next as usize) {
            let bits = six(key, at);
            let fitting = node.inner & FITTING[bits & 63];
            if let Some(longest) = fitting.checked_ilog2() {
                best = node.values.get(rank(node.inner, longest)).copied();
            }
            if node.outer >> (bits & 63) & 1 == 0 {
                break;
            }
            next = *node.children.get(rank(node.outer, bits as u32))?;
            at += STRIDE;
        }
        best
    }

    /// The nodes on the way to a prefix's own (with the way's bits), and its bit there.
    fn way(&self, root: u32, key: &[u64], length: usize) -> (Vec<(u32, u32)>, u32, u32) {
        let (mut way, mut at, mut next) = (Vec::new(), 0, root);
        while at + STRIDE <= length {
            let bits = six(key, at) as u32;
            way.push((next, bits));
            next = self
                .nodes
                .get(next as usize)
                .filter(|node| node.outer >> bits & 1 == 1)
                .and_then(|node| node.children.get(rank(node.outer, bits)).copied())
                .unwrap_or(u32::MAX);
            at += STRIDE;
        }
        let rest = length - at;
        (way, next, (1 << rest) - 1 + (six(key, at) as u32 >> (STRIDE - rest)))
    }

    pub fn get(&self, root: u32, key: &[u64], length: usize) -> Option<u32> {
        let (_, node, bit) = self.way(root, key, length);
        let node = self.nodes.get(node as usize).filter(|node| node.inner >> bit & 1 == 1)?;
        node.values.get(rank(node.inner, bit)).copied()
    }

    /// Inserts, or replaces.
    pub fn insert(&mut self, root: u32, key: &[u64], length: usize, value: u32) {
        let mut at = 0;
        let mut next = root;
        while at + STRIDE <= length {
            next = self.child(next, six(key, at) as u32);
            at += STRIDE;
        }
        let (_, _, bit) = self.way(root, key, length);
        let Some(node) = self.nodes.get_mut(next as usize) else { return };
        let index = rank(node.inner, bit);
        if node.inner >> bit & 1 == 1 {
            node.values[index..].first_mut().into_iter().for_each(|old| *old = value);
        } else {
            node.values.insert(index, value);
            node.inner |= 1 << bit;
        }
    }

    /// A node's child, made where there is none.
    fn child(&mut self, parent: u32, bits: u32) -> u32 {
        let known = self.nodes.get(parent as usize).filter(|node| node.outer >> bits & 1 == 1);
        if let Some(child) = known.and_then(|node| node.children.get(rank(node.outer, bits))) {
            return *child;
        }
        let child = self.root();
        if let Some(node) = self.nodes.get_mut(parent as usize) {
            node.children.insert(rank(node.outer, bits), child);
            node.outer |= 1 << bits;
        }
        child
    }

    /// Nodes that fall empty go, but for the root. Its last: whether the root is empty now.
    pub fn remove(&mut self, root: u32, key: &[u64], length: usize) -> bool {
        let (mut way, own, bit) = self.way(root, key, length);
        if let Some(node) = self.nodes.get_mut(own as usize).filter(|node| node.inner >> bit & 1 == 1) {
            node.values.remove(rank(node.inner, bit));
            node.inner &= !(1 << bit);
        }
        let mut last = own;
        while let Some((parent, bits)) = way.pop() {
            if !self.nodes.get(last as usize).is_some_and(Node::is_empty) {
                break;
            }
            self.unused.push(last);
            if let Some(node) = self.nodes.get_mut(parent as usize) {
                node.children.remove(rank(node.outer, bits));
                node.outer &= !(1 << bits);
            }
            last = parent;
        }
        self.nodes.get(root as usize).is_some_and(Node::is_empty)
    }

    /// A root that is empty.
    pub fn give_back(&mut self, root: u32) {
        self.unused.push(root);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    fn fits(key: u64, prefix: u64, length: usize) -> bool {
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
        fn as_a_list_does(steps in prop::collection::vec((0..3u8, 0..3u8, 0..65usize, any::<bool>()), 1..200)) {
            let keys = [0u64, 0xffff_0000_1234_0000, 0xffff_0000_1234_8001];
            let mut trie = Trie::default();
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
                        let best = model.iter().filter(|((r, p, l), _)| *r == root && fits(key, *p, *l)).max_by_key(|((_, _, l), _)| *l);
                        prop_assert_eq!(trie.find(root, &[key]), best.map(|(_, value)| *value));
                    }
                    prop_assert_eq!(trie.get(root, &[prefix], length), model.get(&(root, prefix, length)).copied());
                }
            }
        }
    }
}
