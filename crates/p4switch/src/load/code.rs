// SPDX-License-Identifier: Apache-2.0
//! From expressions to steps: registers of 128 bits where all operands have at most 64, wide ones beyond.

use num_traits::{Signed, ToPrimitive, Zero};
use qbed_p4engine::program::{
    ArrayId, Binary, FieldId, HeaderId, Op, Pc, Program, Reg, StackId, Unary, WideReg,
};

use super::expression::{counts_bits, element, is_comparison, Expression, Object};
use super::{narrow, number, Loader};
use crate::error::{refuse, LoadError, Result};

/// Operands of at most so many bits go through the 128-bit registers.
const NARROW_BITS: u32 = 64;
/// The widest number on the way.
const MOST_WIDE_BITS: u32 = 40 * 64 - 1;

/// A stack of registers: an expression takes what it needs and gives it back.
#[derive(Debug, Clone, Copy, Default)]
pub struct Registers {
    next: Reg,
    most: Reg,
    wide_next: WideReg,
    wide_most: WideReg,
    wide_bits: u32,
}

impl Registers {
    pub fn tell(&self, program: &mut Program) {
        program.registers = self.most;
        program.wide_registers = self.wide_most;
        // One bit for the sign.
        program.wide_limbs = if self.wide_most == 0 { 0 } else { (self.wide_bits / 64 + 1) as u16 };
    }

    pub fn take(&mut self) -> Result<Reg> {
        let taken = self.next;
        self.next = taken.checked_add(1).ok_or_else(|| LoadError::new("too many registers"))?;
        self.most = self.most.max(self.next);
        Ok(taken)
    }

    fn take_wide(&mut self) -> Result<WideReg> {
        let taken = self.wide_next;
        self.wide_next = taken.checked_add(1).ok_or_else(|| LoadError::new("too many wide registers"))?;
        self.wide_most = self.wide_most.max(self.wide_next);
        Ok(taken)
    }

    /// Wide registers are to hold so many bits.
    fn hold(&mut self, bits: u32) {
        self.wide_bits = self.wide_bits.max(bits);
    }

    fn give_back(&mut self, to: Self) {
        (self.next, self.wide_next) = (to.next, to.wide_next);
    }
}

/// What can be assigned to.
#[derive(Debug, Clone, PartialEq)]
pub enum Place {
    Field(FieldId),
    /// A field of 0 bits.
    Nowhere,
    Element {
        stack: StackId,
        member: u16,
        index: Expression,
        field: u16,
    },
    Register {
        array: ArrayId,
        index: Expression,
    },
}

impl Place {
    pub fn of(expression: Expression) -> Result<Self> {
        match expression {
            Expression::Field(field) => Ok(Self::Field(field)),
            Expression::Empty => Ok(Self::Nowhere),
            Expression::Indexed { stack, member, index, field } => {
                Ok(Self::Element { stack, member, index: *index, field })
            }
            Expression::Last { stack, member, field } => {
                Ok(Self::Element { stack, member, index: Expression::LastIndex(stack), field })
            }
            Expression::Register { array, index } => Ok(Self::Register { array, index: *index }),
            _ => refuse("assigned to something that is neither a field nor a register"),
        }
    }
}

