// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Translation of arithmetic and comparisons.

use crate::arith::bits::ones;
use crate::exec::interpreter::low_bits;
use crate::ir::{Binary, Pc, Reg};
use crate::lower::instructions::{Comparison, Instruction};
use crate::native::assembler::{Alu, Condition, Label, Shift, RAX, RCX, RDX, RSI};
use crate::native::translate::{number, Translator};

/// The values of `Comparison::mask`.
pub(super) const LESS: u8 = 0b001;
pub(super) const EQUAL: u8 = 0b010;
pub(super) const LESS_OR_EQUAL: u8 = 0b011;
pub(super) const GREATER: u8 = 0b100;
pub(super) const NOT_EQUAL: u8 = 0b101;
pub(super) const GREATER_OR_EQUAL: u8 = 0b110;

impl<'a> Translator<'a> {
    pub(super) fn multiply(&mut self, to: Reg, left: Reg, right: Reg) {
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
    pub(super) fn shift_left(&mut self, bits: u8) {
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
    pub(super) fn shift_right(&mut self, bits: u8) {
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

    /// Shifts by a register. The interpreter shifts by more than 63 bits and by negative numbers.
    fn shift_by(&mut self, pc: Pc, to: Reg, (left, right): (Reg, Reg), shift: Shift) {
        self.get(left);
        self.get_second(right);
        let asm = &mut self.asm;
        asm.test(RSI);
        asm.jump_if(Condition::NotEqual, Label::Exit(pc));
        asm.alu_constant(Alu::Compare, RCX, 63);
        asm.jump_if(Condition::Above, Label::Exit(pc));
        if let Shift::Left = shift {
            asm.shift_left_from_by_rcx(RDX, RAX);
            asm.shift_by_rcx(Shift::Left, RAX);
        } else {
            asm.shift_right_from_by_rcx(RAX, RDX);
            asm.shift_by_rcx(Shift::SignedRight, RDX);
        }
        self.put(to);
    }

    /// Multiplies by a constant that is not negative.
    fn multiply_with(&mut self, to: Reg, left: Reg, value: u64) {
        self.get(left);
        let asm = &mut self.asm;
        asm.set(RCX, value);
        asm.copy(RSI, RDX);
        asm.multiply_registers(RSI, RCX);
        asm.multiply_wide_by(RCX);
        asm.alu(Alu::Add, RDX, RSI);
        self.put(to);
    }

    /// Saturates to an unsigned number of 1 to 64 bits.
    fn saturate_unsigned(&mut self, to: Reg, from: Reg, bits: u32) {
        self.get(from);
        let asm = &mut self.asm;
        let (negative, large, done) = (asm.local(), asm.local(), asm.local());
        asm.set(RCX, ones(bits));
        asm.test(RDX);
        asm.jump_if(Condition::Less, negative);
        asm.jump_if(Condition::NotEqual, large);
        asm.alu(Alu::Compare, RAX, RCX);
        asm.jump_if(Condition::BelowOrEqual, done);
        asm.bind(large);
        asm.copy(RAX, RCX);
        asm.jump(done);
        asm.bind(negative);
        asm.set(RAX, 0);
        asm.bind(done);
        self.set_unsigned(to);
    }

    /// Keeps the lowest bits of RDX and RAX.
    pub(super) fn cut(&mut self, to: Reg, from: Reg, bits: u16) {
        self.get(from);
        let mask = low_bits(bits);
        self.asm.set(RCX, mask as u64);
        self.asm.set(RSI, (mask >> 64) as u64);
        self.binary(Alu::And, Alu::And);
        self.put(to);
    }

    /// Compares both numbers, signed, and returns the condition of a true comparison.
    pub(super) fn compare(&mut self, comparison: Comparison) -> Option<Condition> {
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
    pub(super) fn set_condition(&mut self, to: Reg, condition: Condition) {
        if self.is_live(to) {
            self.asm.set_if(condition);
            self.asm.store64(number(to), RCX);
            self.asm.store_constant(number(to).plus(8), 0);
        }
    }

    /// Stores the result of a comparison and jumps, or continues at `next`.
    pub(super) fn branch(
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
        self.proceed(next);
    }

    /// Sets the flags of the lower and the upper half together.
    pub fn test_number(&mut self, register: Reg) {
        self.asm.load64(RAX, number(register));
        self.asm.alu_memory(Alu::Or, RAX, number(register).plus(8));
    }

    pub(super) fn arithmetic(&mut self, pc: Pc, instruction: Instruction) -> Option<()> {
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
            Binary { op, to, left, right } => self.other_binary(pc, op, to, (left, right))?,
            BinaryWith { op, to, left, value } => self.other_with(op, to, left, value)?,
            _ => return None,
        }
        Some(())
    }

    fn other_binary(&mut self, pc: Pc, op: Binary, to: Reg, (left, right): (Reg, Reg)) -> Option<()> {
        match op {
            Binary::Xor => self.two(to, left, right, Alu::Xor, Alu::Xor),
            Binary::ShiftLeft => self.shift_by(pc, to, (left, right), Shift::Left),
            Binary::ShiftRight => self.shift_by(pc, to, (left, right), Shift::SignedRight),
            _ => return None,
        }
        Some(())
    }

    fn other_with(&mut self, op: Binary, to: Reg, left: Reg, value: i64) -> Option<()> {
        match (op, value) {
            (Binary::Or, _) => self.with(to, left, value, Alu::Or, Alu::Or),
            (Binary::Xor, _) => self.with(to, left, value, Alu::Xor, Alu::Xor),
            (Binary::Subtract, _) => self.with(to, left, value, Alu::Subtract, Alu::SubtractBorrow),
            (Binary::Multiply, 0..) => self.multiply_with(to, left, value as u64),
            (Binary::SaturateUnsigned, 1..=64) => self.saturate_unsigned(to, left, value as u32),
            _ => return None,
        }
        Some(())
    }

    pub(super) fn two(&mut self, to: Reg, left: Reg, right: Reg, lower: Alu, upper: Alu) {
        self.get(left);
        self.asm.alu_memory(lower, RAX, number(right));
        self.asm.alu_memory(upper, RDX, number(right).plus(8));
        self.put(to);
    }

    pub(super) fn with(&mut self, to: Reg, left: Reg, value: i64, lower: Alu, upper: Alu) {
        self.get(left);
        self.set_second(value);
        self.binary(lower, upper);
        self.put(to);
    }

    pub(super) fn invert(&mut self, to: Reg, from: Reg) {
        self.get(from);
        self.asm.invert(RAX);
        self.asm.invert(RDX);
        self.put(to);
    }
}
