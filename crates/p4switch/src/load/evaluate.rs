// SPDX-License-Identifier: Apache-2.0
//! Generates code for expressions: in registers of 128 bits if all operands have at most 64 bits, else in wide ones.

use num_traits::{Signed, ToPrimitive, Zero};
use qbed_p4engine::program::{ArrayId, Binary, FieldId, Op, Pc, Reg, StackId, Unary, WideReg};

use super::expression::{counts_bits, element, is_comparison, Expression};
use super::{narrow, Loader};
use crate::error::{refuse, Result};

/// Widest operand that is computed in 128-bit registers.
pub const NARROW_BITS: u32 = 64;
/// Limit on the width of intermediate results.
const MAX_WIDE_BITS: u32 = 40 * 64 - 1;

impl Loader<'_> {
    pub(super) fn emit(&mut self, op: Op) -> usize {
        self.program.code.push(op);
        self.program.code.len() - 1
    }

    /// Set the target of the jump at `at`.
    pub(super) fn patch_jump(&mut self, at: usize, to: Pc) {
        match &mut self.program.code[at] {
            Op::Jump { to: target } | Op::JumpIf { to: target, .. } | Op::JumpUnless { to: target, .. } => {
                *target = to
            }
            other => unreachable!("{other:?} is no jump"),
        }
    }

    /// Generate code and free the registers that it allocated.
    pub(super) fn scoped<T>(&mut self, emit: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let before = self.registers;
        let result = emit(self);
        self.registers.free_to(before);
        result
    }

    pub(super) fn constant(&mut self, bytes: Vec<u8>) -> Result<u16> {
        let known = self.program.constants.iter().position(|constant| *constant == bytes);
        let index = known.unwrap_or_else(|| {
            self.program.constants.push(bytes);
            self.program.constants.len() - 1
        });
        narrow(index, "constants")
    }

    pub(super) fn field_width(&self, field: FieldId) -> u32 {
        self.program.fields[field as usize].width
    }

    pub(super) fn element_width(&self, stack: StackId, member: u16, field: u16) -> u32 {
        element(&self.program, stack, member).map_or(0, |header| self.field_width(header.first_field + field))
    }

    /// Whether the computation uses wide registers. The result may be narrow.
    pub(super) fn uses_wide(&self, of: &Expression) -> bool {
        match of {
            Expression::Constant(value) => value.bits() > 126,
            Expression::Field(field) => self.field_width(*field) > NARROW_BITS,
            Expression::Local(_, width) | Expression::Lookahead { width, .. } => *width > NARROW_BITS,
            Expression::Last { stack, member, field } | Expression::Indexed { stack, member, field, .. } => {
                self.element_width(*stack, *member, *field) > NARROW_BITS
            }
            Expression::Register { array, .. } => self.program.arrays[*array as usize].width > NARROW_BITS,
            Expression::Empty
            | Expression::IndexedValid { .. }
            | Expression::LastIndex(_)
            | Expression::Unary(Unary::Not, _) => false,
            Expression::Unary(_, of) => self.needs_wide(of),
            Expression::Binary(op, ..) if is_comparison(*op) => false,
            Expression::Binary(op, left, _) if counts_bits(*op) => self.needs_wide(left),
            Expression::Binary(_, left, right) | Expression::Choice(_, left, right) => {
                self.needs_wide(left) || self.needs_wide(right)
            }
        }
    }

    /// Whether the result needs a wide register.
    fn needs_wide(&self, of: &Expression) -> bool {
        self.uses_wide(of) && of.bits(&self.program).is_none_or(|bits| bits > NARROW_BITS)
    }

    /// Evaluate into a new register.
    pub(super) fn evaluate(&mut self, of: &Expression) -> Result<Reg> {
        let to = self.registers.allocate()?;
        self.evaluate_into(to, of)?;
        Ok(to)
    }

    pub(super) fn evaluate_into(&mut self, to: Reg, of: &Expression) -> Result<()> {
        self.scoped(|code| code.emit_narrow(to, of))
    }

    fn emit_narrow(&mut self, to: Reg, of: &Expression) -> Result<()> {
        if self.uses_wide(of) {
            let from = self.evaluate_wide(of)?;
            self.emit(Op::Narrow { to, from });
            return Ok(());
        }
        match of {
            Expression::Constant(value) => return self.constant_into(to, value),
            Expression::Empty => self.emit(Op::Set { to, value: 0 }),
            Expression::Field(field) => self.emit(Op::Load { to, field: *field }),
            Expression::Local(argument, _) => self.emit(Op::Argument { to, argument: *argument }),
            Expression::Lookahead { at, width } => self.emit(Op::Lookahead { to, at: *at, width: *width }),
            Expression::Last { stack, member, field } => {
                self.emit(Op::LoadLast { to, stack: *stack, member: *member, field: *field })
            }
            Expression::Indexed { stack, member, index, field } => {
                let index = self.evaluate(index)?;
                self.emit(Op::LoadIndexed { to, stack: *stack, member: *member, index, field: *field })
            }
            Expression::IndexedValid { stack, member, index } => {
                let index = self.evaluate(index)?;
                self.emit(Op::ValidIndexed { to, stack: *stack, member: *member, index })
            }
            Expression::LastIndex(stack) => self.emit(Op::StackLastIndex { to, stack: *stack }),
            Expression::Register { array, index } => {
                let field = self.read_register(*array, index)?;
                self.emit(Op::Load { to, field })
            }
            Expression::Unary(Unary::Not, of) if self.needs_wide(of) => {
                return self.compare_wide(to, Binary::Equal, of, &Expression::number(0));
            }
            Expression::Unary(op, of) => {
                self.evaluate_into(to, of)?;
                self.emit(Op::Unary { op: *op, to, from: to })
            }
            Expression::Binary(op, left, right)
                if is_comparison(*op) && (self.needs_wide(left) || self.needs_wide(right)) =>
            {
                return self.compare_wide(to, *op, left, right);
            }
            Expression::Binary(op, left, right) => {
                self.evaluate_into(to, left)?;
                let right = self.evaluate(right)?;
                self.emit(Op::Binary { op: *op, to, left: to, right })
            }
            Expression::Choice(condition, left, right) => {
                return self.evaluate_choice(
                    condition,
                    |code| code.evaluate_into(to, left),
                    |code| code.evaluate_into(to, right),
                );
            }
        };
        Ok(())
    }

    fn constant_into(&mut self, to: Reg, value: &num_bigint::BigInt) -> Result<()> {
        if let Some(value) = value.to_i64() {
            self.emit(Op::Set { to, value });
            return Ok(());
        }
        let constant = self.constant(value.magnitude().to_bytes_be())?;
        self.emit(Op::SetLong { to, constant });
        if value.is_negative() {
            self.emit(Op::Unary { op: Unary::Negate, to, from: to });
        }
        Ok(())
    }

    /// Read a cell of a register array into a scratch field.
    fn read_register(&mut self, array: ArrayId, index: &Expression) -> Result<FieldId> {
        let (width, signed) = {
            let array = &self.program.arrays[array as usize];
            (array.width, array.signed)
        };
        let field = self.layout.scratch(&mut self.program, width)?;
        self.program.fields[field as usize].signed = signed;
        let index = self.evaluate(index)?;
        self.emit(Op::RegisterRead { to: field, array, index });
        Ok(field)
    }

    fn compare_wide(&mut self, to: Reg, op: Binary, left: &Expression, right: &Expression) -> Result<()> {
        let left = self.evaluate_wide(left)?;
        let right = self.evaluate_wide(right)?;
        self.emit(Op::WideCompare { op, to, left, right });
        Ok(())
    }

    fn evaluate_choice(
        &mut self,
        condition: &Expression,
        then: impl FnOnce(&mut Self) -> Result<()>,
        otherwise: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let over = self.skip_unless(condition)?;
        then(self)?;
        let end = self.emit(Op::Jump { to: 0 });
        self.patch_jumps(over);
        otherwise(self)?;
        self.patch_jumps(vec![end]);
        Ok(())
    }

    /// Emit jumps of which one is taken unless the condition holds, for `patch_jumps`.
    pub(super) fn skip_unless(&mut self, condition: &Expression) -> Result<Vec<usize>> {
        self.scoped(|code| code.branch(condition, false))
    }

    /// Emit jumps that are taken if the condition is `when`, for `patch_jumps`. The right side of `and` and `or` is
    /// only evaluated if the left side does not decide: expressions have no side effects.
    fn branch(&mut self, condition: &Expression, when: bool) -> Result<Vec<usize>> {
        let is_truth = |of: &Expression, code: &Self| of.bits(&code.program).is_some_and(|bits| bits <= 1);
        match condition {
            Expression::Constant(value) if value.is_zero() == when => Ok(Vec::new()),
            Expression::Constant(_) => Ok(vec![self.emit(Op::Jump { to: 0 })]),
            Expression::Unary(Unary::Not, of) if !self.needs_wide(of) => self.branch(of, !when),
            Expression::Binary(op @ (Binary::Equal | Binary::NotEqual), of, zero)
                if zero.constant().is_some_and(Zero::is_zero) && !self.needs_wide(of) =>
            {
                self.branch(of, when == (*op == Binary::NotEqual))
            }
            Expression::Binary(op @ (Binary::And | Binary::Or), left, right)
                if is_truth(left, self) && is_truth(right, self) =>
            {
                // The value of the left side that decides the result.
                let decides = *op == Binary::Or;
                if decides == when {
                    let mut taken = self.branch(left, when)?;
                    taken.extend(self.branch(right, when)?);
                    return Ok(taken);
                }
                let over = self.branch(left, decides)?;
                let taken = self.branch(right, when)?;
                self.patch_jumps(over);
                Ok(taken)
            }
            _ => {
                let condition = self.evaluate(condition)?;
                let jump =
                    if when { Op::JumpIf { condition, to: 0 } } else { Op::JumpUnless { condition, to: 0 } };
                Ok(vec![self.emit(jump)])
            }
        }
    }

    /// Make jumps end at the next instruction.
    pub(super) fn patch_jumps(&mut self, jumps: Vec<usize>) {
        let next = self.next_pc();
        jumps.into_iter().for_each(|jump| self.patch_jump(jump, next));
    }

    pub(super) fn evaluate_wide(&mut self, of: &Expression) -> Result<WideReg> {
        let to = self.registers.allocate_wide()?;
        let bits = self.max_bits(of);
        if bits >= MAX_WIDE_BITS {
            return refuse(format!("a number of up to {bits} bits: at most {MAX_WIDE_BITS} are supported"));
        }
        self.registers.require_wide_bits(bits);
        self.scoped(|code| code.emit_wide(to, of))?;
        Ok(to)
    }

    fn evaluate_wide_into(&mut self, to: WideReg, of: &Expression) -> Result<()> {
        self.scoped(|code| code.emit_wide(to, of))
    }

    fn emit_wide(&mut self, to: WideReg, of: &Expression) -> Result<()> {
        if !self.uses_wide(of) {
            let from = self.evaluate(of)?;
            self.emit(Op::Widen { to, from });
            return Ok(());
        }
        match of {
            Expression::Constant(value) => {
                let constant = self.constant(value.magnitude().to_bytes_be())?;
                self.emit(Op::WideSet { to, constant });
                if value.is_negative() {
                    self.emit(Op::WideUnary { op: Unary::Negate, to, from: to });
                }
            }
            Expression::Field(field) => {
                self.emit(Op::WideLoad { to, field: *field });
            }
            Expression::Local(argument, _) => {
                self.emit(Op::WideArgument { to, argument: *argument });
            }
            Expression::Lookahead { at, width } => {
                self.emit(Op::WideLookahead { to, at: *at, width: *width });
            }
            Expression::Last { stack, member, field } => {
                self.wide_element(to, *stack, *member, &Expression::LastIndex(*stack), *field)?;
            }
            Expression::Indexed { stack, member, index, field } => {
                self.wide_element(to, *stack, *member, index, *field)?;
            }
            Expression::Register { array, index } => {
                let field = self.read_register(*array, index)?;
                self.emit(Op::WideLoad { to, field });
            }
            Expression::Unary(op, of) => {
                self.evaluate_wide_into(to, of)?;
                self.emit(Op::WideUnary { op: *op, to, from: to });
            }
            Expression::Binary(op, left, right) => {
                self.evaluate_wide_into(to, left)?;
                let right = self.evaluate_wide(right)?;
                self.emit(Op::WideBinary { op: *op, to, left: to, right });
            }
            Expression::Choice(condition, left, right) => {
                return self.evaluate_choice(
                    condition,
                    |code| code.evaluate_wide_into(to, left),
                    |code| code.evaluate_wide_into(to, right),
                );
            }
            Expression::Empty | Expression::IndexedValid { .. } | Expression::LastIndex(_) => {
                unreachable!("these are narrow")
            }
        }
        Ok(())
    }

    fn wide_element(
        &mut self,
        to: WideReg,
        stack: StackId,
        member: u16,
        index: &Expression,
        field: u16,
    ) -> Result<()> {
        let zero = self.constant(vec![0])?;
        self.emit(Op::WideSet { to, constant: zero });
        self.each_element(stack, member, index, |code, header| {
            let field = code.program.headers[header as usize].first_field + field;
            code.emit(Op::WideLoad { to, field });
            Ok(())
        })
    }

    /// Upper bound on the bits of all intermediate results. Results of shifts by unknown counts are truncated to it.
    fn max_bits(&self, of: &Expression) -> u32 {
        let result = of.bits(&self.program);
        let inner = match of {
            Expression::Constant(value) => value.bits() as u32,
            Expression::Field(field) => self.field_width(*field),
            Expression::Last { stack, member, field } | Expression::Indexed { stack, member, field, .. } => {
                self.element_width(*stack, *member, *field)
            }
            Expression::Unary(_, of) => self.max_bits(of) + 1,
            Expression::Binary(op, left, right) => {
                let (l, r) = (self.max_bits(left), self.max_bits(right));
                match op {
                    Binary::Add | Binary::Subtract => l.max(r) + 1,
                    Binary::Multiply => l.saturating_add(r),
                    Binary::ShiftLeft => {
                        l.saturating_add(right.constant().and_then(|by| by.to_u32()).unwrap_or(0))
                    }
                    op if counts_bits(*op) => l.max(right.constant().and_then(|by| by.to_u32()).unwrap_or(0)),
                    _ => l.max(r),
                }
            }
            Expression::Choice(_, left, right) => self.max_bits(left).max(self.max_bits(right)),
            _ => NARROW_BITS,
        };
        inner.max(result.unwrap_or(0)).min(u32::MAX / 4)
    }
}
