// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Translates a verified program into `Code`.

use alloc::vec::Vec;

use crate::arith::bits::Window;
use crate::ir::{self, Binary, FieldId, Op, Program, Reg, Unary};
use crate::lower::code::Code;
use crate::lower::fused::{fuse, Sequences};
use crate::lower::instructions::{Comparison, Instruction};
use crate::lower::metadata::Preludes;
use crate::lower::operands::{errors, valid_bit, Field, Header, Stack, Standard, Varbit};

impl Code {
    pub fn new(program: &Program) -> Code {
        let fields = program.fields.iter().map(|field| Field {
            at: field.at,
            width: field.width,
            signed: field.signed,
        });
        let mut code = Code {
            instructions: Vec::new(),
            sequences: Sequences::default(),
            guarded: Vec::new(),
            defers_checksums: false,
            rare: Vec::new(),
            entry: program.entry,
            preludes: Preludes::default(),
            update_precedes_deparser: program.always_ends(program.entry.update),
            phv_bytes: program.phv_bytes as usize,
            headers: Vec::new(),
            fields: fields.collect(),
            stacks: Vec::new(),
            unions: program.unions.iter().map(|union| union.headers.clone()).collect(),
            selects: Vec::new(),
            hashes: Vec::new(),
            constants: program.constants.clone(),
            lists: program.field_lists.clone(),
            digests: program.digests.iter().map(|digest| (digest.id, digest.fields.clone())).collect(),
            messages: program.messages.clone(),
            errors: errors(program),
            standard: Standard::default(),
            limbs: usize::from(program.wide_limbs),
            metadata: Vec::new(),
            native: None,
        };
        code.headers = program.headers.iter().map(|header| code.header(header)).collect();
        code.hashes = program.hashes.iter().map(|hash| code.hash(program, hash)).collect();
        let metadata = code.headers.iter().filter(|header| header.metadata);
        code.metadata = metadata.map(|header| (header.at, header.bytes)).collect();
        let stack = |stack: &ir::Stack| Stack {
            headers: stack.headers.clone(),
            unions: stack.unions.clone(),
            next: code.place(stack.next),
        };
        code.stacks = program.stacks.iter().map(stack).collect();
        code.selects = program.selects.iter().map(|select| code.select(program, select)).collect();
        for op in &program.code {
            code.add(op);
        }
        code.guard_checksums(program);
        code.add_preludes(program);
        code.sequences = fuse(&mut code.instructions, &code.headers);
        code.standard = code.standard(&program.standard);
        code
    }

    /// Appends an instruction.
    pub(super) fn add(&mut self, op: &Op) {
        let instruction = self.translate(op).unwrap_or_else(|| {
            self.rare.push(*op);
            Instruction::Rare { op: self.rare.len() as u32 - 1 }
        });
        self.instructions.push(instruction);
    }

    fn header(&self, header: &ir::Header) -> Header {
        let valid = self.field(header.valid);
        let varbit = header.varbit.map(|varbit| {
            let field = self.field(varbit.field);
            let at = (field.at / 8).saturating_sub(header.at);
            Varbit { at, bytes: field.width / 8, width: self.place(varbit.width) }
        });
        Header {
            at: header.at,
            bytes: header.bytes,
            metadata: header.metadata,
            valid_at: valid.at / 8,
            valid_bit: valid_bit(valid.at),
            union_of: header.union_of,
            varbit,
            first_field: header.first_field,
            fields: header.fields,
            defers: [false; 2],
        }
    }

