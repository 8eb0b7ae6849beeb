// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Translation of fields, jumps and externs, and of a program as a whole.
//!
//! RAX and RDX have a number of the program, its lower and its upper half; RCX and RSI a second one.

use alloc::vec::Vec;

use crate::arith::bits::{ones, Place, Window};
use crate::control;
use crate::exec::context::NOT_DEFERRED;
use crate::exec::interpreter::HALT;
use crate::exec::state::State;
use crate::ir::{HashKind, Pc, Reg, MAX_REGISTERS};
use crate::lower::instructions::Instruction;
use crate::lower::operands::HashPart;
use crate::lower::Code;
use crate::native::assembler::{
    Alu, Assembler, Condition, Label, Memory, Register, Shift, FRAME, NUMBERS, PACKET, PHV, RAX, RCX, RDI,
    RDX, RSI,
};
use crate::native::{
    Span, COUNT_BYTES, COUNT_PACKETS, FRAME_ARGUMENTS, FRAME_ARRIVED, FRAME_CODE, FRAME_CONTROL_REASON,
    FRAME_COUNTERS, FRAME_DEFERRED, FRAME_NUMBERS, FRAME_OFFSETS, FRAME_PACKET, FRAME_PHV, FRAME_RETURN_PC,
    FRAME_RETURN_REASON, SPAN_ADDRESS, SPAN_SIZE,
};
use crate::tables::Table;

/// Translates a program to machine code. Returns it and the offset of each instruction's code.
pub(super) fn translate(code: &Code, phv_bytes: usize, state: &State) -> (Vec<u8>, Vec<u32>) {
    let mut translator = Translator {
        code,
        tables: &state.tables,
        asm: Assembler::default(),
        phv_bytes,
        counters: state.counter_spans.len(),
        arguments: state.arguments.len(),
    };
    translator.begin();
    let mut offsets = Vec::new();
    for (pc, instruction) in code.instructions.iter().enumerate() {
        let (pc, mark, offset) = (pc as Pc, translator.asm.mark(), translator.asm.offset());
        if translator.translate(pc, *instruction).is_none() {
            translator.asm.rewind(mark);
            translator.asm.exit(pc);
        }
        offsets.push(offset);
    }
    offsets.push(translator.asm.offset());
    translator.asm.exit(code.instructions.len() as Pc);
    (translator.asm.finish(&offsets), offsets)
}

pub(super) struct Translator<'a> {
    pub code: &'a Code,
    pub tables: &'a [Table],
    pub asm: Assembler,
    pub phv_bytes: usize,
    counters: usize,
    arguments: usize,
}

/// The lower half of a register of the program. The upper half follows.
pub(super) fn number(register: Reg) -> Memory {
    Memory::new(NUMBERS, (usize::from(register) % MAX_REGISTERS * 16) as i32)
}

/// The bytes of a window that a register holds.
pub(super) fn window_bytes(window: Window) -> Option<usize> {
    (window != Window::Double).then_some(window.bits() as usize / 8)
}

impl<'a> Translator<'a> {
    /// Encodes the function that enters an instruction's code.
    fn begin(&mut self) {
        let asm = &mut self.asm;
        asm.copy(FRAME, RDI);
        for (register, at) in [(PHV, FRAME_PHV), (NUMBERS, FRAME_NUMBERS), (PACKET, FRAME_PACKET)] {
            asm.load64(register, Memory::new(FRAME, at));
        }
        asm.jump_to_register(RSI);
    }

    /// The target of a jump that `next` follows. The interpreter runs backward jumps, which are limited, and
    /// jumps past the end, which only unreachable instructions have.
    pub fn target(&self, pc: Pc, next: Pc, to: Pc) -> Label {
        if to < next || to as usize > self.code.instructions.len() {
            Label::Exit(pc)
        } else {
            Label::Instruction(to)
        }
    }

    /// A part of the PHV. None: it is outside.
    pub fn phv(&self, at: u32, bytes: usize) -> Option<Memory> {
        (at as usize + bytes <= self.phv_bytes).then_some(Memory::new(PHV, at as i32))
    }

