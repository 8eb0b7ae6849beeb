// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Checks the operands of instructions.

use alloc::vec::Vec;

use crate::arith::wide::LIMBS;
use crate::ir::{Op, Program};
use crate::verify::error::{invalid, require, CheckResult};

impl Program {
    pub(super) fn check_op(&self, op: &Op) -> CheckResult {
        match *op {
            Op::Set { to, .. } => self.check_registers([to]),
            Op::SetLong { to, constant } => {
                self.check_registers([to]).and_then(|()| self.check_constant(constant, 16))
            }
            Op::Load { to, field } => {
                self.check_registers([to]).and_then(|()| self.check_narrow_field(field))
            }
            Op::Store { field, from } => {
                self.check_registers([from]).and_then(|()| self.check_narrow_field(field))
            }
            Op::Argument { to, .. } => self.check_registers([to]),
            Op::Unary { to, from, .. } | Op::Move { to, from } => self.check_registers([to, from]),
            Op::BinaryWith { to, left, .. } => self.check_registers([to, left]),
            Op::StoreConstant { field, .. } => self.check_narrow_field(field),
            Op::Cut { to, from, bits } => {
                require((1..=127).contains(&bits), "invalid width of a cut", bits)?;
                self.check_registers([to, from])
            }
            Op::Binary { to, left, right, .. } => self.check_registers([to, left, right]),
            Op::Copy { to, from } => {
                self.check_any_field(to).and_then(|()| self.check_any_field(from))?;
                require(self.width(to) == self.width(from), "fields of different widths", self.width(from))
            }
            Op::JumpIf { condition, .. } | Op::JumpUnless { condition, .. } => {
                self.check_registers([condition])
            }
            Op::Select { select } => {
                require(usize::from(select) < self.selects.len(), "there is no select", select)
            }
            Op::Apply { table } => {
                require(usize::from(table) < self.tables.len(), "there is no table", table)
            }
            Op::Verify { condition, error } => self.check_registers([condition, error]),
            Op::MarkCopyToDrop { egress_spec, mcast_grp } => self
                .check_narrow_field(egress_spec)
                .and_then(|()| mcast_grp.map_or(Ok(()), |field| self.check_narrow_field(field))),
            Op::Jump { .. } | Op::End | Op::Exit | Op::Reject { .. } | Op::MarkToDrop | Op::None => Ok(()),
            _ => self.check_wide_op(op),
        }
    }

    fn check_wide_op(&self, op: &Op) -> CheckResult {
        match *op {
            Op::WideSet { to, constant } => self
                .check_wide_registers([to])
                .and_then(|()| self.check_constant(constant, usize::from(self.wide_limbs) * 8)),
            Op::WideLoad { to, field } => {
                self.check_wide_registers([to]).and_then(|()| self.check_wide_field(field))
            }
            Op::WideStore { field, from } => {
                self.check_wide_registers([from]).and_then(|()| self.check_wide_field(field))
            }
            Op::WideArgument { to, .. } => self.check_wide_registers([to]),
            Op::WideUnary { to, from, .. } => self.check_wide_registers([to, from]),
            Op::WideBinary { to, left, right, .. } => self.check_wide_registers([to, left, right]),
            Op::WideCompare { to, left, right, .. } => {
                self.check_registers([to]).and_then(|()| self.check_wide_registers([left, right]))
            }
            Op::Widen { to, from } => {
                self.check_wide_registers([to]).and_then(|()| self.check_registers([from]))
            }
            Op::Narrow { to, from } => {
                self.check_registers([to]).and_then(|()| self.check_wide_registers([from]))
            }
            _ => self.check_header_op(op),
        }
    }

    fn check_constant(&self, constant: u16, max: usize) -> CheckResult {
        let bytes = self.constants.get(usize::from(constant)).map(Vec::len);
        require(bytes.is_some_and(|bytes| bytes <= max), "a constant does not exist or is too long", constant)
    }

