// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Headers, fields, selects and hashes with their places in the PHV.

use alloc::vec::Vec;

use crate::arith::bits::Place;
use crate::ir::{FieldId, HashKind, HeaderId, Pc, Program, Reg, SelectKey, SelectOn};
use crate::lower::checksums::CHECKSUM_OFFSETS;

/// The place of a header's validity bit in the PHV.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Validity {
    pub at: u32,
    pub bit: u8,
}

impl Validity {
    /// The validity of a field's header. None: the field is metadata or in no header, and always valid.
    pub fn of_field(program: &Program, field: FieldId) -> Option<Validity> {
        let header = program.headers.get(owner(program, field)?).filter(|header| !header.metadata)?;
        let at = program.fields.get(usize::from(header.valid))?.at;
        Some(Validity { at: at / 8, bit: valid_bit(at) })
    }

    #[inline(always)]
    pub fn is_valid(self, phv: &[u8]) -> bool {
        phv.get(self.at as usize).is_some_and(|byte| byte & self.bit != 0)
    }
}

pub(super) fn valid_bit(at: u32) -> u8 {
    0x80 >> (at % 8)
}

/// The index of the header that a field belongs to.
pub(super) fn owner(program: &Program, field: FieldId) -> Option<usize> {
    program.headers.iter().position(|header| header.field_ids().contains(&field))
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Header {
    pub at: u32,
    pub bytes: u32,
    pub metadata: bool,
    /// Byte and bit of the validity.
    pub valid_at: u32,
    pub valid_bit: u8,
    pub union_of: Option<u16>,
    pub varbit: Option<Varbit>,
    pub first_field: FieldId,
    pub fields: u16,
    /// Whether a checksum may be at each of `CHECKSUM_OFFSETS`.
    pub defers: [bool; 2],
}

impl Header {
    /// Whether a checksum may be at this offset in bytes.
    pub fn defers_at(&self, offset: usize) -> bool {
        CHECKSUM_OFFSETS.iter().zip(self.defers).any(|(known, defers)| defers && *known as usize == offset)
    }

    /// The header's validity. None: metadata, which is always valid.
    pub(super) fn validity(&self) -> Option<Validity> {
        (!self.metadata).then_some(Validity { at: self.valid_at, bit: self.valid_bit })
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Varbit {
    /// Offset in the header.
    pub at: u32,
    /// Maximum size.
    pub bytes: u32,
    /// The field with the current width in bits.
    pub width: Place,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Field {
    pub at: u32,
    pub width: u32,
    pub signed: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Stack {
    pub headers: Vec<HeaderId>,
    pub unions: Vec<u16>,
    pub next: Place,
}

impl Stack {
    pub fn size(&self) -> usize {
        self.headers.len().max(self.unions.len())
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Errors {
    pub none: u32,
    pub packet_too_short: u32,
    pub no_match: u32,
    pub stack_out_of_bounds: u32,
    pub header_too_short: u32,
    pub parser_timeout: u32,
    pub parser_invalid_argument: u32,
}

/// Numbers of the errors of core.p4. Errors that a program does not declare have p4c's numbers.
pub(super) fn errors(program: &Program) -> Errors {
    let number = |name: &str, default: u32| {
        program.errors.iter().find(|(known, _)| known == name).map_or(default, |(_, number)| *number)
    };
    Errors {
        none: number("NoError", 0),
        packet_too_short: number("PacketTooShort", 1),
        no_match: number("NoMatch", 2),
        stack_out_of_bounds: number("StackOutOfBounds", 3),
        header_too_short: number("HeaderTooShort", 4),
        parser_timeout: number("ParserTimeout", 5),
        parser_invalid_argument: number("ParserInvalidArgument", 6),
    }
}

/// The places of v1model's standard metadata.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Standard {
    pub ingress_port: Option<Place>,
    pub egress_spec: Option<Place>,
    pub instance_type: Option<Place>,
    pub packet_length: Option<Place>,
    pub mcast_grp: Option<Place>,
    pub egress_rid: Option<Place>,
    pub priority: Option<Place>,
    pub parser_error: Option<Place>,
    pub checksum_error: Option<Place>,
}

#[derive(Debug, Clone)]
pub(crate) struct Select {
    pub keys: Vec<KeyPart>,
    pub cases: Vec<Case>,
    pub default: Option<Pc>,
    /// Value, mask and target of each case, if the key has at most 64 bits and no case is a value set.
    pub short: Option<Vec<(u64, u64, Pc)>>,
}

/// A part of a select's key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyPart {
    pub key: SelectKey,
    pub width: u32,
    /// The place of a field of up to 64 bits.
    pub place: Option<Place>,
}

#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub on: SelectOn,
    pub next: Pc,
}

#[derive(Debug, Clone)]
pub(crate) struct Hash {
    pub kind: HashKind,
    pub parts: Vec<HashPart>,
    pub payload: bool,
    /// Whether each part consists of aligned words of 16 bits of the PHV.
    pub words: bool,
}

#[derive(Debug, Clone)]
pub(crate) enum HashPart {
    /// Consecutive fields of a header. They are skipped if the header is invalid.
    Phv {
        at: u32,
        width: u32,
        valid: Option<Validity>,
    },
    Varbit {
        at: u32,
        width: Place,
        max_width: u32,
        valid: Validity,
    },
    Constant {
        value: Vec<u8>,
        width: u32,
    },
    Register {
        register: Reg,
        width: u32,
    },
}
