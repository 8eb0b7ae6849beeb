// SPDX-License-Identifier: Apache-2.0
//! Integers of any length, and BMv2's `hexstr` syntax: `0x0a`, `-0x1`.

use num_bigint::{BigInt, Sign};
use num_traits::{One, Zero};

use crate::error::{refuse, Result};

/// Limit on the digits of a number.
const MAX_DIGITS: usize = 1 << 14;

pub fn hexstr(text: &str) -> Result<BigInt> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let digits = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")).unwrap_or(digits);
    if digits.len() > MAX_DIGITS {
        return refuse(format!("a number of {} digits", digits.len()));
    }
    match BigInt::parse_bytes(digits.as_bytes(), 16) {
        Some(number) if !digits.starts_with(['+', '-']) => Ok(if negative { -number } else { number }),
        _ => refuse(format!("{text:?} is not a hexadecimal number")),
    }
}

/// Width of a non-negative number in bits.
pub fn bits(number: &BigInt) -> u32 {
    number.bits() as u32
}

/// 2^width - 1.
pub fn mask(width: u32) -> BigInt {
    (BigInt::one() << width) - 1
}

/// The low `width` bits of a number.
pub fn truncate(number: &BigInt, width: u32) -> BigInt {
    number & mask(width)
}

/// A number in `count` bytes, big endian. Fails if it does not fit.
pub fn bytes(number: &BigInt, count: usize) -> Result<Vec<u8>> {
    let (sign, digits) = number.to_bytes_be();
    if sign == Sign::Minus {
        return refuse(format!("{number} is negative"));
    }
    let digits: &[u8] = if number.is_zero() { &[] } else { &digits };
    if digits.len() > count {
        return refuse(format!("{number:#x} takes {} bytes: at most {count} fit", digits.len()));
    }
    let mut padded = vec![0; count - digits.len()];
    padded.extend_from_slice(digits);
    Ok(padded)
}

/// The low `width` bits of a number in whole bytes, big endian.
pub fn value(number: &BigInt, width: u32) -> Vec<u8> {
    bytes(&truncate(number, width), width.div_ceil(8) as usize).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexstr_reads_numbers_of_p4c() {
        assert_eq!(hexstr("0x0aff").unwrap(), BigInt::from(0xaff));
        assert_eq!(hexstr("-0x1").unwrap(), BigInt::from(-1));
        assert!(
            hexstr("0x").is_err()
                && hexstr("").is_err()
                && hexstr("0x-1").is_err()
                && hexstr("0xzz").is_err()
        );
    }

    #[test]
    fn values_are_truncated_and_padded() {
        assert_eq!(value(&BigInt::from(-1), 12), [0x0f, 0xff]);
        assert_eq!(value(&BigInt::zero(), 9), [0, 0]);
        assert!(bytes(&BigInt::from(256), 1).is_err());
    }
}
