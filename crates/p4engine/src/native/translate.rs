// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Translation of fields, arithmetic and jumps.
//!
//! RAX and RDX have a number of the program, its lower and its upper half; RCX and RSI a second one.

use alloc::vec::Vec;

use crate::arith::bits::{ones, Place, Window};
use crate::control;
use crate::exec::context::NOT_DEFERRED;
use crate::exec::interpreter::{low_bits, HALT};
use crate::exec::state::State;
use crate::ir::{HashKind, Pc, Reg, MAX_REGISTERS};
use crate::lower::instructions::{Comparison, Instruction};
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
fn number(register: Reg) -> Memory {
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
    fn mask(&mut self, register: Register, mask: u64) {
        match i32::try_from(mask as i64) {
            Ok(mask) => self.asm.alu_constant(Alu::And, register, mask),
            Err(_) => {
                self.asm.set(RDX, mask);
                self.asm.alu(Alu::And, register, RDX);
            }
        }
    }

    /// Stores the low bits of RAX in the PHV. Overwrites RAX, RCX and RDX.
    fn store(&mut self, place: Place) -> Option<()> {
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
    fn set_unsigned(&mut self, to: Reg) {
        self.asm.store64(number(to), RAX);
        self.asm.store_constant(number(to).plus(8), 0);
    }

    fn get(&mut self, from: Reg) {
        self.asm.load64(RAX, number(from));
        self.asm.load64(RDX, number(from).plus(8));
    }

    fn put(&mut self, to: Reg) {
        self.asm.store64(number(to), RAX);
        self.asm.store64(number(to).plus(8), RDX);
    }

    /// Loads the second number.
    fn get_second(&mut self, from: Reg) {
        self.asm.load64(RCX, number(from));
        self.asm.load64(RSI, number(from).plus(8));
    }

    fn set_second(&mut self, value: i64) {
        self.asm.set(RCX, value as u64);
        self.asm.set(RSI, if value < 0 { u64::MAX } else { 0 });
    }

    /// Applies an operation to the halves of both numbers.
    fn binary(&mut self, lower: Alu, upper: Alu) {
        self.asm.alu(lower, RAX, RCX);
        self.asm.alu(upper, RDX, RSI);
    }

    fn load_number(&mut self, to: Reg, place: Place) -> Option<()> {
        self.load(place, PHV)?;
        self.set_unsigned(to);
        Some(())
    }

    fn store_number(&mut self, place: Place, from: Reg) -> Option<()> {
        self.asm.load64(RAX, number(from));
        self.store(place)
    }

    fn store_value(&mut self, place: Place, value: u64) -> Option<()> {
        self.asm.set(RAX, value);
        self.store(place)
    }

    fn load_argument(&mut self, argument: u16) -> Option<()> {
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

    fn multiply(&mut self, to: Reg, left: Reg, right: Reg) {
        let asm = &mut self.asm;
        asm.load64(RCX, number(left).plus(8));
        asm.multiply(RCX, number(right));
        asm.load64(RSI, number(right).plus(8));
        asm.multiply(RSI, number(left));
        asm.load64(RAX, number(left));
        asm.multiply_wide(number(right));
        asm.alu(Alu::Add, RDX, RCX);
        asm.alu(Alu::Add, RDX, RSI);
        self.put(to);
    }

    /// Shifts RDX and RAX left by fewer than 128 bits.
    fn shift_left(&mut self, bits: u8) {
        let asm = &mut self.asm;
        match bits {
            0 => {}
            1..=63 => {
                asm.shift_left_from(RDX, RAX, bits);
                asm.shift(Shift::Left, RAX, bits);
            }
            _ => {
                asm.copy(RDX, RAX);
                asm.shift(Shift::Left, RDX, bits - 64);
                asm.set(RAX, 0);
            }
        }
    }

    /// Shifts RDX and RAX right by fewer than 128 bits, signed.
    fn shift_right(&mut self, bits: u8) {
        let asm = &mut self.asm;
        match bits {
            0 => {}
            1..=63 => {
                asm.shift_right_from(RAX, RDX, bits);
                asm.shift(Shift::SignedRight, RDX, bits);
            }
            _ => {
                asm.copy(RAX, RDX);
                asm.shift(Shift::SignedRight, RAX, bits - 64);
                asm.shift(Shift::SignedRight, RDX, 63);
            }
        }
    }

    /// Keeps the lowest bits of RDX and RAX.
    fn cut(&mut self, to: Reg, from: Reg, bits: u16) {
        self.get(from);
        let mask = low_bits(bits);
        self.asm.set(RCX, mask as u64);
        self.asm.set(RSI, (mask >> 64) as u64);
        self.binary(Alu::And, Alu::And);
        self.put(to);
    }

    /// Compares both numbers, signed, and returns the condition of a true comparison.
    fn compare(&mut self, comparison: Comparison) -> Option<Condition> {
        let (asm, mask) = (&mut self.asm, comparison.mask());
        match mask {
            LESS | GREATER_OR_EQUAL => {
                asm.alu(Alu::Compare, RAX, RCX);
                asm.alu(Alu::SubtractBorrow, RDX, RSI);
            }
            GREATER | LESS_OR_EQUAL => {
                asm.alu(Alu::Compare, RCX, RAX);
                asm.alu(Alu::SubtractBorrow, RSI, RDX);
            }
            _ => {
                asm.alu(Alu::Xor, RAX, RCX);
                asm.alu(Alu::Xor, RDX, RSI);
                asm.alu(Alu::Or, RAX, RDX);
            }
        }
        Some(match mask {
            LESS | GREATER => Condition::Less,
            GREATER_OR_EQUAL | LESS_OR_EQUAL => Condition::GreaterOrEqual,
            EQUAL => Condition::Equal,
            NOT_EQUAL => Condition::NotEqual,
            _ => return None,
        })
    }

    /// Stores 0 or 1 by the flags, which stay.
    fn set_condition(&mut self, to: Reg, condition: Condition) {
        self.asm.set_if(condition);
        self.asm.store64(number(to), RCX);
        self.asm.store_constant(number(to).plus(8), 0);
    }

    /// Stores the result of a comparison and jumps, or continues at `next`.
    fn branch(
        &mut self,
        (pc, next): (Pc, Pc),
        condition: Condition,
        comparison: Comparison,
        to: Reg,
        jump: Pc,
    ) {
        self.set_condition(to, condition);
        let taken = if comparison.jump_taken(true) { condition } else { condition.inverse() };
        self.asm.jump_if(taken, self.target(pc, next, jump));
        self.asm.jump(Label::Instruction(next));
    }

    /// Sets the flags of the lower and the upper half together.
    pub fn test_number(&mut self, register: Reg) {
        self.asm.load64(RAX, number(register));
        self.asm.alu_memory(Alu::Or, RAX, number(register).plus(8));
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

    fn arithmetic(&mut self, instruction: Instruction) -> Option<()> {
        use Instruction::*;
        match instruction {
            Set { to, value } => {
                self.asm.set(RAX, value as u64);
                self.asm.store64(number(to), RAX);
                self.asm.store_constant(number(to).plus(8), if value < 0 { -1 } else { 0 });
            }
            Move { to, from } => {
                self.get(from);
                self.put(to);
            }
            Argument { to, argument } => {
                self.load_argument(argument)?;
                self.set_unsigned(to);
            }
            Add { to, left, right } => self.two(to, left, right, Alu::Add, Alu::AddCarry),
            Subtract { to, left, right } => self.two(to, left, right, Alu::Subtract, Alu::SubtractBorrow),
            And { to, left, right } => self.two(to, left, right, Alu::And, Alu::And),
            Or { to, left, right } => self.two(to, left, right, Alu::Or, Alu::Or),
            Multiply { to, left, right } => self.multiply(to, left, right),
            AddWith { to, left, value } => self.with(to, left, value, Alu::Add, Alu::AddCarry),
            AndWith { to, left, value } => self.with(to, left, value, Alu::And, Alu::And),
            Invert { to, from } => self.invert(to, from),
            ShiftLeftWith { to, left, bits } => {
                self.get(left);
                self.shift_left(bits & 127);
                self.put(to);
            }
            ShiftRightWith { to, left, bits } => {
                self.get(left);
                self.shift_right(bits & 127);
                self.put(to);
            }
            Cut { to, from, bits } => self.cut(to, from, bits),
            Compare { comparison, to, left, right } => {
                self.get(left);
                self.get_second(right);
                let condition = self.compare(comparison)?;
                self.set_condition(to, condition);
            }
            CompareWith { comparison, to, left, value } => {
                self.get(left);
                self.set_second(value);
                let condition = self.compare(comparison)?;
                self.set_condition(to, condition);
            }
            _ => return None,
        }
        Some(())
    }

    fn two(&mut self, to: Reg, left: Reg, right: Reg, lower: Alu, upper: Alu) {
        self.get(left);
        self.asm.alu_memory(lower, RAX, number(right));
        self.asm.alu_memory(upper, RDX, number(right).plus(8));
        self.put(to);
    }

    fn with(&mut self, to: Reg, left: Reg, value: i64, lower: Alu, upper: Alu) {
        self.get(left);
        self.set_second(value);
        self.binary(lower, upper);
        self.put(to);
    }

    fn invert(&mut self, to: Reg, from: Reg) {
        self.get(from);
        self.asm.invert(RAX);
        self.asm.invert(RDX);
        self.put(to);
    }

    fn sequence(&mut self, pc: Pc, instruction: Instruction) -> Option<()> {
        use Instruction::*;
        let sequences = &self.code.sequences;
        match instruction {
            StoreArguments { count, to, first } => {
                let first = first as usize;
                let stores = sequences.arguments.get(first..first + usize::from(count))?;
                for (index, (argument, place)) in stores.iter().enumerate() {
                    self.load_argument(*argument)?;
                    if index + 1 == stores.len() {
                        self.set_unsigned(to);
                    }
                    self.store(*place)?;
                }
                self.asm.jump(Label::Instruction(pc + 2 * Pc::from(count)));
            }
            StoreConstants { count, first } => {
                let first = first as usize;
                for (value, place) in sequences.constants.get(first..first + usize::from(count))? {
                    self.store_value(*place, *value)?;
                }
                self.asm.jump(Label::Instruction(pc + Pc::from(count)));
            }
            LoadLongs { first, second } => {
                self.load_number(first.0, Place::full_window(Window::Long, first.1))?;
                self.load_number(second.0, Place::full_window(Window::Long, second.1))?;
                self.asm.jump(Label::Instruction(pc + 2));
            }
            _ => return None,
        }
        Some(())
    }

    fn fused(&mut self, pc: Pc, instruction: Instruction) -> Option<()> {
        use Instruction::*;
        let next = match instruction {
            Transfer { to, from, into } => {
                self.load(from, PHV)?;
                self.set_unsigned(to);
                self.store(into)?;
                pc + 2
            }
            AddStore { to, left, right, into } => {
                self.two(to, left, right, Alu::Add, Alu::AddCarry);
                self.store(into)?;
                pc + 2
            }
            InvertStore { to, from, into } => {
                self.invert(to, from);
                self.store(into)?;
                pc + 2
            }
            AddByte { to, at, value } => {
                self.load(Place::full_window(Window::Byte, at), PHV)?;
                self.asm.set(RDX, 0);
                self.set_second(value);
                self.binary(Alu::Add, Alu::AddCarry);
                self.put(to);
                self.store(Place::full_window(Window::Byte, at))?;
                pc + 3
            }
            _ => return None,
        };
        self.asm.jump(Label::Instruction(next));
        Some(())
    }

    fn fused_jump(&mut self, pc: Pc, instruction: Instruction) -> Option<()> {
        use Instruction::*;
        let next = pc + 2;
        match instruction {
            JumpByte { when, to, field, jump } => {
                self.load_byte_field(field.at, field.trailing, field.mask)?;
                self.set_unsigned(to);
                self.asm.test(RAX);
                let taken = if when { Condition::NotEqual } else { Condition::Equal };
                self.asm.jump_if(taken, self.target(pc, next, jump));
                self.asm.jump(Label::Instruction(next));
            }
            JumpCompareByte { comparison, to, field, value, jump } => {
                self.load_byte_field(field.at, field.trailing, field.mask)?;
                self.asm.alu_constant(Alu::Compare, RAX, value.into());
                let condition = match comparison.mask() {
                    LESS => Condition::Below,
                    EQUAL => Condition::Equal,
                    LESS_OR_EQUAL => Condition::BelowOrEqual,
                    GREATER => Condition::Above,
                    NOT_EQUAL => Condition::NotEqual,
                    GREATER_OR_EQUAL => Condition::AboveOrEqual,
                    _ => return None,
                };
                self.branch((pc, pc + 3), condition, comparison, to, jump);
            }
            JumpCompareWith { comparison, to, left, value, jump } => {
                self.get(left);
                self.set_second(value.into());
                let condition = self.compare(comparison)?;
                self.branch((pc, next), condition, comparison, to, jump);
            }
            JumpCompare { comparison, to, left, right, jump } => {
                self.get(left);
                self.get_second(right);
                let condition = self.compare(comparison)?;
                self.branch((pc, next), condition, comparison, to, jump);
            }
            _ => return None,
        }
        Some(())
    }

    fn load_byte_field(&mut self, at: u16, trailing: u8, mask: u8) -> Option<()> {
        let from = self.phv(at.into(), 1)?;
        self.asm.load8(RAX, from);
        if trailing & 7 > 0 {
            self.asm.shift(Shift::Right, RAX, trailing & 7);
        }
        self.asm.alu_constant(Alu::And, RAX, mask.into());
        Some(())
    }
}

/// The values of `Comparison::mask`.
const LESS: u8 = 0b001;
const EQUAL: u8 = 0b010;
const LESS_OR_EQUAL: u8 = 0b011;
const GREATER: u8 = 0b100;
const NOT_EQUAL: u8 = 0b101;
const GREATER_OR_EQUAL: u8 = 0b110;
