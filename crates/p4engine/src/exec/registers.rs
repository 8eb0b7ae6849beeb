// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Access to registers and fields, and wide numbers.

use alloc::vec::Vec;

use crate::arith::bits::{self, Place};
use crate::arith::wide::{self, Wide};
use crate::exec::interpreter::Interpreter;
use crate::exec::packet::Shell;
use crate::ir::{Op, Reg, WideReg, MAX_REGISTERS};

impl<'a, S: Shell> Interpreter<'a, S> {
    #[inline(always)]
    pub fn number(&self, register: Reg) -> i128 {
        self.state.registers[usize::from(register) % MAX_REGISTERS]
    }

    #[inline(always)]
    pub fn set(&mut self, register: Reg, value: i128) {
        self.state.registers[usize::from(register) % MAX_REGISTERS] = value;
    }

    #[inline(always)]
    pub(super) fn load(&mut self, register: Reg, value: u64) {
        self.set(register, i128::from(value));
    }

    pub fn wide(&self, register: WideReg) -> Wide {
        let (first, limbs) = (usize::from(register) * self.code.limbs, self.code.limbs);
        self.state.wide.get(first..first + limbs).map_or(Wide::zero(limbs), Wide::from_limbs)
    }

    pub fn set_wide(&mut self, register: WideReg, value: &Wide) {
        let (first, limbs) = (usize::from(register) * self.code.limbs, self.code.limbs);
        if let Some(row) = self.state.wide.get_mut(first..first + limbs) {
            row.copy_from_slice(value.as_ref());
        }
    }

    #[inline(always)]
    pub(super) fn unary(&mut self, to: Reg, from: Reg, apply: impl FnOnce(i128) -> i128) {
        self.set(to, apply(self.number(from)));
    }

    #[inline(always)]
    pub(super) fn binary(&mut self, to: Reg, left: Reg, right: Reg, apply: impl FnOnce(i128, i128) -> i128) {
        self.set(to, apply(self.number(left), self.number(right)));
    }

    #[inline(always)]
    pub(super) fn fetch(&mut self, to: Reg, at: u16, get: impl FnOnce(&[u8], u16) -> u64) {
        self.load(to, get(&self.context.phv, at));
    }

    #[inline(always)]
    pub(super) fn put(&mut self, at: u16, from: Reg, put: impl FnOnce(&mut [u8], u16, u64)) {
        let value = self.number(from) as u64;
        put(&mut self.context.phv, at, value);
    }

    #[inline(always)]
    pub(super) fn copy(
        &mut self,
        to: u16,
        from: u16,
        get: impl FnOnce(&[u8], u16) -> u64,
        put: impl FnOnce(&mut [u8], u16, u64),
    ) {
        let value = get(&self.context.phv, from);
        put(&mut self.context.phv, to, value);
    }

    #[inline(always)]
    pub(super) fn store_into(&mut self, place: Place, from: Reg) {
        let value = self.number(from) as u64;
        place.store(&mut self.context.phv, value);
    }

    #[inline(always)]
    pub(super) fn signed(&self, place: Place) -> i128 {
        i128::from(bits::signed(place.load(&self.context.phv), place.width()))
    }

    #[inline(always)]
    pub(super) fn argument(&self, argument: u16) -> u64 {
        self.state.arguments.get(usize::from(argument)).copied().unwrap_or(0)
    }

    pub fn wide_argument(&self, argument: u16) -> Wide {
        let first = self.argument(argument) as usize;
        let mut wide = Wide::zero(self.code.limbs);
        for (limb, value) in wide.as_mut().iter_mut().zip(self.state.arguments.get(first..).unwrap_or(&[])) {
            *limb = *value;
        }
        wide
    }

    #[inline(always)]
    pub(super) fn copy_bytes(&mut self, to: u32, from: u32, bytes: u16) {
        let (to, from, bytes) = (to as usize, from as usize, usize::from(bytes));
        if to.max(from) + bytes <= self.context.phv.len() {
            self.context.phv.copy_within(from..from + bytes, to);
        }
    }

    pub fn run_wide_op(&mut self, op: Op) {
        let (code, limbs) = (self.code, self.code.limbs);
        let constant =
            |constant: u16| code.constants.get(usize::from(constant)).map_or(&[][..], Vec::as_slice);
        match op {
            Op::SetLong { to, constant: bytes } => {
                let value = constant(bytes).iter().fold(0i128, |value, byte| value << 8 | i128::from(*byte));
                self.set(to, value);
            }
            Op::StoreConstant { field, value } => {
                code.place(field).store(&mut self.context.phv, value as u64);
            }
            Op::WideSet { to, constant: bytes } => {
                self.set_wide(to, &Wide::from_bytes(constant(bytes), limbs))
            }
            Op::WideLoad { to, field } => {
                let field = code.field(field);
                let mut value = Wide::zero(limbs);
                bits::load_limbs(&self.context.phv, field.at, field.width, value.as_mut());
                self.set_wide(to, &if field.signed { value.signed(field.width as usize) } else { value });
            }
            Op::WideStore { field, from } => {
                let (field, value) = (code.field(field), self.wide(from));
                bits::store_limbs(&mut self.context.phv, field.at, field.width, value.as_ref());
            }
            Op::WideArgument { to, argument, .. } => self.set_wide(to, &self.wide_argument(argument)),
            Op::WideUnary { op, to, from } => self.set_wide(to, &wide::unary(op, &self.wide(from))),
            Op::WideBinary { op, to, left, right } => {
                self.set_wide(to, &wide::binary(op, &self.wide(left), &self.wide(right)));
            }
            Op::WideCompare { op, to, left, right } => {
                self.set(to, i128::from(wide::compare(op, &self.wide(left), &self.wide(right))));
            }
            Op::Widen { to, from } => self.set_wide(to, &Wide::from_number(self.number(from), limbs)),
            Op::Narrow { to, from } => self.set(to, self.wide(from).number()),
            Op::Copy { to, from } => {
                let (to, from) = (code.field(to), code.field(from));
                self.context.copy_bits(to.at, from.at, to.width.min(from.width));
            }
            _ => {}
        }
    }
}
