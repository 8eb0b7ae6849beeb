// SPDX-License-Identifier: Apache-2.0
//! Conversion of numbers between P4Runtime (the shortest byte string, section "Bytestrings") and the engine (all bytes
//! of the field, big endian).

use crate::error::{out_of_range, Result};

/// Widths of a value in bits. They differ if P4Info translates the type to a number (`@p4runtime_translation`). The
/// value is the same and must fit in both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Widths {
    /// Width of the field in the program.
    pub program: u32,
    /// Width that P4Info shows to controllers.
    pub controller: u32,
}

impl Widths {
    /// Widths of a value of a type that is not translated.
    pub fn untranslated(width: u32) -> Widths {
        Widths { program: width, controller: width }
    }

    /// Convert a controller's value. The error is OUT_OF_RANGE if it does not fit in both widths.
    pub fn decode(self, value: &[u8], name: &str) -> Result<Vec<u8>> {
        let found = decode(value, self.controller, name)?;
        if self.program == self.controller {
            return Ok(found);
        }
        decode(value, self.program, name).map_err(|refused| {
            out_of_range(format!("{} in the program, P4Info has bit<{}>", refused.message, self.controller))
        })
    }
}

pub fn bytes_of(width: u32) -> usize {
    width.div_ceil(8) as usize
}

/// The value with all bits of a field set.
pub fn ones(width: u32) -> Vec<u8> {
    let mut value = vec![0xff; bytes_of(width)];
    if let (Some(first), spare) = (value.first_mut(), (8 - width % 8) % 8) {
        *first >>= spare;
    }
    value
}

/// Convert a `bit<width>` to the engine's form.
pub fn decode(value: &[u8], width: u32, name: &str) -> Result<Vec<u8>> {
    if value.is_empty() {
        return Err(out_of_range(format!("{name}: an empty value")));
    }
    let significant = strip_zeros(value);
    let bits = significant.first().map_or(0, |first| significant.len() * 8 - first.leading_zeros() as usize);
    if bits > width as usize {
        return Err(out_of_range(format!("{name}: a value of {bits} bits for bit<{width}>")));
    }
    let mut padded = vec![0; bytes_of(width) - significant.len()];
    padded.extend_from_slice(significant);
    Ok(padded)
}

/// Convert an `int<width>` to the engine's form. Values are sign-extended.
pub fn decode_signed(value: &[u8], width: u32, name: &str) -> Result<Vec<u8>> {
    let Some(&first) = value.first() else { return Err(out_of_range(format!("{name}: an empty value"))) };
    let sign = if first & 0x80 == 0 { 0 } else { 0xff };
    let significant = strip_signs(value);
    let bits = significant.len() * 8 + 1 - ((significant[0] ^ sign).leading_zeros() as usize).min(8);
    if bits > width as usize {
        return Err(out_of_range(format!("{name}: a value of {bits} bits for int<{width}>")));
    }
    let mut padded = vec![sign; bytes_of(width) - significant.len()];
    padded.extend_from_slice(significant);
    // The engine's form has only the bits of the field.
    for (byte, mask) in padded.iter_mut().zip(ones(width)) {
        *byte &= mask;
    }
    Ok(padded)
}

/// The shortest byte string of a value, at least one byte.
pub fn encode(value: &[u8]) -> Vec<u8> {
    match strip_zeros(value) {
        [] => vec![0],
        significant => significant.to_vec(),
    }
}

pub fn encode_signed(value: &[u8], width: u32) -> Vec<u8> {
    let mut extended = value.to_vec();
    let sign_bit = if width % 8 == 0 { 0x80 } else { 1 << (width % 8 - 1) };
    match extended.first_mut() {
        None => return vec![0],
        Some(first) if *first & sign_bit != 0 => *first |= !(sign_bit - 1),
        Some(_) => {}
    }
    strip_signs(&extended).to_vec()
}

