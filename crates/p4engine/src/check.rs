// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Looks at every index, bound, width and jump of a program before it runs.

use alloc::format;
use alloc::vec::Vec;

use crate::code::select_width;
use crate::flow;
use crate::key::{Layout, KEY_WORDS};
use crate::packet::Unfit;
use crate::program::{
    FieldId, Hash, HashInput, Header, HeaderId, MatchKind, Next, Op, Program, Select, SelectKey, SelectOn,
    Stack, StackId, Standard, Table,
};
use crate::state::REGISTERS;
use crate::wide::LIMBS;

/// Headers and metadata of a packet; what is hashed, emitted or kept of it.
const AREA_BYTES: u32 = 1 << 16;
const MOST_BYTES: u64 = 1 << 20;

/// Room that buffers need so that packets allocate nothing.
pub(crate) struct Sizes {
    pub buffer: usize,
    pub emitted: usize,
    pub kept: usize,
}

pub(crate) type Checked = Result<(), Unfit>;

pub(crate) fn unfit<T>(text: alloc::string::String) -> Result<T, Unfit> {
    Err(Unfit(text))
}

fn must(fits: bool, what: &str, number: impl core::fmt::Display) -> Checked {
    if fits {
        Ok(())
    } else {
        unfit(format!("{what}: {number}"))
    }
}

impl Program {
    /// What of the program cannot run, if anything (but for its entries, which `Engine::load` looks at).
    pub fn check(&self) -> Result<(), Unfit> {
        self.checked().map(drop)
    }

    pub(crate) fn checked(&self) -> Result<Sizes, Unfit> {
        must(self.area_bytes <= AREA_BYTES, "its headers and metadata take too many bytes", self.area_bytes)?;
        must(usize::from(self.registers) <= REGISTERS, "too many registers", self.registers)?;
        must(usize::from(self.wide_limbs) <= LIMBS, "wide registers of too many words", self.wide_limbs)?;
        must(
            self.wide_registers == 0 || self.wide_limbs > 0,
            "wide registers without words",
            self.wide_registers,
        )?;
        must(self.code.len() < 1 << 24, "too many steps", self.code.len())?;
        self.fields.iter().try_for_each(|field| {
            let end = u64::from(field.at) + u64::from(field.width);
            must(
                field.width > 0 && end <= u64::from(self.area_bytes) * 8,
                "a field beyond its area",
                &field.name,
            )
        })?;
        self.headers.iter().try_for_each(|header| self.header_fits(header))?;
        self.unions
            .iter()
            .flat_map(|union| &union.headers)
            .try_for_each(|header| self.has_header(*header))?;
        self.stacks.iter().try_for_each(|stack| self.stack_fits(stack))?;
        self.selects.iter().try_for_each(|select| self.select_fits(select))?;
        self.hashes.iter().try_for_each(|hash| self.hash_fits(hash))?;
        self.objects_fit()?;
        self.tables.iter().try_for_each(|table| self.table_fits(table))?;
        self.standard_fits(&self.standard)?;
        self.code.iter().enumerate().try_for_each(|(pc, op)| {
            self.op_fits(op).map_err(|Unfit(text)| Unfit(format!("step {pc}, {op:?}: {text}")))
        })?;
        flow::check(self)?;
        self.sizes()
    }

    pub(crate) fn has_field(&self, field: FieldId, most: u32) -> Checked {
        match self.fields.get(usize::from(field)) {
            Some(field) => must(field.width <= most, "a field too wide for this", &field.name),
            None => unfit(format!("no field {field}")),
        }
    }

    pub(crate) fn width(&self, field: FieldId) -> u32 {
        self.fields.get(usize::from(field)).map_or(0, |field| field.width)
    }

    fn narrow(&self, field: FieldId) -> Checked {
        self.has_field(field, 64)
    }

    /// Of any width that wide registers hold.
    fn broad(&self, field: FieldId) -> Checked {
        self.has_field(field, u32::from(self.wide_limbs) * 64)
    }

    fn any(&self, field: FieldId) -> Checked {
        self.has_field(field, u32::MAX)
    }

    fn registers_fit<const N: usize>(&self, registers: [u16; N]) -> Checked {
        registers
            .into_iter()
            .try_for_each(|register| must(register < self.registers, "no register", register))
    }

    fn wides_fit<const N: usize>(&self, registers: [u16; N]) -> Checked {
        registers
            .into_iter()
            .try_for_each(|register| must(register < self.wide_registers, "no wide register", register))
    }

    fn header(&self, header: HeaderId) -> Result<&Header, Unfit> {
        self.headers.get(usize::from(header)).map_or_else(|| unfit(format!("no header {header}")), Ok)
    }

    fn has_header(&self, header: HeaderId) -> Checked {
        self.header(header).map(drop)
    }

