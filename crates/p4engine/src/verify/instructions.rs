// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Checks the operands of instructions.

use alloc::vec::Vec;

use crate::arith::wide::LIMBS;
use crate::ir::{Op, Program};
use crate::verify::error::{must, unfit, Checked};

impl Program {
    pub(super) fn op_fits(&self, op: &Op) -> Checked {
        match *op {
            Op::Set { to, .. } => self.registers_fit([to]),
            Op::SetLong { to, constant } => {
                self.registers_fit([to]).and_then(|()| self.constant_fits(constant, 16))
            }
            Op::Load { to, field } => self.registers_fit([to]).and_then(|()| self.narrow(field)),
            Op::Store { field, from } => self.registers_fit([from]).and_then(|()| self.narrow(field)),
            Op::Argument { to, .. } => self.registers_fit([to]),
            Op::Unary { to, from, .. } | Op::Move { to, from } => self.registers_fit([to, from]),
            Op::BinaryWith { to, left, .. } => self.registers_fit([to, left]),
            Op::StoreConstant { field, .. } => self.narrow(field),
            Op::Cut { to, from, bits } => {
                must((1..=127).contains(&bits), "a cut to so many bits", bits)?;
                self.registers_fit([to, from])
            }
            Op::Binary { to, left, right, .. } => self.registers_fit([to, left, right]),
            Op::WideSet { to, constant } => self
                .wides_fit([to])
                .and_then(|()| self.constant_fits(constant, usize::from(self.wide_limbs) * 8)),
            Op::WideLoad { to, field } => self.wides_fit([to]).and_then(|()| self.broad(field)),
            Op::WideStore { field, from } => self.wides_fit([from]).and_then(|()| self.broad(field)),
            Op::WideArgument { to, .. } => self.wides_fit([to]),
            Op::WideUnary { to, from, .. } => self.wides_fit([to, from]),
            Op::WideBinary { to, left, right, .. } => self.wides_fit([to, left, right]),
            Op::WideCompare { to, left, right, .. } => {
                self.registers_fit([to]).and_then(|()| self.wides_fit([left, right]))
            }
            Op::Widen { to, from } => self.wides_fit([to]).and_then(|()| self.registers_fit([from])),
            Op::Narrow { to, from } => self.registers_fit([to]).and_then(|()| self.wides_fit([from])),
            Op::Copy { to, from } => {
                self.any(to).and_then(|()| self.any(from))?;
                must(self.width(to) == self.width(from), "fields of different widths", self.width(from))
            }
            Op::JumpIf { condition, .. } | Op::JumpUnless { condition, .. } => {
                self.registers_fit([condition])
            }
            Op::Select { select } => must(usize::from(select) < self.selects.len(), "no select", select),
            Op::Apply { table } => must(usize::from(table) < self.tables.len(), "no table", table),
            Op::Verify { condition, error } => self.registers_fit([condition, error]),
            Op::MarkCopyToDrop { egress_spec, mcast_grp } => {
                self.narrow(egress_spec).and_then(|()| mcast_grp.map_or(Ok(()), |field| self.narrow(field)))
            }
            Op::Jump { .. } | Op::End | Op::Exit | Op::Reject { .. } | Op::MarkToDrop | Op::None => Ok(()),
            _ => self.header_op_fits(op),
        }
    }

    fn constant_fits(&self, constant: u16, most: usize) -> Checked {
        let bytes = self.constants.get(usize::from(constant)).map(Vec::len);
        must(bytes.is_some_and(|bytes| bytes <= most), "no such constant, or too long a one", constant)
    }

