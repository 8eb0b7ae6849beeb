// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! A table's key as words of 64 bits: how it is read from a packet's area, and how an entry's matches are written alike.
//!
//! Each field stands in whole bytes. The field of a longest prefix match and those of ranges begin a word: the trie walks
//! from there, and ranges are compared word by word.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use crate::arith::bits::{ones, peek, Place};
use crate::control::refusal::Refused;
use crate::control::Refusal;
use crate::ir::{Key, Match, MatchKind, Program, Table};
use crate::lower::operands::Validity;

/// The longest key.
pub(crate) const KEY_WORDS: usize = 128;

/// Bits of the area that go into one word of the key.
#[derive(Debug, Clone, Copy)]
struct Piece {
    place: Place,
    mask: u64,
    word: u16,
    shift: u8,
    /// A field of an invalid header is read as 0, as in BMv2 (`MatchKeyBuilder`).
    valid: Option<Validity>,
}

impl Piece {
    #[inline(always)]
    fn load(&self, area: &[u8]) -> u64 {
        if self.valid.is_some_and(|valid| !valid.holds(area)) {
            return 0;
        }
        (self.place.load(area) & self.mask) << (self.shift & 63)
    }
}

#[derive(Debug, Clone)]
struct Part {
    name: String,
    kind: MatchKind,
    width: usize,
    /// In bytes of the key.
    at: usize,
    bytes: usize,
    mask: Option<Vec<u8>>,
}

#[derive(Debug, Clone)]
pub(crate) struct Layout {
    parts: Vec<Part>,
    pieces: Vec<Piece>,
    pub words: usize,
    /// Where the field of the longest prefix match begins.
    pub prefix_word: usize,
    /// First and last word of each range, in the order of the keys.
    pub ranges: Vec<(usize, usize)>,
}

/// An entry's matches as its table needs them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Encoded {
    pub key: Vec<u64>,
    pub mask: Vec<u64>,
    /// Bits from `prefix_word` on.
    pub prefix: usize,
    /// Of each range its least, then its most words.
    pub ranges: Vec<u64>,
    /// What the control plane reads: bits that do not count are 0.
    pub matches: Vec<Match>,
}

fn words(bytes: usize) -> usize {
    bytes.div_ceil(8)
}

impl Layout {
    pub fn new(program: &Program, table: &Table) -> Layout {
        let prefixes = table.keys.iter().filter(|key| key.kind == MatchKind::Lpm).count();
        let alone = |kind: MatchKind| match kind {
            MatchKind::Lpm => 1 + usize::from(prefixes > 1),
            MatchKind::Range => 2,
            _ => 0,
        };
        let mut layout =
            Layout { parts: Vec::new(), pieces: Vec::new(), words: 0, prefix_word: 0, ranges: Vec::new() };
        let mut at = vec![0; table.keys.len()];
        let mut end = 0usize;
        for turn in 0..3 {
            for (index, key) in table.keys.iter().enumerate().filter(|(_, key)| alone(key.kind) == turn) {
                if turn > 0 {
                    end = words(end) * 8;
                }
                if key.kind == MatchKind::Lpm {
                    layout.prefix_word = end / 8;
                }
                at[index] = end;
                end += program
                    .fields
                    .get(usize::from(key.field))
                    .map_or(0, |field| field.width.div_ceil(8) as usize);
            }
        }
        layout.words = words(end);
        for (key, at) in table.keys.iter().zip(at) {
            layout.add(program, key, at);
        }
        layout
    }

    fn add(&mut self, program: &Program, key: &Key, at: usize) {
        let Some(field) = program.fields.get(usize::from(key.field)) else { return };
        let valid = Validity::of_field(program, key.field);
        let bytes = field.width.div_ceil(8) as usize;
        if key.kind == MatchKind::Range {
            self.ranges.push((at / 8, words(at + bytes) - 1));
        }
        let (first, end) = ((at + bytes) as u32 * 8 - field.width, (at + bytes) as u32 * 8);
        let mut bit = first;
        while bit < end {
            let stop = end.min((bit / 64 + 1) * 64);
            let ones = ones(stop - bit);
            let mask =
                key.mask.as_ref().map_or(ones, |mask| peek(mask, u64::from(bit) - at as u64 * 8, stop - bit));
            let place = Place::of(field.at + bit - first, stop - bit);
            let shift = (63 - (stop - 1) % 64) as u8;
            self.pieces.push(Piece { place, mask, word: (bit / 64) as u16, shift, valid });
            bit = stop;
        }
        let part = Part {
            name: key.name.clone(),
            kind: key.kind,
            width: field.width as usize,
            at,
            bytes,
            mask: key.mask.clone(),
        };
        self.parts.push(part);
    }

    /// The key of the packet in `area`, into the first `words` of `key`.
    #[inline(always)]
    pub fn read(&self, area: &[u8], key: &mut [u64]) {
        if let [piece] = self.pieces.as_slice() {
            if let Some(first) = key.first_mut() {
                *first = piece.load(area);
            }
            return;
        }
        key.fill(0);
        for piece in &self.pieces {
            if let Some(word) = key.get_mut(usize::from(piece.word)) {
                *word |= piece.load(area);
            }
        }
    }

