// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! BMv2's hashes and checksums, over bytes in two parts.

use crate::ir::HashKind;

/// Tables of CRC-32 (IEEE 802.3) and CRC-16/ARC, with reflected polynomials.
static CRC32: Tables = tables(0xedb8_8320);
static CRC16: Tables = tables(0xa001);

/// The remainder of each byte, followed by 0 to 3 zero bytes.
type Tables = [[u32; 256]; 4];

const fn tables(polynomial: u32) -> Tables {
    let mut tables = [[0; 256]; 4];
    let mut zeroes = 0;
    while zeroes < 4 {
        let mut byte = 0;
        while byte < 256 {
            let mut value = if zeroes == 0 { byte as u32 } else { tables[zeroes - 1][byte] };
            let mut bit = 0;
            while bit < 8 {
                value = if value & 1 == 1 { value >> 1 ^ polynomial } else { value >> 1 };
                bit += 1;
            }
            tables[zeroes][byte] = value;
            byte += 1;
        }
        zeroes += 1;
    }
    tables
}

/// Size of one of the four tables.
pub(crate) const TABLE_BYTES: i32 = size_of::<[u32; 256]>() as i32;

/// The address of the tables, for machine code.
pub(crate) fn crc32_tables() -> usize {
    CRC32.as_ptr().addr()
}

pub(crate) fn crc16_tables() -> usize {
    CRC16.as_ptr().addr()
}

/// Four bytes take four lookups that do not wait for each other ("slicing-by-4", Kounavis and Berry, 2005).
fn crc(tables: &Tables, start: u32, parts: [&[u8]; 2]) -> u32 {
    let mut value = start;
    for mut part in parts {
        while let Some((word, rest)) = part.split_first_chunk() {
            let [first, second, third, last] = (value ^ u32::from_le_bytes(*word)).to_le_bytes();
            value = tables[3][usize::from(first)]
                ^ tables[2][usize::from(second)]
                ^ tables[1][usize::from(third)]
                ^ tables[0][usize::from(last)];
            part = rest;
        }
        for byte in part {
            value = value >> 8 ^ tables[0][usize::from(value as u8 ^ *byte)];
        }
    }
    value
}

/// Calls `fold` for each word of 16 bits. The last word is padded with zeroes.
fn words(parts: [&[u8]; 2], mut fold: impl FnMut(u16)) {
    let [first, second] = parts;
    let mut rest = second;
    let pairs = first.chunks_exact(2);
    let odd = pairs.remainder();
    pairs.for_each(|pair| fold(word(pair)));
    if let Some(high) = odd.first() {
        let (low, after) = second.split_first().unwrap_or((&0, &[]));
        fold(word(&[*high, *low]));
        rest = after;
    }
    rest.chunks(2).for_each(|pair| fold(word(pair)));
}

fn word(bytes: &[u8]) -> u16 {
    match *bytes {
        [high, low, ..] => u16::from_be_bytes([high, low]),
        [high] => u16::from_be_bytes([high, 0]),
        [] => 0,
    }
}

/// The Internet checksum (RFC 1071).
fn internet_checksum(parts: [&[u8]; 2]) -> u16 {
    if parts[0].len() % 2 == 0 {
        return word_checksum(parts.into_iter());
    }
    let mut sum = 0u64;
    words(parts, |word| sum = sum.wrapping_add(u64::from(word)));
    folded(sum)
}

/// The Internet checksum of parts that are multiples of 16 bits. The last part may end within a word.
#[inline]
pub(crate) fn word_checksum<'a>(parts: impl Iterator<Item = &'a [u8]>) -> u16 {
    let mut sum = 0u64;
    for part in parts {
        // Two words at once: 2^16 is 1 modulo 0xffff.
        let pairs = part.chunks_exact(4);
        let rest = pairs.remainder();
        let value = |pair: &[u8]| u64::from(word(pair)) << 16 | u64::from(word(pair.get(2..).unwrap_or(&[])));
        pairs.for_each(|pair| sum = sum.wrapping_add(value(pair)));
        sum = sum.wrapping_add(value(rest));
    }
    folded(sum)
}

fn folded(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

fn xor16(parts: [&[u8]; 2]) -> u16 {
    let mut value = 0;
    words(parts, |word| value ^= word);
    value
}

/// The first eight bytes as a number.
fn identity(parts: [&[u8]; 2]) -> u64 {
    parts.into_iter().flatten().take(8).fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// Computes a hash. The custom CRCs have BMv2's initial parameters, which equal the standard ones. `calls` counts the
/// calls of a round robin.
pub(crate) fn hash(kind: HashKind, parts: [&[u8]; 2], calls: &mut u64) -> u64 {
    match kind {
        HashKind::Crc32 | HashKind::Crc32Custom => u64::from(!crc(&CRC32, !0, parts)),
        HashKind::Crc16 | HashKind::Crc16Custom => u64::from(crc(&CRC16, 0, parts)),
        HashKind::Csum16 => u64::from(internet_checksum(parts)),
        HashKind::Xor16 => u64::from(xor16(parts)),
        HashKind::Identity => identity(parts),
        HashKind::RoundRobin => {
            let value = *calls;
            *calls = calls.wrapping_add(1);
            value
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CHECK: &[u8] = b"123456789";

    fn hash_one(kind: HashKind, bytes: &[u8]) -> u64 {
        hash(kind, [bytes, &[]], &mut 0)
    }

    /// The check values of the catalogue of parametrised CRC algorithms: CRC-32/ISO-HDLC, CRC-16/ARC.
    #[test]
    fn crcs_have_their_check_values() {
        assert_eq!(hash_one(HashKind::Crc32, CHECK), 0xcbf4_3926);
        assert_eq!(hash_one(HashKind::Crc16, CHECK), 0xbb3d);
        assert_eq!(hash_one(HashKind::Crc32, &[]), 0);
    }

    /// RFC 1071, section 3: the sum of its example is ddf2.
    #[test]
    fn csum16_is_the_internet_checksum() {
        assert_eq!(hash_one(HashKind::Csum16, &[0, 1, 0xf2, 3, 0xf4, 0xf5, 0xf6, 0xf7]), 0xffff - 0xddf2);
        assert_eq!(hash_one(HashKind::Csum16, &[0x12]), 0xffff - 0x1200);
    }

    #[test]
    fn xor_combines_words_and_identity_returns_the_first_bytes() {
        assert_eq!(hash_one(HashKind::Xor16, &[1, 2, 3, 4, 5]), 0x0102 ^ 0x0304 ^ 0x0500);
        assert_eq!(hash_one(HashKind::Identity, &[1, 2, 3]), 0x010203);
        assert_eq!(hash_one(HashKind::Identity, CHECK), u64::from_be_bytes(*b"12345678"));
    }

    #[test]
    fn round_robin_counts_its_calls() {
        let mut calls = 0;
        let values = [0; 3].map(|_| hash(HashKind::RoundRobin, [CHECK, &[]], &mut calls));
        assert_eq!(values, [0, 1, 2]);
    }

    proptest! {
        #[test]
        fn two_parts_hash_like_their_concatenation(
            bytes in prop::collection::vec(any::<u8>(), 0..70),
            at in 0..70usize,
        ) {
            let (first, second) = bytes.split_at(at.min(bytes.len()));
            for kind in [HashKind::Crc32, HashKind::Crc16, HashKind::Csum16, HashKind::Xor16, HashKind::Identity] {
                prop_assert_eq!(hash(kind, [first, second], &mut 0), hash_one(kind, &bytes));
            }
        }
    }
}
