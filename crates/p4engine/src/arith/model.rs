// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! A model for tests: BMv2's operations on unlimited integers.

use alloc::vec::Vec;

use num_bigint::{BigInt, Sign};
use proptest::prelude::*;

use crate::ir::Binary;

pub(crate) const BINARY: [Binary; 19] = [
    Binary::Add,
    Binary::Subtract,
    Binary::Multiply,
    Binary::Divide,
    Binary::Remainder,
    Binary::ShiftLeft,
    Binary::ShiftRight,
    Binary::And,
    Binary::Or,
    Binary::Xor,
    Binary::Equal,
    Binary::NotEqual,
    Binary::Less,
    Binary::LessOrEqual,
    Binary::Greater,
    Binary::GreaterOrEqual,
    Binary::Signed,
    Binary::SaturateSigned,
    Binary::SaturateUnsigned,
];

/// Numbers near powers of two, small numbers, and arbitrary ones.
pub(crate) fn limbs(count: usize) -> impl Strategy<Value = Vec<u64>> {
    let any_limbs = prop::collection::vec(any::<u64>(), count);
    let power = (0..count * 64, -2i8..3, any::<bool>()).prop_map(move |(bit, more, negative)| {
        let value = (BigInt::from(1) << bit) + more;
        to_limbs(&if negative { -value } else { value }, count)
    });
    let small = (-300i64..300).prop_map(move |value| to_limbs(&value.into(), count));
    prop_oneof![any_limbs, power, small]
}

pub(crate) fn to_limbs(value: &BigInt, count: usize) -> Vec<u64> {
    let wrapped = modulo(value, count * 64);
    let (_, mut limbs) = wrapped.to_u64_digits();
    limbs.resize(count, 0);
    limbs
}

pub(crate) fn from_limbs(limbs: &[u64]) -> BigInt {
    let bytes: Vec<u8> = limbs.iter().flat_map(|limb| limb.to_le_bytes()).collect();
    BigInt::from_signed_bytes_le(&bytes)
}

/// The value modulo 2^bits, from 0 on.
fn modulo(value: &BigInt, bits: usize) -> BigInt {
    let size = BigInt::from(1) << bits;
    ((value % &size) + &size) % &size
}

/// The result of an operation on numbers of `bits` bits. Larger shifts and widths count as `bits`.
pub(crate) fn binary(op: Binary, left: &BigInt, right: &BigInt, bits: usize) -> BigInt {
    let one = BigInt::from(1);
    let zero = BigInt::from(0);
    let negative = right.sign() == Sign::Minus;
    let amount = usize::try_from(right).unwrap_or(bits).min(bits);
    let floor = if left.sign() == Sign::Minus { -&one } else { zero.clone() };
    match op {
        Binary::Add => left + right,
        Binary::Subtract => left - right,
        Binary::Multiply => left * right,
        Binary::Divide | Binary::Remainder if *right == zero => zero,
        Binary::Divide => left / right,
        Binary::Remainder => left % right,
        Binary::ShiftLeft if negative => zero,
        Binary::ShiftRight if negative => floor,
        Binary::ShiftLeft => left << amount,
        Binary::ShiftRight => left >> amount,
        Binary::And => left & right,
        Binary::Or => left | right,
        Binary::Xor => left ^ right,
        Binary::Equal => u8::from(left == right).into(),
        Binary::NotEqual => u8::from(left != right).into(),
        Binary::Less => u8::from(left < right).into(),
        Binary::LessOrEqual => u8::from(left <= right).into(),
        Binary::Greater => u8::from(left > right).into(),
        Binary::GreaterOrEqual => u8::from(left >= right).into(),
        Binary::Signed | Binary::SaturateSigned | Binary::SaturateUnsigned if negative || amount == 0 => zero,
        Binary::Signed => {
            let value = modulo(left, amount);
            if value >= &one << (amount - 1) {
                value - (one << amount)
            } else {
                value
            }
        }
        Binary::SaturateSigned => {
            let max: BigInt = (&one << (amount - 1)) - 1;
            left.clone().clamp(-&max - 1, max)
        }
        Binary::SaturateUnsigned => left.clone().clamp(zero, (one << amount) - 1),
    }
}
