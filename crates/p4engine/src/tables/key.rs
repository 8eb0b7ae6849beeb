// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! A table's key as words of 64 bits, from a packet's PHV or from an entry's matches.
//!
//! Each field has whole bytes. The fields of a longest prefix match and of ranges begin at a word, since the trie
//! starts there and ranges are compared word by word.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use crate::arith::bits::{ones, peek, Place};
use crate::control::refusal::Refused;
use crate::control::Refusal;
use crate::ir::{Key, Match, MatchKind, Program, Table};
use crate::lower::operands::Validity;

/// Limit on the words of a key.
pub(crate) const KEY_WORDS: usize = 128;

/// Bits of the PHV that belong to one word of the key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fragment {
    pub place: Place,
    pub mask: u64,
    pub word: u16,
    pub shift: u8,
    /// A field of an invalid header is read as 0, as in BMv2 (`MatchKeyBuilder`).
    pub valid: Option<Validity>,
}

impl Fragment {
    #[inline(always)]
    fn load(&self, phv: &[u8]) -> u64 {
        if self.valid.is_some_and(|valid| !valid.is_valid(phv)) {
            return 0;
        }
        (self.place.load(phv) & self.mask) << (self.shift & 63)
    }
}

#[derive(Debug, Clone)]
struct KeyField {
    name: String,
    kind: MatchKind,
    width: usize,
    /// Offset in bytes of the key.
    at: usize,
    bytes: usize,
    mask: Option<Vec<u8>>,
}

#[derive(Debug, Clone)]
pub(crate) struct Layout {
    fields: Vec<KeyField>,
    pub fragments: Vec<Fragment>,
    pub words: usize,
    /// The word at which the field of the longest prefix match begins.
    pub prefix_word: usize,
    /// First and last word of each range, in the order of the keys.
    pub ranges: Vec<(usize, usize)>,
}

/// An entry's matches in the layout of its table's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Encoded {
    pub key: Vec<u64>,
    pub mask: Vec<u64>,
    /// Length of the prefix, from `prefix_word` on.
    pub prefix: usize,
    /// Lower and upper bound of each range.
    pub ranges: Vec<u64>,
    /// The matches as the control plane reads them: ignored bits are 0.
    pub matches: Vec<Match>,
}

fn words(bytes: usize) -> usize {
    bytes.div_ceil(8)
}

