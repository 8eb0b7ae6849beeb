// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Execution of the parser's instructions: extraction, lookahead, transitions.

use crate::arith::bits::{self, peek};
use crate::arith::wide::Wide;
use crate::exec::context::push_bytes;
use crate::exec::interpreter::{Flow, Interpreter, HALT};
use crate::exec::packet::Shell;
use crate::ir::{HeaderId, Op, Pc, Reg, SelectKey, SelectOn, StackId};
use crate::lower::operands::{Header, KeyPart};

impl<'a, S: Shell> Interpreter<'a, S> {
    fn fail(&mut self, error: u32) -> Flow {
        self.error = Some(error);
        Flow::Stop
    }

    /// Gets more of the packet from the shell. Returns whether there is more.
    #[cold]
    fn extend(&mut self) -> bool {
        let bytes = self.packet.len();
        if core::mem::replace(&mut self.is_extended, true) || bytes >= self.context.arrived as usize {
            return false;
        }
        self.complete_checksum();
        self.head = self.shell.extend(self.head);
        self.packet = self.head;
        self.frame.set_packet(self.packet);
        self.packet.len() > bytes
    }

    /// Gets as much of the packet as a header at `from` needs.
    #[cold]
    fn extend_to(&mut self, header: &Header, from: usize) {
        let (end, bytes) = (from + header.bytes as usize, self.packet.len());
        // The packet is cut before its checksum, which is in this header or before the bytes that the parser needs.
        if bytes < self.head.len() && end <= self.head.len() && header.defers_at(bytes.wrapping_sub(from)) {
            self.context.deferred = header.at + (bytes - from) as u32;
            self.packet = self.head;
            self.frame.show_packet(self.packet.len());
        } else {
            self.extend();
        }
    }

    /// The packet after the parser's position.
    fn rest(&self) -> &[u8] {
        self.packet.get(self.context.parsed as usize..).unwrap_or(&[])
    }

    /// Extracts a header. `varbit_bits` is the width of its varbit field, if it has one.
    #[inline]
    pub fn extract(&mut self, header: HeaderId, varbit_bits: i128) -> Flow {
        let (Some(header), errors) = (self.header(header), self.code.errors) else { return Flow::Stop };
        let from = self.context.parsed as usize;
        let Some(varbit) = header.varbit else {
            let bytes = header.bytes as usize;
            if self.packet.len() < from + bytes {
                self.extend_to(header, from);
            }
            let Some(source) = self.packet.get(from..from + bytes) else {
                return self.fail(errors.packet_too_short);
            };
            if let Some(phv) = self.context.phv.get_mut(header.at as usize..header.at as usize + bytes) {
                bits::copy_few(phv, source);
            }
            self.set_valid(header, true);
            self.context.parsed += header.bytes;
            return Flow::Continue;
        };
        let Ok(bits) = u32::try_from(varbit_bits) else { return self.fail(errors.parser_invalid_argument) };
        if bits % 8 != 0 {
            return self.fail(errors.parser_invalid_argument);
        }
        let (bytes, fixed) = (bits / 8, header.bytes - varbit.bytes);
        // The rest of the whole packet: `packet` may have only its first bytes.
        let rest = self.context.arrived.saturating_sub(self.context.parsed);
        if rest < fixed.saturating_add(bytes) {
            return self.fail(errors.packet_too_short);
        }
        if bytes > varbit.bytes {
            return self.fail(errors.header_too_short);
        }
        if self.packet.len() < from + (fixed + bytes) as usize {
            self.extend();
        }
        let (before, after) = (varbit.at as usize, (fixed - varbit.at) as usize);
        let at = header.at as usize;
        self.copy_from_packet(from, at, before);
        if let Some(phv) = self.context.phv.get_mut(at + before..at + before + varbit.bytes as usize) {
            phv.fill(0);
        }
        self.copy_from_packet(from + before, at + before, bytes as usize);
        self.copy_from_packet(from + before + bytes as usize, at + before + varbit.bytes as usize, after);
        self.set_varbit_bytes(header, bytes);
        self.set_valid(header, true);
        self.context.parsed += fixed + bytes;
        Flow::Continue
    }

