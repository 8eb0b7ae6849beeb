// SPDX-License-Identifier: Apache-2.0
//! Numbers of any length, and BMv2's way to write them: `0x0a`, `-0x1`.

use num_bigint::{BigInt, Sign};
use num_traits::{One, Zero};

use crate::error::{refuse, Result};

/// Longer ones than any field are a mistake.
const MOST_DIGITS: usize = 1 << 14;

pub fn hexstr(text: &str) -> Result<BigInt> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let digits = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")).unwrap_or(digits);
    if digits.len() > MOST_DIGITS {
        return refuse(format!("a number of {} digits", digits.len()));
    }
    match BigInt::parse_bytes(digits.as_bytes(), 16) {
        Some(number) if !digits.starts_with(['+', '-']) => Ok(if negative { -number } else { number }),
        _ => refuse(format!("{text:?} is not a hexadecimal number")),
    }
}

/// How many bits a number takes that is not negative.
pub fn bits(number: &BigInt) -> u32 {
    number.bits() as u32
}

/// 2^width - 1.
pub fn mask(width: u32) -> BigInt {
    (BigInt::one() << width) - 1
}

/// What is left of it in a field of so many bits.
pub fn cut(number: &BigInt, width: u32) -> BigInt {
    number & mask(width)
}

/// Big endian, in just so many bytes; a number that does not fit is refused.
pub fn bytes(number: &BigInt, count: usize) -> Result<Vec<u8>> {
    let (sign, digits) = number.to_bytes_be();
    if sign == Sign::Minus {
        return refuse(format!("{number} is negative"));
    }
    let digits: &[u8] = if number.is_zero() { &[] } else { &digits };
    if digits.len() > count {
        return refuse(format!("{number:#x} takes {} bytes: there are {count}", digits.len()));
    }
    let mut padded = vec![0; count - digits.len()];
    padded.extend_from_slice(digits);
    Ok(padded)
}

/// As the value of something that many bits wide, in whole bytes.
pub fn value(number: &BigInt, width: u32) -> Vec<u8> {
    bytes(&cut(number, width), width.div_ceil(8) as usize).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_p4c_writes() {
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
    fn values_are_cut_to_the_width_and_fill_their_bytes() {
        assert_eq!(value(&BigInt::from(-1), 12), [0x0f, 0xff]);
        assert_eq!(value(&BigInt::zero(), 9), [0, 0]);
        assert!(bytes(&BigInt::from(256), 1).is_err());
    }
}