impl Loader<'_> {
    pub(super) fn emit(&mut self, op: Op) -> usize {
        self.program.code.push(op);
        self.program.code.len() - 1
    }

    /// Lets the jump at `at` go to `to`.
    pub(super) fn aim(&mut self, at: usize, to: Pc) {
        match &mut self.program.code[at] {
            Op::Jump { to: target } | Op::JumpIf { to: target, .. } | Op::JumpUnless { to: target, .. } => {
                *target = to
            }
            other => unreachable!("{other:?} is no jump"),
        }
    }

    /// Gives back the registers that `steps` took.
    pub(super) fn scoped<T>(&mut self, steps: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let before = self.registers;
        let result = steps(self);
        self.registers.give_back(before);
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

    fn field_width(&self, field: FieldId) -> u32 {
        self.program.fields[field as usize].width
    }

    fn element_width(&self, stack: StackId, member: u16, field: u16) -> u32 {
        element(&self.program, stack, member).map_or(0, |header| self.field_width(header.first_field + field))
    }

    /// Whether wide registers take part in its computation (its value may be narrow).
    fn computed_wide(&self, of: &Expression) -> bool {
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
            Expression::Unary(_, of) => self.is_wide(of),
            Expression::Binary(op, ..) if is_comparison(*op) => false,
            Expression::Binary(op, left, _) if counts_bits(*op) => self.is_wide(left),
            Expression::Binary(_, left, right) | Expression::Choice(_, left, right) => {
                self.is_wide(left) || self.is_wide(right)
            }
        }
    }

    /// Whether its value needs a wide register.
    fn is_wide(&self, of: &Expression) -> bool {
        self.computed_wide(of) && of.bits(&self.program).is_none_or(|bits| bits > NARROW_BITS)
    }

    /// Into a register of its own.
    pub(super) fn number(&mut self, of: &Expression) -> Result<Reg> {
        let to = self.registers.take()?;
        self.number_into(to, of)?;
        Ok(to)
    }

    pub(super) fn number_into(&mut self, to: Reg, of: &Expression) -> Result<()> {
        self.scoped(|code| code.number_steps(to, of))
    }

    fn number_steps(&mut self, to: Reg, of: &Expression) -> Result<()> {
        if self.computed_wide(of) {
            let from = self.wide(of)?;
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
                let index = self.number(index)?;
                self.emit(Op::LoadIndexed { to, stack: *stack, member: *member, index, field: *field })
            }
            Expression::IndexedValid { stack, member, index } => {
                let index = self.number(index)?;
                self.emit(Op::ValidIndexed { to, stack: *stack, member: *member, index })
            }
            Expression::LastIndex(stack) => self.emit(Op::StackLastIndex { to, stack: *stack }),
            Expression::Register { array, index } => {
                let field = self.read_register(*array, index)?;
                self.emit(Op::Load { to, field })
            }
            Expression::Unary(Unary::Not, of) if self.is_wide(of) => {
                return self.compare_wide(to, Binary::Equal, of, &Expression::number(0));
            }
            Expression::Unary(op, of) => {
                self.number_into(to, of)?;
                self.emit(Op::Unary { op: *op, to, from: to })
            }
            Expression::Binary(op, left, right)
                if is_comparison(*op) && (self.is_wide(left) || self.is_wide(right)) =>
            {
                return self.compare_wide(to, *op, left, right);
            }
            Expression::Binary(op, left, right) => {
                self.number_into(to, left)?;
                let right = self.number(right)?;
                self.emit(Op::Binary { op: *op, to, left: to, right })
            }
            Expression::Choice(condition, left, right) => {
                return self.choose(
                    condition,
                    |code| code.number_into(to, left),
                    |code| code.number_into(to, right),
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

    /// The register lands in a scratch field.
    fn read_register(&mut self, array: ArrayId, index: &Expression) -> Result<FieldId> {
        let (width, signed) = {
            let array = &self.program.arrays[array as usize];
            (array.width, array.signed)
        };
        let field = self.layout.scratch(&mut self.program, width)?;
        self.program.fields[field as usize].signed = signed;
        let index = self.number(index)?;
        self.emit(Op::RegisterRead { to: field, array, index });
        Ok(field)
    }

    fn compare_wide(&mut self, to: Reg, op: Binary, left: &Expression, right: &Expression) -> Result<()> {
        let left = self.wide(left)?;
        let right = self.wide(right)?;
        self.emit(Op::WideCompare { op, to, left, right });
        Ok(())
    }

    fn choose(
        &mut self,
        condition: &Expression,
        then: impl FnOnce(&mut Self) -> Result<()>,
        otherwise: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let over = self.skip_unless(condition)?;
        then(self)?;
        let end = self.emit(Op::Jump { to: 0 });
        self.land(over);
        otherwise(self)?;
        self.land(vec![end]);
        Ok(())
    }

    /// Jumps, to be aimed, of which one is taken unless the condition holds.
    pub(super) fn skip_unless(&mut self, condition: &Expression) -> Result<Vec<usize>> {
        self.scoped(|code| code.jumps(condition, false))
    }

    /// Jumps that are taken where the condition's truth is `when`; behind them goes on what is not. The right side of `and` and
    /// `or` is looked at where the left one leaves it open: nothing that an expression does can be missed.
    fn jumps(&mut self, condition: &Expression, when: bool) -> Result<Vec<usize>> {
        let is_truth = |of: &Expression, code: &Self| of.bits(&code.program).is_some_and(|bits| bits <= 1);
        match condition {
            Expression::Constant(value) if value.is_zero() == when => Ok(Vec::new()),
            Expression::Constant(_) => Ok(vec![self.emit(Op::Jump { to: 0 })]),
            Expression::Unary(Unary::Not, of) if !self.is_wide(of) => self.jumps(of, !when),
            Expression::Binary(op @ (Binary::Equal | Binary::NotEqual), of, zero)
                if zero.constant().is_some_and(Zero::is_zero) && !self.is_wide(of) =>
            {
                self.jumps(of, when == (*op == Binary::NotEqual))
            }
            Expression::Binary(op @ (Binary::And | Binary::Or), left, right)
                if is_truth(left, self) && is_truth(right, self) =>
            {
                // The value of the left that decides alone.
                let decides = *op == Binary::Or;
                if decides == when {
                    let mut taken = self.jumps(left, when)?;
                    taken.extend(self.jumps(right, when)?);
                    return Ok(taken);
                }
                let over = self.jumps(left, decides)?;
                let taken = self.jumps(right, when)?;
                self.land(over);
                Ok(taken)
            }
            _ => {
                let condition = self.number(condition)?;
                let jump =
                    if when { Op::JumpIf { condition, to: 0 } } else { Op::JumpUnless { condition, to: 0 } };
                Ok(vec![self.emit(jump)])
            }
        }
    }

    /// Lets jumps end here.
    pub(super) fn land(&mut self, jumps: Vec<usize>) {
        let here = self.here();
        jumps.into_iter().for_each(|jump| self.aim(jump, here));
    }

    pub(super) fn wide(&mut self, of: &Expression) -> Result<WideReg> {
        let to = self.registers.take_wide()?;
        let bits = self.extent(of);
        if bits >= MOST_WIDE_BITS {
            return refuse(format!("a number of up to {bits} bits: at most {MOST_WIDE_BITS} are possible"));
        }
        self.registers.hold(bits);
        self.scoped(|code| code.wide_steps(to, of))?;
        Ok(to)
    }

    fn wide_into(&mut self, to: WideReg, of: &Expression) -> Result<()> {
        self.scoped(|code| code.wide_steps(to, of))
    }

    fn wide_steps(&mut self, to: WideReg, of: &Expression) -> Result<()> {
        if !self.computed_wide(of) {
            let from = self.number(of)?;
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
                self.wide_into(to, of)?;
                self.emit(Op::WideUnary { op: *op, to, from: to });
            }
            Expression::Binary(op, left, right) => {
                self.wide_into(to, left)?;
                let right = self.wide(right)?;
                self.emit(Op::WideBinary { op: *op, to, left: to, right });
            }
            Expression::Choice(condition, left, right) => {
                return self.choose(
                    condition,
                    |code| code.wide_into(to, left),
                    |code| code.wide_into(to, right),
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

    /// How many bits it may take on the way; shifts by unknown counts are cut, as what follows them cuts.
    fn extent(&self, of: &Expression) -> u32 {
        let own = of.bits(&self.program);
        let inner = match of {
            Expression::Constant(value) => value.bits() as u32,
            Expression::Field(field) => self.field_width(*field),
            Expression::Last { stack, member, field } | Expression::Indexed { stack, member, field, .. } => {
                self.element_width(*stack, *member, *field)
            }
            Expression::Unary(_, of) => self.extent(of) + 1,
            Expression::Binary(op, left, right) => {
                let (l, r) = (self.extent(left), self.extent(right));
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
            Expression::Choice(_, left, right) => self.extent(left).max(self.extent(right)),
            _ => NARROW_BITS,
        };
        inner.max(own.unwrap_or(0)).min(u32::MAX / 4)
    }

    /// For each element of a stack: steps that run if the index says it.
    pub(super) fn each_element(
        &mut self,
        stack: StackId,
        member: u16,
        index: &Expression,
        mut steps: impl FnMut(&mut Self, HeaderId) -> Result<()>,
    ) -> Result<()> {
        let of = &self.program.stacks[stack as usize];
        let headers: Vec<HeaderId> = match of.unions.is_empty() {
            true => of.headers.clone(),
            false => {
                let members = of.unions.iter().map(|union| &self.program.unions[*union as usize].headers);
                members.filter_map(|headers| headers.get(member as usize).copied()).collect()
            }
        };
        self.scoped(|code| {
            let index = code.number(index)?;
            let is = code.registers.take()?;
            let mut ends = Vec::new();
            for (position, header) in headers.into_iter().enumerate() {
                code.emit(Op::Set { to: is, value: position as i64 });
                code.emit(Op::Binary { op: Binary::Equal, to: is, left: is, right: index });
                let over = code.emit(Op::JumpUnless { condition: is, to: 0 });
                code.scoped(|code| steps(code, header))?;
                ends.push(code.emit(Op::Jump { to: 0 }));
                code.land(vec![over]);
            }
            code.land(ends);
            Ok(())
        })
    }

    pub(super) fn assign(&mut self, place: &Place, value: &Expression) -> Result<()> {
        self.scoped(|code| match place {
            Place::Field(field) => code.store(*field, value),
            Place::Nowhere => Ok(()),
            Place::Element { stack, member, index, field } => {
                // Computed once: the steps for each element only store it.
                let width = code.element_width(*stack, *member, *field);
                let from = code.layout.scratch(&mut code.program, width)?;
                code.store(from, value)?;
                code.each_element(*stack, *member, index, |code, header| {
                    let to = code.program.headers[header as usize].first_field + field;
                    code.emit(Op::Copy { to, from });
                    Ok(())
                })
            }
            Place::Register { array, index } => code.write_register(*array, index, value),
        })
    }

    fn store(&mut self, field: FieldId, value: &Expression) -> Result<()> {
        let width = self.field_width(field);
        let value = &self.low(value, width);
        match value {
            Expression::Field(from) if *from == field => {}
            Expression::Field(from) if self.field_width(*from) == width => {
                self.emit(Op::Copy { to: field, from: *from });
            }
            _ if width > NARROW_BITS => {
                self.registers.hold(width);
                let from = self.wide(value)?;
                self.emit(Op::WideStore { field, from });
            }
            _ => {
                let from = self.number(value)?;
                self.emit(Op::Store { field, from });
            }
        }
        Ok(())
    }

    /// What has the same low bits, without the cuts that do not touch them.
    pub(super) fn low(&self, of: &Expression, width: u32) -> Expression {
        // Wide registers are as long as what goes into them: there only the outermost cuts are needless.
        let inner = !self.computed_wide(of);
        match of {
            Expression::Binary(Binary::And, value, mask) | Expression::Binary(Binary::And, mask, value)
                if mask.constant().is_some_and(|mask| number::cut(mask, width) == number::mask(width)) =>
            {
                self.low(value, width)
            }
            Expression::Binary(Binary::Signed, value, bits)
                if bits.constant().and_then(|bits| bits.to_u32()).is_some_and(|bits| bits >= width) =>
            {
                self.low(value, width)
            }
            Expression::Binary(op, left, right) if inner => {
                use Binary::{Add, And, Multiply, Or, ShiftLeft, Subtract, Xor};
                match op {
                    Add | Subtract | Multiply | And | Or | Xor => {
                        Expression::binary(*op, self.low(left, width), self.low(right, width))
                    }
                    ShiftLeft => Expression::binary(*op, self.low(left, width), right.as_ref().clone()),
                    _ => of.clone(),
                }
            }
            Expression::Unary(op @ (Unary::Invert | Unary::Negate), value) if inner => {
                Expression::unary(*op, self.low(value, width))
            }
            Expression::Choice(condition, left, right) if inner => {
                Expression::choice(condition.as_ref().clone(), self.low(left, width), self.low(right, width))
            }
            _ => of.clone(),
        }
    }

    pub(super) fn write_register(
        &mut self,
        array: ArrayId,
        index: &Expression,
        value: &Expression,
    ) -> Result<()> {
        let width = self.program.arrays[array as usize].width;
        let value = &self.low(value, width);
        self.scoped(|code| {
            let index = code.number(index)?;
            if width > NARROW_BITS {
                code.registers.hold(width);
                let from = code.wide(value)?;
                code.emit(Op::WideRegisterWrite { array, index, from });
            } else {
                let from = code.number(value)?;
                code.emit(Op::RegisterWrite { array, index, from });
            }
            Ok(())
        })
    }

    /// A step that ends in a field, where the place may be anything.
    pub(super) fn step_into(&mut self, place: &Place, step: impl FnOnce(FieldId) -> Op) -> Result<()> {
        let width = match place {
            Place::Field(field) => {
                self.emit(step(*field));
                return Ok(());
            }
            Place::Nowhere => 1,
            Place::Element { stack, member, field, .. } => self.element_width(*stack, *member, *field),
            Place::Register { array, .. } => self.program.arrays[*array as usize].width,
        };
        let field = self.layout.scratch(&mut self.program, width)?;
        self.emit(step(field));
        self.assign(place, &Expression::Field(field))
    }

    /// Steps for a header that may be the element of a stack.
    pub(super) fn for_header(&mut self, object: &Object, step: impl Fn(HeaderId) -> Op) -> Result<()> {
        match object {
            Object::Header(header) => {
                self.emit(step(*header));
                Ok(())
            }
            Object::HeaderAt { stack, member, index } => {
                self.each_element(*stack, *member, index, |code, header| {
                    code.emit(step(header));
                    Ok(())
                })
            }
            _ => refuse("not a header"),
        }
    }
}