    /// Loads a number of the PHV or the packet into RAX. Overwrites RDX.
    pub fn load(&mut self, place: Place, base: Register) -> Option<()> {
        let from = match base {
            PHV => self.phv(place.at.into(), window_bytes(place.window)?)?,
            _ => Memory::new(base, place.at.into()),
        };
        let asm = &mut self.asm;
        match place.window {
            Window::Byte => asm.load8(RAX, from),
            Window::Short => {
                asm.load16(RAX, from);
                asm.swap16(RAX);
            }
            Window::Word => {
                asm.load32(RAX, from);
                asm.swap32(RAX);
            }
            Window::SixBytes => {
                asm.load32(RAX, from);
                asm.swap32(RAX);
                asm.load16(RDX, from.plus(4));
                asm.swap16(RDX);
                asm.shift(Shift::Left, RAX, 16);
                asm.alu(Alu::Or, RAX, RDX);
            }
            Window::Long => {
                asm.load64(RAX, from);
                asm.swap64(RAX);
            }
            Window::Double => return None,
        }
        if place.trailing > 0 {
            asm.shift(Shift::Right, RAX, place.trailing);
        }
        if place.leading > 0 {
            self.mask(RAX, ones(place.width()));
        }
        Some(())
    }

    /// Clears the bits of a register that a mask does not have. Overwrites RDX.
    pub(super) fn mask(&mut self, register: Register, mask: u64) {
        match i32::try_from(mask as i64) {
            Ok(mask) => self.asm.alu_constant(Alu::And, register, mask),
            Err(_) => {
                self.asm.set(RDX, mask);
                self.asm.alu(Alu::And, register, RDX);
            }
        }
    }

    /// Stores the low bits of RAX in the PHV. Overwrites RAX, RCX and RDX.
    pub(super) fn store(&mut self, place: Place) -> Option<()> {
        let to = self.phv(place.at.into(), window_bytes(place.window)?)?;
        if !place.fills_window() {
            let mask = ones(place.width());
            self.mask(RAX, mask);
            if place.trailing > 0 {
                self.asm.shift(Shift::Left, RAX, place.trailing);
            }
            self.asm.copy(RCX, RAX);
            self.load(Place::full_window(place.window, place.at), PHV)?;
            self.mask(RAX, !(mask << place.trailing));
            self.asm.alu(Alu::Or, RAX, RCX);
        }
        let asm = &mut self.asm;
        match place.window {
            Window::Byte => asm.store8(to, RAX),
            Window::Short => {
                asm.swap16(RAX);
                asm.store16(to, RAX);
            }
            Window::Word => {
                asm.swap32(RAX);
                asm.store32(to, RAX);
            }
            Window::SixBytes => {
                asm.copy(RDX, RAX);
                asm.shift(Shift::Right, RDX, 16);
                asm.swap32(RDX);
                asm.store32(to, RDX);
                asm.swap16(RAX);
                asm.store16(to.plus(4), RAX);
            }
            Window::Long => {
                asm.swap64(RAX);
                asm.store64(to, RAX);
            }
            Window::Double => return None,
        }
        Some(())
    }

    /// Stores RAX as an unsigned number.
    pub(super) fn set_unsigned(&mut self, to: Reg) {
        self.asm.store64(number(to), RAX);
        self.asm.store_constant(number(to).plus(8), 0);
    }

    pub(super) fn get(&mut self, from: Reg) {
        self.asm.load64(RAX, number(from));
        self.asm.load64(RDX, number(from).plus(8));
    }

    pub(super) fn put(&mut self, to: Reg) {
        self.asm.store64(number(to), RAX);
        self.asm.store64(number(to).plus(8), RDX);
    }

    /// Loads the second number.
    pub(super) fn get_second(&mut self, from: Reg) {
        self.asm.load64(RCX, number(from));
        self.asm.load64(RSI, number(from).plus(8));
    }

    pub(super) fn set_second(&mut self, value: i64) {
        self.asm.set(RCX, value as u64);
        self.asm.set(RSI, if value < 0 { u64::MAX } else { 0 });
    }

    /// Applies an operation to the halves of both numbers.
    pub(super) fn binary(&mut self, lower: Alu, upper: Alu) {
        self.asm.alu(lower, RAX, RCX);
        self.asm.alu(upper, RDX, RSI);
    }

    pub(super) fn load_number(&mut self, to: Reg, place: Place) -> Option<()> {
        self.load(place, PHV)?;
        self.set_unsigned(to);
        Some(())
    }

    fn store_number(&mut self, place: Place, from: Reg) -> Option<()> {
        self.asm.load64(RAX, number(from));
        self.store(place)
    }

