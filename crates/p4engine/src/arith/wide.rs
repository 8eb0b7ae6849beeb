// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Numbers of more than 128 bits in two's complement: limbs of 64 bits, the lowest first. All have the same length.

use core::cmp::Ordering;

use crate::arith::bits::ones;
use crate::ir::{Binary, Unary};

/// Limit on the limbs of a wide register. Temporaries are on the stack, which is small in the kernel.
pub(crate) const LIMBS: usize = 40;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Wide {
    limbs: [u64; LIMBS],
    count: usize,
}

impl Wide {
    pub fn zero(count: usize) -> Wide {
        Wide { limbs: [0; LIMBS], count: count.clamp(1, LIMBS) }
    }

    pub fn from_limbs(limbs: &[u64]) -> Wide {
        let mut wide = Wide::zero(limbs.len());
        for (to, from) in wide.limbs.iter_mut().zip(limbs) {
            *to = *from;
        }
        wide
    }

    pub fn from_number(value: i128, count: usize) -> Wide {
        let mut wide = Wide::zero(count);
        for (index, limb) in wide.as_mut().iter_mut().enumerate() {
            *limb = (value >> (index.saturating_mul(64).min(127))) as u64;
            if index >= 2 {
                *limb = (value >> 127) as u64;
            }
        }
        wide
    }

    /// The number of big-endian bytes, unsigned.
    pub fn from_bytes(bytes: &[u8], count: usize) -> Wide {
        let mut wide = Wide::zero(count);
        for (index, byte) in bytes.iter().rev().enumerate() {
            if let Some(limb) = wide.as_mut().get_mut(index / 8) {
                *limb |= u64::from(*byte) << (index % 8 * 8);
            }
        }
        wide
    }

    /// The lowest 128 bits.
    pub fn number(&self) -> i128 {
        let high = self.limb(1).unwrap_or(self.sign());
        (u128::from(high) << 64 | u128::from(self.limb(0).unwrap_or(0))) as i128
    }

    pub fn as_ref(&self) -> &[u64] {
        self.limbs.get(..self.count).unwrap_or(&[])
    }

    pub fn as_mut(&mut self) -> &mut [u64] {
        self.limbs.get_mut(..self.count).unwrap_or_default()
    }

    fn limb(&self, index: usize) -> Option<u64> {
        self.as_ref().get(index).copied()
    }

    fn negative(&self) -> bool {
        self.as_ref().last().is_some_and(|limb| limb >> 63 == 1)
    }

    /// The limb that extends the number's sign.
    fn sign(&self) -> u64 {
        if self.negative() {
            u64::MAX
        } else {
            0
        }
    }

    fn bits(&self) -> usize {
        self.count * 64
    }

    /// The value as a count of bits. None: at least as many as the number has.
    fn amount(&self) -> Option<usize> {
        let small = self.as_ref().iter().skip(1).all(|limb| *limb == 0);
        self.limb(0).filter(|limb| small && *limb < self.bits() as u64).map(|limb| limb as usize)
    }

    fn each(&self, other: &Wide, apply: impl Fn(u64, u64) -> u64) -> Wide {
        let mut result = *self;
        for (limb, other) in result.as_mut().iter_mut().zip(other.as_ref()) {
            *limb = apply(*limb, *other);
        }
        result
    }

    fn invert(&self) -> Wide {
        self.each(self, |limb, _| !limb)
    }

    fn negate(&self) -> Wide {
        self.invert().add(&Wide::from_number(1, self.count))
    }

    fn magnitude(&self) -> Wide {
        if self.negative() {
            self.negate()
        } else {
            *self
        }
    }

    fn add(&self, other: &Wide) -> Wide {
        let mut result = *self;
        let mut carry = 0u128;
        for (limb, other) in result.as_mut().iter_mut().zip(other.as_ref()) {
            let sum = u128::from(*limb) + u128::from(*other) + carry;
            *limb = sum as u64;
            carry = sum >> 64;
        }
        result
    }

