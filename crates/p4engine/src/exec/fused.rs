// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Fused instructions.

use crate::arith::bits::{self, Place};
use crate::exec::interpreter::Run;
use crate::exec::packet::Shell;
use crate::ir::{Pc, Reg};
use crate::lower::instructions::{Piece, Test};

impl<'a, S: Shell> Run<'a, S> {
    #[inline(always)]
    pub(super) fn add_store(&mut self, pc: Pc, to: Reg, (left, right): (Reg, Reg), into: Place) -> Pc {
        self.of_two(to, left, right, i128::wrapping_add);
        self.store_into(into, to);
        pc + 1
    }

    #[inline(always)]
    pub(super) fn invert_store(&mut self, pc: Pc, to: Reg, from: Reg, into: Place) -> Pc {
        self.of_one(to, from, |from| !from);
        self.store_into(into, to);
        pc + 1
    }

    #[inline(always)]
    pub(super) fn transfer(&mut self, pc: Pc, to: Reg, from: Place, into: Place) -> Pc {
        let value = from.load(&self.context.area);
        self.load(to, value);
        into.store(&mut self.context.area, value);
        pc + 1
    }

    #[inline(always)]
    pub(super) fn add_byte(&mut self, pc: Pc, to: Reg, at: u16, value: i64) -> Pc {
        let sum = i128::from(bits::byte(&self.context.area, at)).wrapping_add(value.into());
        self.set(to, sum);
        bits::put_byte(&mut self.context.area, at, sum as u64);
        pc + 2
    }

    #[inline(always)]
    pub(super) fn load_longs(&mut self, pc: Pc, first: (Reg, u16), second: (Reg, u16)) -> Pc {
        self.fetch(first.0, first.1, bits::long);
        self.fetch(second.0, second.1, bits::long);
        pc + 1
    }

    #[inline(always)]
    pub(super) fn jump_byte(&mut self, pc: Pc, when: bool, (to, piece): (Reg, Piece), jump: Pc) -> Pc {
        let value = piece.load(&self.context.area);
        self.load(to, value);
        self.jump_when((value != 0) == when, pc + 1, jump)
    }

    #[inline(always)]
    pub(super) fn test_byte(
        &mut self,
        pc: Pc,
        (test, to): (Test, Reg),
        piece: Piece,
        value: u8,
        jump: Pc,
    ) -> Pc {
        let holds = test.holds(piece.load(&self.context.area), value.into());
        self.branch(test, to, holds, pc + 2, jump)
    }

    #[inline(always)]
    pub(super) fn test(&mut self, pc: Pc, (test, to): (Test, Reg), left: Reg, right: i128, jump: Pc) -> Pc {
        let holds = test.holds(self.number(left), right);
        self.branch(test, to, holds, pc + 1, jump)
    }

    /// Behind a comparison: on to `next`, or the jump that it decides.
    #[inline(always)]
    fn branch(&mut self, test: Test, to: Reg, holds: bool, next: Pc, jump: Pc) -> Pc {
        self.load(to, holds.into());
        self.jump_when(test.taken(holds), next, jump)
    }

    #[inline(always)]
    pub(super) fn store_arguments(&mut self, pc: Pc, to: Reg, first: u32, count: u16) -> Pc {
        let (code, first) = (self.code, first as usize);
        let mut last = 0;
        for (argument, place) in code.runs.arguments.get(first..first + usize::from(count)).unwrap_or(&[]) {
            last = self.argument(*argument);
            place.store(&mut self.context.area, last);
        }
        self.load(to, last);
        pc + 2 * Pc::from(count) - 1
    }

    #[inline(always)]
    pub(super) fn store_constants(&mut self, pc: Pc, first: u32, count: u16) -> Pc {
        let (code, first) = (self.code, first as usize);
        for (value, place) in code.runs.constants.get(first..first + usize::from(count)).unwrap_or(&[]) {
            place.store(&mut self.context.area, *value);
        }
        pc + Pc::from(count) - 1
    }

    /// Most headers that a deparser names are not there.
    #[inline(always)]
    pub fn emit_each(&mut self, pc: Pc, first: u32, count: u16) -> Pc {
        let (code, first) = (self.code, first as usize);
        for one in code.runs.emitted.get(first..first + usize::from(count)).unwrap_or(&[]) {
            if self.context.area.get(usize::from(one.valid_at)).is_some_and(|byte| byte & one.valid_bit != 0)
            {
                if one.varbit {
                    self.emit(one.header);
                } else {
                    self.put_out(one.at.into(), one.bytes.into());
                }
            }
        }
        pc + Pc::from(count) - 1
    }
}
