// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Encodes the x86-64 instructions that the translation uses (Intel SDM, volume 2).
//!
//! Memory operands are a base register and a displacement of 8 or 32 bits. A jump has a distance of 32 bits; `finish` fills
//! it in.

use alloc::vec::Vec;
use core::mem::take;

use crate::ir::Pc;
use crate::native::FRAME_BACKWARD_JUMPS_LEFT;

/// A general register by its number in the encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Register(u8);

pub(super) const RAX: Register = Register(0);
pub(super) const RCX: Register = Register(1);
pub(super) const RDX: Register = Register(2);
pub(super) const RSI: Register = Register(6);
pub(super) const RDI: Register = Register(7);
/// The base of the PHV.
pub(super) const PHV: Register = Register(8);
/// The base of the program's registers, of 16 bytes each.
pub(super) const NUMBERS: Register = Register(9);
/// The first byte of the packet.
pub(super) const PACKET: Register = Register(10);
/// The base of the frame.
pub(super) const FRAME: Register = Register(11);

/// A memory operand.
#[derive(Debug, Clone, Copy)]
pub(super) struct Memory {
    pub base: Register,
    pub at: i32,
}

impl Memory {
    pub fn new(base: Register, at: i32) -> Memory {
        Memory { base, at }
    }

    pub fn plus(self, bytes: i32) -> Memory {
        Memory { at: self.at + bytes, ..self }
    }
}

/// An operation of two operands by its number in the encoding.
#[derive(Debug, Clone, Copy)]
pub(super) enum Alu {
    Add = 0,
    Or = 1,
    AddCarry = 2,
    SubtractBorrow = 3,
    And = 4,
    Subtract = 5,
    Xor = 6,
    Compare = 7,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Shift {
    Left = 4,
    Right = 5,
    SignedRight = 7,
}

/// A condition of a jump by its number in the encoding.
#[derive(Debug, Clone, Copy)]
pub(super) enum Condition {
    Below = 0x2,
    AboveOrEqual = 0x3,
    Equal = 0x4,
    NotEqual = 0x5,
    BelowOrEqual = 0x6,
    Above = 0x7,
    Less = 0xc,
    GreaterOrEqual = 0xd,
}

impl Condition {
    pub fn inverse(self) -> Condition {
        match self {
            Condition::Below => Condition::AboveOrEqual,
            Condition::AboveOrEqual => Condition::Below,
            Condition::Equal => Condition::NotEqual,
            Condition::NotEqual => Condition::Equal,
            Condition::BelowOrEqual => Condition::Above,
            Condition::Above => Condition::BelowOrEqual,
            Condition::Less => Condition::GreaterOrEqual,
            Condition::GreaterOrEqual => Condition::Less,
        }
    }
}

/// The target of a jump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Label {
    /// The code of an instruction.
    Instruction(Pc),
    /// A return to the interpreter, which continues at an instruction.
    Exit(Pc),
    /// The code of an earlier instruction, the second one, if the packet may jump backward again. Otherwise the
    /// interpreter continues at the first one.
    Backward(Pc, Pc),
    /// A place that `bind` sets.
    Local(u32),
}

/// A state to which `rewind` returns.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    bytes: usize,
    jumps: usize,
}

#[derive(Debug, Default)]
pub(super) struct Assembler {
    bytes: Vec<u8>,
    /// Offset of the 4 bytes of each jump's distance, which `finish` fills in.
    jumps: Vec<(usize, Label)>,
    locals: Vec<u32>,
}

impl Assembler {
    pub fn offset(&self) -> u32 {
        self.bytes.len() as u32
    }

    pub fn mark(&self) -> Mark {
        Mark { bytes: self.bytes.len(), jumps: self.jumps.len() }
    }