    pub(super) fn store_value(&mut self, place: Place, value: u64) -> Option<()> {
        self.asm.set(RAX, value);
        self.store(place)
    }

    pub(super) fn load_argument(&mut self, argument: u16) -> Option<()> {
        if usize::from(argument) >= self.arguments {
            return None;
        }
        self.asm.load64(RDI, Memory::new(FRAME, FRAME_ARGUMENTS));
        self.asm.load64(RAX, Memory::new(RDI, i32::from(argument) * 8));
        Some(())
    }

    fn copy_field(&mut self, to: u16, from: u16, window: Window) -> Option<()> {
        self.load(Place::full_window(window, from), PHV)?;
        self.store(Place::full_window(window, to))
    }

    /// Translates one instruction. Returns None if the interpreter runs it.
    fn translate(&mut self, pc: Pc, instruction: Instruction) -> Option<()> {
        use Instruction::*;
        let next = pc + 1;
        match instruction {
            LoadByte { to, at } => self.load_number(to, Place::full_window(Window::Byte, at))?,
            LoadShort { to, at } => self.load_number(to, Place::full_window(Window::Short, at))?,
            LoadWord { to, at } => self.load_number(to, Place::full_window(Window::Word, at))?,
            LoadLong { to, at } => self.load_number(to, Place::full_window(Window::Long, at))?,
            LoadBits { to, place } => self.load_number(to, place)?,
            StoreByte { at, from } => self.store_number(Place::full_window(Window::Byte, at), from)?,
            StoreShort { at, from } => self.store_number(Place::full_window(Window::Short, at), from)?,
            StoreWord { at, from } => self.store_number(Place::full_window(Window::Word, at), from)?,
            StoreLong { at, from } => self.store_number(Place::full_window(Window::Long, at), from)?,
            StoreBits { place, from } => self.store_number(place, from)?,
            StoreConstant { place, value } => self.store_value(place, value)?,
            CopyByte { to, from } => self.copy_field(to, from, Window::Byte)?,
            CopyShort { to, from } => self.copy_field(to, from, Window::Short)?,
            CopyWord { to, from } => self.copy_field(to, from, Window::Word)?,
            CopyLong { to, from } => self.copy_field(to, from, Window::Long)?,
            Jump { to } => self.asm.jump(self.target(pc, next, to)),
            JumpIf { condition, to } => {
                self.test_number(condition);
                self.asm.jump_if(Condition::NotEqual, self.target(pc, next, to));
            }
            JumpUnless { condition, to } => {
                self.test_number(condition);
                self.asm.jump_if(Condition::Equal, self.target(pc, next, to));
            }
            Verify { condition, .. } => {
                self.test_number(condition);
                self.asm.jump_if(Condition::Equal, Label::Exit(pc));
            }
            End => self.end(),
            Guarded { instruction } => self.guarded(pc, instruction)?,
            Apply { table } => self.apply(pc, table)?,
            Count { counter, index } => self.count(counter, index)?,
            Checksum { to, hash } => self.checksum(to, hash)?,
            Extract { header } => self.extract(pc, header)?,
            Select { select } => self.select(pc, select)?,
            Lookahead { to, at, width } => {
                self.look_ahead(pc, at, width)?;
                self.set_unsigned(to);
            }
            EmitEach { first, count } => self.emit_each(pc, first, count)?,
            StoreArguments { .. } | StoreConstants { .. } | LoadLongs { .. } => {
                self.sequence(pc, instruction)?
            }
            Transfer { .. } | AddStore { .. } | InvertStore { .. } | AddByte { .. } => {
                self.fused(pc, instruction)?
            }
            JumpByte { .. } | JumpCompareByte { .. } | JumpCompareWith { .. } | JumpCompare { .. } => {
                self.fused_jump(pc, instruction)?;
            }
            other => self.arithmetic(other)?,
        }
        Some(())
    }

    /// Runs an instruction unless a checksum is deferred.
    fn guarded(&mut self, pc: Pc, instruction: u32) -> Option<()> {
        let instruction = *self.code.guarded.get(instruction as usize)?;
        self.asm.load64(RAX, Memory::new(FRAME, FRAME_DEFERRED));
        self.asm.load32(RAX, Memory::new(RAX, 0));
        self.asm.set(RCX, NOT_DEFERRED.into());
        self.asm.alu(Alu::Compare, RAX, RCX);
        self.asm.jump_if(Condition::NotEqual, Label::Exit(pc));
        self.translate(pc, instruction)
    }

