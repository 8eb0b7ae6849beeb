// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Translation of fused instructions.

use crate::arith::bits::{Place, Window};
use crate::ir::{Pc, Reg};
use crate::lower::instructions::Instruction;
use crate::native::arithmetic::{EQUAL, GREATER, GREATER_OR_EQUAL, LESS, LESS_OR_EQUAL, NOT_EQUAL};
use crate::native::assembler::{Alu, Condition, Shift, PHV, RAX, RDX};
use crate::native::translate::Translator;

impl<'a> Translator<'a> {
    pub(super) fn sequence(&mut self, pc: Pc, instruction: Instruction) -> Option<()> {
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
                self.proceed(pc + 2 * Pc::from(count));
            }
            StoreConstants { count, first } => {
                let first = first as usize;
                for (value, place) in sequences.constants.get(first..first + usize::from(count))? {
                    self.store_value(*place, *value)?;
                }
                self.proceed(pc + Pc::from(count));
            }
            LoadLongs { first, second } => {
                self.load_number(first.0, Place::full_window(Window::Long, first.1))?;
                self.load_number(second.0, Place::full_window(Window::Long, second.1))?;
                self.proceed(pc + 2);
            }
            _ => return None,
        }
        Some(())
    }

    pub(super) fn fused(&mut self, pc: Pc, instruction: Instruction) -> Option<()> {
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
        self.proceed(next);
        Some(())
    }

    pub(super) fn fused_jump(&mut self, pc: Pc, instruction: Instruction) -> Option<()> {
        use Instruction::*;
        let next = pc + 2;
        match instruction {
            JumpByte { when, to, field, jump } => {
                self.load_byte_field(field.at, field.trailing, field.mask)?;
                self.set_unsigned(to);
                self.asm.test(RAX);
                let taken = if when { Condition::NotEqual } else { Condition::Equal };
                self.asm.jump_if(taken, self.target(pc, next, jump));
                self.proceed(next);
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
                self.can_repeat(next, jump, to, [left, left])?;
                self.get(left);
                self.set_second(value.into());
                let condition = self.compare(comparison)?;
                self.branch((pc, next), condition, comparison, to, jump);
            }
            JumpCompare { comparison, to, left, right, jump } => {
                self.can_repeat(next, jump, to, [left, right])?;
                self.get(left);
                self.get_second(right);
                let condition = self.compare(comparison)?;
                self.branch((pc, next), condition, comparison, to, jump);
            }
            _ => return None,
        }
        Some(())
    }

    /// None: the interpreter could not run a comparison again if it is the last backward jump, because the result is in
    /// one of its operands.
    fn can_repeat(&self, next: Pc, jump: Pc, to: Reg, operands: [Reg; 2]) -> Option<()> {
        (jump >= next || !operands.contains(&to) || !self.is_live(to)).then_some(())
    }

    pub(super) fn load_byte_field(&mut self, at: u16, trailing: u8, mask: u8) -> Option<()> {
        let from = self.phv(at.into(), 1)?;
        self.asm.load8(RAX, from);
        if trailing & 7 > 0 {
            self.asm.shift(Shift::Right, RAX, trailing & 7);
        }
        self.asm.alu_constant(Alu::And, RAX, mask.into());
        Some(())
    }
}