fn strip_zeros(value: &[u8]) -> &[u8] {
    &value[value.iter().take_while(|byte| **byte == 0).count()..]
}

/// Remove leading bytes that only repeat the sign. At least one byte remains.
fn strip_signs(mut value: &[u8]) -> &[u8] {
    while let [first, second, ..] = value {
        if !(*first == 0 && second & 0x80 == 0 || *first == 0xff && second & 0x80 != 0) {
            break;
        }
        value = &value[1..];
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Code;

    /// Width, value written, and value read if it is accepted.
    type Example = (u32, &'static [u8], Option<&'static [u8]>);

    /// The tables in the specification's section "Bytestrings".
    #[test]
    fn the_specifications_examples() {
        let unsigned: &[Example] = &[
            (8, b"\x63", Some(b"\x63")),
            (16, b"\x00\x63", Some(b"\x63")),
            (16, b"\x63", Some(b"\x63")),
            (16, b"\x30\x64", Some(b"\x30\x64")),
            (16, b"\x00\x30\x64", Some(b"\x30\x64")),
            (12, b"\x00\x00\x63", Some(b"\x63")),
            (8, b"\x00", Some(b"\x00")),
            (8, b"\x01\x63", None),
            (8, b"", None),
            (16, b"\x01\x00\x63", None),
            (12, b"\x10\x63", None),
            (12, b"\x00\x40\x63", None),
        ];
        for (width, given, expected) in unsigned {
            let read = decode(given, *width, "x").map(|value| encode(&value));
            assert_eq!(read.as_deref().ok(), *expected, "bit<{width}> {given:x?}");
            assert!(read.is_ok() || read.unwrap_err().code == Code::OutOfRange);
        }
        let signed: &[Example] = &[
            (8, b"\x63", Some(b"\x63")),
            (8, b"\x9d", Some(b"\x9d")),
            (8, b"\xff\x9d", Some(b"\x9d")),
            (12, b"\xfd\x1d", Some(b"\xfd\x1d")),
            (16, b"\x00\x00", Some(b"\x00")),
            (16, b"\x00", Some(b"\x00")),
            (8, b"\x00\x9d", None),
            (12, b"\x8d\x1d", None),
            (16, b"", None),
        ];
        for (width, given, expected) in signed {
            let read = decode_signed(given, *width, "x").map(|value| encode_signed(&value, *width));
            assert_eq!(read.as_deref().ok(), *expected, "int<{width}> {given:x?}");
        }
    }

    #[test]
    fn values_of_translated_types_fit_in_both_widths() {
        let wider = Widths { program: 9, controller: 32 };
        assert_eq!(wider.decode(b"\x00\x00\x01\xfe", "port").unwrap(), b"\x01\xfe");
        let refused = wider.decode(b"\x02\x00", "port").unwrap_err();
        assert_eq!(refused.code, Code::OutOfRange);
        assert_eq!(refused.message, "port: a value of 10 bits for bit<9> in the program, P4Info has bit<32>");
        let narrower = Widths { program: 48, controller: 32 };
        assert_eq!(narrower.decode(b"\x01", "mac").unwrap(), b"\0\0\0\0\0\x01");
        let refused = narrower.decode(b"\x01\x00\x00\x00\x00", "mac").unwrap_err();
        assert_eq!(refused.message, "mac: a value of 33 bits for bit<32>");
    }

    #[test]
    fn signed_values_of_eleven_bits_are_decoded_and_encoded() {
        for value in -1024i16..1024 {
            let engine = decode_signed(&value.to_be_bytes(), 11, "x").unwrap();
            assert_eq!(engine, (value & 0x7ff).to_be_bytes());
            let back = encode_signed(&engine, 11);
            assert_eq!(back.len(), if (-128..128).contains(&value) { 1 } else { 2 }, "{value}");
            assert_eq!(decode_signed(&back, 11, "x").unwrap(), engine);
        }
        assert!(decode_signed(&1024i16.to_be_bytes(), 11, "x").is_err());
    }
}
