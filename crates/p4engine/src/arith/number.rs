// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Operations on signed numbers of 128 bits: BMv2's operations on unlimited integers, modulo 2^128.
//!
//! Division is implemented here: i128's would call compiler-builtins, which the guest's kernel does not have.

use crate::ir::{Binary, Unary};

#[inline(always)]
pub(crate) fn unary(op: Unary, value: i128) -> i128 {
    match op {
        Unary::Invert => !value,
        Unary::Negate => value.wrapping_neg(),
        Unary::Not => i128::from(value == 0),
    }
}

#[inline(always)]
pub(crate) fn binary(op: Binary, left: i128, right: i128) -> i128 {
    match op {
        Binary::Add => left.wrapping_add(right),
        Binary::Subtract => left.wrapping_sub(right),
        Binary::Multiply => left.wrapping_mul(right),
        Binary::Divide => divide(left, right).0,
        Binary::Remainder => divide(left, right).1,
        Binary::ShiftLeft => shift_left(left, right),
        Binary::ShiftRight => shift_right(left, right),
        Binary::And => left & right,
        Binary::Or => left | right,
        Binary::Xor => left ^ right,
        Binary::Equal => i128::from(left == right),
        Binary::NotEqual => i128::from(left != right),
        Binary::Less => i128::from(left < right),
        Binary::LessOrEqual => i128::from(left <= right),
        Binary::Greater => i128::from(left > right),
        Binary::GreaterOrEqual => i128::from(left >= right),
        Binary::Signed => signed(left, right),
        Binary::SaturateSigned => saturate_signed(left, right),
        Binary::SaturateUnsigned => saturate_unsigned(left, right),
    }
}

fn shift_left(left: i128, right: i128) -> i128 {
    match right {
        0..=127 => left << (right as u32 & 127),
        _ => 0,
    }
}

fn shift_right(left: i128, right: i128) -> i128 {
    match right {
        0..=127 => left >> (right as u32 & 127),
        _ => left >> 127,
    }
}

fn signed(left: i128, width: i128) -> i128 {
    match width {
        1..=127 => {
            let unused = 128 - width as u32;
            left << (unused & 127) >> (unused & 127)
        }
        128.. => left,
        _ => 0,
    }
}

fn saturate_signed(left: i128, width: i128) -> i128 {
    match width {
        1..=127 => {
            let max = (1i128 << ((width as u32 - 1) & 127)) - 1;
            left.clamp(-max - 1, max)
        }
        128.. => left,
        _ => 0,
    }
}

fn saturate_unsigned(left: i128, width: i128) -> i128 {
    match width {
        1..=126 => left.clamp(0, (1i128 << (width as u32 & 127)) - 1),
        127.. => left.max(0),
        _ => 0,
    }
}

/// Quotient (rounded towards 0) and remainder (with the dividend's sign). A division by 0, which crashes BMv2, gives
/// 0 and 0.
#[inline(never)]
pub(crate) fn divide(left: i128, right: i128) -> (i128, i128) {
    if right == 0 {
        return (0, 0);
    }
    let (quotient, rest) = divide_unsigned(left.unsigned_abs(), right.unsigned_abs());
    let quotient =
        if (left < 0) == (right < 0) { quotient as i128 } else { (quotient as i128).wrapping_neg() };
    (quotient, if left < 0 { (rest as i128).wrapping_neg() } else { rest as i128 })
}

fn divide_unsigned(left: u128, right: u128) -> (u128, u128) {
    if let (Ok(left), Ok(right)) = (u64::try_from(left), u64::try_from(right)) {
        let quotient = left.checked_div(right).unwrap_or(0);
        return (u128::from(quotient), u128::from(left.wrapping_sub(quotient.wrapping_mul(right))));
    }
    let (mut quotient, mut rest) = (0u128, 0u128);
    for bit in (0..128).rev() {
        let carry = rest >> 127;
        rest = rest << 1 | left >> bit & 1;
        if carry == 1 || rest >= right {
            rest = rest.wrapping_sub(right);
            quotient |= 1 << bit;
        }
    }
    (quotient, rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arith::model::{self, from_limbs, limbs, to_limbs, BINARY};
    use proptest::prelude::*;

    fn number(limbs: &[u64]) -> i128 {
        (u128::from(limbs[1]) << 64 | u128::from(limbs[0])) as i128
    }

    proptest! {
        #[test]
        fn results_equal_unlimited_integers_modulo_2_to_the_128(left in limbs(2), right in limbs(2)) {
            for op in BINARY {
                let value = binary(op, number(&left), number(&right));
                let expected = model::binary(op, &from_limbs(&left), &from_limbs(&right), 128);
                prop_assert_eq!(value, number(&to_limbs(&expected, 2)), "{:?}", op);
            }
            let input = number(&left);
            prop_assert_eq!(unary(Unary::Invert, input), number(&to_limbs(&(-from_limbs(&left) - 1), 2)));
            prop_assert_eq!(unary(Unary::Negate, input), number(&to_limbs(&-from_limbs(&left), 2)));
            prop_assert_eq!(unary(Unary::Not, input), i128::from(input == 0));
        }
    }
}