    fn multiply(&self, other: &Wide) -> Wide {
        let mut result = Wide::zero(self.count);
        for (index, left) in self.as_ref().iter().enumerate() {
            let mut carry = 0u128;
            for (limb, right) in result.as_mut().iter_mut().skip(index).zip(other.as_ref()) {
                let sum = u128::from(*left) * u128::from(*right) + u128::from(*limb) + carry;
                *limb = sum as u64;
                carry = sum >> 64;
            }
        }
        result
    }

    fn shift_left(&self, places: usize) -> Wide {
        let mut result = Wide::zero(self.count);
        let (limbs, bits) = (places / 64, places as u32 % 64);
        for (index, limb) in result.as_mut().iter_mut().enumerate().skip(limbs) {
            let high = self.limb(index - limbs).unwrap_or(0) << bits;
            let low = index.checked_sub(limbs + 1).and_then(|below| self.limb(below)).unwrap_or(0);
            *limb = if bits == 0 { high } else { high | low >> (64 - bits) };
        }
        result
    }

    fn shift_right(&self, places: usize) -> Wide {
        let mut result = Wide::zero(self.count);
        let (limbs, bits) = (places / 64, places as u32 % 64);
        for (index, limb) in result.as_mut().iter_mut().enumerate() {
            let low = self.limb(index + limbs).unwrap_or(self.sign()) >> bits;
            let high = self.limb(index + limbs + 1).unwrap_or(self.sign());
            *limb = if bits == 0 { low } else { low | high << (64 - bits) };
        }
        result
    }

    /// Quotient and remainder, by long division of the magnitudes. A division by 0 gives 0 and 0.
    fn divide(&self, other: &Wide) -> (Wide, Wide) {
        let (left, right) = (self.magnitude(), other.magnitude());
        let (mut quotient, mut rest) = (Wide::zero(self.count), Wide::zero(self.count));
        if right.as_ref().iter().all(|limb| *limb == 0) {
            return (quotient, rest);
        }
        for bit in (0..self.bits()).rev() {
            rest = rest.shift_left(1);
            if let Some(low) = rest.as_mut().first_mut() {
                *low |= left.limb(bit / 64).unwrap_or(0) >> (bit % 64) & 1;
            }
            if rest.compare_unsigned(&right) != Ordering::Less {
                rest = rest.add(&right.negate());
                if let Some(limb) = quotient.as_mut().get_mut(bit / 64) {
                    *limb |= 1 << (bit % 64);
                }
            }
        }
        let quotient = if self.negative() == other.negative() { quotient } else { quotient.negate() };
        (quotient, if self.negative() { rest.negate() } else { rest })
    }

    fn compare_unsigned(&self, other: &Wide) -> Ordering {
        self.as_ref().iter().rev().cmp(other.as_ref().iter().rev())
    }

    fn compare(&self, other: &Wide) -> Ordering {
        match (self.negative(), other.negative()) {
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            _ => self.compare_unsigned(other),
        }
    }

    /// The lowest `width` bits, unsigned.
    pub fn cut(&self, width: usize) -> Wide {
        let mut result = *self;
        for (index, limb) in result.as_mut().iter_mut().enumerate() {
            *limb &= ones(width.saturating_sub(index * 64).min(64) as u32);
        }
        result
    }

    /// The lowest `width` bits, signed.
    pub fn signed(&self, width: usize) -> Wide {
        let unused = self.bits().saturating_sub(width);
        if width == 0 {
            Wide::zero(self.count)
        } else {
            self.shift_left(unused).shift_right(unused)
        }
    }

    fn saturate(&self, width: usize, signed: bool) -> Wide {
        let one = Wide::from_number(1, self.count);
        let minus_one = Wide::from_number(-1, self.count);
        let power = one.shift_left(if signed { width.saturating_sub(1) } else { width });
        let max = power.add(&minus_one);
        let min = if signed { power.negate() } else { Wide::zero(self.count) };
        match width {
            0 => Wide::zero(self.count),
            _ if self.compare(&max) == Ordering::Greater => max,
            _ if self.compare(&min) == Ordering::Less => min,
            _ => *self,
        }
    }
}