    /// Returns from an action to its control, or to the interpreter at the end of a block.
    fn end(&mut self) {
        let asm = &mut self.asm;
        asm.load32(RAX, Memory::new(FRAME, FRAME_RETURN_PC));
        asm.load32(RCX, Memory::new(FRAME, FRAME_CONTROL_REASON));
        asm.store32(Memory::new(FRAME, FRAME_RETURN_REASON), RCX);
        asm.set(RCX, HALT.into());
        asm.store32(Memory::new(FRAME, FRAME_RETURN_PC), RCX);
        // HALT, too, is past the end.
        let inside = asm.local();
        asm.alu_constant(Alu::Compare, RAX, self.code.instructions.len() as i32);
        asm.jump_if(Condition::Below, inside);
        asm.ret();
        asm.bind(inside);
        asm.shift(Shift::Left, RAX, 2);
        asm.alu_memory(Alu::Add, RAX, Memory::new(FRAME, FRAME_OFFSETS));
        asm.load32(RAX, Memory::new(RAX, 0));
        asm.alu_memory(Alu::Add, RAX, Memory::new(FRAME, FRAME_CODE));
        asm.jump_to_register(RAX);
    }

    /// Counts a packet, if the counter has the index.
    fn count(&mut self, counter: u16, index: Reg) -> Option<()> {
        if usize::from(counter) >= self.counters {
            return None;
        }
        self.get(index);
        let asm = &mut self.asm;
        let outside = asm.local();
        let span = i32::from(counter) * size_of::<Span>() as i32;
        asm.test(RDX);
        asm.jump_if(Condition::NotEqual, outside);
        asm.load64(RDI, Memory::new(FRAME, FRAME_COUNTERS));
        asm.alu_memory(Alu::Compare, RAX, Memory::new(RDI, span + SPAN_SIZE));
        asm.jump_if(Condition::AboveOrEqual, outside);
        asm.shift(Shift::Left, RAX, size_of::<control::Count>().trailing_zeros() as u8);
        asm.alu_memory(Alu::Add, RAX, Memory::new(RDI, span + SPAN_ADDRESS));
        asm.set(RCX, 1);
        asm.add_to_memory(Memory::new(RAX, COUNT_PACKETS), RCX);
        asm.load64(RCX, Memory::new(FRAME, FRAME_ARRIVED));
        asm.add_to_memory(Memory::new(RAX, COUNT_BYTES), RCX);
        asm.bind(outside);
        Some(())
    }

    /// The Internet checksum of words of the PHV. They are added as they are in memory (RFC 1071, section 2(B)).
    fn checksum(&mut self, to: Reg, hash: u16) -> Option<()> {
        let code = self.code;
        let hash =
            code.hashes.get(usize::from(hash)).filter(|hash| hash.words && hash.kind == HashKind::Csum16)?;
        self.asm.set(RAX, 0);
        for part in &hash.parts {
            let HashPart::Phv { at, width, valid } = part else { return None };
            let (at, bytes) = (at / 8, *width as usize / 8);
            let from = self.phv(at, bytes)?;
            let skip = self.asm.local();
            if let Some(valid) = valid {
                let valid_at = self.phv(valid.at, 1)?;
                self.asm.test_byte(valid_at, valid.bit);
                self.asm.jump_if(Condition::Equal, skip);
            }
            for word in (0..bytes).step_by(4) {
                match bytes - word {
                    2 => self.asm.load16(RDX, from.plus(word as i32)),
                    _ => self.asm.load32(RDX, from.plus(word as i32)),
                }
                self.asm.alu(Alu::Add, RAX, RDX);
            }
            self.asm.bind(skip);
        }
        // A PHV has at most 2^16 bytes, so the sum is less than 2^46. Three additions leave at most 2^16, four 2^16 - 1.
        for _ in 0..4 {
            self.asm.copy(RDX, RAX);
            self.asm.shift(Shift::Right, RDX, 16);
            self.asm.alu_constant(Alu::And, RAX, 0xffff);
            self.asm.alu(Alu::Add, RAX, RDX);
        }
        self.asm.alu_constant(Alu::Xor, RAX, 0xffff);
        self.asm.swap16(RAX);
        self.set_unsigned(to);
        Some(())
    }
}
