// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! The root of a program: lists of headers, instructions, tables and externs, and where each block of code begins.

use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::ir::externs::{Array, Counter, Digest, Hash, Meter};
use crate::ir::headers::{Field, Header, Stack, Standard, Union};
use crate::ir::ids::{FieldId, Pc};
use crate::ir::instructions::Op;
use crate::ir::parser::{Select, SelectKey, ValueSet};
use crate::ir::tables::{Action, Profile, Table};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    pub name: String,
    /// Size of the PHV.
    pub phv_bytes: u32,
    /// Number of registers, at most 1024.
    pub registers: u16,
    pub wide_registers: u16,
    /// Limbs of a wide register, at most 40.
    pub wide_limbs: u16,
    pub headers: Vec<Header>,
    pub fields: Vec<Field>,
    pub stacks: Vec<Stack>,
    pub unions: Vec<Union>,
    pub code: Vec<Op>,
    pub entry: Entry,
    pub constants: Vec<Vec<u8>>,
    pub selects: Vec<Select>,
    pub value_sets: Vec<ValueSet>,
    pub tables: Vec<Table>,
    pub actions: Vec<Action>,
    pub profiles: Vec<Profile>,
    pub arrays: Vec<Array>,
    pub counters: Vec<Counter>,
    pub meters: Vec<Meter>,
    pub hashes: Vec<Hash>,
    pub digests: Vec<Digest>,
    /// The field lists that resubmit, recirculate and clone preserve.
    pub field_lists: Vec<Vec<FieldId>>,
    pub errors: Vec<(String, u32)>,
    pub standard: Standard,
    /// Texts of `Op::Assert` and `Op::Log`.
    pub messages: Vec<String>,
}

/// The first instruction of each block, which ends with `Op::End`. Only the parser and actions may loop.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub parser: Pc,
    pub verify: Pc,
    pub ingress: Pc,
    pub egress: Pc,
    pub update: Pc,
    pub deparser: Pc,
}

impl Entry {
    /// The first instruction of each block.
    pub fn blocks(&self) -> [Pc; 6] {
        [self.parser, self.verify, self.ingress, self.egress, self.update, self.deparser]
    }
}

/// Width in bits of a part of a select's key.
pub fn select_width(program: &Program, key: &SelectKey) -> u32 {
    let field = match *key {
        SelectKey::Lookahead { width, .. } => return width,
        SelectKey::Field(field) => Some(usize::from(field)),
        SelectKey::StackLast { stack, member, field } => {
            program.stacks.get(usize::from(stack)).and_then(|stack| {
                let header = match stack.unions.first() {
                    Some(union) => {
                        *program.unions.get(usize::from(*union))?.headers.get(usize::from(member))?
                    }
                    None => *stack.headers.first()?,
                };
                Some(usize::from(program.headers.get(usize::from(header))?.first_field) + usize::from(field))
            })
        }
    };
    field.and_then(|field| program.fields.get(field)).map_or(0, |field| field.width)
}