    fn header_fits(&self, header: &Header) -> Checked {
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

    fn stack_fits(&self, stack: &Stack) -> Checked {
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
    fn alike(&self, one: HeaderId, other: HeaderId) -> Result<bool, Unfit> {
        let (one, other) = (self.header(one)?, self.header(other)?);
        let varbit = |header: &Header| {
            header
                .varbit
                .and_then(|varbit| self.fields.get(usize::from(varbit.field)))
                .map(|field| (field.at.wrapping_sub(header.at * 8), field.width))
        };
        Ok(one.bytes == other.bytes && one.fields == other.fields && varbit(one) == varbit(other))
    }

    fn alike_unions(&self, one: u16, other: u16) -> Checked {
        let headers = |union: u16| self.unions.get(usize::from(union)).map(|union| &union.headers);
        let (Some(one), Some(other)) = (headers(one), headers(other)) else {
            return unfit("no such union".into());
        };
        must(one.len() == other.len(), "unlike unions of headers", one.len())?;
        one.iter()
            .zip(other)
            .try_for_each(|(one, other)| must(self.alike(*one, *other)?, "unlike headers", one))
    }

    fn stack(&self, stack: StackId) -> Result<&Stack, Unfit> {
        self.stacks.get(usize::from(stack)).map_or_else(|| unfit(format!("no stack {stack}")), Ok)
    }

    fn alike_stacks(&self, one: StackId, other: StackId) -> Checked {
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
    fn element_fits(&self, stack: StackId, member: u16, field: Option<u16>) -> Checked {
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

    fn select_fits(&self, select: &Select) -> Checked {
        let mut bytes = 0;
        for key in &select.keys {
            match *key {
                SelectKey::Field(field) => self.any(field)?,
                SelectKey::Lookahead { at, width } => self.look_fits(at, width, AREA_BYTES)?,
                SelectKey::StackLast { stack, member, field } => {
                    self.element_fits(stack, member, Some(field))?
                }
            }
            bytes += select_width(self, key).div_ceil(8) as usize;
        }
        must(bytes == usize::from(select.bytes), "a select whose key has other bytes", bytes)?;
        let masked = |mask: &Option<Vec<u8>>| mask.as_ref().is_none_or(|mask| mask.len() == bytes);
        for case in &select.cases {
            let fits = match &case.on {
                SelectOn::Value { value, mask } => value.len() == bytes && masked(mask),
                SelectOn::Set { set, mask } => {
                    let set = self.value_sets.get(usize::from(*set));
                    masked(mask) && set.is_some_and(|set| usize::from(set.bytes) == bytes)
                }
            };
            must(fits, "a select's case of other bytes than its key", bytes)?;
        }
        Ok(())
    }

    fn look_fits(&self, at: u32, width: u32, most: u32) -> Checked {
        must(at <= AREA_BYTES * 8 && width > 0 && width <= most, "a lookahead of too many bits", width)
    }

    fn hash_fits(&self, hash: &Hash) -> Checked {
        for input in &hash.input {
            match input {
                HashInput::Field(field) => self.any(*field)?,
                HashInput::Header(header) => self.has_header(*header)?,
                HashInput::Constant { value, width } => {
                    must(
                        value.len() == width.div_ceil(8) as usize,
                        "a hash's constant of other bytes",
                        &hash.name,
                    )?;
                }
                HashInput::Register { register, width } => {
                    self.registers_fit([*register])?;
                    must(*width <= 128, "a hash over a number too wide", &hash.name)?;
                }
                HashInput::Payload => {}
            }
        }
        Ok(())
    }

    fn objects_fit(&self) -> Checked {
        self.field_lists.iter().flatten().try_for_each(|field| self.any(*field))?;
        self.digests.iter().flat_map(|digest| &digest.fields).try_for_each(|field| self.any(*field))?;
        for action in &self.actions {
            let mut widths = action.parameters.iter().map(|parameter| parameter.width);
            must(widths.all(|width| width <= AREA_BYTES), "a parameter's width", &action.name)?;
        }
        for profile in &self.profiles {
            let fits = profile.selector.is_none_or(|hash| usize::from(hash) < self.hashes.len());
            must(fits, "a selector without a hash", &profile.name)?;
        }
        for array in &self.arrays {
            must((1..=LIMBS as u32 * 64).contains(&array.width), "a register's width", &array.name)?;
        }
        for counter in &self.counters {
            let fits = counter.table.is_none_or(|table| usize::from(table) < self.tables.len());
            must(fits, "a counter of no table", &counter.name)?;
        }
        for meter in &self.meters {
            let fits = meter.table.is_none_or(|table| usize::from(table) < self.tables.len());
            must(fits, "a meter of no table", &meter.name)?;
            meter.result.map_or(Ok(()), |field| self.narrow(field))?;
        }
        Ok(())
    }

    fn table_fits(&self, table: &Table) -> Checked {
        let name = &table.name;
        for key in &table.keys {
            self.any(key.field)?;
            let bytes = self.width(key.field).div_ceil(8) as usize;
            must(bytes <= KEY_WORDS * 8, "a key's field is too wide", &key.name)?;
            must(
                key.mask.as_ref().is_none_or(|mask| mask.len() == bytes),
                "a key's mask of other bytes",
                &key.name,
            )?;
        }
        let count = |kind| table.keys.iter().filter(|key| key.kind == kind).count();
        let ternary = [MatchKind::Ternary, MatchKind::Range, MatchKind::Optional]
            .into_iter()
            .any(|kind| count(kind) > 0);
        must(ternary || count(MatchKind::Lpm) <= 1, "two longest prefix matches in one table", name)?;
        must(table.keys.len() <= KEY_WORDS, "too many keys in table", name)?;
        must(Layout::new(self, table).words <= KEY_WORDS, "too long a key of table", name)?;
        let known = |action: &u16| usize::from(*action) < self.actions.len();
        must(table.actions.iter().all(known), "an action that is not there, in table", name)?;
        if let Next::ByAction { to, .. } = &table.next {
            must(to.len() == table.actions.len(), "not one step to go on by an action, in table", name)?;
        }
        let fits = |number: Option<u16>, all: usize| number.is_none_or(|number| usize::from(number) < all);
        must(fits(table.profile, self.profiles.len()), "no such action profile, of table", name)?;
        must(fits(table.counter, self.counters.len()), "no such counter, of table", name)?;
        must(fits(table.meter, self.meters.len()), "no such meter, of table", name)?;
        must(
            table.profile.is_none() || table.entries.is_empty(),
            "entries of the program beside a profile, in table",
            name,
        )
    }

    fn standard_fits(&self, standard: &Standard) -> Checked {
        let all = [
            standard.ingress_port,
            standard.egress_spec,
            standard.egress_port,
            standard.instance_type,
            standard.packet_length,
            standard.enq_timestamp,
            standard.enq_qdepth,
            standard.deq_timedelta,
            standard.deq_qdepth,
            standard.ingress_global_timestamp,
            standard.egress_global_timestamp,
            standard.mcast_grp,
            standard.egress_rid,
            standard.priority,
            standard.qid,
            standard.parser_error,
            standard.checksum_error,
        ];
        all.into_iter().flatten().try_for_each(|field| self.narrow(field))
    }

    fn op_fits(&self, op: &Op) -> Checked {
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

    fn sizes(&self) -> Result<Sizes, Unfit> {
        let bytes = |fields: &Vec<FieldId>| {
            fields.iter().map(|field| u64::from(self.width(*field).div_ceil(8))).sum::<u64>()
        };
        let header = |header: HeaderId| self.header(header).map_or(0, |header| u64::from(header.bytes));
        let union = |union: u16| {
            let headers = self.unions.get(usize::from(union)).map(|union| &union.headers);
            headers.into_iter().flatten().map(|one| header(*one)).sum::<u64>()
        };
        let emitted = self.code.iter().map(|op| match *op {
            Op::Emit { header: one } => header(one),
            Op::EmitUnion { of } => union(of),
            Op::EmitStack { stack } => self.stack(stack).map_or(0, |stack| {
                stack.headers.iter().map(|one| header(*one)).sum::<u64>()
                    + stack.unions.iter().map(|one| union(*one)).sum::<u64>()
            }),
            _ => 0,
        });
        let hashed = self.hashes.iter().map(|hash| {
            let bits = hash.input.iter().map(|input| match input {
                HashInput::Field(field) => u64::from(self.width(*field)),
                HashInput::Header(one) => header(*one) * 8,
                HashInput::Constant { width, .. } | HashInput::Register { width, .. } => u64::from(*width),
                HashInput::Payload => 0,
            });
            bits.sum::<u64>() / 8 + 1
        });
        let selected = self.selects.iter().map(|select| u64::from(select.bytes));
        let digests = self.digests.iter().map(|digest| bytes(&digest.fields));
        let buffer = hashed.chain(selected).chain(digests).max().unwrap_or(0);
        let kept = self.field_lists.iter().map(bytes).max().unwrap_or(0);
        let emitted = emitted.sum::<u64>();
        for (what, size) in [("hashes", buffer), ("keeps", kept), ("emits", emitted)] {
            must(size <= MOST_BYTES, &format!("it {what} too many bytes"), size)?;
        }
        Ok(Sizes { buffer: buffer as usize, emitted: emitted as usize, kept: kept as usize })
    }
}