    fn header_op_fits(&self, op: &Op) -> Checked {
        match *op {
            Op::AddHeader { header }
            | Op::RemoveHeader { header }
            | Op::Extract { header }
            | Op::Emit { header } => self.has_header(header),
            Op::CopyHeader { to, from } => must(self.alike(to, from)?, "unlike headers", from),
            Op::CopyVarbit { to, from } => {
                let both = self.header(to)?.varbit.is_some() && self.header(from)?.varbit.is_some();
                must(both, "a header without varbit", from)
            }
            Op::CopyStack { to, from } => self.alike_stacks(to, from),
            Op::CopyUnion { to, from } => self.alike_unions(to, from),
            Op::Push { stack, .. } | Op::Pop { stack, .. } | Op::EmitStack { stack } => {
                self.stack(stack).map(drop)
            }
            Op::EmitUnion { of } => must(usize::from(of) < self.unions.len(), "no union", of),
            Op::LoadIndexed { to, stack, member, index, field } => {
                self.registers_fit([to, index]).and_then(|()| self.element_fits(stack, member, Some(field)))
            }
            Op::ValidIndexed { to, stack, member, index } => {
                self.registers_fit([to, index]).and_then(|()| self.element_fits(stack, member, None))
            }
            Op::LoadLast { to, stack, member, field } => {
                self.registers_fit([to]).and_then(|()| self.element_fits(stack, member, Some(field)))
            }
            Op::StackLastIndex { to, stack } => {
                self.registers_fit([to]).and_then(|()| self.stack(stack).map(drop))
            }
            Op::ExtractNext { stack, member } => self.element_fits(stack, member, None),
            Op::ExtractVarbit { header, width } => {
                must(self.header(header)?.varbit.is_some(), "a header without varbit", header)?;
                self.registers_fit([width])
            }
            Op::ExtractNextVarbit { stack, member, width } => {
                self.registers_fit([width]).and_then(|()| self.element_fits(stack, member, None))
            }
            Op::Lookahead { to, at, width } => {
                self.registers_fit([to]).and_then(|()| self.look_fits(at, width, 64))
            }
            Op::WideLookahead { to, at, width } => {
                self.wides_fit([to]).and_then(|()| self.look_fits(at, width, u32::from(self.wide_limbs) * 64))
            }
            Op::Advance { bits } => self.registers_fit([bits]),
            _ => self.extern_op_fits(op),
        }
    }

    fn extern_op_fits(&self, op: &Op) -> Checked {
        let has = |what: &str, number: u16, all: usize| must(usize::from(number) < all, what, number);
        match *op {
            Op::Checksum { to, hash } => {
                self.registers_fit([to]).and_then(|()| has("no hash", hash, self.hashes.len()))
            }
            Op::RegisterRead { to, array, index } => {
                self.has_field(to, LIMBS as u32 * 64)?;
                self.registers_fit([index]).and_then(|()| has("no register", array, self.arrays.len()))
            }
            Op::RegisterWrite { array, index, from } => {
                self.registers_fit([index, from]).and_then(|()| has("no register", array, self.arrays.len()))
            }
            Op::WideRegisterWrite { array, index, from } => {
                self.registers_fit([index]).and_then(|()| self.wides_fit([from]))?;
                has("no register", array, self.arrays.len())
            }
            Op::Count { counter, index } => {
                self.registers_fit([index]).and_then(|()| has("no counter", counter, self.counters.len()))
            }
            Op::Execute { meter, index, to } => self
                .registers_fit([index])
                .and_then(|()| self.any(to))
                .and_then(|()| has("no meter", meter, self.meters.len())),
            Op::ExecuteDirect { meter, to } => {
                self.any(to).and_then(|()| has("no meter", meter, self.meters.len()))?;
                let direct = self.meters.get(usize::from(meter)).is_some_and(|meter| meter.table.is_some());
                must(direct, "a meter of no table", meter)
            }
            Op::HashTo { field, hash, base, size } => {
                self.registers_fit([base, size]).and_then(|()| self.any(field))?;
                has("no hash", hash, self.hashes.len())
            }
            Op::Random { field, least, most } => {
                self.registers_fit([least, most]).and_then(|()| self.any(field))
            }
            Op::Digest { digest } => has("no digest", digest, self.digests.len()),
            Op::CloneIngress { session, list } | Op::CloneEgress { session, list } => self
                .registers_fit([session])
                .and_then(|()| has("no field list", list, self.field_lists.len())),
            Op::Resubmit { list } | Op::Recirculate { list } => {
                has("no field list", list, self.field_lists.len())
            }
            Op::Truncate { bytes } => self.registers_fit([bytes]),
            Op::Assert { condition, message } => {
                self.registers_fit([condition]).and_then(|()| has("no message", message, self.messages.len()))
            }
            Op::Log { message, first, arguments } => {
                let last = usize::from(first) + usize::from(arguments);
                must(last <= usize::from(self.registers), "a log of too many registers", arguments)?;
                has("no message", message, self.messages.len())
            }
            _ => unfit("a step that is not known".into()),
        }
    }
}