    /// Copies bytes of the packet to the PHV.
    fn copy_from_packet(&mut self, from: usize, to: usize, bytes: usize) {
        if let (Some(phv), Some(source)) =
            (self.context.phv.get_mut(to..to + bytes), self.packet.get(from..from + bytes))
        {
            phv.copy_from_slice(source);
        }
    }

    pub fn run_parser_op(&mut self, op: Op) -> Flow {
        match op {
            Op::Reject { error } => return self.fail(error),
            Op::ExtractNext { stack, member } => return self.extract_next(stack, member, 0),
            Op::ExtractNextVarbit { stack, member, width } => {
                return self.extract_next(stack, member, self.number(width));
            }
            Op::ExtractVarbit { header, width } => return self.extract(header, self.number(width)),
            Op::WideLookahead { to, at, width } => {
                if !self.can_look_ahead(at.saturating_add(width)) {
                    return self.fail(self.code.errors.packet_too_short);
                }
                let (mut value, mut left) = (Wide::zero(self.code.limbs), width);
                for limb in value.as_mut() {
                    let bits = left.min(64);
                    left -= bits;
                    *limb = self.peek_packet(at.saturating_add(left), bits).unwrap_or(0);
                }
                self.set_wide(to, &value);
            }
            Op::LoadLast { to, stack, member, field } => {
                match self.last_element_field(stack, member, field) {
                    Some(value) => self.set(to, value),
                    None if self.parsing => return self.fail(self.code.errors.stack_out_of_bounds),
                    None => self.set(to, 0),
                }
            }
            Op::Advance { bits } => return self.advance(self.number(bits)),
            _ => {}
        }
        Flow::Continue
    }

    #[inline]
    pub fn lookahead(&mut self, pc: Pc, to: Reg, at: u32, width: u32) -> Pc {
        if !self.can_look_ahead(at.saturating_add(width)) {
            self.error = Some(self.code.errors.packet_too_short);
            return HALT;
        }
        let value = self.peek_packet(at, width).unwrap_or(0);
        self.set(to, i128::from(value));
        pc
    }

    fn advance(&mut self, bits: i128) -> Flow {
        let Some(bits) = u64::try_from(bits).ok().filter(|bits| bits % 8 == 0) else {
            return self.fail(self.code.errors.parser_invalid_argument);
        };
        if bits / 8 > self.rest().len() as u64 {
            return self.fail(self.code.errors.packet_too_short);
        }
        self.context.parsed += (bits / 8) as u32;
        Flow::Continue
    }

    /// Whether the packet has so many bits after the parser's position.
    #[inline]
    fn can_look_ahead(&mut self, bits: u32) -> bool {
        let end = u64::from(bits);
        end <= self.rest().len() as u64 * 8 || self.extend() && end <= self.rest().len() as u64 * 8
    }

    fn peek_packet(&self, at: u32, width: u32) -> Option<u64> {
        let end = u64::from(at) + u64::from(width);
        (end <= self.rest().len() as u64 * 8).then(|| peek(self.rest(), u64::from(at), width))
    }

    fn extract_next(&mut self, stack: StackId, member: u16, varbit_bits: i128) -> Flow {
        let code = self.code;
        let Some(stack) = code.stacks.get(usize::from(stack)) else { return Flow::Stop };
        let next = self.next_index(stack);
        let Some(header) = self.element(stack, next, member) else {
            return self.fail(code.errors.stack_out_of_bounds);
        };
        let flow = self.extract(header, varbit_bits);
        if flow == Flow::Continue {
            self.set_next_index(stack, next + 1);
        }
        flow
    }

