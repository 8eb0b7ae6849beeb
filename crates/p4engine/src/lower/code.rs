// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! A program in the form that the interpreter runs.

use alloc::string::String;
use alloc::vec::Vec;

use crate::arith::bits::Place;
use crate::ir::{Entry, FieldId, HeaderId, Op};
use crate::lower::fused::Sequences;
use crate::lower::instructions::Instruction;
use crate::lower::metadata::Preludes;
use crate::lower::operands::{Errors, Field, Hash, Header, Select, Stack, Standard};
use crate::native::Native;

#[derive(Debug)]
pub(crate) struct Code {
    pub instructions: Vec<Instruction>,
    pub sequences: Sequences,
    /// The instructions that `Instruction::Guarded` runs.
    pub guarded: Vec<Instruction>,
    /// Whether a checksum may be left to the device of the port: the deparser can run twice.
    pub defers_checksums: bool,
    /// Operands of `Instruction::Rare`.
    pub rare: Vec<Op>,
    pub entry: Entry,
    pub preludes: Preludes,
    /// Whether the update of checksums always reaches its end, so that the deparser can follow in the same run.
    pub update_precedes_deparser: bool,
    pub phv_bytes: usize,
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
    /// Offset and size of each metadata header. A clone's metadata is reset.
    pub metadata: Vec<(u32, u32)>,
    /// Machine code of the instructions. None: the interpreter runs all of them.
    pub native: Option<Native>,
}

impl Code {
    pub fn field(&self, field: FieldId) -> Field {
        self.fields.get(usize::from(field)).copied().unwrap_or(Field { at: 0, width: 1, signed: false })
    }

    pub fn place(&self, field: FieldId) -> Place {
        let field = self.field(field);
        Place::new(field.at, field.width.clamp(1, 64))
    }
}
