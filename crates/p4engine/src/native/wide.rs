// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Translation of wide numbers.

use crate::arith::bits::Place;
use crate::ir::{Binary, FieldId, Op, Reg, WideReg};
use crate::lower::instructions::Comparison;
use crate::native::arithmetic::{GREATER, GREATER_OR_EQUAL, LESS, LESS_OR_EQUAL};
use crate::native::assembler::{
    Alu, Condition, Memory, Register, Shift, FRAME, PHV, RAX, RCX, RDI, RDX, RSI,
};
use crate::native::translate::Translator;
use crate::native::FRAME_WIDE;

/// Limit on the limbs of numbers that are translated: there is code for each.
const MAX_LIMBS: usize = 8;

impl<'a> Translator<'a> {
    /// Translates an operation on wide numbers. Returns None if the interpreter runs it.
    pub(super) fn wide(&mut self, op: Op) -> Option<()> {
        if !(2..=MAX_LIMBS).contains(&self.code.limbs) {
            return None;
        }
        match op {
            Op::WideSet { to, constant } => self.wide_set(to, constant)?,
            Op::WideLoad { to, field } => self.wide_load(to, field)?,
            Op::WideStore { field, from } => self.wide_store(field, from)?,
            Op::WideBinary { op: Binary::And, to, left, right } => {
                self.wide_binary(to, left, right, Alu::And, Alu::And)?;
            }
            Op::WideBinary { op: Binary::Or, to, left, right } => {
                self.wide_binary(to, left, right, Alu::Or, Alu::Or)?
            }
            Op::WideBinary { op: Binary::Add, to, left, right } => {
                self.wide_binary(to, left, right, Alu::Add, Alu::AddCarry)?;
            }
            Op::WideCompare { op, to, left, right } => self.wide_compare(op, to, left, right)?,
            Op::Widen { to, from } => self.widen(to, from)?,
            Op::Narrow { to, from } => {
                let from = self.limbs(from, RDI)?;
                self.asm.load64(RAX, from);
                self.asm.load64(RDX, from.plus(8));
                self.put(to);
            }
            _ => return None,
        }
        Some(())
    }

    /// Sets a register to the address of the wide numbers. Returns the lowest limb of one. None: there is no such number.
    fn limbs(&mut self, number: WideReg, base: Register) -> Option<Memory> {
        let (first, limbs) = (usize::from(number) * self.code.limbs, self.code.limbs);
        if first + limbs > self.state.wide.len() {
            return None;
        }
        self.asm.load64(base, Memory::new(FRAME, FRAME_WIDE));
        Some(Memory::new(base, first as i32 * 8))
    }

    fn wide_set(&mut self, to: WideReg, constant: u16) -> Option<()> {
        let bytes = self.code.constants.get(usize::from(constant))?;
        let to = self.limbs(to, RDI)?;
        let mut limbs = bytes.rchunks(8);
        for at in (0..self.code.limbs as i32).map(|limb| limb * 8) {
            let limb = limbs.next().unwrap_or(&[]).iter().fold(0, |limb, byte| limb << 8 | u64::from(*byte));
            self.asm.set(RAX, limb);
            self.asm.store64(to.plus(at), RAX);
        }
        Some(())
    }

    /// The places of a field's limbs, the lowest first. None: there is none at this limb.
    fn places(&self, field: FieldId) -> impl Iterator<Item = Option<Place>> {
        let (field, limbs) = (self.code.field(field), self.code.limbs as u32);
        (0..limbs).map(move |limb| {
            let above = field.width.saturating_sub(limb * 64);
            let bits = above.min(64);
            (bits > 0).then(|| Place::new(field.at + above - bits, bits))
        })
    }

    fn wide_load(&mut self, to: WideReg, field: FieldId) -> Option<()> {
        if self.code.field(field).signed {
            return None;
        }
        let to = self.limbs(to, RDI)?;
        for (place, at) in self.places(field).zip((0..).step_by(8)) {
            match place {
                Some(place) => self.load(place, PHV)?,
                None => self.asm.set(RAX, 0),
            }
            self.asm.store64(to.plus(at), RAX);
        }
        Some(())
    }

    fn wide_store(&mut self, field: FieldId, from: WideReg) -> Option<()> {
        if self.code.field(field).width as usize > self.code.limbs * 64 {
            return None;
        }
        let from = self.limbs(from, RDI)?;
        for (place, at) in self.places(field).zip((0..).step_by(8)) {
            if let Some(place) = place {
                self.asm.load64(RAX, from.plus(at));
                self.store(place)?;
            }
        }
        Some(())
    }

    /// Applies an operation to the lowest limbs, and one to all others.
    fn wide_binary(
        &mut self,
        to: WideReg,
        left: WideReg,
        right: WideReg,
        first: Alu,
        next: Alu,
    ) -> Option<()> {
        let (to, left, right) = (self.limbs(to, RDI)?, self.limbs(left, RCX)?, self.limbs(right, RSI)?);
        for limb in 0..self.code.limbs as i32 {
            self.asm.load64(RAX, left.plus(limb * 8));
            self.asm.alu_memory(if limb == 0 { first } else { next }, RAX, right.plus(limb * 8));
            self.asm.store64(to.plus(limb * 8), RAX);
        }
        Some(())
    }

    fn wide_compare(&mut self, op: Binary, to: Reg, left: WideReg, right: WideReg) -> Option<()> {
        let (left, right) = (self.limbs(left, RDI)?, self.limbs(right, RSI)?);
        let condition = match Comparison::from_binary(op)?.mask() {
            LESS => self.order(left, right, Condition::Less),
            GREATER_OR_EQUAL => self.order(left, right, Condition::GreaterOrEqual),
            GREATER => self.order(right, left, Condition::Less),
            LESS_OR_EQUAL => self.order(right, left, Condition::GreaterOrEqual),
            _ => {
                self.asm.set(RDX, 0);
                for limb in 0..self.code.limbs as i32 {
                    self.asm.load64(RAX, left.plus(limb * 8));
                    self.asm.alu_memory(Alu::Xor, RAX, right.plus(limb * 8));
                    self.asm.alu(Alu::Or, RDX, RAX);
                }
                if op == Binary::Equal {
                    Condition::Equal
                } else {
                    Condition::NotEqual
                }
            }
        };
        self.set_condition(to, condition);
        Some(())
    }

    /// Sets the flags by the order of two numbers, signed.
    fn order(&mut self, left: Memory, right: Memory, condition: Condition) -> Condition {
        for limb in 0..self.code.limbs as i32 {
            self.asm.load64(RAX, left.plus(limb * 8));
            let operation = if limb == 0 { Alu::Compare } else { Alu::SubtractBorrow };
            self.asm.alu_memory(operation, RAX, right.plus(limb * 8));
        }
        condition
    }

    fn widen(&mut self, to: WideReg, from: Reg) -> Option<()> {
        let to = self.limbs(to, RDI)?;
        self.get(from);
        self.asm.store64(to, RAX);
        self.asm.store64(to.plus(8), RDX);
        self.asm.shift(Shift::SignedRight, RDX, 63);
        for limb in 2..self.code.limbs as i32 {
            self.asm.store64(to.plus(limb * 8), RDX);
        }
        Some(())
    }
}
