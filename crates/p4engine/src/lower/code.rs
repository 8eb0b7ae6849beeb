// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! x

use alloc::string::String;
use alloc::vec::Vec;

use crate::arith::bits::Place;
use crate::ir::{Entry, FieldId, HeaderId, Op};
use crate::lower::fused::Runs;
use crate::lower::instructions::Step;
use crate::lower::operands::{Errors, Field, Hash, Header, Select, Stack, Standard};

#[derive(Debug, Clone)]
pub(crate) struct Code {
    pub steps: Vec<Step>,
    pub runs: Runs,
    pub rare: Vec<Op>,
    pub entry: Entry,
    pub area_bytes: usize,
    pub headers: Vec<Header>,
    pub fields: Vec<Field>,
    pub stacks: Vec<Stack>,
    pub unions: Vec<Vec<HeaderId>>,
    pub selects: Vec<Select>,
    pub hashes: Vec<Hash>,
    pub constants: Vec<Vec<u8>>,
    pub lists: Vec<Vec<FieldId>>,
    pub digests: Vec<(u32, Vec<FieldId>)>,
    pub messages: Vec<String>,
    pub errors: Errors,
    pub standard: Standard,
    pub limbs: usize,
    /// The metadata, which a clone loses: byte, length.
    pub metadata: Vec<(u32, u32)>,
}

impl Code {
    pub fn field(&self, field: FieldId) -> Field {
        self.fields.get(usize::from(field)).copied().unwrap_or(Field { at: 0, width: 1, signed: false })
    }

    pub fn place(&self, field: FieldId) -> Place {
        let field = self.field(field);
        Place::of(field.at, field.width.clamp(1, 64))
    }
}
