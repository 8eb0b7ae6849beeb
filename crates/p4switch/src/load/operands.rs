// SPDX-License-Identifier: Apache-2.0
//! Reads operands of the JSON: expressions, headers, stacks and unions.

use num_bigint::BigInt;
use num_traits::{One, ToPrimitive, Zero};
use qbed_p4engine::program::{ArrayId, Binary, HeaderId, Parameter, StackId, Unary};
use serde_json::Value as Json;

use super::expression::{element, Expression};
use super::{narrow, number, Loader};
use crate::bmv2::{part, Operand, Operation};
use crate::error::{refuse, At, LoadError, Result};

/// An operand other than a number.
#[derive(Debug, Clone, PartialEq)]
pub enum Object {
    Header(HeaderId),
    /// An element of a stack of headers, or a member of an element of a stack of unions.
    HeaderAt {
        stack: StackId,
        member: u16,
        index: Expression,
    },
    Stack(StackId),
    Union(u16),
    UnionAt {
        stack: StackId,
        index: Expression,
    },
}

/// Parameters of the action, and their values if they are constant.
#[derive(Clone, Copy, Default)]
pub struct Scope<'a> {
    pub parameters: &'a [Parameter],
    pub values: Option<&'a [BigInt]>,
}

const BINARY: &[(&str, Binary)] = &[
    ("+", Binary::Add),
    ("-", Binary::Subtract),
    ("*", Binary::Multiply),
    ("/", Binary::Divide),
    ("%", Binary::Remainder),
    ("<<", Binary::ShiftLeft),
    (">>", Binary::ShiftRight),
    ("&", Binary::And),
    ("|", Binary::Or),
    ("^", Binary::Xor),
    ("and", Binary::And),
    ("or", Binary::Or),
    ("==", Binary::Equal),
    ("!=", Binary::NotEqual),
    ("<", Binary::Less),
    ("<=", Binary::LessOrEqual),
    (">", Binary::Greater),
    (">=", Binary::GreaterOrEqual),
    ("two_comp_mod", Binary::Signed),
    ("sat_cast", Binary::SaturateSigned),
    ("usat_cast", Binary::SaturateUnsigned),
];

/// Limit on the size of an expression that is duplicated.
const MAX_COPIED_SIZE: usize = 32;