pub(crate) fn unary(op: Unary, value: &Wide) -> Wide {
    match op {
        Unary::Invert => value.invert(),
        Unary::Negate => value.negate(),
        Unary::Not => {
            Wide::from_number(i128::from(value.as_ref().iter().all(|limb| *limb == 0)), value.count)
        }
    }
}

pub(crate) fn binary(op: Binary, left: &Wide, right: &Wide) -> Wide {
    let amount = right.amount();
    let out = Wide::from_limbs(&[left.sign(); LIMBS][..left.count]);
    // The count is at least the number of bits.
    let all = !right.negative() && amount.is_none();
    match op {
        Binary::Add => left.add(right),
        Binary::Subtract => left.add(&right.negate()),
        Binary::Multiply => left.multiply(right),
        Binary::Divide => left.divide(right).0,
        Binary::Remainder => left.divide(right).1,
        Binary::ShiftLeft => amount.map_or(Wide::zero(left.count), |places| left.shift_left(places)),
        Binary::ShiftRight => amount.map_or(out, |places| left.shift_right(places)),
        Binary::And => left.each(right, |left, right| left & right),
        Binary::Or => left.each(right, |left, right| left | right),
        Binary::Xor => left.each(right, |left, right| left ^ right),
        Binary::Signed | Binary::SaturateSigned if all => *left,
        Binary::SaturateUnsigned if all => {
            if left.negative() {
                Wide::zero(left.count)
            } else {
                *left
            }
        }
        Binary::Signed => left.signed(amount.unwrap_or(0)),
        Binary::SaturateSigned => left.saturate(amount.unwrap_or(0), true),
        Binary::SaturateUnsigned if amount == Some(left.bits() - 1) => {
            if left.negative() {
                Wide::zero(left.count)
            } else {
                *left
            }
        }
        Binary::SaturateUnsigned => left.saturate(amount.unwrap_or(0), false),
        _ => Wide::from_number(i128::from(compare(op, left, right)), left.count),
    }
}

pub(crate) fn compare(op: Binary, left: &Wide, right: &Wide) -> bool {
    let order = left.compare(right);
    match op {
        Binary::Equal => order == Ordering::Equal,
        Binary::NotEqual => order != Ordering::Equal,
        Binary::Less => order == Ordering::Less,
        Binary::LessOrEqual => order != Ordering::Greater,
        Binary::Greater => order == Ordering::Greater,
        Binary::GreaterOrEqual => order != Ordering::Less,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arith::model::{self, from_limbs, limbs, to_limbs, BINARY};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn results_equal_unlimited_integers_modulo_their_size(
            (left, right) in (1..6usize).prop_flat_map(|count| (limbs(count), limbs(count))),
        ) {
            let (count, bits) = (left.len(), left.len() * 64);
            let (wide_left, wide_right) = (Wide::from_limbs(&left), Wide::from_limbs(&right));
            let (big_left, big_right) = (from_limbs(&left), from_limbs(&right));
            for op in BINARY {
                let value = binary(op, &wide_left, &wide_right);
                let expected = model::binary(op, &big_left, &big_right, bits);
                prop_assert_eq!(value.as_ref(), to_limbs(&expected, count), "{:?}", op);
            }
            for op in [Binary::Equal, Binary::Less, Binary::LessOrEqual, Binary::GreaterOrEqual] {
                let expected = model::binary(op, &big_left, &big_right, bits);
                prop_assert_eq!(compare(op, &wide_left, &wide_right), expected == 1.into());
            }
            let (inverted, negated) = (unary(Unary::Invert, &wide_left), unary(Unary::Negate, &wide_left));
            prop_assert_eq!(inverted.as_ref(), to_limbs(&(-&big_left - 1), count));
            prop_assert_eq!(negated.as_ref(), to_limbs(&-&big_left, count));
        }

        #[test]
        fn to_and_from_a_number(value in any::<i128>(), count in 1..5usize) {
            let wide = Wide::from_number(value, count);
            prop_assert_eq!(wide.as_ref(), to_limbs(&value.into(), count));
            if count > 1 {
                prop_assert_eq!(wide.number(), value);
            }
        }
    }
}
