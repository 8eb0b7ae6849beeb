// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Parser instructions: extraction, lookahead, transitions.

use crate::arith::bits::{self, peek};
use crate::arith::wide::Wide;
use crate::exec::context::push_bytes;
use crate::exec::interpreter::{Run, Then, NOWHERE};
use crate::exec::packet::Shell;
use crate::ir::{HeaderId, Op, Pc, Reg, SelectKey, SelectOn, StackId};
use crate::lower::operands::Part;

impl<'a, S: Shell> Run<'a, S> {
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
}
