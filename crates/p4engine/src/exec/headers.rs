// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Operations on headers, stacks and unions.

use crate::arith::bits::{self, Place};
use crate::exec::interpreter::Interpreter;
use crate::exec::packet::Shell;
use crate::ir::{HeaderId, Op, StackId};
use crate::lower::operands::{Header, Stack};

impl<'a, S: Shell> Interpreter<'a, S> {
    pub(super) fn header(&self, header: HeaderId) -> Option<&'a Header> {
        self.code.headers.get(usize::from(header))
    }

    pub(super) fn is_valid(&self, header: &Header) -> bool {
        header.metadata
            || self.context.phv.get(header.valid_at as usize).is_some_and(|byte| byte & header.valid_bit != 0)
    }

    fn write_validity(&mut self, header: &Header, valid: bool) {
        if let Some(byte) = self.context.phv.get_mut(header.valid_at as usize) {
            *byte = if valid { *byte | header.valid_bit } else { *byte & !header.valid_bit };
        }
    }

    /// Sets a header's validity. Making it valid makes the other headers of its union invalid.
    pub(super) fn set_valid(&mut self, header: &Header, valid: bool) {
        let code = self.code;
        if let Some(union) =
            header.union_of.filter(|_| valid).and_then(|union| code.unions.get(usize::from(union)))
        {
            for other in union {
                if let Some(other) = self.header(*other) {
                    self.write_validity(other, false);
                }
            }
        }
        self.write_validity(header, valid);
    }

    /// Current size of the varbit field.
    pub(super) fn varbit_bytes(&self, header: &Header) -> u32 {
        header.varbit.map_or(0, |varbit| (varbit.width.load(&self.context.phv) as u32 / 8).min(varbit.bytes))
    }

    pub(super) fn set_varbit_bytes(&mut self, header: &Header, bytes: u32) {
        if let Some(varbit) = header.varbit {
            varbit.width.store(&mut self.context.phv, u64::from(bytes) * 8);
        }
    }

    /// Length on the wire.
    fn length(&self, header: &Header) -> u32 {
        header.bytes - header.varbit.map_or(0, |varbit| varbit.bytes) + self.varbit_bytes(header)
    }

    pub(super) fn next_index(&self, stack: &Stack) -> usize {
        (stack.next.load(&self.context.phv) as usize).min(stack.size())
    }

    pub(super) fn set_next_index(&mut self, stack: &Stack, next: usize) {
        stack.next.store(&mut self.context.phv, next as u64);
    }

    /// A stack's element. If the elements are unions, it is their header with index `member`.
    pub(super) fn element(&self, stack: &Stack, index: usize, member: u16) -> Option<HeaderId> {
        match stack.unions.get(index) {
            Some(union) => self.code.unions.get(usize::from(*union))?.get(usize::from(member)).copied(),
            None => stack.headers.get(index).copied(),
        }
    }

    fn load_header_field(&self, header: HeaderId, field: u16) -> Option<i128> {
        let header = self.header(header).filter(|header| field < header.fields)?;
        let field = self.code.field(header.first_field.saturating_add(field));
        let value = Place::new(field.at, field.width.min(64)).load(&self.context.phv);
        Some(if field.signed { i128::from(bits::signed(value, field.width)) } else { i128::from(value) })
    }

    pub(super) fn last_element_field(&self, stack: StackId, member: u16, field: u16) -> Option<i128> {
        let stack = self.code.stacks.get(usize::from(stack))?;
        let header = self.element(stack, self.next_index(stack).checked_sub(1)?, member)?;
        self.load_header_field(header, field)
    }

    pub fn run_header_op(&mut self, op: Op) {
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
                let value = self
                    .indexed(stack, member, index)
                    .and_then(|header| self.load_header_field(header, field));
                self.set(to, value.unwrap_or(0));
            }
            Op::ValidIndexed { to, stack, member, index } => {
                let header = self.indexed(stack, member, index).and_then(|header| self.header(header));
                self.set(to, i128::from(header.is_some_and(|header| self.is_valid(header))));
            }
            Op::StackLastIndex { to, stack } => {
                let next = code.stacks.get(usize::from(stack)).map_or(0, |stack| self.next_index(stack));
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

    fn indexed(&self, stack: StackId, member: u16, index: u16) -> Option<HeaderId> {
        let stack = self.code.stacks.get(usize::from(stack))?;
        let index = usize::try_from(self.number(index)).ok().filter(|index| *index < stack.size())?;
        self.element(stack, index, member)
    }

    fn add_header(&mut self, header: HeaderId) {
        let Some(header) = self.header(header).filter(|header| !self.is_valid(header)) else { return };
        if let Some(phv) = self.context.phv.get_mut(header.at as usize..(header.at + header.bytes) as usize) {
            phv.fill(0);
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
        // Copy the valid header last, since copies of the others would invalidate it.
        for valid in [false, true] {
            for (to, from) in to.iter().zip(from) {
                if self.header(*from).is_some_and(|from| self.is_valid(from) == valid) {
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
        self.set_next_index(to, self.next_index(from));
        to.headers.iter().zip(&from.headers).for_each(|(to, from)| self.copy_header(*to, *from));
        to.unions.iter().zip(&from.unions).for_each(|(to, from)| self.copy_union(*to, *from));
    }

    /// Moves the elements of a stack (P4_16 section 8.18). Elements without a source become invalid.
    fn shift(&mut self, stack: StackId, count: usize, push: bool) {
        let code = self.code;
        let Some(stack) = code.stacks.get(usize::from(stack)) else { return };
        let (size, next) = (stack.size(), self.next_index(stack));
        let count = count.min(size);
        self.set_next_index(stack, if push { (next + count).min(size) } else { next.saturating_sub(count) });
        for index in 0..size {
            let to = if push { size - 1 - index } else { index };
            let from =
                if push { to.checked_sub(count) } else { Some(to + count).filter(|from| *from < size) };
            self.move_element(stack, to, from);
        }
    }

    /// Copies an element from index `from`. None: the element becomes invalid.
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
                    self.write_validity(target, self.is_valid(source));
                }
                None => self.write_validity(target, false),
            }
        }
    }
}