    /// Selects a transition of the parser and returns its target.
    #[inline]
    pub fn select(&mut self, pc: Pc, number: u16) -> Pc {
        let code = self.code;
        let Some(select) = code.selects.get(usize::from(number)) else { return HALT };
        let next = match &select.short {
            Some(cases) => {
                let mut key = 0u64;
                for part in &select.keys {
                    let Some(value) = self.key_part(part) else { return self.select_more(pc, number, part) };
                    key = key.checked_shl(part.width.div_ceil(8) * 8).unwrap_or(0) | value;
                }
                cases.iter().find(|(value, mask, _)| key & mask == *value).map(|(.., next)| *next)
            }
            None => {
                self.state.buffer.clear();
                for part in &select.keys {
                    if !self.push_key_part(part) {
                        return self.select_more(pc, number, part);
                    }
                }
                select.cases.iter().find(|case| self.case_matches(&case.on)).map(|case| case.next)
            }
        };
        match next.or(select.default) {
            Some(next) => self.jump(pc, next),
            None => {
                self.error = Some(code.errors.no_match);
                HALT
            }
        }
    }

    /// Selects again with more of the packet. Ends the parser if a part of the key does not exist.
    #[cold]
    fn select_more(&mut self, pc: Pc, select: u16, part: &KeyPart) -> Pc {
        if matches!(part.key, SelectKey::Lookahead { .. }) && self.extend() {
            return self.select(pc, select);
        }
        let errors = self.code.errors;
        let stack = matches!(part.key, SelectKey::StackLast { .. });
        self.error = Some(if stack { errors.stack_out_of_bounds } else { errors.packet_too_short });
        HALT
    }

    #[inline]
    fn key_part(&self, part: &KeyPart) -> Option<u64> {
        match part.key {
            SelectKey::Field(_) => part.place.map(|place| place.load(&self.context.phv)),
            SelectKey::Lookahead { at, width } => self.peek_packet(at, width),
            SelectKey::StackLast { stack, member, field } => self
                .last_element_field(stack, member, field)
                .map(|value| value as u64 & bits::ones(part.width)),
        }
    }

    /// Appends a part of any width to the buffer.
    fn push_key_part(&mut self, part: &KeyPart) -> bool {
        match part.key {
            SelectKey::Field(field) => {
                let field = self.code.field(field);
                push_bytes(&self.context.phv, field.at, field.width, &mut self.state.buffer);
            }
            SelectKey::Lookahead { at, width } => {
                if self.peek_packet(at.saturating_add(width), 0).is_none() {
                    return false;
                }
                let mut done = 0;
                while done < width {
                    let bits = if done == 0 && width % 8 > 0 { width % 8 } else { 8 };
                    let byte = self.peek_packet(at.saturating_add(done), bits).unwrap_or(0);
                    self.state.buffer.push(byte as u8);
                    done += bits;
                }
            }
            SelectKey::StackLast { stack, member, field } => {
                let Some(value) = self.last_element_field(stack, member, field) else { return false };
                let bytes = part.width.div_ceil(8).min(8);
                for byte in (0..bytes).rev() {
                    self.state.buffer.push(((value as u64 & bits::ones(part.width)) >> (byte * 8)) as u8);
                }
            }
        }
        true
    }

    fn case_matches(&self, on: &SelectOn) -> bool {
        let key = &self.state.buffer;
        let equals = |value: &[u8], mask: Option<&[u8]>| match mask {
            None => value == key.as_slice(),
            Some(mask) => {
                value.iter().zip(key).zip(mask).all(|((value, key), mask)| (value ^ key) & mask == 0)
            }
        };
        match on {
            SelectOn::Value { value, mask } => equals(value, mask.as_deref()),
            SelectOn::Set { set, mask } => self.state.sets.get(usize::from(*set)).is_some_and(|members| {
                members.iter().any(|member| {
                    let member_mask = member.mask.as_deref();
                    equals(&member.value, member_mask.or(mask.as_deref()))
                })
            }),
        }
    }
}
