// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Runs a part of a program: the loop over its steps, numbers, jumps and tables.
//!
//! `Program::check` has looked at every index; where one is wrong all the same, nothing happens or a zero is read.

use crate::arith::{bits, number};
use crate::exec::context::Context;
use crate::exec::packet::Shell;
use crate::exec::state::{State, ENDLESS};
use crate::ir::{Op, Pc};
use crate::lower::instructions::Step;
use crate::lower::Code;

/// No step.
pub(crate) const NOWHERE: Pc = Pc::MAX;

/// Backward jumps of a parser, or of a control's actions, before they count as endless.
const PATIENCE: u32 = 1 << 16;

pub(crate) struct Run<'a, S> {
    pub code: &'a Code,
    pub state: &'a mut State,
    pub context: &'a mut Context,
    pub packet: &'a [u8],
    pub shell: &'a mut S,
    /// Where the action that runs returns to.
    pub(super) back: Pc,
    /// The reason that `mark_to_drop` has here.
    pub reason: u32,
    /// That of steps outside of actions.
    plain_reason: u32,
    /// What ended the parser.
    pub error: Option<u32>,
    pub parsing: bool,
    patience: u32,
}

/// So many ones: 1 to 127.
#[inline(always)]
fn ones(bits: u16) -> i128 {
    i128::MAX >> (127u16.wrapping_sub(bits) & 127)
}

/// Whether the part goes on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    On,
    Stop,
}

