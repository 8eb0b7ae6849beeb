// SPDX-License-Identifier: Apache-2.0
//! Generates code for assignments to fields, elements of stacks and registers.

use num_traits::ToPrimitive;
use qbed_p4engine::program::{ArrayId, Binary, FieldId, HeaderId, Op, StackId, Unary};

use super::evaluate::NARROW_BITS;
use super::expression::Expression;
use super::operands::Object;
use super::{number, Loader};
use crate::error::{refuse, Result};

/// The target of an assignment.
#[derive(Debug, Clone, PartialEq)]
pub enum Place {
    Field(FieldId),
    /// A field of 0 bits.
    Discard,
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
    pub fn new(expression: Expression) -> Result<Self> {
        match expression {
            Expression::Field(field) => Ok(Self::Field(field)),
            Expression::Empty => Ok(Self::Discard),
            Expression::Indexed { stack, member, index, field } => {
                Ok(Self::Element { stack, member, index: *index, field })
            }
            Expression::Last { stack, member, field } => {
                Ok(Self::Element { stack, member, index: Expression::LastIndex(stack), field })
            }
            Expression::Register { array, index } => Ok(Self::Register { array, index: *index }),
            _ => refuse("cannot assign to this operand: expected a field or a register"),
        }
    }
}

impl Loader<'_> {
    /// Generate code for each element of a stack, of which the code for `index` runs.
    pub(super) fn each_element(
        &mut self,
        stack: StackId,
        member: u16,
        index: &Expression,
        mut emit: impl FnMut(&mut Self, HeaderId) -> Result<()>,
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
            let index = code.evaluate(index)?;
            let is = code.registers.allocate()?;
            let mut ends = Vec::new();
            for (position, header) in headers.into_iter().enumerate() {
                code.emit(Op::Set { to: is, value: position as i64 });
                code.emit(Op::Binary { op: Binary::Equal, to: is, left: is, right: index });
                let over = code.emit(Op::JumpUnless { condition: is, to: 0 });
                code.scoped(|code| emit(code, header))?;
                ends.push(code.emit(Op::Jump { to: 0 }));
                code.patch_jumps(vec![over]);
            }
            code.patch_jumps(ends);
            Ok(())
        })
    }

    pub(super) fn assign(&mut self, place: &Place, value: &Expression) -> Result<()> {
        self.scoped(|code| match place {
            Place::Field(field) => code.store(*field, value),
            Place::Discard => Ok(()),
            Place::Element { stack, member, index, field } => {
                // Computed once: the code for each element only copies it.
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
        let value = &self.low_bits(value, width);
        match value {
            Expression::Field(from) if *from == field => {}
            Expression::Field(from) if self.field_width(*from) == width => {
                self.emit(Op::Copy { to: field, from: *from });
            }
            _ if width > NARROW_BITS => {
                self.registers.require_wide_bits(width);
                let from = self.evaluate_wide(value)?;
                self.emit(Op::WideStore { field, from });
            }
            _ => {
                let from = self.evaluate(value)?;
                self.emit(Op::Store { field, from });
            }
        }
        Ok(())
    }

    /// Simplify an expression of which only the low `width` bits matter: remove masks that do not change them.
    pub(super) fn low_bits(&self, of: &Expression, width: u32) -> Expression {
        // Wide registers are as wide as their operands, so only the outermost masks can be removed there.
        let inner = !self.uses_wide(of);
        match of {
            Expression::Binary(Binary::And, value, mask) | Expression::Binary(Binary::And, mask, value)
                if mask
                    .constant()
                    .is_some_and(|mask| number::truncate(mask, width) == number::mask(width)) =>
            {
                self.low_bits(value, width)
            }
            Expression::Binary(Binary::Signed, value, bits)
                if bits.constant().and_then(|bits| bits.to_u32()).is_some_and(|bits| bits >= width) =>
            {
                self.low_bits(value, width)
            }
            Expression::Binary(op, left, right) if inner => {
                use Binary::{Add, And, Multiply, Or, ShiftLeft, Subtract, Xor};
                match op {
                    Add | Subtract | Multiply | And | Or | Xor => {
                        Expression::binary(*op, self.low_bits(left, width), self.low_bits(right, width))
                    }
                    ShiftLeft => Expression::binary(*op, self.low_bits(left, width), right.as_ref().clone()),
                    _ => of.clone(),
                }
            }
            Expression::Unary(op @ (Unary::Invert | Unary::Negate), value) if inner => {
                Expression::unary(*op, self.low_bits(value, width))
            }
            Expression::Choice(condition, left, right) if inner => Expression::choice(
                condition.as_ref().clone(),
                self.low_bits(left, width),
                self.low_bits(right, width),
            ),
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
        let value = &self.low_bits(value, width);
        self.scoped(|code| {
            let index = code.evaluate(index)?;
            if width > NARROW_BITS {
                code.registers.require_wide_bits(width);
                let from = code.evaluate_wide(value)?;
                code.emit(Op::WideRegisterWrite { array, index, from });
            } else {
                let from = code.evaluate(value)?;
                code.emit(Op::RegisterWrite { array, index, from });
            }
            Ok(())
        })
    }

    /// Emit an instruction with a field as its result and assign it to a place.
    pub(super) fn emit_into(&mut self, place: &Place, op: impl FnOnce(FieldId) -> Op) -> Result<()> {
        let width = match place {
            Place::Field(field) => {
                self.emit(op(*field));
                return Ok(());
            }
            Place::Discard => 1,
            Place::Element { stack, member, field, .. } => self.element_width(*stack, *member, *field),
            Place::Register { array, .. } => self.program.arrays[*array as usize].width,
        };
        let field = self.layout.scratch(&mut self.program, width)?;
        self.emit(op(field));
        self.assign(place, &Expression::Field(field))
    }

    /// Emit an instruction for a header or for an element of a stack.
    pub(super) fn emit_for_header(&mut self, object: &Object, op: impl Fn(HeaderId) -> Op) -> Result<()> {
        match object {
            Object::Header(header) => {
                self.emit(op(*header));
                Ok(())
            }
            Object::HeaderAt { stack, member, index } => {
                self.each_element(*stack, *member, index, |code, header| {
                    code.emit(op(header));
                    Ok(())
                })
            }
            _ => refuse("expected a header"),
        }
    }
}
