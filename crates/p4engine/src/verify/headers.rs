// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Checks fields, headers, stacks and unions.

use alloc::format;
use alloc::vec::Vec;

use crate::ir::{FieldId, Header, HeaderId, Program, Stack, StackId};
use crate::verify::error::{invalid, require, CheckResult, InvalidProgram};

impl Program {
    pub(crate) fn check_field(&self, field: FieldId, max: u32) -> CheckResult {
        match self.fields.get(usize::from(field)) {
            Some(field) => require(field.width <= max, "a field is too wide for the operation", &field.name),
            None => invalid(format!("there is no field {field}")),
        }
    }

    pub(crate) fn width(&self, field: FieldId) -> u32 {
        self.fields.get(usize::from(field)).map_or(0, |field| field.width)
    }

    pub(super) fn check_narrow_field(&self, field: FieldId) -> CheckResult {
        self.check_field(field, 64)
    }

    /// Checks a field that fits a wide register.
    pub(super) fn check_wide_field(&self, field: FieldId) -> CheckResult {
        self.check_field(field, u32::from(self.wide_limbs) * 64)
    }

    pub(super) fn check_any_field(&self, field: FieldId) -> CheckResult {
        self.check_field(field, u32::MAX)
    }

    pub(super) fn check_registers<const N: usize>(&self, registers: [u16; N]) -> CheckResult {
        registers
            .into_iter()
            .try_for_each(|register| require(register < self.registers, "there is no register", register))
    }

    pub(super) fn check_wide_registers<const N: usize>(&self, registers: [u16; N]) -> CheckResult {
        registers.into_iter().try_for_each(|register| {
            require(register < self.wide_registers, "there is no wide register", register)
        })
    }

    pub(super) fn header(&self, header: HeaderId) -> Result<&Header, InvalidProgram> {
        self.headers
            .get(usize::from(header))
            .map_or_else(|| invalid(format!("there is no header {header}")), Ok)
    }

    pub(super) fn check_header_id(&self, header: HeaderId) -> CheckResult {
        self.header(header).map(drop)
    }

    pub(super) fn check_header(&self, header: &Header) -> CheckResult {
        let name = &header.name;
        let end = u64::from(header.at) + u64::from(header.bytes);
        require(end <= u64::from(self.phv_bytes), "a header is outside the PHV", name)?;
        require(self.width(header.valid) == 1, "a header's validity is not a field of one bit", name)?;
        let last = usize::from(header.first_field) + usize::from(header.fields);
        require(last <= self.fields.len(), "a header has fields that do not exist", name)?;
        if let Some(union) = header.union_of {
            require(usize::from(union) < self.unions.len(), "a header's union does not exist", name)?;
        }
        let Some(varbit) = header.varbit else { return Ok(()) };
        let field = self
            .fields
            .get(usize::from(varbit.field))
            .map_or_else(|| invalid(format!("the varbit field of {name} does not exist")), Ok)?;
        let within = u64::from(field.at) >= u64::from(header.at) * 8
            && u64::from(field.at) + u64::from(field.width) <= end * 8;
        require(
            within && (field.at | field.width) % 8 == 0,
            "a varbit field is not aligned to bytes of its header",
            name,
        )?;
        require(self.width(varbit.width) == 32, "a varbit field's width is not a field of 32 bits", name)
    }

    pub(super) fn check_stack(&self, stack: &Stack) -> CheckResult {
        let name = &stack.name;
        require(self.width(stack.next) == 32, "a stack's next is not a field of 32 bits", name)?;
        require(
            stack.headers.is_empty() || stack.unions.is_empty(),
            "a stack has both headers and unions",
            name,
        )?;
        let first = stack.headers.first();
        for header in &stack.headers {
            require(
                self.same_header_type(*header, first.copied().unwrap_or(0))?,
                "a stack has headers of different types",
                name,
            )?;
        }
        let members = |union: &u16| self.unions.get(usize::from(*union)).map(|union| &union.headers);
        let Some(first) = stack.unions.first() else { return Ok(()) };
        for union in &stack.unions {
            let (Some(headers), Some(first)) = (members(union), members(first)) else {
                return invalid(format!("a stack has unions that do not exist: {name}"));
            };
            require(headers.len() == first.len(), "a stack has unions of different types", name)?;
            for (header, first) in headers.iter().zip(first) {
                require(
                    self.same_header_type(*header, *first)?,
                    "a stack has unions of different types",
                    name,
                )?;
            }
        }
        Ok(())
    }

    /// Whether headers have the same layout, so that one can be copied to the other.
    pub(super) fn same_header_type(&self, first: HeaderId, second: HeaderId) -> Result<bool, InvalidProgram> {
        let (first, second) = (self.header(first)?, self.header(second)?);
        let varbit = |header: &Header| {
            header
                .varbit
                .and_then(|varbit| self.fields.get(usize::from(varbit.field)))
                .map(|field| (field.at.wrapping_sub(header.at * 8), field.width))
        };
        Ok(first.bytes == second.bytes && first.fields == second.fields && varbit(first) == varbit(second))
    }

    pub(super) fn check_same_union_type(&self, first: u16, second: u16) -> CheckResult {
        let headers = |union: u16| self.unions.get(usize::from(union)).map(|union| &union.headers);
        let (Some(first), Some(second)) = (headers(first), headers(second)) else {
            return invalid("there is no such union".into());
        };
        require(first.len() == second.len(), "unions of different types", first.len())?;
        first.iter().zip(second).try_for_each(|(first, second)| {
            require(self.same_header_type(*first, *second)?, "headers of different types", first)
        })
    }

    pub(super) fn stack(&self, stack: StackId) -> Result<&Stack, InvalidProgram> {
        self.stacks.get(usize::from(stack)).map_or_else(|| invalid(format!("there is no stack {stack}")), Ok)
    }

    pub(super) fn check_same_stack_type(&self, first: StackId, second: StackId) -> CheckResult {
        let (first, second) = (self.stack(first)?, self.stack(second)?);
        let sizes = first.headers.len() == second.headers.len() && first.unions.len() == second.unions.len();
        require(sizes, "stacks of different types", &first.name)?;
        first.headers.iter().zip(&second.headers).try_for_each(|(first, second)| {
            require(self.same_header_type(*first, *second)?, "headers of different types", first)
        })?;
        first
            .unions
            .iter()
            .zip(&second.unions)
            .try_for_each(|(first, second)| self.check_same_union_type(*first, *second))
    }

    /// Checks access to a stack's elements, and to a field that is loaded into a register.
    pub(super) fn check_stack_element(&self, stack: StackId, member: u16, field: Option<u16>) -> CheckResult {
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
                .map_or_else(|| invalid("there is no such member".into()), Ok)?
        };
        for header in headers {
            let header = self.header(header)?;
            if let Some(field) = field {
                require(field < header.fields, "a stack's header has no such field", field)?;
                self.check_narrow_field(header.first_field.saturating_add(field))?;
            }
        }
        Ok(())
    }
}