impl<'a, S: Shell> Run<'a, S> {
    pub fn new(
        code: &'a Code,
        state: &'a mut State,
        context: &'a mut Context,
        packet: &'a [u8],
        shell: &'a mut S,
    ) -> Run<'a, S> {
        let (reason, plain_reason) = (0, 0);
        let (error, parsing, patience) = (None, false, PATIENCE);
        Run {
            code,
            state,
            context,
            packet,
            shell,
            back: NOWHERE,
            reason,
            plain_reason,
            error,
            parsing,
            patience,
        }
    }

    /// The parser: its error, if it ended with one.
    pub fn parse(&mut self) -> Option<u32> {
        self.parsing = true;
        self.run(self.code.entry.parser, 0);
        self.parsing = false;
        self.error.take()
    }

    /// From one step to another; backwards only so often.
    #[inline(always)]
    pub fn jump(&mut self, from: Pc, to: Pc) -> Pc {
        if to < from {
            self.patience = self.patience.saturating_sub(1);
            if self.patience == 0 {
                return self.endless();
            }
        }
        to
    }

    #[cold]
    fn endless(&mut self) -> Pc {
        if self.parsing {
            self.error = Some(self.code.errors.parser_timeout);
        } else {
            self.mark_to_drop(ENDLESS);
        }
        NOWHERE
    }

    /// From `begin` to the end of the part; `reason` is that of drops outside of tables.
    ///
    /// The steps that run most, each of them one jump away.
    pub fn run(&mut self, begin: Pc, reason: u32) {
        (self.back, self.reason, self.plain_reason, self.patience) = (NOWHERE, reason, reason, PATIENCE);
        let code = self.code;
        let mut pc = begin;
        while let Some(step) = code.steps.get(pc as usize) {
            pc += 1;
            match *step {
                Step::LoadByte { to, at } => self.fetch(to, at, bits::byte),
                Step::LoadShort { to, at } => self.fetch(to, at, bits::short),
                Step::LoadWord { to, at } => self.fetch(to, at, bits::word),
                Step::LoadLong { to, at } => self.fetch(to, at, bits::long),
                Step::LoadBits { to, place } => self.load(to, place.load(&self.context.area)),
                Step::StoreByte { at, from } => self.put(at, from, bits::put_byte),
                Step::StoreShort { at, from } => self.put(at, from, bits::put_short),
                Step::StoreWord { at, from } => self.put(at, from, bits::put_word),
                Step::StoreLong { at, from } => self.put(at, from, bits::put_long),
                Step::StoreBits { place, from } => self.store_into(place, from),
                Step::CopyByte { to, from } => self.copy(to, from, bits::byte, bits::put_byte),
                Step::CopyShort { to, from } => self.copy(to, from, bits::short, bits::put_short),
                Step::CopyWord { to, from } => self.copy(to, from, bits::word, bits::put_word),
                Step::CopyLong { to, from } => self.copy(to, from, bits::long, bits::put_long),
                Step::Set { to, value } => self.set(to, i128::from(value)),
                Step::Move { to, from } => self.set(to, self.number(from)),
                Step::Add { to, left, right } => self.of_two(to, left, right, i128::wrapping_add),
                Step::Subtract { to, left, right } => self.of_two(to, left, right, i128::wrapping_sub),
                Step::And { to, left, right } => self.of_two(to, left, right, |left, right| left & right),
                Step::Invert { to, from } => self.of_one(to, from, |from| !from),
                Step::AddWith { to, left, value } => {
                    self.of_one(to, left, |left| left.wrapping_add(value.into()))
                }
                Step::AndWith { to, left, value } => self.of_one(to, left, |left| left & i128::from(value)),
                Step::ShiftLeftWith { to, left, bits } => self.of_one(to, left, |left| left << (bits & 127)),
                Step::ShiftRightWith { to, left, bits } => self.of_one(to, left, |left| left >> (bits & 127)),
                Step::Cut { to, from, bits } => self.of_one(to, from, |from| from & ones(bits)),
                Step::Jump { to } => pc = self.jump(pc, to),
                Step::JumpIf { condition, to } => pc = self.jump_when(self.number(condition) != 0, pc, to),
                Step::JumpUnless { condition, to } => {
                    pc = self.jump_when(self.number(condition) == 0, pc, to)
                }
                Step::JumpByte { when, to, piece, jump } => pc = self.jump_byte(pc, when, (to, piece), jump),
                Step::TestByte { test, to, piece, value, jump } => {
                    pc = self.test_byte(pc, (test, to), piece, value, jump);
                }
                Step::TestWith { test, to, left, value, jump } => {
                    pc = self.test(pc, (test, to), left, value.into(), jump);
                }
                Step::Test { test, to, left, right, jump } => {
                    pc = self.test(pc, (test, to), left, self.number(right), jump);
                }
                Step::StoreConstants { count, first } => pc = self.store_constants(pc, first, count),
                Step::StoreArguments { count, to, first } => pc = self.store_arguments(pc, to, first, count),
                Step::LoadLongs { first, second } => pc = self.load_longs(pc, first, second),
                Step::Transfer { to, from, into } => pc = self.transfer(pc, to, from, into),
                Step::AddStore { to, left, right, into } => pc = self.add_store(pc, to, (left, right), into),
                Step::InvertStore { to, from, into } => pc = self.invert_store(pc, to, from, into),
                Step::AddByte { to, at, value } => pc = self.add_byte(pc, to, at, value),
                Step::EmitEach { first, count } => pc = self.emit_each(pc, first, count),
                Step::End => pc = self.end(),
                step => pc = self.other(step, pc),
            }
        }
    }

    /// The rest of the steps; where to go on.
    #[inline]
    fn other(&mut self, step: Step, pc: Pc) -> Pc {
        match step {
            Step::LoadSigned { to, place } => self.set(to, self.signed(place)),
            Step::Argument { to, argument } => self.load(to, self.argument(argument)),
            Step::Multiply { to, left, right } => self.of_two(to, left, right, i128::wrapping_mul),
            Step::Or { to, left, right } => self.of_two(to, left, right, |left, right| left | right),
            Step::Compare { test, to, left, right } => {
                self.of_two(to, left, right, |left, right| test.holds(left, right).into());
            }
            Step::CompareWith { test, to, left, value } => {
                self.of_one(to, left, |left| test.holds(left, value.into()).into());
            }
            Step::Binary { op, to, left, right } => {
                self.of_two(to, left, right, |left, right| number::binary(op, left, right));
            }
            Step::BinaryWith { op, to, left, value } => {
                self.of_one(to, left, |left| number::binary(op, left, value.into()));
            }
            Step::Unary { op, to, from } => self.of_one(to, from, |from| number::unary(op, from)),
            Step::StoreConstant { place, value } => place.store(&mut self.context.area, value),
            Step::Lookahead { to, at, width } => return self.lookahead(pc, to, at, width),
            Step::CopyBytes { to, from, bytes } => self.copy_bytes(to, from, bytes),
            Step::Count { counter, index } => self.count(counter, index),
            Step::RegisterRead { to, array, index } => self.register_read(to, array, index),
            Step::RegisterWrite { array, index, from } => self.register_write(array, index, from),
            Step::Checksum { to, hash } => {
                let value = self.hash(hash);
                self.load(to, value);
            }
            Step::Select { select } => return self.select(pc, select),
            Step::Apply { table } => return self.apply(table),
            Step::Emit { header } => self.emit(header),
            Step::Extract { header } if self.extract(header, 0) == Then::Stop => return NOWHERE,
            Step::Verify { condition, error } if self.number(condition) == 0 => {
                self.error = Some(self.number(error) as u32);
                return NOWHERE;
            }
            Step::Rare { op } if self.rare(op) == Then::Stop => return NOWHERE,
            _ => {}
        }
        pc
    }

    /// Behind an action the control goes on.
    #[inline(always)]
    fn end(&mut self) -> Pc {
        let back = self.back;
        (self.back, self.reason) = (NOWHERE, self.plain_reason);
        back
    }

    #[inline(always)]
    pub(super) fn jump_when(&mut self, taken: bool, next: Pc, jump: Pc) -> Pc {
        if taken {
            self.jump(next, jump)
        } else {
            next
        }
    }

    #[inline(never)]
    fn rare(&mut self, op: u32) -> Then {
        let Some(op) = self.code.rare.get(op as usize).copied() else { return Then::Stop };
        match op {
            Op::Exit => return Then::Stop,
            Op::Reject { .. }
            | Op::ExtractNext { .. }
            | Op::ExtractVarbit { .. }
            | Op::ExtractNextVarbit { .. }
            | Op::WideLookahead { .. }
            | Op::LoadLast { .. }
            | Op::Advance { .. } => return self.parser_op(op),
            Op::StoreConstant { .. }
            | Op::SetLong { .. }
            | Op::WideSet { .. }
            | Op::WideLoad { .. }
            | Op::WideStore { .. }
            | Op::WideArgument { .. }
            | Op::WideUnary { .. }
            | Op::WideBinary { .. }
            | Op::WideCompare { .. }
            | Op::Widen { .. }
            | Op::Narrow { .. }
            | Op::Copy { .. } => self.wide_op(op),
            Op::AddHeader { .. }
            | Op::RemoveHeader { .. }
            | Op::CopyHeader { .. }
            | Op::CopyStack { .. }
            | Op::CopyUnion { .. }
            | Op::CopyVarbit { .. }
            | Op::Push { .. }
            | Op::Pop { .. }
            | Op::LoadIndexed { .. }
            | Op::ValidIndexed { .. }
            | Op::StackLastIndex { .. }
            | Op::EmitStack { .. }
            | Op::EmitUnion { .. } => self.header_op(op),
            other => self.extern_op(other),
        }
        Then::On
    }
}
