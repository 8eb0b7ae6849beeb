// SPDX-License-Identifier: Apache-2.0
//! Expressions with resolved names and folded constants.

use num_bigint::BigInt;
use num_traits::{One, Signed, ToPrimitive, Zero};
use qbed_p4engine::program::{ArrayId, Binary, FieldId, Header, Program, StackId, Unary};

use super::number;

#[derive(Debug, Clone, PartialEq)]
pub enum Expression {
    Constant(BigInt),
    Field(FieldId),
    /// A field or a parameter of 0 bits: its value is 0, and assignments to it have no effect.
    Empty,
    /// Number and width of a parameter of the running action.
    Local(u16, u32),
    /// `width` bits at `at` bits after the parser's position.
    Lookahead {
        at: u32,
        width: u32,
    },
    Last {
        stack: StackId,
        member: u16,
        field: u16,
    },
    Indexed {
        stack: StackId,
        member: u16,
        index: Box<Expression>,
        field: u16,
    },
    IndexedValid {
        stack: StackId,
        member: u16,
        index: Box<Expression>,
    },
    LastIndex(StackId),
    Register {
        array: ArrayId,
        index: Box<Expression>,
    },
    Unary(Unary, Box<Expression>),
    Binary(Binary, Box<Expression>, Box<Expression>),
    Choice(Box<Expression>, Box<Expression>, Box<Expression>),
}

pub fn is_comparison(op: Binary) -> bool {
    use Binary::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, NotEqual};
    matches!(op, Equal | NotEqual | Less | LessOrEqual | Greater | GreaterOrEqual)
}

/// Whether the right operand is a number of bits rather than a value.
pub fn counts_bits(op: Binary) -> bool {
    use Binary::{SaturateSigned, SaturateUnsigned, ShiftLeft, ShiftRight, Signed};
    matches!(op, ShiftLeft | ShiftRight | Signed | SaturateSigned | SaturateUnsigned)
}

impl Expression {
    pub fn number(value: impl Into<BigInt>) -> Self {
        Self::Constant(value.into())
    }

    pub fn constant(&self) -> Option<&BigInt> {
        match self {
            Self::Constant(value) => Some(value),
            _ => None,
        }
    }

    pub fn unary(op: Unary, of: Self) -> Self {
        match (op, of.constant()) {
            (Unary::Invert, Some(value)) => Self::Constant(-value - 1),
            (Unary::Negate, Some(value)) => Self::Constant(-value),
            (Unary::Not, Some(value)) => Self::number(u8::from(value.is_zero())),
            _ => Self::Unary(op, Box::new(of)),
        }
    }

    pub fn binary(op: Binary, left: Self, right: Self) -> Self {
        if let (Some(left), Some(right)) = (left.constant(), right.constant()) {
            if let Some(value) = fold(op, left, right) {
                return Self::Constant(value);
            }
        }
        Self::Binary(op, Box::new(left), Box::new(right))
    }

    pub fn choice(condition: Self, left: Self, right: Self) -> Self {
        match condition.constant() {
            Some(value) if value.is_zero() => right,
            Some(_) => left,
            None => Self::Choice(Box::new(condition), Box::new(left), Box::new(right)),
        }
    }

    pub fn and(left: Self, right: Self) -> Self {
        match (left.constant(), right.constant()) {
            (Some(constant), _) if constant.is_one() => right,
            (_, Some(constant)) if constant.is_one() => left,
            _ => Self::binary(Binary::And, left, right),
        }
    }

    /// Number of operands and operations.
    pub fn size(&self) -> usize {
        1 + match self {
            Self::Indexed { index, .. } | Self::IndexedValid { index, .. } | Self::Register { index, .. } => {
                index.size()
            }
            Self::Unary(_, of) => of.size(),
            Self::Binary(_, left, right) => left.size() + right.size(),
            Self::Choice(condition, left, right) => condition.size() + left.size() + right.size(),
            _ => 0,
        }
    }

