// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Headers, stacks and unions; the parser's and the deparser's steps; wide numbers.

use alloc::vec::Vec;

use crate::bits::{self, peek, Place};
use crate::code::{Header, Part, Stack};
use crate::context::push_bytes;
use crate::packet::Shell;
use crate::program::{HeaderId, Op, Pc, Reg, SelectKey, SelectOn, StackId};
use crate::run::{Run, Then, NOWHERE};
use crate::wide::{self, Wide};

impl<'a, S: Shell> Run<'a, S> {
    fn header(&self, header: HeaderId) -> Option<&'a Header> {
        self.code.headers.get(usize::from(header))
    }

    fn is_valid(&self, header: &Header) -> bool {
        header.metadata
            || self
                .context
                .area
                .get(header.valid_at as usize)
                .is_some_and(|byte| byte & header.valid_bit != 0)
    }

    fn mark(&mut self, header: &Header, valid: bool) {
        if let Some(byte) = self.context.area.get_mut(header.valid_at as usize) {
            *byte = if valid { *byte | header.valid_bit } else { *byte & !header.valid_bit };
        }
    }

    /// Validity; the others of its union lose theirs.
    fn set_valid(&mut self, header: &Header, valid: bool) {
        let code = self.code;
        if let Some(union) =
            header.union_of.filter(|_| valid).and_then(|union| code.unions.get(usize::from(union)))
        {
            for other in union {
                if let Some(other) = self.header(*other) {
                    self.mark(other, false);
                }
            }
        }
        self.mark(header, valid);
    }

    /// The varbit field's bytes.
    fn varbit_bytes(&self, header: &Header) -> u32 {
        header.varbit.map_or(0, |varbit| (varbit.width.load(&self.context.area) as u32 / 8).min(varbit.bytes))
    }

    fn set_varbit_bytes(&mut self, header: &Header, bytes: u32) {
        if let Some(varbit) = header.varbit {
            varbit.width.store(&mut self.context.area, u64::from(bytes) * 8);
        }
    }

    /// As on the wire.
    fn length(&self, header: &Header) -> u32 {
        header.bytes - header.varbit.map_or(0, |varbit| varbit.bytes) + self.varbit_bytes(header)
    }

    fn fail(&mut self, error: u32) -> Then {
        self.error = Some(error);
        Then::Stop
    }

    /// What the parser has before it.
    fn rest(&self) -> &[u8] {
        self.packet.get(self.context.parsed as usize..).unwrap_or(&[])
    }

    /// A header with so many bits in its varbit field, if it has one.
    #[inline]
    pub fn extract(&mut self, header: HeaderId, varbit_bits: i128) -> Then {
        let (Some(header), errors) = (self.header(header), self.code.errors) else { return Then::Stop };
        let from = self.context.parsed as usize;
        let Some(varbit) = header.varbit else {
            let bytes = header.bytes as usize;
            let Some(source) = self.packet.get(from..from + bytes) else {
                return self.fail(errors.packet_too_short);
            };
            if let Some(area) = self.context.area.get_mut(header.at as usize..header.at as usize + bytes) {
                bits::copy_few(area, source);
            }
            self.set_valid(header, true);
            self.context.parsed += header.bytes;
            return Then::On;
        };
        let Ok(bits) = u32::try_from(varbit_bits) else { return self.fail(errors.parser_invalid_argument) };
        if bits % 8 != 0 {
            return self.fail(errors.parser_invalid_argument);
        }
        let (bytes, fixed) = (bits / 8, header.bytes - varbit.bytes);
        // Of the packet itself, of which less may be shown.
        let rest = self.context.arrived.saturating_sub(self.context.parsed);
        if rest < fixed.saturating_add(bytes) {
            return self.fail(errors.packet_too_short);
        }
        if bytes > varbit.bytes {
            return self.fail(errors.header_too_short);
        }
        let (before, behind) = (varbit.at as usize, (fixed - varbit.at) as usize);
        let at = header.at as usize;
        self.take(from, at, before);
        if let Some(area) = self.context.area.get_mut(at + before..at + before + varbit.bytes as usize) {
            area.fill(0);
        }
        self.take(from + before, at + before, bytes as usize);
        self.take(from + before + bytes as usize, at + before + varbit.bytes as usize, behind);
        self.set_varbit_bytes(header, bytes);
        self.set_valid(header, true);
        self.context.parsed += fixed + bytes;
        Then::On
    }

    /// Bytes of the packet into the area.
    fn take(&mut self, from: usize, to: usize, bytes: usize) {
        if let (Some(area), Some(source)) =
            (self.context.area.get_mut(to..to + bytes), self.packet.get(from..from + bytes))
        {
            area.copy_from_slice(source);
        }
    }

    #[inline]
    pub fn emit(&mut self, header: HeaderId) {
        let Some(header) = self.header(header).filter(|header| self.is_valid(header)) else { return };
        let (at, bytes) = (header.at as usize, header.bytes as usize);
        match header.varbit {
            None => self.put_out(at, bytes),
            Some(varbit) => {
                let (end, behind) = (varbit.at + self.varbit_bytes(header), varbit.at + varbit.bytes);
                self.put_out(at, end as usize);
                self.put_out(at + behind as usize, bytes.saturating_sub(behind as usize));
            }
        }
    }

    /// Most headers that a deparser names are not there.
    #[inline(always)]
    pub fn emit_each(&mut self, pc: Pc, first: u32, count: u16) -> Pc {
        let (code, first) = (self.code, first as usize);
        for one in code.runs.emitted.get(first..first + usize::from(count)).unwrap_or(&[]) {
            if self.context.area.get(usize::from(one.valid_at)).is_some_and(|byte| byte & one.valid_bit != 0)
            {
                if one.varbit {
                    self.emit(one.header);
                } else {
                    self.put_out(one.at.into(), one.bytes.into());
                }
            }
        }
        pc + Pc::from(count) - 1
    }

    /// Of the area, to what stands before the rest of the packet.
    #[inline(always)]
    fn put_out(&mut self, at: usize, bytes: usize) {
        let context = &mut *self.context;
        if let Some(source) = context.area.get(at..at + bytes) {
            context.headers.push(source);
        }
    }

    pub fn parser_op(&mut self, op: Op) -> Then {
        match op {
            Op::Reject { error } => return self.fail(error),
            Op::ExtractNext { stack, member } => return self.extract_next(stack, member, 0),
            Op::ExtractNextVarbit { stack, member, width } => {
                return self.extract_next(stack, member, self.number(width));
            }
            Op::ExtractVarbit { header, width } => return self.extract(header, self.number(width)),
            Op::WideLookahead { to, at, width } => {
                if self.look(at.saturating_add(width), 0).is_none() {
                    return self.fail(self.code.errors.packet_too_short);
                }
                let (mut value, mut left) = (Wide::zero(self.code.limbs), width);
                for limb in value.as_mut() {
                    let bits = left.min(64);
                    left -= bits;
                    *limb = self.look(at.saturating_add(left), bits).unwrap_or(0);
                }
                self.set_wide(to, &value);
            }
            Op::LoadLast { to, stack, member, field } => match self.last(stack, member, field) {
                Some(value) => self.set(to, value),
                None if self.parsing => return self.fail(self.code.errors.stack_out_of_bounds),
                None => self.set(to, 0),
            },
            Op::Advance { bits } => return self.advance(self.number(bits)),
            _ => {}
        }
        Then::On
    }

    #[inline]
    pub fn lookahead(&mut self, pc: Pc, to: Reg, at: u32, width: u32) -> Pc {
        let Some(value) = self.look(at, width) else {
            self.error = Some(self.code.errors.packet_too_short);
            return NOWHERE;
        };
        self.set(to, i128::from(value));
        pc
    }

    fn advance(&mut self, bits: i128) -> Then {
        let Some(bits) = u64::try_from(bits).ok().filter(|bits| bits % 8 == 0) else {
            return self.fail(self.code.errors.parser_invalid_argument);
        };
        if bits / 8 > self.rest().len() as u64 {
            return self.fail(self.code.errors.packet_too_short);
        }
        self.context.parsed += (bits / 8) as u32;
        Then::On
    }

    fn look(&self, at: u32, width: u32) -> Option<u64> {
        let end = u64::from(at) + u64::from(width);
        (end <= self.rest().len() as u64 * 8).then(|| peek(self.rest(), u64::from(at), width))
    }

    fn next(&self, stack: &Stack) -> usize {
        (stack.next.load(&self.context.area) as usize).min(stack.size())
    }

    fn set_next(&mut self, stack: &Stack, next: usize) {
        stack.next.store(&mut self.context.area, next as u64);
    }

    /// A stack's element: of a stack of unions one of its members.
    fn element(&self, stack: &Stack, index: usize, member: u16) -> Option<HeaderId> {
        match stack.unions.get(index) {
            Some(union) => self.code.unions.get(usize::from(*union))?.get(usize::from(member)).copied(),
            None => stack.headers.get(index).copied(),
        }
    }

    fn extract_next(&mut self, stack: StackId, member: u16, varbit_bits: i128) -> Then {
        let code = self.code;
        let Some(stack) = code.stacks.get(usize::from(stack)) else { return Then::Stop };
        let next = self.next(stack);
        let Some(header) = self.element(stack, next, member) else {
            return self.fail(code.errors.stack_out_of_bounds);
        };
        let then = self.extract(header, varbit_bits);
        if then == Then::On {
            self.set_next(stack, next + 1);
        }
        then
    }

    fn field_of(&self, header: HeaderId, field: u16) -> Option<i128> {
        let header = self.header(header).filter(|header| field < header.fields)?;
        let field = self.code.field(header.first_field.saturating_add(field));
        let value = Place::of(field.at, field.width.min(64)).load(&self.context.area);
        Some(if field.signed { i128::from(bits::signed(value, field.width)) } else { i128::from(value) })
    }

    fn last(&self, stack: StackId, member: u16, field: u16) -> Option<i128> {
        let stack = self.code.stacks.get(usize::from(stack))?;
        let header = self.element(stack, self.next(stack).checked_sub(1)?, member)?;
        self.field_of(header, field)
    }

    /// A parser's transition: where to.
    #[inline]
    pub fn select(&mut self, pc: Pc, select: u16) -> Pc {
        let code = self.code;
        let Some(select) = code.selects.get(usize::from(select)) else { return NOWHERE };
        let next = match &select.short {
            Some(cases) => {
                let mut key = 0u64;
                for part in &select.keys {
                    let Some(value) = self.part(part) else { return self.stop(part) };
                    key = key.checked_shl(part.width.div_ceil(8) * 8).unwrap_or(0) | value;
                }
                cases.iter().find(|(value, mask, _)| key & mask == *value).map(|(.., next)| *next)
            }
            None => {
                self.state.buffer.clear();
                for part in &select.keys {
                    if !self.push_part(part) {
                        return self.stop(part);
                    }
                }
                select.cases.iter().find(|case| self.fits(&case.on)).map(|case| case.next)
            }
        };
        match next.or(select.default) {
            Some(next) => self.jump(pc, next),
            None => {
                self.error = Some(code.errors.no_match);
                NOWHERE
            }
        }
    }

    /// The parser looked where nothing is.
    fn stop(&mut self, part: &Part) -> Pc {
        let errors = self.code.errors;
        let stack = matches!(part.key, SelectKey::StackLast { .. });
        self.error = Some(if stack { errors.stack_out_of_bounds } else { errors.packet_too_short });
        NOWHERE
    }

    #[inline]
    fn part(&self, part: &Part) -> Option<u64> {
        match part.key {
            SelectKey::Field(_) => part.place.map(|place| place.load(&self.context.area)),
            SelectKey::Lookahead { at, width } => self.look(at, width),
            SelectKey::StackLast { stack, member, field } => {
                self.last(stack, member, field).map(|value| value as u64 & bits::ones(part.width))
            }
        }
    }

    /// Of any width, behind what the buffer has.
    fn push_part(&mut self, part: &Part) -> bool {
        match part.key {
            SelectKey::Field(field) => {
                let field = self.code.field(field);
                push_bytes(&self.context.area, field.at, field.width, &mut self.state.buffer);
            }
            SelectKey::Lookahead { at, width } => {
                if self.look(at.saturating_add(width), 0).is_none() {
                    return false;
                }
                let mut done = 0;
                while done < width {
                    let bits = if done == 0 && width % 8 > 0 { width % 8 } else { 8 };
                    let byte = self.look(at.saturating_add(done), bits).unwrap_or(0);
                    self.state.buffer.push(byte as u8);
                    done += bits;
                }
            }
            SelectKey::StackLast { stack, member, field } => {
                let Some(value) = self.last(stack, member, field) else { return false };
                let bytes = part.width.div_ceil(8).min(8);
                for byte in (0..bytes).rev() {
                    self.state.buffer.push(((value as u64 & bits::ones(part.width)) >> (byte * 8)) as u8);
                }
            }
        }
        true
    }

    fn fits(&self, on: &SelectOn) -> bool {
        let key = &self.state.buffer;
        let under = |value: &[u8], mask: Option<&[u8]>| match mask {
            None => value == key.as_slice(),
            Some(mask) => {
                value.iter().zip(key).zip(mask).all(|((value, key), mask)| (value ^ key) & mask == 0)
            }
        };
        match on {
            SelectOn::Value { value, mask } => under(value, mask.as_deref()),
            SelectOn::Set { set, mask } => self.state.sets.get(usize::from(*set)).is_some_and(|members| {
                members.iter().any(|member| {
                    let own = member.mask.as_deref();
                    under(&member.value, own.or(mask.as_deref()))
                })
            }),
        }
    }

    pub fn header_op(&mut self, op: Op) {
        let code = self.code;
        match op {
            Op::AddHeader { header } => self.add_header(header),
            Op::RemoveHeader { header } => self.remove_header(header),
            Op::CopyHeader { to, from } => self.copy_header(to, from),
            Op::CopyVarbit { to, from } => self.copy_varbit(to, from),
            Op::CopyStack { to, from } => self.copy_stack(to, from),
            Op::CopyUnion { to, from } => self.copy_union(to, from),
            Op::Push { stack, count } => self.shift(stack, usize::from(count), true),
            Op::Pop { stack, count } => self.shift(stack, usize::from(count), false),
            Op::LoadIndexed { to, stack, member, index, field } => {
                let value =
                    self.indexed(stack, member, index).and_then(|header| self.field_of(header, field));
                self.set(to, value.unwrap_or(0));
            }
            Op::ValidIndexed { to, stack, member, index } => {
                let header = self.indexed(stack, member, index).and_then(|header| self.header(header));
                self.set(to, i128::from(header.is_some_and(|header| self.is_valid(header))));
            }
            Op::StackLastIndex { to, stack } => {
                let next = code.stacks.get(usize::from(stack)).map_or(0, |stack| self.next(stack));
                self.set(to, i128::from((next as u32).wrapping_sub(1)));
            }
            Op::EmitStack { stack } => {
                let Some(stack) = code.stacks.get(usize::from(stack)) else { return };
                stack.headers.iter().for_each(|header| self.emit(*header));
                stack.unions.iter().for_each(|union| self.emit_union(*union));
            }
            Op::EmitUnion { of } => self.emit_union(of),
            _ => {}
        }
    }

    fn emit_union(&mut self, union: u16) {
        let code = self.code;
        let headers = code.unions.get(usize::from(union)).map_or(&[][..], |union| union);
        headers.iter().for_each(|header| self.emit(*header));
    }

    fn indexed(&self, stack: StackId, member: u16, index: u16) -> Option<HeaderId> {
        let stack = self.code.stacks.get(usize::from(stack))?;
        let index = usize::try_from(self.number(index)).ok().filter(|index| *index < stack.size())?;
        self.element(stack, index, member)
    }

    fn add_header(&mut self, header: HeaderId) {
        let Some(header) = self.header(header).filter(|header| !self.is_valid(header)) else { return };
        if let Some(area) = self.context.area.get_mut(header.at as usize..(header.at + header.bytes) as usize)
        {
            area.fill(0);
        }
        self.set_varbit_bytes(header, 0);
        self.set_valid(header, true);
        self.context.length = self.context.length.wrapping_add(self.length(header));
    }

    fn remove_header(&mut self, header: HeaderId) {
        let Some(header) = self.header(header).filter(|header| self.is_valid(header)) else { return };
        self.context.length = self.context.length.wrapping_sub(self.length(header));
        self.set_valid(header, false);
    }

    fn copy_header(&mut self, to: HeaderId, from: HeaderId) {
        let (Some(target), Some(source)) = (self.header(to), self.header(from)) else { return };
        if !self.is_valid(source) {
            self.set_valid(target, false);
            return;
        }
        self.set_valid(target, true);
        self.copy_contents(target, source);
    }

    fn copy_contents(&mut self, to: &Header, from: &Header) {
        self.context.copy_bits(to.at * 8, from.at * 8, from.bytes.min(to.bytes) * 8);
        let bytes = self.varbit_bytes(from);
        self.set_varbit_bytes(to, bytes);
    }

    fn copy_varbit(&mut self, to: HeaderId, from: HeaderId) {
        let (Some(target), Some(source)) = (self.header(to), self.header(from)) else { return };
        let (Some(field), Some(other)) = (target.varbit, source.varbit) else { return };
        let bytes = self.varbit_bytes(source).min(field.bytes);
        self.context.copy_bits(
            (target.at + field.at) * 8,
            (source.at + other.at) * 8,
            field.bytes.min(other.bytes) * 8,
        );
        self.set_varbit_bytes(target, bytes);
    }

    fn copy_union(&mut self, to: u16, from: u16) {
        let code = self.code;
        let (Some(to), Some(from)) = (code.unions.get(usize::from(to)), code.unions.get(usize::from(from)))
        else {
            return;
        };
        // The valid one last: the others' copies would take its validity.
        for turn in [false, true] {
            for (to, from) in to.iter().zip(from) {
                if self.header(*from).is_some_and(|from| self.is_valid(from) == turn) {
                    self.copy_header(*to, *from);
                }
            }
        }
    }

    fn copy_stack(&mut self, to: StackId, from: StackId) {
        let code = self.code;
        let (Some(to), Some(from)) = (code.stacks.get(usize::from(to)), code.stacks.get(usize::from(from)))
        else {
            return;
        };
        self.set_next(to, self.next(from));
        to.headers.iter().zip(&from.headers).for_each(|(to, from)| self.copy_header(*to, *from));
        to.unions.iter().zip(&from.unions).for_each(|(to, from)| self.copy_union(*to, *from));
    }

    /// P4_16 8.18: elements move, those that come or go are invalid.
    fn shift(&mut self, stack: StackId, count: usize, push: bool) {
        let code = self.code;
        let Some(stack) = code.stacks.get(usize::from(stack)) else { return };
        let (size, next) = (stack.size(), self.next(stack));
        let count = count.min(size);
        self.set_next(stack, if push { (next + count).min(size) } else { next.saturating_sub(count) });
        for step in 0..size {
            let to = if push { size - 1 - step } else { step };
            let from =
                if push { to.checked_sub(count) } else { Some(to + count).filter(|from| *from < size) };
            self.move_element(stack, to, from);
        }
    }

    /// From elsewhere in the stack; None: it becomes invalid.
    fn move_element(&mut self, stack: &Stack, to: usize, from: Option<usize>) {
        let members = stack
            .unions
            .get(to)
            .and_then(|union| self.code.unions.get(usize::from(*union)))
            .map_or(1, |union| union.len());
        for member in 0..members as u16 {
            let target = self.element(stack, to, member).and_then(|header| self.header(header));
            let source = from
                .and_then(|from| self.element(stack, from, member))
                .and_then(|header| self.header(header));
            let Some(target) = target else { continue };
            match source {
                Some(source) => {
                    self.copy_contents(target, source);
                    self.mark(target, self.is_valid(source));
                }
                None => self.mark(target, false),
            }
        }
    }

    pub fn wide_op(&mut self, op: Op) {
        let (code, limbs) = (self.code, self.code.limbs);
        let constant =
            |constant: u16| code.constants.get(usize::from(constant)).map_or(&[][..], Vec::as_slice);
        match op {
            Op::SetLong { to, constant: bytes } => {
                let value = constant(bytes).iter().fold(0i128, |value, byte| value << 8 | i128::from(*byte));
                self.set(to, value);
            }
            Op::StoreConstant { field, value } => {
                code.place(field).store(&mut self.context.area, value as u64);
            }
            Op::WideSet { to, constant: bytes } => {
                self.set_wide(to, &Wide::from_bytes(constant(bytes), limbs))
            }
            Op::WideLoad { to, field } => {
                let field = code.field(field);
                let mut value = Wide::zero(limbs);
                bits::load_limbs(&self.context.area, field.at, field.width, value.as_mut());
                self.set_wide(to, &if field.signed { value.signed(field.width as usize) } else { value });
            }
            Op::WideStore { field, from } => {
                let (field, value) = (code.field(field), self.wide(from));
                bits::store_limbs(&mut self.context.area, field.at, field.width, value.as_ref());
            }
            Op::WideArgument { to, argument, .. } => self.set_wide(to, &self.wide_argument(argument)),
            Op::WideUnary { op, to, from } => self.set_wide(to, &wide::unary(op, &self.wide(from))),
            Op::WideBinary { op, to, left, right } => {
                self.set_wide(to, &wide::binary(op, &self.wide(left), &self.wide(right)));
            }
            Op::WideCompare { op, to, left, right } => {
                self.set(to, i128::from(wide::compare(op, &self.wide(left), &self.wide(right))));
            }
            Op::Widen { to, from } => self.set_wide(to, &Wide::from_number(self.number(from), limbs)),
            Op::Narrow { to, from } => self.set(to, self.wide(from).number()),
            Op::Copy { to, from } => {
                let (to, from) = (code.field(to), code.field(from));
                self.context.copy_bits(to.at, from.at, to.width.min(from.width));
            }
            _ => {}
        }
    }
}