    /// The specialised instruction. None: there is none, and the operation becomes `Instruction::Rare`.
    fn translate(&self, op: &Op) -> Option<Instruction> {
        Some(match *op {
            Op::Load { to, field } => self.load(to, field),
            Op::Store { field, from } => self.store(field, from),
            Op::Set { to, value } => Instruction::Set { to, value },
            Op::Move { to, from } => Instruction::Move { to, from },
            Op::Argument { to, argument } => Instruction::Argument { to, argument },
            Op::Binary { op: Binary::Add, to, left, right } => Instruction::Add { to, left, right },
            Op::Binary { op: Binary::Subtract, to, left, right } => Instruction::Subtract { to, left, right },
            Op::Binary { op: Binary::And, to, left, right } => Instruction::And { to, left, right },
            Op::Binary { op: Binary::Or, to, left, right } => Instruction::Or { to, left, right },
            Op::Binary { op: Binary::Multiply, to, left, right } => Instruction::Multiply { to, left, right },
            Op::Binary { op, to, left, right } => match Comparison::from_binary(op) {
                Some(comparison) => Instruction::Compare { comparison, to, left, right },
                None => Instruction::Binary { op, to, left, right },
            },
            Op::Unary { op: Unary::Invert, to, from } => Instruction::Invert { to, from },
            Op::Unary { op, to, from } => Instruction::Unary { op, to, from },
            Op::Copy { to, from } => return self.copy(to, from),
            Op::BinaryWith { op: Binary::Add, to, left, value } => Instruction::AddWith { to, left, value },
            Op::BinaryWith { op: Binary::And, to, left, value } => Instruction::AndWith { to, left, value },
            Op::BinaryWith { op, to, left, value } => match (op, Comparison::from_binary(op), value) {
                (_, Some(comparison), _) => Instruction::CompareWith { comparison, to, left, value },
                (Binary::ShiftLeft, _, 0..128) => Instruction::ShiftLeftWith { to, left, bits: value as u8 },
                (Binary::ShiftRight, _, 0..128) => {
                    Instruction::ShiftRightWith { to, left, bits: value as u8 }
                }
                _ => Instruction::BinaryWith { op, to, left, value },
            },
            Op::StoreConstant { field, value } if self.field(field).width <= 64 => {
                Instruction::StoreConstant { place: self.place(field), value: value as u64 }
            }
            Op::Lookahead { to, at, width } => Instruction::Lookahead { to, at, width },
            Op::Cut { to, from, bits } => Instruction::Cut { to, from, bits },
            Op::Jump { to } => Instruction::Jump { to },
            Op::JumpIf { condition, to } => Instruction::JumpIf { condition, to },
            Op::JumpUnless { condition, to } => Instruction::JumpUnless { condition, to },
            Op::Select { select } => Instruction::Select { select },
            Op::Apply { table } => Instruction::Apply { table },
            Op::Extract { header } => Instruction::Extract { header },
            Op::Verify { condition, error } => Instruction::Verify { condition, error },
            Op::Emit { header } => Instruction::Emit { header },
            Op::Checksum { to, hash } => Instruction::Checksum { to, hash },
            Op::Count { counter, index } => Instruction::Count { counter, index },
            Op::RegisterRead { to, array, index } => Instruction::RegisterRead { to, array, index },
            Op::RegisterWrite { array, index, from } => Instruction::RegisterWrite { array, index, from },
            Op::End => Instruction::End,
            _ => return None,
        })
    }

    fn load(&self, to: Reg, field: FieldId) -> Instruction {
        let place = self.place(field);
        match place.window {
            _ if self.field(field).signed => Instruction::LoadSigned { to, place },
            Window::Byte if place.fills_window() => Instruction::LoadByte { to, at: place.at },
            Window::Short if place.fills_window() => Instruction::LoadShort { to, at: place.at },
            Window::Word if place.fills_window() => Instruction::LoadWord { to, at: place.at },
            Window::Long if place.fills_window() => Instruction::LoadLong { to, at: place.at },
            _ => Instruction::LoadBits { to, place },
        }
    }

    fn store(&self, field: FieldId, from: Reg) -> Instruction {
        let place = self.place(field);
        match place.window {
            Window::Byte if place.fills_window() => Instruction::StoreByte { at: place.at, from },
            Window::Short if place.fills_window() => Instruction::StoreShort { at: place.at, from },
            Window::Word if place.fills_window() => Instruction::StoreWord { at: place.at, from },
            Window::Long if place.fills_window() => Instruction::StoreLong { at: place.at, from },
            _ => Instruction::StoreBits { place, from },
        }
    }

    fn copy(&self, to: FieldId, from: FieldId) -> Option<Instruction> {
        let (target, source) = (self.field(to), self.field(from));
        if (target.at | source.at | target.width) % 8 != 0 {
            return None;
        }
        let (to, from) = (u16::try_from(target.at / 8).ok()?, u16::try_from(source.at / 8).ok()?);
        Some(match u16::try_from(target.width / 8).ok()? {
            1 => Instruction::CopyByte { to, from },
            2 => Instruction::CopyShort { to, from },
            4 => Instruction::CopyWord { to, from },
            8 => Instruction::CopyLong { to, from },
            bytes => Instruction::CopyBytes { to: to.into(), from: from.into(), bytes },
        })
    }

    fn standard(&self, standard: &ir::Standard) -> Standard {
        let place = |field: Option<FieldId>| field.map(|field| self.place(field));
        Standard {
            ingress_port: place(standard.ingress_port),
            egress_spec: place(standard.egress_spec),
            instance_type: place(standard.instance_type),
            packet_length: place(standard.packet_length),
            mcast_grp: place(standard.mcast_grp),
            egress_rid: place(standard.egress_rid),
            priority: place(standard.priority),
            parser_error: place(standard.parser_error),
            checksum_error: place(standard.checksum_error),
        }
    }
}
