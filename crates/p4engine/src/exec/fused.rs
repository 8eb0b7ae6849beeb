// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Execution of fused instructions.

use crate::arith::bits::{self, Place};
use crate::exec::interpreter::Interpreter;
use crate::exec::packet::Shell;
use crate::ir::{Pc, Reg};
use crate::lower::instructions::{ByteField, Comparison};

impl<'a, S: Shell> Interpreter<'a, S> {
    #[inline(always)]
    pub(super) fn add_store(&mut self, pc: Pc, to: Reg, (left, right): (Reg, Reg), into: Place) -> Pc {
        self.binary(to, left, right, i128::wrapping_add);
        self.store_into(into, to);
        pc + 1
    }

    #[inline(always)]
    pub(super) fn invert_store(&mut self, pc: Pc, to: Reg, from: Reg, into: Place) -> Pc {
        self.unary(to, from, |from| !from);
        self.store_into(into, to);
        pc + 1
    }

    #[inline(always)]
    pub(super) fn transfer(&mut self, pc: Pc, to: Reg, from: Place, into: Place) -> Pc {
        let value = from.load(&self.context.phv);
        self.load(to, value);
        into.store(&mut self.context.phv, value);
        pc + 1
    }

    #[inline(always)]
    pub(super) fn add_byte(&mut self, pc: Pc, to: Reg, at: u16, value: i64) -> Pc {
        let sum = i128::from(bits::byte(&self.context.phv, at)).wrapping_add(value.into());
        self.set(to, sum);
        bits::put_byte(&mut self.context.phv, at, sum as u64);
        pc + 2
    }

    #[inline(always)]
    pub(super) fn load_longs(&mut self, pc: Pc, first: (Reg, u16), second: (Reg, u16)) -> Pc {
        self.fetch(first.0, first.1, bits::long);
        self.fetch(second.0, second.1, bits::long);
        pc + 1
    }

    #[inline(always)]
    pub(super) fn jump_byte(&mut self, pc: Pc, when: bool, (to, field): (Reg, ByteField), jump: Pc) -> Pc {
        let value = field.load(&self.context.phv);
        self.load(to, value);
        self.jump_when((value != 0) == when, pc + 1, jump)
    }

    #[inline(always)]
    pub(super) fn jump_compare_byte(
        &mut self,
        pc: Pc,
        (comparison, to): (Comparison, Reg),
        field: ByteField,
        value: u8,
        jump: Pc,
    ) -> Pc {
        let result = comparison.is_true(field.load(&self.context.phv), value.into());
        self.branch(comparison, to, result, pc + 2, jump)
    }

    #[inline(always)]
    pub(super) fn jump_compare(
        &mut self,
        pc: Pc,
        (comparison, to): (Comparison, Reg),
        left: Reg,
        right: i128,
        jump: Pc,
    ) -> Pc {
        let result = comparison.is_true(self.number(left), right);
        self.branch(comparison, to, result, pc + 1, jump)
    }

    /// Stores the result of a comparison, and jumps or continues at `next`.
    #[inline(always)]
    fn branch(&mut self, comparison: Comparison, to: Reg, result: bool, next: Pc, jump: Pc) -> Pc {
        self.load(to, result.into());
        self.jump_when(comparison.jump_taken(result), next, jump)
    }

    #[inline(always)]
    pub(super) fn store_arguments(&mut self, pc: Pc, to: Reg, first: u32, count: u16) -> Pc {
        let (code, first) = (self.code, first as usize);
        let mut last = 0;
        for (argument, place) in
            code.sequences.arguments.get(first..first + usize::from(count)).unwrap_or(&[])
        {
            last = self.argument(*argument);
            place.store(&mut self.context.phv, last);
        }
        self.load(to, last);
        pc + 2 * Pc::from(count) - 1
    }

    #[inline(always)]
    pub(super) fn store_constants(&mut self, pc: Pc, first: u32, count: u16) -> Pc {
        let (code, first) = (self.code, first as usize);
        for (value, place) in code.sequences.constants.get(first..first + usize::from(count)).unwrap_or(&[]) {
            place.store(&mut self.context.phv, *value);
        }
        pc + Pc::from(count) - 1
    }

    /// Emits headers. Checks the validity bit first, since most headers of a deparser are invalid.
    #[inline(always)]
    pub fn emit_each(&mut self, pc: Pc, first: u32, count: u16) -> Pc {
        let (code, first) = (self.code, first as usize);
        for emitted in code.sequences.emitted.get(first..first + usize::from(count)).unwrap_or(&[]) {
            if self
                .context
                .phv
                .get(usize::from(emitted.valid_at))
                .is_some_and(|byte| byte & emitted.valid_bit != 0)
            {
                if emitted.varbit {
                    self.emit(emitted.header);
                } else {
                    self.emit_bytes(emitted.at.into(), emitted.bytes.into());
                }
            }
        }
        pc + Pc::from(count) - 1
    }
}
