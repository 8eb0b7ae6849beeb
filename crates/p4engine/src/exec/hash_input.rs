// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Computation of hashes over fields, constants and the payload.

use alloc::vec::Vec;

use crate::arith::bits::{ones, peek, Place};
use crate::arith::hash::{hash as hash_of, word_checksum};
use crate::ir::{HashKind, MAX_REGISTERS};
use crate::lower::operands::HashPart;
use crate::lower::Code;

/// Sources of a hash's input.
pub(crate) struct Input<'a> {
    pub phv: &'a [u8],
    /// The packet after the parsed headers.
    pub rest: &'a [u8],
    pub registers: &'a [i128; MAX_REGISTERS],
}

/// Appends bits without gaps and pads the end to a whole byte.
struct Bits<'a> {
    bytes: &'a mut Vec<u8>,
    pending: u64,
    count: u32,
}

impl Bits<'_> {
    #[inline]
    fn push(&mut self, value: u64, width: u32) {
        let mut left = width;
        while left > 0 {
            let bits = left.min(8);
            left -= bits;
            self.pending = self.pending << bits | (value >> (left & 63)) & ones(bits);
            self.count += bits;
            if self.count >= 8 {
                self.count -= 8;
                self.bytes.push((self.pending >> self.count) as u8);
            }
        }
    }

    fn phv(&mut self, phv: &[u8], at: u32, width: u32) {
        if self.count == 0 && (at | width) % 8 == 0 {
            let first = at as usize / 8;
            self.bytes.extend_from_slice(phv.get(first..first + width as usize / 8).unwrap_or(&[]));
            return;
        }
        let mut done = 0;
        while done < width {
            let bits = (width - done).min(64);
            self.push(Place::new(at + done, bits).load(phv), bits);
            done += bits;
        }
    }

    fn finish(mut self) {
        if self.count > 0 {
            self.push(0, 8 - self.count);
        }
    }
}

/// The bytes of a part that is aligned to bytes. None: its header is invalid.
#[inline]
fn aligned_part<'a>(part: &HashPart, phv: &'a [u8]) -> Option<&'a [u8]> {
    let HashPart::Phv { at, width, valid } = part else { return None };
    if valid.is_some_and(|valid| !valid.is_valid(phv)) {
        return None;
    }
    let first = *at as usize / 8;
    phv.get(first..first + *width as usize / 8)
}

pub(crate) fn hash(
    code: &Code,
    number: u16,
    input: &Input,
    buffer: &mut Vec<u8>,
    round_robin: &mut [u64],
) -> u64 {
    let Some(hash) = code.hashes.get(usize::from(number)) else { return 0 };
    let Some(calls) = round_robin.get_mut(usize::from(number)) else { return 0 };
    if hash.kind == HashKind::RoundRobin {
        return hash_of(hash.kind, [&[], &[]], calls);
    }
    if hash.words && hash.kind == HashKind::Csum16 {
        let parts = hash.parts.iter().filter_map(|part| aligned_part(part, input.phv));
        return word_checksum(parts).into();
    }
    buffer.clear();
    let mut bits = Bits { bytes: buffer, pending: 0, count: 0 };
    for part in &hash.parts {
        match part {
            HashPart::Phv { at, width, valid } => {
                if valid.is_none_or(|valid| valid.is_valid(input.phv)) {
                    bits.phv(input.phv, *at, *width);
                }
            }
            HashPart::Varbit { at, width, max_width, valid } => {
                if valid.is_valid(input.phv) {
                    bits.phv(input.phv, *at, (width.load(input.phv) as u32).min(*max_width));
                }
            }
            HashPart::Constant { value, width } => {
                let unused = (value.len() as u32 * 8).saturating_sub(*width);
                let mut done = 0;
                while done < *width {
                    let some = (width - done).min(64);
                    bits.push(peek(value, u64::from(unused + done), some), some);
                    done += some;
                }
            }
            HashPart::Register { register, width } => {
                let value = input.registers[usize::from(*register) % MAX_REGISTERS];
                bits.push((value >> 64) as u64, width.saturating_sub(64));
                bits.push(value as u64, (*width).min(64));
            }
        }
    }
    bits.finish();
    let rest = if hash.payload { input.rest } else { &[] };
    hash_of(hash.kind, [buffer, rest], calls)
}
