// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Checks fields, headers, stacks and unions.

use alloc::format;
use alloc::vec::Vec;

use crate::ir::{FieldId, Header, HeaderId, Program, Stack, StackId};
use crate::verify::error::{must, unfit, Checked, Unfit};

impl Program {
    pub(crate) fn has_field(&self, field: FieldId, most: u32) -> Checked {
        match self.fields.get(usize::from(field)) {
            Some(field) => must(field.width <= most, "a field too wide for this", &field.name),
            None => unfit(format!("no field {field}")),
        }
    }

    pub(crate) fn width(&self, field: FieldId) -> u32 {
        self.fields.get(usize::from(field)).map_or(0, |field| field.width)
    }

    pub(super) fn narrow(&self, field: FieldId) -> Checked {
        self.has_field(field, 64)
    }

    /// Of any width that wide registers hold.
    pub(super) fn broad(&self, field: FieldId) -> Checked {
        self.has_field(field, u32::from(self.wide_limbs) * 64)
    }

    pub(super) fn any(&self, field: FieldId) -> Checked {
        self.has_field(field, u32::MAX)
    }

    pub(super) fn registers_fit<const N: usize>(&self, registers: [u16; N]) -> Checked {
        registers
            .into_iter()
            .try_for_each(|register| must(register < self.registers, "no register", register))
    }

    pub(super) fn wides_fit<const N: usize>(&self, registers: [u16; N]) -> Checked {
        registers
            .into_iter()
            .try_for_each(|register| must(register < self.wide_registers, "no wide register", register))
    }

    pub(super) fn header(&self, header: HeaderId) -> Result<&Header, Unfit> {
        self.headers.get(usize::from(header)).map_or_else(|| unfit(format!("no header {header}")), Ok)
    }

    pub(super) fn has_header(&self, header: HeaderId) -> Checked {
        self.header(header).map(drop)
    }

    pub(super) fn header_fits(&self, header: &Header) -> Checked {
        let name = &header.name;
        let end = u64::from(header.at) + u64::from(header.bytes);
        must(end <= u64::from(self.area_bytes), "a header beyond its area", name)?;
        must(self.width(header.valid) == 1, "a header's validity is no field of one bit", name)?;
        let last = usize::from(header.first_field) + usize::from(header.fields);
        must(last <= self.fields.len(), "a header's fields are not there", name)?;
        if let Some(union) = header.union_of {
            must(usize::from(union) < self.unions.len(), "a header of no union", name)?;
        }
        let Some(varbit) = header.varbit else { return Ok(()) };
        let field = self
            .fields
            .get(usize::from(varbit.field))
            .map_or_else(|| unfit(format!("no varbit in {name}")), Ok)?;
        let within = u64::from(field.at) >= u64::from(header.at) * 8
            && u64::from(field.at) + u64::from(field.width) <= end * 8;
        must(
            within && (field.at | field.width) % 8 == 0,
            "a varbit that is not of whole bytes of its header",
            name,
        )?;
        must(self.width(varbit.width) == 32, "a varbit's width is no field of 32 bits", name)
    }

    pub(super) fn stack_fits(&self, stack: &Stack) -> Checked {
        let name = &stack.name;
        must(self.width(stack.next) == 32, "a stack's next is no field of 32 bits", name)?;
        must(stack.headers.is_empty() || stack.unions.is_empty(), "a stack of headers and of unions", name)?;
        let first = stack.headers.first();
        for header in &stack.headers {
            must(self.alike(*header, first.copied().unwrap_or(0))?, "a stack of unlike headers", name)?;
        }
        let members = |union: &u16| self.unions.get(usize::from(*union)).map(|union| &union.headers);
        let Some(first) = stack.unions.first() else { return Ok(()) };
        for union in &stack.unions {
            let (Some(one), Some(first)) = (members(union), members(first)) else {
                return unfit(format!("a stack of unions that are not there: {name}"));
            };
            must(one.len() == first.len(), "a stack of unlike unions", name)?;
            for (one, first) in one.iter().zip(first) {
                must(self.alike(*one, *first)?, "a stack of unlike unions", name)?;
            }
        }
        Ok(())
    }

    /// One can be copied to the other, field by field.
    pub(super) fn alike(&self, one: HeaderId, other: HeaderId) -> Result<bool, Unfit> {
        let (one, other) = (self.header(one)?, self.header(other)?);
        let varbit = |header: &Header| {
            header
                .varbit
                .and_then(|varbit| self.fields.get(usize::from(varbit.field)))
                .map(|field| (field.at.wrapping_sub(header.at * 8), field.width))
        };
        Ok(one.bytes == other.bytes && one.fields == other.fields && varbit(one) == varbit(other))
    }

    pub(super) fn alike_unions(&self, one: u16, other: u16) -> Checked {
        let headers = |union: u16| self.unions.get(usize::from(union)).map(|union| &union.headers);
        let (Some(one), Some(other)) = (headers(one), headers(other)) else {
            return unfit("no such union".into());
        };
        must(one.len() == other.len(), "unlike unions of headers", one.len())?;
        one.iter()
            .zip(other)
            .try_for_each(|(one, other)| must(self.alike(*one, *other)?, "unlike headers", one))
    }

    pub(super) fn stack(&self, stack: StackId) -> Result<&Stack, Unfit> {
        self.stacks.get(usize::from(stack)).map_or_else(|| unfit(format!("no stack {stack}")), Ok)
    }

    pub(super) fn alike_stacks(&self, one: StackId, other: StackId) -> Checked {
        let (one, other) = (self.stack(one)?, self.stack(other)?);
        let sizes = one.headers.len() == other.headers.len() && one.unions.len() == other.unions.len();
        must(sizes, "unlike stacks", &one.name)?;
        one.headers
            .iter()
            .zip(&other.headers)
            .try_for_each(|(one, other)| must(self.alike(*one, *other)?, "unlike headers", one))?;
        one.unions.iter().zip(&other.unions).try_for_each(|(one, other)| self.alike_unions(*one, *other))
    }

    /// A field of a stack's elements, in a register.
    pub(super) fn element_fits(&self, stack: StackId, member: u16, field: Option<u16>) -> Checked {
        let stack = self.stack(stack)?;
        let headers: Vec<HeaderId> = if stack.unions.is_empty() {
            stack.headers.clone()
        } else {
            let member = |union: &u16| {
                self.unions
                    .get(usize::from(*union))
                    .and_then(|union| union.headers.get(usize::from(member)))
                    .copied()
            };
            stack
                .unions
                .iter()
                .map(member)
                .collect::<Option<_>>()
                .map_or_else(|| unfit("no such member".into()), Ok)?
        };
        for header in headers {
            let header = self.header(header)?;
            if let Some(field) = field {
                must(field < header.fields, "no such field of a stack's header", field)?;
                self.narrow(header.first_field.saturating_add(field))?;
            }
        }
        Ok(())
    }
}
