// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Headers, fields and metadata as instructions access them: by their places in the PHV.

use alloc::vec::Vec;

use crate::arith::bits::Place;
use crate::ir::{self, FieldId, HashKind, HeaderId, Pc, Program, Reg, SelectKey, SelectOn};

/// The byte and the bit of the area that say whether a header is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Validity {
    at: u32,
    bit: u8,
}

impl Validity {
    /// The validity of a field's header. None: metadata, or a field that the program does not name, which are always valid.
    pub fn of_field(program: &Program, field: FieldId) -> Option<Validity> {
        let header = program.headers.get(owner(program, field)?).filter(|header| !header.metadata)?;
        let at = program.fields.get(usize::from(header.valid))?.at;
        Some(Validity { at: at / 8, bit: valid_bit(at) })
    }

    #[inline(always)]
    pub fn holds(self, area: &[u8]) -> bool {
        area.get(self.at as usize).is_some_and(|byte| byte & self.bit != 0)
    }
}

pub(super) fn valid_bit(at: u32) -> u8 {
    0x80 >> (at % 8)
}

/// The index of the header that a field belongs to.
pub(super) fn owner(program: &Program, field: FieldId) -> Option<usize> {
    let has = |header: &ir::Header| {
        (header.first_field..header.first_field.saturating_add(header.fields)).contains(&field)
    };
    program.headers.iter().position(has)
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Header {
    pub at: u32,
    pub bytes: u32,
    pub metadata: bool,
    /// Its validity's byte and bit.
    pub valid_at: u32,
    pub valid_bit: u8,
    pub union_of: Option<u16>,
    pub varbit: Option<Varbit>,
    pub first_field: FieldId,
    pub fields: u16,
}

impl Header {
    /// None: it is always valid.
    pub(super) fn validity(&self) -> Option<Validity> {
        (!self.metadata).then_some(Validity { at: self.valid_at, bit: self.valid_bit })
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Varbit {
    /// Of the header: its first byte, and how many there can be.
    pub at: u32,
    pub bytes: u32,
    /// Where its width in bits is kept.
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

/// By their names in core.p4; where a program does not say, by their usual numbers.
pub(super) fn errors(program: &Program) -> Errors {
    let number = |name: &str, usual: u32| {
        program.errors.iter().find(|(known, _)| known == name).map_or(usual, |(_, number)| *number)
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

/// v1model's metadata: a place each.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Standard {
    pub ingress_port: Option<Place>,
    pub egress_spec: Option<Place>,
    pub egress_port: Option<Place>,
    pub instance_type: Option<Place>,
    pub packet_length: Option<Place>,
    pub enq_timestamp: Option<Place>,
    pub enq_qdepth: Option<Place>,
    pub deq_timedelta: Option<Place>,
    pub deq_qdepth: Option<Place>,
    pub ingress_global_timestamp: Option<Place>,
    pub egress_global_timestamp: Option<Place>,
    pub mcast_grp: Option<Place>,
    pub egress_rid: Option<Place>,
    pub priority: Option<Place>,
    pub qid: Option<Place>,
    pub parser_error: Option<Place>,
    pub checksum_error: Option<Place>,
}

#[derive(Debug, Clone)]
pub(crate) struct Select {
    pub keys: Vec<Part>,
    pub cases: Vec<Case>,
    pub default: Option<Pc>,
    /// Its key fits a number, and each case is a value and a mask.
    pub short: Option<Vec<(u64, u64, Pc)>>,
}

/// A part of a select's key, in so many bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    pub key: SelectKey,
    pub width: u32,
    /// Of a field of up to 64 bits.
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
    /// Each part is words of 16 bits of the area.
    pub words: bool,
}

#[derive(Debug, Clone)]
pub(crate) enum HashPart {
    /// Fields of a header that stand together, if it is valid.
    Area {
        at: u32,
        width: u32,
        valid: Option<Validity>,
    },
    Varbit {
        at: u32,
        width: Place,
        most: u32,
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
