// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Checksums of TCP and UDP that a sender leaves to its device.
//!
//! Such a checksum is completed only if the program accesses it: the instructions that do are guarded. A program that
//! only extracts and emits it leaves it to the device of the port.

use alloc::vec::Vec;

use crate::ir::{FieldId, HashInput, HeaderId, Op, Pc, Program, SelectKey};
use crate::lower::instructions::Instruction;
use crate::lower::operands::owner;
use crate::lower::Code;

/// Offsets in bytes of the checksum in a header of TCP (RFC 9293, section 3.1) and of UDP (RFC 768).
pub(crate) const CHECKSUM_OFFSETS: [u32; 2] = [16, 6];

/// The fields that may be a checksum.
struct Checksums<'a> {
    program: &'a Program,
    is_checksum: Vec<bool>,
}

/// Whether a field has 16 bits at the offset of a checksum, in a header that is always extracted to the same place.
fn is_checksum(program: &Program, id: FieldId) -> bool {
    let header = owner(program, id).and_then(|header| Some((header, program.headers.get(header)?)));
    let (Some((number, header)), Some(field)) = (header, program.fields.get(usize::from(id))) else {
        return false;
    };
    let in_stack = program.stacks.iter().any(|stack| stack.headers.contains(&(number as HeaderId)));
    let plain = !header.metadata && header.varbit.is_none() && header.union_of.is_none() && !in_stack;
    let offset = field.at.wrapping_sub(header.at * 8);
    plain && field.width == 16 && CHECKSUM_OFFSETS.iter().any(|bytes| bytes * 8 == offset)
}

impl Checksums<'_> {
    fn field(&self, field: FieldId) -> bool {
        self.is_checksum.get(usize::from(field)) == Some(&true)
    }

    fn header(&self, header: HeaderId) -> bool {
        let header = self.program.headers.get(usize::from(header));
        header.is_some_and(|header| header.field_ids().any(|field| self.field(field)))
    }

    fn list(&self, list: u16) -> bool {
        let lists = &self.program.field_lists;
        lists.get(usize::from(list)).is_some_and(|list| list.iter().any(|field| self.field(*field)))
    }

    fn hash(&self, hash: u16) -> bool {
        self.program.hashes.get(usize::from(hash)).is_some_and(|hash| {
            hash.input.iter().any(|input| match input {
                HashInput::Field(field) => self.field(*field),
                HashInput::Header(header) => self.header(*header),
                _ => false,
            })
        })
    }

    fn select(&self, select: u16) -> bool {
        let is_checksum = |key: &SelectKey| matches!(key, SelectKey::Field(field) if self.field(*field));
        self.program
            .selects
            .get(usize::from(select))
            .is_some_and(|select| select.keys.iter().any(is_checksum))
    }

    fn table(&self, table: u16) -> bool {
        let Some(table) = self.program.tables.get(usize::from(table)) else { return false };
        let profile = table.profile.and_then(|profile| self.program.profiles.get(usize::from(profile)));
        let meter = table.meter.and_then(|meter| self.program.meters.get(usize::from(meter)));
        table.keys.iter().any(|key| self.field(key.field))
            || profile.and_then(|profile| profile.selector).is_some_and(|hash| self.hash(hash))
            || meter.and_then(|meter| meter.result).is_some_and(|field| self.field(field))
    }

    /// Whether an instruction reads or writes a checksum, other than by emitting its header.
    fn accesses(&self, op: &Op) -> bool {
        match *op {
            Op::Load { field, .. }
            | Op::Store { field, .. }
            | Op::StoreConstant { field, .. }
            | Op::WideLoad { field, .. }
            | Op::WideStore { field, .. }
            | Op::Random { field, .. }
            | Op::RegisterRead { to: field, .. }
            | Op::Execute { to: field, .. }
            | Op::ExecuteDirect { to: field, .. } => self.field(field),
            Op::HashTo { field, hash, .. } => self.field(field) || self.hash(hash),
            Op::Checksum { hash, .. } => self.hash(hash),
            Op::Copy { to, from } => self.field(to) || self.field(from),
            Op::AddHeader { header } | Op::RemoveHeader { header } | Op::Extract { header } => {
                self.header(header)
            }
            Op::CopyHeader { to, from } | Op::CopyVarbit { to, from } => self.header(to) || self.header(from),
            Op::Select { select } => self.select(select),
            Op::Apply { table } => self.table(table),
            Op::Digest { digest } => {
                let digest = self.program.digests.get(usize::from(digest));
                digest.is_some_and(|digest| digest.fields.iter().any(|field| self.field(*field)))
            }
            Op::CloneIngress { list, .. }
            | Op::CloneEgress { list, .. }
            | Op::Resubmit { list }
            | Op::Recirculate { list } => self.list(list),
            _ => false,
        }
    }
}

impl Code {
    /// Guards the instructions that access a checksum.
    pub(super) fn guard_checksums(&mut self, program: &Program) {
        let is_checksum =
            (0..program.fields.len()).map(|field| is_checksum(program, field as FieldId)).collect();
        let checksums = Checksums { program, is_checksum };
        for (instruction, op) in self.instructions.iter_mut().zip(&program.code) {
            if checksums.accesses(op) {
                self.guarded.push(*instruction);
                *instruction = Instruction::Guarded { instruction: self.guarded.len() as u32 - 1 };
            }
        }
        self.defers_checksums = program.only_emits(program.entry.deparser);
        for (header, declared) in self.headers.iter_mut().zip(&program.headers) {
            for (offset, defers) in CHECKSUM_OFFSETS.iter().zip(&mut header.defers) {
                let at = (header.at + offset) * 8;
                let is_there =
                    |id: FieldId| program.fields.get(usize::from(id)).is_some_and(|field| field.at == at);
                *defers = declared.field_ids().any(|id| checksums.field(id) && is_there(id));
            }
        }
    }
}

impl Program {
    /// Whether a block only emits headers, so that it can run twice.
    fn only_emits(&self, begin: Pc) -> bool {
        let emits = |pc: &Pc| {
            let op = self.code.get(*pc as usize);
            matches!(
                op,
                Some(
                    Op::Emit { .. } | Op::EmitStack { .. } | Op::EmitUnion { .. } | Op::Jump { .. } | Op::End
                )
            )
        };
        self.reachable(alloc::vec![begin]).iter().all(emits)
    }
}