impl Layout {
    pub fn new(program: &Program, table: &Table) -> Layout {
        let prefixes = table.keys.iter().filter(|key| key.kind == MatchKind::Lpm).count();
        let pass_of = |kind: MatchKind| match kind {
            MatchKind::Lpm => 1 + usize::from(prefixes > 1),
            MatchKind::Range => 2,
            _ => 0,
        };
        let mut layout = Layout {
            fields: Vec::new(),
            fragments: Vec::new(),
            words: 0,
            prefix_word: 0,
            ranges: Vec::new(),
        };
        let mut at = vec![0; table.keys.len()];
        let mut end = 0usize;
        for pass in 0..3 {
            for (index, key) in table.keys.iter().enumerate().filter(|(_, key)| pass_of(key.kind) == pass) {
                if pass > 0 {
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

    /// Bits of all fields.
    pub fn bits(&self) -> u32 {
        self.fields.iter().map(|field| field.width as u32).sum()
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
            let place = Place::new(field.at + bit - first, stop - bit);
            let shift = (63 - (stop - 1) % 64) as u8;
            self.fragments.push(Fragment { place, mask, word: (bit / 64) as u16, shift, valid });
            bit = stop;
        }
        let field = KeyField {
            name: key.name.clone(),
            kind: key.kind,
            width: field.width as usize,
            at,
            bytes,
            mask: key.mask.clone(),
        };
        self.fields.push(field);
    }

    /// Reads a packet's key into the first `words` of `key`.
    #[inline(always)]
    pub fn read(&self, phv: &[u8], key: &mut [u64]) {
        if let [fragment] = self.fragments.as_slice() {
            if let Some(first) = key.first_mut() {
                *first = fragment.load(phv);
            }
            return;
        }
        key.fill(0);
        for fragment in &self.fragments {
            if let Some(word) = key.get_mut(usize::from(fragment.word)) {
                *word |= fragment.load(phv);
            }
        }
    }

    pub fn encode(&self, matches: &[Match]) -> Result<Encoded, Refused> {
        if matches.len() != self.fields.len() {
            let text = format!("the key has {} fields, not {}", self.fields.len(), matches.len());
            return Err((Refusal::InvalidArgument, text));
        }
        let mut row = EncodedKey { key: vec![0; self.words * 8], mask: vec![0; self.words * 8], prefix: 0 };
        let (mut ranges, mut canonical) = (Vec::new(), Vec::new());
        for (field, field_match) in self.fields.iter().zip(matches) {
            canonical.push(row.write(field, field_match)?);
        }
        for (field, field_match) in self.fields.iter().zip(matches) {
            if let Match::Range { low, high } = field_match {
                ranges.extend(field.words(low));
                ranges.extend(field.words(high));
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

impl KeyField {
    fn error(&self, message: &str) -> Refused {
        (Refusal::InvalidArgument, format!("key field {}: {message}", self.name))
    }

    fn value(&self, value: &[u8]) -> Result<(), Refused> {
        let unused = (self.bytes * 8 - self.width) as u32;
        match value.first() {
            Some(first) if value.len() == self.bytes && u32::from(*first) >> (8 - unused) == 0 => Ok(()),
            _ => Err(self.error(&format!("not a value of {} bits", self.width))),
        }
    }

    /// The words of a value that is aligned to a word.
    fn words(&self, value: &[u8]) -> Vec<u64> {
        value.chunks(8).map(|word| peek(word, 0, 64)).collect()
    }

    /// A mask of the first `length` bits of the field and of the padding before it.
    fn prefix_mask(&self, length: usize) -> Vec<u8> {
        let ones = self.bytes * 8 - self.width + length;
        (0..self.bytes).map(|byte| !(0xffu32 >> ones.saturating_sub(byte * 8).min(8)) as u8).collect()
    }
}

struct EncodedKey {
    key: Vec<u8>,
    mask: Vec<u8>,
    prefix: usize,
}

fn and(value: &[u8], mask: &[u8]) -> Vec<u8> {
    value.iter().zip(mask).map(|(value, mask)| value & mask).collect()
}

impl EncodedKey {
    /// Writes one field's match and returns it with ignored bits 0.
    fn write(&mut self, field: &KeyField, given: &Match) -> Result<Match, Refused> {
        let all = vec![0xff; field.bytes];
        let none = vec![0; field.bytes];
        let (value, mask, canonical) = match (field.kind, given) {
            (MatchKind::Exact, Match::Exact(value)) => {
                field.value(value)?;
                (value.clone(), all, given.clone())
            }
            (MatchKind::Lpm, Match::Lpm { value, length }) => {
                field.value(value)?;
                let length = usize::from(*length);
                if length > field.width {
                    return Err(field.error(&format!(
                        "the prefix length {length} is above the field's width {}",
                        field.width
                    )));
                }
                let mask = field.prefix_mask(length);
                self.prefix = field.bytes * 8 - field.width + length;
                let value = and(value, &mask);
                (value.clone(), mask, Match::Lpm { value, length: length as u16 })
            }
            (MatchKind::Ternary, Match::Ternary { value, mask }) => {
                field.value(value)?;
                field.value(mask)?;
                let value = and(value, mask);
                (value.clone(), mask.clone(), Match::Ternary { value, mask: mask.clone() })
            }
            (MatchKind::Range, Match::Range { low, high }) => {
                field.value(low)?;
                field.value(high)?;
                if low > high {
                    return Err(field.error("the range's lower bound is above its upper bound"));
                }
                let mask = common(low, high);
                (and(low, &mask), mask, given.clone())
            }
            (MatchKind::Optional, Match::Optional(None)) => (none.clone(), none, given.clone()),
            (MatchKind::Optional, Match::Optional(Some(value))) => {
                field.value(value)?;
                (value.clone(), all, given.clone())
            }
            (kind, _) => return Err(field.error(&format!("the field's match kind is {kind:?}"))),
        };
        let mask = field.mask.as_ref().map_or(mask.clone(), |program| and(&mask, program));
        let (first, end) = (field.at, field.at + field.bytes);
        if let (Some(key), Some(row)) = (self.key.get_mut(first..end), self.mask.get_mut(first..end)) {
            key.copy_from_slice(&and(&value, &mask));
            row.copy_from_slice(&mask);
        }
        Ok(canonical)
    }
}

/// A mask of the bits before the first difference.
fn common(low: &[u8], high: &[u8]) -> Vec<u8> {
    let mut is_prefix = true;
    let mut mask = Vec::new();
    for (low, high) in low.iter().zip(high) {
        let zeros = (low ^ high).leading_zeros();
        mask.push(if is_prefix { !(0xffu32 >> zeros) as u8 } else { 0 });
        is_prefix &= low == high;
    }
    mask
}