impl Loader<'_> {
    /// Read an expression from an operand in the JSON.
    pub(super) fn expression(&self, json: &Json, scope: Scope) -> Result<Expression> {
        self.operand(&part(json)?, scope)
    }

    pub(super) fn operand(&self, operand: &Operand, scope: Scope) -> Result<Expression> {
        let value = &operand.value;
        match operand.kind.as_str() {
            "expression" if value.get("op").is_some() => self.operation(value, scope),
            "expression" => self.expression(value, scope),
            "hexstr" => Ok(Expression::Constant(number::hexstr(&part::<String>(value)?)?)),
            "bool" => Ok(Expression::number(u8::from(part::<bool>(value)?))),
            "local" | "runtime_data" => self.local(part(value)?, scope),
            "field" => {
                let (header, field) = part::<(Json, String)>(value)?;
                self.member_field(&header, &field, scope)
            }
            "lookahead" => {
                let (at, width) = part::<(u32, u32)>(value)?;
                if width == 0 {
                    return Ok(Expression::Empty);
                }
                if width > 1 << 15 || at > 1 << 20 {
                    return refuse(format!("lookahead of {width} bits at {at}"));
                }
                Ok(Expression::Lookahead { at, width })
            }
            "stack_field" => {
                let (stack, field) = part::<(String, String)>(value)?;
                self.last_field(&stack, None, &field)
            }
            "union_stack_field" => {
                let (stack, member, field) = part::<(String, String, String)>(value)?;
                self.last_field(&stack, Some(&member), &field)
            }
            "register" => {
                let (array, index) = part::<(String, Json)>(value)?;
                let index = Box::new(self.expression(&index, scope)?);
                Ok(Expression::Register { array: self.array(&array)?, index })
            }
            other => refuse(format!("an operand of type {other} is not a value")),
        }
    }

    fn local(&self, index: usize, scope: Scope) -> Result<Expression> {
        let Some(parameter) = scope.parameters.get(index) else {
            return refuse(format!("no parameter {index}"));
        };
        Ok(match scope.values.and_then(|values| values.get(index)) {
            Some(value) => Expression::Constant(number::truncate(value, parameter.width)),
            None if parameter.width == 0 => Expression::Empty,
            None => Expression::Local(narrow(index, "parameters")?, parameter.width),
        })
    }

    fn member_field(&self, header: &Json, field: &str, scope: Scope) -> Result<Expression> {
        if let Json::String(name) = header {
            if self.layout.is_empty(name, field) {
                return Ok(Expression::Empty);
            }
            let id = self.layout.field(name, field)?;
            return Ok(if field == "$valid$" {
                self.valid(self.header(name)?)
            } else {
                Expression::Field(id)
            });
        }
        match self.object_operation(header, scope)? {
            Object::HeaderAt { stack, member, index } if field == "$valid$" => {
                Ok(Expression::IndexedValid { stack, member, index: Box::new(index) })
            }
            Object::HeaderAt { stack, member, .. } if self.is_empty_element(stack, member, field) => {
                Ok(Expression::Empty)
            }
            Object::HeaderAt { stack, member, index } => {
                let field = self.field_of_element(stack, member, field)?;
                Ok(Expression::Indexed { stack, member, index: Box::new(index), field })
            }
            _ => refuse(format!("field {field} of an operand that is not a header")),
        }
    }

    pub(super) fn valid(&self, header: HeaderId) -> Expression {
        let header = &self.program.headers[header as usize];
        if header.metadata {
            Expression::number(1)
        } else {
            Expression::Field(header.valid)
        }
    }

    fn last_field(&self, name: &str, member: Option<&str>, field: &str) -> Result<Expression> {
        let stack = self.stack(name)?;
        let member = member.map_or(Ok(0), |member| self.union_member(stack, member))?;
        if self.is_empty_element(stack, member, field) {
            return Ok(Expression::Empty);
        }
        Ok(Expression::Last { stack, member, field: self.field_of_element(stack, member, field)? })
    }

    /// The number of a union's member in a stack of unions.
    pub(super) fn union_member(&self, stack: StackId, member: &str) -> Result<u16> {
        let members =
            self.layout.members.get(&stack).ok_or_else(|| LoadError::new("not a stack of unions"))?;
        let found = members.iter().position(|name| name == member);
        found.map(|index| index as u16).ok_or_else(|| LoadError::new(format!("no member {member}")))
    }

    fn is_empty_element(&self, stack: StackId, member: u16, field: &str) -> bool {
        let header = element(&self.program, stack, member);
        header.is_some_and(|header| self.layout.is_empty(&header.name, field))
    }

    fn field_of_element(&self, stack: StackId, member: u16, field: &str) -> Result<u16> {
        let header = element(&self.program, stack, member).ok_or_else(|| LoadError::new("no such member"))?;
        let id = self.layout.field(&header.name, field)?;
        id.checked_sub(header.first_field)
            .filter(|index| *index < header.fields)
            .ok_or_else(|| LoadError::new(format!("no field {field} in the headers of the stack")))
    }

    fn operation(&self, json: &Json, scope: Scope) -> Result<Expression> {
        let operation: Operation = part(json)?;
        let op = operation.op.clone();
        self.apply(&operation, scope).at(|| format!("`{op}`"))
    }

    fn apply(&self, of: &Operation, scope: Scope) -> Result<Expression> {
        let right = || self.expression(&of.right, scope);
        let left = || self.expression(&of.left, scope);
        match of.op.as_str() {
            "==" | "!=" if is_object(&of.left) => {
                let equal = self.equal(&self.object(&of.left, scope)?, &self.object(&of.right, scope)?)?;
                Ok(if of.op == "==" { equal } else { Expression::unary(Unary::Not, equal) })
            }
            "+" if of.left.is_null() => right(),
            "-" if of.left.is_null() => Ok(Expression::unary(Unary::Negate, right()?)),
            "~" => Ok(Expression::unary(Unary::Invert, right()?)),
            "not" => Ok(Expression::unary(Unary::Not, right()?)),
            "b2d" => right(),
            "d2b" => {
                let value = right()?;
                let is_bit = value.bits(&self.program).is_some_and(|bits| bits <= 1);
                Ok(if is_bit {
                    value
                } else {
                    Expression::binary(Binary::NotEqual, value, Expression::number(0))
                })
            }
            "?" => {
                let condition = self.expression(&of.cond, scope)?;
                Ok(Expression::choice(condition, left()?, right()?))
            }
            "valid" | "valid_union" => self.validity(&self.object(&of.right, scope)?),
            "last_stack_index" => Ok(Expression::LastIndex(self.stack_operand(&of.right, scope)?)),
            "size_stack" => {
                let last = Expression::LastIndex(self.stack_operand(&of.right, scope)?);
                Ok(Expression::binary(Binary::Add, last, Expression::number(1)))
            }
            "access_field" => self.access_field(&self.object(&of.left, scope)?, part(&of.right)?),
            other => match BINARY.iter().find(|(name, _)| *name == other) {
                Some((_, op)) => {
                    let (left, right) = (left()?, right()?);
                    Ok(self.simplify(*op, &left, &right).unwrap_or(Expression::binary(*op, left, right)))
                }
                None => refuse("unknown operation"),
            },
        }
    }

    /// Simplify masks of values that fit anyway, and comparisons of a bit with a constant.
    fn simplify(&self, op: Binary, left: &Expression, right: &Expression) -> Option<Expression> {
        let program = &self.program;
        match (op, left.constant(), right.constant()) {
            (Binary::And, _, Some(mask)) => self.mask_value(left, mask),
            (Binary::And, Some(mask), _) => self.mask_value(right, mask),
            (Binary::Equal | Binary::NotEqual, _, Some(bit))
                if left.bits(program)? <= 1 && bit.bits() <= 1 =>
            {
                let same = bit.is_one() == (op == Binary::Equal);
                Some(if same { left.clone() } else { Expression::unary(Unary::Not, left.clone()) })
            }
            (Binary::Signed, _, Some(cut)) => {
                let Expression::Field(field) = left else { return None };
                let field = &program.fields[*field as usize];
                let bits = field.width + u32::from(!field.signed);
                cut.to_u32().filter(|cut| bits <= *cut).map(|_| left.clone())
            }
            _ => None,
        }
    }

    fn mask_value(&self, value: &Expression, mask: &BigInt) -> Option<Expression> {
        let fits =
            value.bits(&self.program).is_some_and(|bits| number::truncate(mask, bits) == number::mask(bits));
        if fits {
            return Some(value.clone());
        }
        let width = number::bits(mask);
        (*mask == number::mask(width)).then(|| {
            Expression::binary(Binary::And, self.low_bits(value, width), Expression::Constant(mask.clone()))
        })
    }

    fn access_field(&self, object: &Object, field: u16) -> Result<Expression> {
        let header = match object {
            Object::Header(header) => &self.program.headers[*header as usize],
            Object::HeaderAt { stack, member, .. } => {
                element(&self.program, *stack, *member).ok_or_else(|| LoadError::new("no such member"))?
            }
            _ => return refuse("a field of an operand that is not a header"),
        };
        let Some(field) = self.layout.position(&header.name, field) else { return Ok(Expression::Empty) };
        if field >= header.fields {
            return refuse(format!("no field {field} in {}", header.name));
        }
        Ok(match object {
            Object::HeaderAt { stack, member, index } => {
                Expression::Indexed { stack: *stack, member: *member, index: Box::new(index.clone()), field }
            }
            _ => Expression::Field(header.first_field + field),
        })
    }

    fn stack_operand(&self, json: &Json, scope: Scope) -> Result<StackId> {
        match self.object(json, scope)? {
            Object::Stack(stack) => Ok(stack),
            _ => refuse("expected a header stack"),
        }
    }

    fn validity(&self, object: &Object) -> Result<Expression> {
        let any = |members: Vec<Expression>| {
            let either = |left, right| Expression::binary(Binary::Or, left, right);
            members.into_iter().reduce(either).unwrap_or(Expression::number(0))
        };
        match object {
            Object::Header(header) => Ok(self.valid(*header)),
            Object::HeaderAt { stack, member, index } => Ok(Expression::IndexedValid {
                stack: *stack,
                member: *member,
                index: Box::new(index.clone()),
            }),
            Object::Union(union) => {
                let headers = &self.program.unions[*union as usize].headers;
                Ok(any(headers.iter().map(|header| self.valid(*header)).collect()))
            }
            Object::UnionAt { index, .. } if index.size() > MAX_COPIED_SIZE => {
                refuse("the index of a union is too large an expression")
            }
            Object::UnionAt { stack, index } => {
                let members = self.layout.members.get(stack).map_or(0, Vec::len) as u16;
                let valid = |member| Expression::IndexedValid {
                    stack: *stack,
                    member,
                    index: Box::new(index.clone()),
                };
                Ok(any((0..members).map(valid).collect()))
            }
            Object::Stack(_) => refuse("a stack has no validity"),
        }
    }

    /// Equality of headers or unions: both invalid, or both valid with equal fields.
    fn equal(&self, left: &Object, right: &Object) -> Result<Expression> {
        let all_equal = |lefts: &[HeaderId], rights: &[HeaderId]| {
            let pairs = lefts.iter().zip(rights);
            pairs
                .map(|(left, right)| self.equal_headers(*left, *right))
                .reduce(|left, right| Ok(Expression::and(left?, right?)))
        };
        match (left, right) {
            (Object::Header(left), Object::Header(right)) => self.equal_headers(*left, *right),
            (Object::Union(left), Object::Union(right)) => {
                let of = |union: &u16| &self.program.unions[*union as usize].headers;
                all_equal(of(left), of(right)).unwrap_or_else(|| Ok(Expression::number(1)))
            }
            _ => refuse("expected two headers or two named unions"),
        }
    }

    fn equal_headers(&self, left: HeaderId, right: HeaderId) -> Result<Expression> {
        let (l, r) = (&self.program.headers[left as usize], &self.program.headers[right as usize]);
        if l.fields != r.fields {
            return refuse(format!("{} and {} have different types", l.name, r.name));
        }
        if l.varbit.is_some() || r.varbit.is_some() {
            return refuse(format!("cannot compare {} and {}: they have varbit fields", l.name, r.name));
        }
        let equality = |left, right| Expression::binary(Binary::Equal, left, right);
        let fields = (0..l.fields).map(|index| {
            equality(Expression::Field(l.first_field + index), Expression::Field(r.first_field + index))
        });
        let equal = fields.reduce(Expression::and).unwrap_or(Expression::number(1));
        let invalid = Expression::unary(Unary::Not, self.valid(left));
        let validity = equality(self.valid(left), self.valid(right));
        Ok(Expression::and(validity, Expression::binary(Binary::Or, invalid, equal)))
    }

    /// Read an operand that is a header, a stack or a union.
    pub(super) fn object(&self, json: &Json, scope: Scope) -> Result<Object> {
        let operand: Operand = part(json)?;
        let name = || part::<String>(&operand.value);
        match operand.kind.as_str() {
            "header" => Ok(Object::Header(self.header(&name()?)?)),
            "header_stack" | "header_union_stack" => Ok(Object::Stack(self.stack(&name()?)?)),
            // p4c's form of a stack's last header.
            "stack_field" if operand.value.get(1).and_then(Json::as_str) == Some("last") => {
                let (stack, _) = part::<(String, String)>(&operand.value)?;
                let stack = self.stack(&stack)?;
                Ok(Object::HeaderAt { stack, member: 0, index: Expression::LastIndex(stack) })
            }
            "header_union" => {
                let name = name()?;
                let found = self.layout.unions.get(&name).copied();
                Ok(Object::Union(found.ok_or_else(|| LoadError::new(format!("no header union {name}")))?))
            }
            "expression" if operand.value.get("op").is_some() => self.object_operation(&operand.value, scope),
            "expression" => self.object(&operand.value, scope),
            other => refuse(format!("an operand of type {other} is not a header, stack or union")),
        }
    }

    fn object_operation(&self, json: &Json, scope: Scope) -> Result<Object> {
        // p4c wraps some operations.
        if json.get("op").is_none() && json.get("type").is_some() {
            return self.object(json, scope);
        }
        let operation: Operation = part(json)?;
        match operation.op.as_str() {
            "dereference_header_stack" | "dereference_union_stack" => {
                let stack = self.stack_operand(&operation.left, scope)?;
                let index = self.expression(&operation.right, scope)?;
                self.element_at(stack, index)
            }
            "access_union_header" => {
                let member: u16 = part(&operation.right)?;
                match self.object(&operation.left, scope)? {
                    Object::Union(union) => {
                        let header =
                            self.program.unions[union as usize].headers.get(member as usize).copied();
                        Ok(Object::Header(
                            header.ok_or_else(|| LoadError::new(format!("no member {member}")))?,
                        ))
                    }
                    Object::UnionAt { stack, index } if element(&self.program, stack, member).is_some() => {
                        Ok(Object::HeaderAt { stack, member, index })
                    }
                    _ => refuse(format!("no member {member} of a union")),
                }
            }
            other => refuse(format!("the result of `{other}` is not a header, stack or union")),
        }
    }

    fn element_at(&self, stack: StackId, index: Expression) -> Result<Object> {
        let of = &self.program.stacks[stack as usize];
        let known = index.constant().map(|value| value.to_usize().unwrap_or(usize::MAX));
        if known.is_some_and(|index| index >= of.headers.len().max(of.unions.len())) {
            return refuse(format!(
                "no element {} in {}",
                index.constant().unwrap_or(&BigInt::zero()),
                of.name
            ));
        }
        Ok(match (known, of.unions.is_empty()) {
            (Some(known), true) => Object::Header(of.headers[known]),
            (Some(known), false) => Object::Union(of.unions[known]),
            (None, true) => Object::HeaderAt { stack, member: 0, index },
            (None, false) => Object::UnionAt { stack, index },
        })
    }

    pub(super) fn array(&self, name: &str) -> Result<ArrayId> {
        self.arrays.get(name).copied().ok_or_else(|| LoadError::new(format!("no register {name}")))
    }
}

/// Whether an operand is a header, a union or a stack.
fn is_object(json: &Json) -> bool {
    let kind = json.get("type").and_then(Json::as_str);
    match kind {
        Some("header" | "header_union" | "header_stack" | "header_union_stack") => true,
        Some("expression") => {
            json.get("value").is_some_and(|value| match value.get("op").and_then(Json::as_str) {
                Some("dereference_header_stack" | "dereference_union_stack" | "access_union_header") => true,
                Some(_) => false,
                None => is_object(value),
            })
        }
        _ => false,
    }
}