    /// Removes what was encoded since the mark.
    pub fn rewind(&mut self, mark: Mark) {
        self.bytes.truncate(mark.bytes);
        self.jumps.truncate(mark.jumps);
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// REX prefix, opcode and operands, of which one is in memory.
    fn memory(&mut self, wide: bool, opcode: &[u8], register: u8, memory: Memory) {
        self.push(&[0x40 | u8::from(wide) << 3 | (register >> 3) << 2 | memory.base.0 >> 3]);
        self.push(opcode);
        let operands = (register & 7) << 3 | memory.base.0 & 7;
        match i8::try_from(memory.at) {
            Ok(at) => self.push(&[0x40 | operands, at as u8]),
            Err(_) => {
                self.push(&[0x80 | operands]);
                self.push(&memory.at.to_le_bytes());
            }
        }
    }

    /// REX prefix, opcode and two registers. `other` is the operand that may also be in memory.
    fn registers(&mut self, wide: bool, opcode: &[u8], register: u8, other: Register) {
        self.push(&[0x40 | u8::from(wide) << 3 | (register >> 3) << 2 | other.0 >> 3]);
        self.push(opcode);
        self.push(&[0xc0 | (register & 7) << 3 | other.0 & 7]);
    }

    pub fn load8(&mut self, to: Register, from: Memory) {
        self.memory(false, &[0x0f, 0xb6], to.0, from);
    }

    pub fn load16(&mut self, to: Register, from: Memory) {
        self.memory(false, &[0x0f, 0xb7], to.0, from);
    }

    pub fn load32(&mut self, to: Register, from: Memory) {
        self.memory(false, &[0x8b], to.0, from);
    }

    pub fn load64(&mut self, to: Register, from: Memory) {
        self.memory(true, &[0x8b], to.0, from);
    }

    /// Loads 32 bits of an array. `index` counts elements of four bytes.
    pub fn load32_indexed(&mut self, to: Register, from: Memory, index: Register) {
        self.indexed(0x8b, to, from, index);
    }

    pub fn xor32_indexed(&mut self, to: Register, from: Memory, index: Register) {
        self.indexed(0x33, to, from, index);
    }

    /// An opcode and operands of which one is an element of four bytes. All registers are among the first eight.
    fn indexed(&mut self, opcode: u8, register: Register, memory: Memory, index: Register) {
        self.push(&[opcode, 0x84 | register.0 << 3, 0x80 | index.0 << 3 | memory.base.0]);
        self.push(&memory.at.to_le_bytes());
    }

    /// Sets `to` to the lowest byte of another register.
    pub fn low_byte(&mut self, to: Register, from: Register) {
        self.registers(false, &[0x0f, 0xb6], to.0, from);
    }

    pub fn store8(&mut self, to: Memory, from: Register) {
        self.memory(false, &[0x88], from.0, to);
    }

    pub fn store16(&mut self, to: Memory, from: Register) {
        self.push(&[0x66]);
        self.memory(false, &[0x89], from.0, to);
    }

    pub fn store32(&mut self, to: Memory, from: Register) {
        self.memory(false, &[0x89], from.0, to);
    }

    pub fn store64(&mut self, to: Memory, from: Register) {
        self.memory(true, &[0x89], from.0, to);
    }

    /// Stores a number of 32 bits, sign-extended to 64.
    pub fn store_constant(&mut self, to: Memory, value: i32) {
        self.memory(true, &[0xc7], 0, to);
        self.push(&value.to_le_bytes());
    }

    pub fn or_byte(&mut self, to: Memory, bits: u8) {
        self.memory(false, &[0x80], 1, to);
        self.push(&[bits]);
    }

    /// Sets the flags of a byte and a mask.
    pub fn test_byte(&mut self, at: Memory, mask: u8) {
        self.memory(false, &[0xf6], 0, at);
        self.push(&[mask]);
    }

    pub fn set(&mut self, to: Register, value: u64) {
        match u32::try_from(value) {
            Ok(value) => {
                self.push(&[0x40 | to.0 >> 3, 0xb8 | to.0 & 7]);
                self.push(&value.to_le_bytes());
            }
            Err(_) => {
                self.push(&[0x48 | to.0 >> 3, 0xb8 | to.0 & 7]);
                self.push(&value.to_le_bytes());
            }
        }
    }

    pub fn copy(&mut self, to: Register, from: Register) {
        self.registers(true, &[0x89], from.0, to);
    }

    pub fn alu(&mut self, operation: Alu, to: Register, from: Register) {
        self.registers(true, &[(operation as u8) << 3 | 1], from.0, to);
    }

    pub fn alu_memory(&mut self, operation: Alu, to: Register, from: Memory) {
        self.memory(true, &[(operation as u8) << 3 | 3], to.0, from);
    }

    pub fn add_to_memory(&mut self, to: Memory, from: Register) {
        self.memory(true, &[0x01], from.0, to);
    }

    /// The right operand is a number of 32 bits, sign-extended to 64.
    pub fn alu_constant(&mut self, operation: Alu, to: Register, value: i32) {
        match i8::try_from(value) {
            Ok(value) => {
                self.registers(true, &[0x83], operation as u8, to);
                self.push(&[value as u8]);
            }
            Err(_) => {
                self.registers(true, &[0x81], operation as u8, to);
                self.push(&value.to_le_bytes());
            }
        }
    }

    pub fn test(&mut self, register: Register) {
        self.registers(true, &[0x85], register.0, register);
    }

    pub fn invert(&mut self, register: Register) {
        self.registers(true, &[0xf7], 2, register);
    }

    /// Multiplies and keeps the lower 64 bits.
    pub fn multiply(&mut self, to: Register, from: Memory) {
        self.memory(true, &[0x0f, 0xaf], to.0, from);
    }

    /// Multiplies and keeps the lower 64 bits.
    pub fn multiply_registers(&mut self, to: Register, from: Register) {
        self.registers(true, &[0x0f, 0xaf], to.0, from);
    }

    /// Multiplies RAX, unsigned. The result of 128 bits is in RDX and RAX.
    pub fn multiply_wide(&mut self, from: Memory) {
        self.memory(true, &[0xf7], 4, from);
    }

    /// `multiply_wide` by a register.
    pub fn multiply_wide_by(&mut self, from: Register) {
        self.registers(true, &[0xf7], 4, from);
    }

    /// Divides RDX and RAX, unsigned. The quotient is in RAX and the remainder in RDX.
    pub fn divide(&mut self, by: Register) {
        self.registers(true, &[0xf7], 6, by);
    }

    pub fn shift(&mut self, shift: Shift, register: Register, bits: u8) {
        self.registers(true, &[0xc1], shift as u8, register);
        self.push(&[bits]);
    }

    /// Shifts by the lower 6 bits of RCX.
    pub fn shift_by_rcx(&mut self, shift: Shift, register: Register) {
        self.registers(true, &[0xd3], shift as u8, register);
    }

    /// `shift_left_from` by the lower 6 bits of RCX.
    pub fn shift_left_from_by_rcx(&mut self, to: Register, from: Register) {
        self.registers(true, &[0x0f, 0xa5], from.0, to);
    }

    /// `shift_right_from` by the lower 6 bits of RCX.
    pub fn shift_right_from_by_rcx(&mut self, to: Register, from: Register) {
        self.registers(true, &[0x0f, 0xad], from.0, to);
    }

    /// Shifts `to` left and fills it with the upper bits of `from`.
    pub fn shift_left_from(&mut self, to: Register, from: Register, bits: u8) {
        self.registers(true, &[0x0f, 0xa4], from.0, to);
        self.push(&[bits]);
    }

    /// Shifts `to` right and fills it with the lower bits of `from`.
    pub fn shift_right_from(&mut self, to: Register, from: Register, bits: u8) {
        self.registers(true, &[0x0f, 0xac], from.0, to);
        self.push(&[bits]);
    }

    /// Swaps the two bytes of the lower 16 bits.
    pub fn swap16(&mut self, register: Register) {
        self.push(&[0x66]);
        self.registers(false, &[0xc1], 0, register);
        self.push(&[8]);
    }

    /// Reverses the bytes of the lower 32 bits and clears the others.
    pub fn swap32(&mut self, register: Register) {
        self.push(&[0x40 | register.0 >> 3, 0x0f, 0xc8 | register.0 & 7]);
    }

    pub fn swap64(&mut self, register: Register) {
        self.push(&[0x48 | register.0 >> 3, 0x0f, 0xc8 | register.0 & 7]);
    }

    /// Sets RCX to 0 or 1. Leaves the flags unchanged.
    pub fn set_if(&mut self, condition: Condition) {
        self.push(&[0x0f, 0x90 | condition as u8, 0xc1, 0x0f, 0xb6, 0xc9]);
    }

    pub fn jump(&mut self, to: Label) {
        self.push(&[0xe9]);
        self.distance(to);
    }

    pub fn jump_if(&mut self, condition: Condition, to: Label) {
        self.push(&[0x0f, 0x80 | condition as u8]);
        self.distance(to);
    }

    pub fn jump_to_register(&mut self, register: Register) {
        self.push(&[0xff, 0xe0 | register.0 & 7]);
    }

    fn distance(&mut self, to: Label) {
        self.jumps.push((self.bytes.len(), to));
        self.push(&[0; 4]);
    }

    pub fn local(&mut self) -> Label {
        self.locals.push(0);
        Label::Local(self.locals.len() as u32 - 1)
    }

    /// Sets a local label to this place.
    pub fn bind(&mut self, label: Label) {
        let offset = self.offset();
        if let Label::Local(local) = label {
            self.locals[local as usize] = offset;
        }
    }

    /// Returns to the interpreter, which continues at an instruction.
    pub fn exit(&mut self, pc: Pc) {
        self.set(RAX, pc.into());
        self.ret();
    }

    /// Returns to the interpreter, which continues at the instruction in RAX.
    pub fn ret(&mut self) {
        self.push(&[0xc3]);
    }

    /// Counts a backward jump and jumps to an instruction, or returns to the interpreter at the last one.
    fn backward(&mut self, pc: Pc, to: Pc) {
        let left = Memory::new(FRAME, FRAME_BACKWARD_JUMPS_LEFT);
        self.load32(RAX, left);
        self.alu_constant(Alu::Subtract, RAX, 1);
        self.jump_if(Condition::BelowOrEqual, Label::Exit(pc));
        self.store32(left, RAX);
        self.jump(Label::Instruction(to));
    }

    /// Appends the exits and fills in the distances. `entries` has the offset of each instruction's code.
    pub fn finish(mut self, entries: &[u32]) -> Vec<u8> {
        let mut jumps = Vec::new();
        for (at, to) in take(&mut self.jumps) {
            match to {
                Label::Backward(pc, to) => {
                    self.fill(at, self.offset());
                    self.backward(pc, to);
                }
                _ => jumps.push((at, to)),
            }
        }
        jumps.append(&mut self.jumps);
        jumps.sort_by_key(|(_, to)| if let Label::Exit(pc) = to { *pc } else { Pc::MAX });
        let mut last = None;
        for (at, to) in jumps {
            let target = match to {
                Label::Instruction(pc) => entries[pc as usize],
                Label::Local(local) => self.locals[local as usize],
                Label::Exit(pc) | Label::Backward(pc, _) => match last {
                    Some((exit, offset)) if exit == pc => offset,
                    _ => {
                        let offset = self.offset();
                        self.exit(pc);
                        last = Some((pc, offset));
                        offset
                    }
                },
            };
            self.fill(at, target);
        }
        self.bytes
    }

    /// Fills in the distance of a jump.
    fn fill(&mut self, at: usize, target: u32) {
        let distance = target.wrapping_sub(at as u32 + 4);
        self.bytes[at..at + 4].copy_from_slice(&distance.to_le_bytes());
    }
}