    pub fn encode(&self, matches: &[Match]) -> Result<Encoded, Refused> {
        if matches.len() != self.parts.len() {
            let text = format!("the key has {} fields, not {}", self.parts.len(), matches.len());
            return Err((Refusal::InvalidArgument, text));
        }
        let mut row = Row { key: vec![0; self.words * 8], mask: vec![0; self.words * 8], prefix: 0 };
        let (mut ranges, mut canonical) = (Vec::new(), Vec::new());
        for (part, one) in self.parts.iter().zip(matches) {
            canonical.push(row.write(part, one)?);
        }
        for (part, one) in self.parts.iter().zip(matches) {
            if let Match::Range { low, high } = one {
                ranges.extend(part.words(low));
                ranges.extend(part.words(high));
            }
        }
        let numbers = |row: &[u8]| row.chunks(8).map(|word| peek(word, 0, 64)).collect();
        Ok(Encoded {
            key: numbers(&row.key),
            mask: numbers(&row.mask),
            prefix: row.prefix,
            ranges,
            matches: canonical,
        })
    }
}

impl Part {
    fn wrong(&self, what: &str) -> Refused {
        (Refusal::InvalidArgument, format!("key field {}: {what}", self.name))
    }

    fn value(&self, value: &[u8]) -> Result<(), Refused> {
        let unused = (self.bytes * 8 - self.width) as u32;
        match value.first() {
            Some(first) if value.len() == self.bytes && u32::from(*first) >> (8 - unused) == 0 => Ok(()),
            _ => Err(self.wrong(&format!("not a value of {} bits", self.width))),
        }
    }

    /// The words of a value that begins a word.
    fn words(&self, value: &[u8]) -> Vec<u64> {
        value.chunks(8).map(|word| peek(word, 0, 64)).collect()
    }

    /// The first `length` bits of the field, all before it too.
    fn prefix_mask(&self, length: usize) -> Vec<u8> {
        let ones = self.bytes * 8 - self.width + length;
        (0..self.bytes).map(|byte| !(0xffu32 >> ones.saturating_sub(byte * 8).min(8)) as u8).collect()
    }
}

struct Row {
    key: Vec<u8>,
    mask: Vec<u8>,
    prefix: usize,
}

fn and(value: &[u8], mask: &[u8]) -> Vec<u8> {
    value.iter().zip(mask).map(|(value, mask)| value & mask).collect()
}

impl Row {
    /// One field's match; returns it as it counts.
    fn write(&mut self, part: &Part, one: &Match) -> Result<Match, Refused> {
        let all = vec![0xff; part.bytes];
        let none = vec![0; part.bytes];
        let (value, mask, canonical) = match (part.kind, one) {
            (MatchKind::Exact, Match::Exact(value)) => {
                part.value(value)?;
                (value.clone(), all, one.clone())
            }
            (MatchKind::Lpm, Match::Lpm { value, length }) => {
                part.value(value)?;
                let length = usize::from(*length);
                if length > part.width {
                    return Err(part.wrong(&format!("a prefix of {length} bits of {}", part.width)));
                }
                let mask = part.prefix_mask(length);
                self.prefix = part.bytes * 8 - part.width + length;
                let value = and(value, &mask);
                (value.clone(), mask, Match::Lpm { value, length: length as u16 })
            }
            (MatchKind::Ternary, Match::Ternary { value, mask }) => {
                part.value(value)?;
                part.value(mask)?;
                let value = and(value, mask);
                (value.clone(), mask.clone(), Match::Ternary { value, mask: mask.clone() })
            }
            (MatchKind::Range, Match::Range { low, high }) => {
                part.value(low)?;
                part.value(high)?;
                if low > high {
                    return Err(part.wrong("a range whose least is above its most"));
                }
                let mask = common(low, high);
                (and(low, &mask), mask, one.clone())
            }
            (MatchKind::Optional, Match::Optional(None)) => (none.clone(), none, one.clone()),
            (MatchKind::Optional, Match::Optional(Some(value))) => {
                part.value(value)?;
                (value.clone(), all, one.clone())
            }
            (kind, _) => return Err(part.wrong(&format!("it is matched as {kind:?}"))),
        };
        let mask = part.mask.as_ref().map_or(mask.clone(), |program| and(&mask, program));
        let (first, end) = (part.at, part.at + part.bytes);
        if let (Some(key), Some(row)) = (self.key.get_mut(first..end), self.mask.get_mut(first..end)) {
            key.copy_from_slice(&and(&value, &mask));
            row.copy_from_slice(&mask);
        }
        Ok(canonical)
    }
}

/// The bits before the first in which both differ.
fn common(low: &[u8], high: &[u8]) -> Vec<u8> {
    let mut same = true;
    let mut mask = Vec::new();
    for (low, high) in low.iter().zip(high) {
        let zeros = (low ^ high).leading_zeros();
        mask.push(if same { !(0xffu32 >> zeros) as u8 } else { 0 });
        same &= low == high;
    }
    mask
}