    /// Width of the value in bits. None if it is unknown or the value can be negative.
    pub fn bits(&self, program: &Program) -> Option<u32> {
        match self {
            Self::Constant(value) => (!value.is_negative()).then(|| number::bits(value)),
            Self::Field(id) => unsigned(program, *id),
            Self::Empty => Some(0),
            Self::Local(_, width) | Self::Lookahead { width, .. } => Some(*width),
            Self::Last { stack, member, field } | Self::Indexed { stack, member, field, .. } => {
                unsigned(program, element(program, *stack, *member)?.first_field + field)
            }
            Self::IndexedValid { .. } | Self::Unary(Unary::Not, _) => Some(1),
            Self::Register { array, .. } => {
                let array = &program.arrays[*array as usize];
                (!array.signed).then_some(array.width)
            }
            Self::Choice(_, left, right) => Some(left.bits(program)?.max(right.bits(program)?)),
            Self::Binary(op, left, right) => binary_bits(*op, left, right, program),
            Self::LastIndex(_) | Self::Unary(..) => None,
        }
    }
}

fn unsigned(program: &Program, field: FieldId) -> Option<u32> {
    let field = &program.fields[field as usize];
    (!field.signed).then_some(field.width)
}

fn binary_bits(op: Binary, left: &Expression, right: &Expression, program: &Program) -> Option<u32> {
    let (l, r) = (left.bits(program), right.bits(program));
    match op {
        Binary::And => match (l, r) {
            (Some(l), Some(r)) => Some(l.min(r)),
            (l, r) => l.or(r),
        },
        Binary::Or | Binary::Xor => Some(l?.max(r?)),
        Binary::Add => Some(l?.max(r?) + 1),
        Binary::Multiply => Some(l?.saturating_add(r?)),
        Binary::ShiftLeft => Some(l?.saturating_add(right.constant()?.to_u32()?)),
        Binary::ShiftRight | Binary::Divide => l,
        Binary::Remainder => Some(l?.min(r?)),
        Binary::SaturateUnsigned => right.constant()?.to_u32(),
        op if is_comparison(op) => Some(1),
        _ => None,
    }
}

/// Evaluate an operation on constants. None if the result is undefined or too large.
fn fold(op: Binary, left: &BigInt, right: &BigInt) -> Option<BigInt> {
    const MAX_BITS: u64 = 4096;
    let truth = |holds: bool| Some(BigInt::from(u8::from(holds)));
    let count = right.to_u32().filter(|count| u64::from(*count) <= MAX_BITS);
    let value = match op {
        Binary::Add => left + right,
        Binary::Subtract => left - right,
        Binary::Multiply => left * right,
        Binary::Divide | Binary::Remainder if left.is_negative() || !right.is_positive() => return None,
        Binary::Divide => left / right,
        Binary::Remainder => left % right,
        Binary::ShiftLeft => left << count?,
        Binary::ShiftRight => left >> count?,
        Binary::And => left & right,
        Binary::Or => left | right,
        Binary::Xor => left ^ right,
        Binary::Equal => return truth(left == right),
        Binary::NotEqual => return truth(left != right),
        Binary::Less => return truth(left < right),
        Binary::LessOrEqual => return truth(left <= right),
        Binary::Greater => return truth(left > right),
        Binary::GreaterOrEqual => return truth(left >= right),
        Binary::Signed | Binary::SaturateSigned | Binary::SaturateUnsigned => return None,
    };
    (value.bits() <= MAX_BITS).then_some(value)
}

/// The header of a stack's elements (of a member, for a stack of unions).
pub fn element(program: &Program, stack: StackId, member: u16) -> Option<&Header> {
    let stack = program.stacks.get(stack as usize)?;
    let header = match stack.unions.first() {
        Some(union) => program.unions.get(*union as usize)?.headers.get(member as usize),
        None => stack.headers.first(),
    };
    program.headers.get(*header? as usize)
}
