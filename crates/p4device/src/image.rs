// SPDX-License-Identifier: Apache-2.0
//! Images: compiled programs as bytes. `p4image` writes them on the host, the agent reads them.
//!
//! An image has a header of 32 bytes (magic, format, length and checksum of the body, in little endian) and a body: the
//! program as postcard encodes it, which the kernel's engine loads unchanged.

use std::fmt;

use qbed_p4engine::program::Program;

const MAGIC: [u8; 8] = *b"qbed-p4\n";
const HEADER_BYTES: usize = 32;
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;

/// Hash of the sources of `Program`: an image of other sources may have another encoding.
const FORMAT: u64 = {
    let mut hash = fnv1a(FNV_OFFSET, include_bytes!("../../p4engine/src/ir/externs.rs"));
    hash = fnv1a(hash, include_bytes!("../../p4engine/src/ir/headers.rs"));
    hash = fnv1a(hash, include_bytes!("../../p4engine/src/ir/ids.rs"));
    hash = fnv1a(hash, include_bytes!("../../p4engine/src/ir/instructions.rs"));
    hash = fnv1a(hash, include_bytes!("../../p4engine/src/ir/parser.rs"));
    hash = fnv1a(hash, include_bytes!("../../p4engine/src/ir/program.rs"));
    fnv1a(hash, include_bytes!("../../p4engine/src/ir/tables.rs"))
};

/// FNV-1a of 64 bits. It finds damage, not forgery: the body is decoded with bounds checks, and the engine checks the
/// program.
const fn fnv1a(mut hash: u64, bytes: &[u8]) -> u64 {
    let mut index = 0;
    while index < bytes.len() {
        hash = (hash ^ bytes[index] as u64).wrapping_mul(FNV_PRIME);
        index += 1;
    }
    hash
}

/// Why an image cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageError {
    NotAnImage,
    /// Other sources than the reader's wrote it.
    Stale,
    Damaged,
}

impl fmt::Display for ImageError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::NotAnImage => "not an image of a P4 program",
            Self::Stale => "the image is of another version of the P4 engine",
            Self::Damaged => "the image is damaged",
        })
    }
}

impl std::error::Error for ImageError {}

/// A program's image.
pub fn write(program: &Program) -> Result<Vec<u8>, postcard::Error> {
    let body = postcard::to_allocvec(program)?;
    let mut image = Vec::with_capacity(HEADER_BYTES + body.len());
    image.extend(MAGIC);
    for number in [FORMAT, body.len() as u64, fnv1a(FNV_OFFSET, &body)] {
        image.extend(number.to_le_bytes());
    }
    image.extend(body);
    Ok(image)
}

/// The program of an image, and its encoding for the kernel's engine.
pub fn read(image: &[u8]) -> Result<(Program, &[u8]), ImageError> {
    let rest = image.strip_prefix(&MAGIC).ok_or(ImageError::NotAnImage)?;
    let (format, rest) = rest.split_first_chunk().ok_or(ImageError::Damaged)?;
    if u64::from_le_bytes(*format) != FORMAT {
        return Err(ImageError::Stale);
    }
    let (length, rest) = rest.split_first_chunk().ok_or(ImageError::Damaged)?;
    let (checksum, body) = rest.split_first_chunk().ok_or(ImageError::Damaged)?;
    let is_intact = u64::from_le_bytes(*length) == body.len() as u64
        && u64::from_le_bytes(*checksum) == fnv1a(FNV_OFFSET, body);
    if !is_intact {
        return Err(ImageError::Damaged);
    }
    match postcard::take_from_bytes(body) {
        Ok((program, [])) => Ok((program, body)),
        _ => Err(ImageError::Damaged),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use qbed_p4engine::program::{Action, Array, Op, Parameter};

    fn program() -> Program {
        let parameters = vec![Parameter { name: "port".into(), width: 9 }];
        Program {
            name: "mine".into(),
            phv_bytes: 4,
            code: vec![Op::Set { to: 0, value: -5 }, Op::End],
            constants: vec![vec![1, 2, 3]],
            actions: vec![Action { name: "send".into(), parameters, begin: 1 }],
            arrays: vec![Array { name: "seen".into(), width: 32, signed: false, size: 4 }],
            ..Program::default()
        }
    }

    /// An image with a correct header around any body.
    fn around(body: &[u8]) -> Vec<u8> {
        let mut image = MAGIC.to_vec();
        for number in [FORMAT, body.len() as u64, fnv1a(FNV_OFFSET, body)] {
            image.extend(number.to_le_bytes());
        }
        image.extend(body);
        image
    }

    #[test]
    fn an_image_has_the_program_and_the_engines_bytes() {
        let image = write(&program()).unwrap();
        let body = postcard::to_allocvec(&program()).unwrap();
        assert_eq!(read(&image), Ok((program(), &body[..])));
        assert_eq!(image, around(&body));
    }

    #[test]
    fn the_checksum_is_fnv1a() {
        assert_eq!(fnv1a(FNV_OFFSET, b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(FNV_OFFSET, b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn other_files_and_other_versions_are_refused() {
        let mut image = write(&program()).unwrap();
        assert_eq!(read(b"{\"program\": 1}"), Err(ImageError::NotAnImage));
        assert_eq!(read(b""), Err(ImageError::NotAnImage));
        image[MAGIC.len()] ^= 1;
        assert_eq!(read(&image), Err(ImageError::Stale));
    }

    #[test]
    fn every_truncation_and_every_changed_byte_is_refused() {
        let image = write(&program()).unwrap();
        for length in 0..image.len() {
            assert!(read(&image[..length]).is_err(), "{length} bytes");
        }
        for at in 0..image.len() {
            let mut damaged = image.clone();
            damaged[at] ^= 0x40;
            assert!(read(&damaged).is_err(), "byte {at}");
        }
        assert_eq!(read(&[&image[..], b"x"].concat()), Err(ImageError::Damaged));
        let longer = [&postcard::to_allocvec(&program()).unwrap()[..], b"x"].concat();
        assert_eq!(read(&around(&longer)), Err(ImageError::Damaged), "bytes after the program");
    }

    proptest! {
        /// A forged checksum reaches the decoder: it refuses, or returns a program that has exactly these bytes' values.
        #[test]
        fn any_bytes_with_a_correct_header_are_decoded_or_refused(body in prop::collection::vec(any::<u8>(), 0..200)) {
            let image = around(&body);
            match read(&image) {
                Ok((program, bytes)) => {
                    prop_assert_eq!(bytes, &body[..]);
                    let again = write(&program).unwrap();
                    prop_assert_eq!(read(&again).unwrap().0, program);
                }
                Err(error) => prop_assert_eq!(error, ImageError::Damaged),
            }
        }

        /// Bytes of a program with a few changed ones, which reach deeper.
        #[test]
        fn changed_programs_are_decoded_or_refused(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
            let mut body = postcard::to_allocvec(&program()).unwrap();
            for (index, byte) in changes {
                let at = index.index(body.len());
                body[at] = byte;
            }
            if let Ok((program, _)) = read(&around(&body)) {
                // The engine checks what it loads; it must not panic either.
                let _ = qbed_p4engine::Engine::load(program);
            }
        }
    }
}