    fn check_header_op(&self, op: &Op) -> CheckResult {
        match *op {
            Op::AddHeader { header }
            | Op::RemoveHeader { header }
            | Op::Extract { header }
            | Op::Emit { header } => self.check_header_id(header),
            Op::CopyHeader { to, from } => {
                require(self.same_header_type(to, from)?, "headers of different types", from)
            }
            Op::CopyVarbit { to, from } => {
                let both = self.header(to)?.varbit.is_some() && self.header(from)?.varbit.is_some();
                require(both, "a header has no varbit field", from)
            }
            Op::CopyStack { to, from } => self.check_same_stack_type(to, from),
            Op::CopyUnion { to, from } => self.check_same_union_type(to, from),
            Op::Push { stack, .. } | Op::Pop { stack, .. } | Op::EmitStack { stack } => {
                self.stack(stack).map(drop)
            }
            Op::EmitUnion { of } => require(usize::from(of) < self.unions.len(), "there is no union", of),
            Op::LoadIndexed { to, stack, member, index, field } => self
                .check_registers([to, index])
                .and_then(|()| self.check_stack_element(stack, member, Some(field))),
            Op::ValidIndexed { to, stack, member, index } => {
                self.check_registers([to, index]).and_then(|()| self.check_stack_element(stack, member, None))
            }
            Op::LoadLast { to, stack, member, field } => {
                self.check_registers([to]).and_then(|()| self.check_stack_element(stack, member, Some(field)))
            }
            Op::StackLastIndex { to, stack } => {
                self.check_registers([to]).and_then(|()| self.stack(stack).map(drop))
            }
            Op::ExtractNext { stack, member } => self.check_stack_element(stack, member, None),
            Op::ExtractVarbit { header, width } => {
                require(self.header(header)?.varbit.is_some(), "a header has no varbit field", header)?;
                self.check_registers([width])
            }
            Op::ExtractNextVarbit { stack, member, width } => {
                self.check_registers([width]).and_then(|()| self.check_stack_element(stack, member, None))
            }
            Op::Lookahead { to, at, width } => {
                self.check_registers([to]).and_then(|()| self.check_lookahead(at, width, 64))
            }
            Op::WideLookahead { to, at, width } => self
                .check_wide_registers([to])
                .and_then(|()| self.check_lookahead(at, width, u32::from(self.wide_limbs) * 64)),
            Op::Advance { bits } => self.check_registers([bits]),
            _ => self.check_extern_op(op),
        }
    }

    fn check_extern_op(&self, op: &Op) -> CheckResult {
        let has =
            |message: &str, index: u16, count: usize| require(usize::from(index) < count, message, index);
        match *op {
            Op::Checksum { to, hash } => {
                self.check_registers([to]).and_then(|()| has("there is no hash", hash, self.hashes.len()))
            }
            Op::RegisterRead { to, array, index } => {
                self.check_field(to, LIMBS as u32 * 64)?;
                self.check_registers([index])
                    .and_then(|()| has("there is no register", array, self.arrays.len()))
            }
            Op::RegisterWrite { array, index, from } => self
                .check_registers([index, from])
                .and_then(|()| has("there is no register", array, self.arrays.len())),
            Op::WideRegisterWrite { array, index, from } => {
                self.check_registers([index]).and_then(|()| self.check_wide_registers([from]))?;
                has("there is no register", array, self.arrays.len())
            }
            Op::Count { counter, index } => self
                .check_registers([index])
                .and_then(|()| has("there is no counter", counter, self.counters.len())),
            Op::Execute { meter, index, to } => self
                .check_registers([index])
                .and_then(|()| self.check_any_field(to))
                .and_then(|()| has("there is no meter", meter, self.meters.len())),
            Op::ExecuteDirect { meter, to } => {
                self.check_any_field(to).and_then(|()| has("there is no meter", meter, self.meters.len()))?;
                let direct = self.meters.get(usize::from(meter)).is_some_and(|meter| meter.table.is_some());
                require(direct, "the meter is not a direct meter", meter)
            }
            Op::HashTo { field, hash, base, size } => {
                self.check_registers([base, size]).and_then(|()| self.check_any_field(field))?;
                has("there is no hash", hash, self.hashes.len())
            }
            Op::Random { field, low, high } => {
                self.check_registers([low, high]).and_then(|()| self.check_any_field(field))
            }
            Op::Digest { digest } => has("there is no digest", digest, self.digests.len()),
            Op::CloneIngress { session, list } | Op::CloneEgress { session, list } => self
                .check_registers([session])
                .and_then(|()| has("there is no field list", list, self.field_lists.len())),
            Op::Resubmit { list } | Op::Recirculate { list } => {
                has("there is no field list", list, self.field_lists.len())
            }
            Op::Truncate { bytes } => self.check_registers([bytes]),
            Op::Assert { condition, message } => self
                .check_registers([condition])
                .and_then(|()| has("there is no message", message, self.messages.len())),
            Op::Log { message, first, arguments } => {
                let last = usize::from(first) + usize::from(arguments);
                require(
                    last <= usize::from(self.registers),
                    "a log message has too many registers",
                    arguments,
                )?;
                has("there is no message", message, self.messages.len())
            }
            _ => invalid("unknown instruction".into()),
        }
    }
}
