// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Runs a part of a program: the loop over its steps, numbers, jumps and tables.
//!
//! `Program::check` has looked at every index; where one is wrong all the same, nothing happens or a zero is read.

use crate::bits::{self, Place};
use crate::code::Code;
use crate::context::Context;
use crate::externs;
use crate::number;
use crate::packet::Shell;
use crate::program::{Op, Pc, Reg, TableId, WideReg};
use crate::state::{Meters, State, ENDLESS, REGISTERS};
use crate::steps::{Piece, Step, Test};
use crate::table::{Call, Reaction, Table};
use crate::wide::Wide;

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
    back: Pc,
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

    #[inline(always)]
    pub fn number(&self, register: Reg) -> i128 {
        self.state.registers[usize::from(register) % REGISTERS]
    }

    #[inline(always)]
    pub fn set(&mut self, register: Reg, value: i128) {
        self.state.registers[usize::from(register) % REGISTERS] = value;
    }

    #[inline(always)]
    fn load(&mut self, register: Reg, value: u64) {
        self.set(register, i128::from(value));
    }

    pub fn wide(&self, register: WideReg) -> Wide {
        let (first, limbs) = (usize::from(register) * self.code.limbs, self.code.limbs);
        self.state.wide.get(first..first + limbs).map_or(Wide::zero(limbs), Wide::of)
    }

    pub fn set_wide(&mut self, register: WideReg, value: &Wide) {
        let (first, limbs) = (usize::from(register) * self.code.limbs, self.code.limbs);
        if let Some(row) = self.state.wide.get_mut(first..first + limbs) {
            row.copy_from_slice(value.as_ref());
        }
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
    fn of_one(&mut self, to: Reg, from: Reg, apply: impl FnOnce(i128) -> i128) {
        self.set(to, apply(self.number(from)));
    }

    #[inline(always)]
    fn of_two(&mut self, to: Reg, left: Reg, right: Reg, apply: impl FnOnce(i128, i128) -> i128) {
        self.set(to, apply(self.number(left), self.number(right)));
    }

    #[inline(always)]
    fn fetch(&mut self, to: Reg, at: u16, get: impl FnOnce(&[u8], u16) -> u64) {
        self.load(to, get(&self.context.area, at));
    }

    #[inline(always)]
    fn put(&mut self, at: u16, from: Reg, put: impl FnOnce(&mut [u8], u16, u64)) {
        let value = self.number(from) as u64;
        put(&mut self.context.area, at, value);
    }

    #[inline(always)]
    fn copy(
        &mut self,
        to: u16,
        from: u16,
        get: impl FnOnce(&[u8], u16) -> u64,
        put: impl FnOnce(&mut [u8], u16, u64),
    ) {
        let value = get(&self.context.area, from);
        put(&mut self.context.area, to, value);
    }

    #[inline(always)]
    fn store_into(&mut self, place: Place, from: Reg) {
        let value = self.number(from) as u64;
        place.store(&mut self.context.area, value);
    }

    #[inline(always)]
    fn add_store(&mut self, pc: Pc, to: Reg, (left, right): (Reg, Reg), into: Place) -> Pc {
        self.of_two(to, left, right, i128::wrapping_add);
        self.store_into(into, to);
        pc + 1
    }

    #[inline(always)]
    fn invert_store(&mut self, pc: Pc, to: Reg, from: Reg, into: Place) -> Pc {
        self.of_one(to, from, |from| !from);
        self.store_into(into, to);
        pc + 1
    }

    #[inline(always)]
    fn transfer(&mut self, pc: Pc, to: Reg, from: Place, into: Place) -> Pc {
        let value = from.load(&self.context.area);
        self.load(to, value);
        into.store(&mut self.context.area, value);
        pc + 1
    }

    #[inline(always)]
    fn add_byte(&mut self, pc: Pc, to: Reg, at: u16, value: i64) -> Pc {
        let sum = i128::from(bits::byte(&self.context.area, at)).wrapping_add(value.into());
        self.set(to, sum);
        bits::put_byte(&mut self.context.area, at, sum as u64);
        pc + 2
    }

    #[inline(always)]
    fn load_longs(&mut self, pc: Pc, first: (Reg, u16), second: (Reg, u16)) -> Pc {
        self.fetch(first.0, first.1, bits::long);
        self.fetch(second.0, second.1, bits::long);
        pc + 1
    }

    #[inline(always)]
    fn jump_when(&mut self, taken: bool, next: Pc, jump: Pc) -> Pc {
        if taken {
            self.jump(next, jump)
        } else {
            next
        }
    }

    #[inline(always)]
    fn jump_byte(&mut self, pc: Pc, when: bool, (to, piece): (Reg, Piece), jump: Pc) -> Pc {
        let value = piece.load(&self.context.area);
        self.load(to, value);
        self.jump_when((value != 0) == when, pc + 1, jump)
    }

    #[inline(always)]
    fn test_byte(&mut self, pc: Pc, (test, to): (Test, Reg), piece: Piece, value: u8, jump: Pc) -> Pc {
        let holds = test.holds(piece.load(&self.context.area), value.into());
        self.branch(test, to, holds, pc + 2, jump)
    }

    #[inline(always)]
    fn test(&mut self, pc: Pc, (test, to): (Test, Reg), left: Reg, right: i128, jump: Pc) -> Pc {
        let holds = test.holds(self.number(left), right);
        self.branch(test, to, holds, pc + 1, jump)
    }

    /// Behind a comparison: on to `next`, or the jump that it decides.
    #[inline(always)]
    fn branch(&mut self, test: Test, to: Reg, holds: bool, next: Pc, jump: Pc) -> Pc {
        self.load(to, holds.into());
        self.jump_when(test.taken(holds), next, jump)
    }

    #[inline(always)]
    fn store_arguments(&mut self, pc: Pc, to: Reg, first: u32, count: u16) -> Pc {
        let (code, first) = (self.code, first as usize);
        let mut last = 0;
        for (argument, place) in code.runs.arguments.get(first..first + usize::from(count)).unwrap_or(&[]) {
            last = self.argument(*argument);
            place.store(&mut self.context.area, last);
        }
        self.load(to, last);
        pc + 2 * Pc::from(count) - 1
    }

    #[inline(always)]
    fn store_constants(&mut self, pc: Pc, first: u32, count: u16) -> Pc {
        let (code, first) = (self.code, first as usize);
        for (value, place) in code.runs.constants.get(first..first + usize::from(count)).unwrap_or(&[]) {
            place.store(&mut self.context.area, *value);
        }
        pc + Pc::from(count) - 1
    }

    #[inline(always)]
    fn signed(&self, place: Place) -> i128 {
        i128::from(bits::signed(place.load(&self.context.area), place.width()))
    }

    #[inline(always)]
    fn argument(&self, argument: u16) -> u64 {
        self.state.arguments.get(usize::from(argument)).copied().unwrap_or(0)
    }

    pub fn wide_argument(&self, argument: u16) -> Wide {
        let first = self.argument(argument) as usize;
        let mut wide = Wide::zero(self.code.limbs);
        for (limb, value) in wide.as_mut().iter_mut().zip(self.state.arguments.get(first..).unwrap_or(&[])) {
            *limb = *value;
        }
        wide
    }

    #[inline(always)]
    fn copy_bytes(&mut self, to: u32, from: u32, bytes: u16) {
        let (to, from, bytes) = (to as usize, from as usize, usize::from(bytes));
        if to.max(from) + bytes <= self.context.area.len() {
            self.context.area.copy_within(from..from + bytes, to);
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

    /// Looks up; where to go on: in the action, whose end leads to the table's next.
    #[inline]
    fn apply(&mut self, table: TableId) -> Pc {
        let state = &mut *self.state;
        let Some(table) = state.tables.get_mut(usize::from(table)) else { return NOWHERE };
        let found = table.find(&self.context.area, &mut state.keys);
        table.last = found;
        if let Some(found) = found.filter(|_| table.watched) {
            hit(table, found, &state.meters, state.now_us, self.context);
        }
        let reaction = match found {
            Some(found) => table.reactions.get(found as usize),
            None => table.default.as_ref(),
        };
        let profile = state.profiles.get(usize::from(table.profile));
        let call: Option<&Call> = match reaction {
            Some(Reaction::Call(call)) => Some(call),
            Some(Reaction::Member(member)) => profile.and_then(|profile| profile.call(*member, table.place)),
            Some(Reaction::Group(group)) => profile.and_then(|profile| {
                let choice = profile.selector.map_or(0, |hash| {
                    let rest = self.packet.get(self.context.parsed as usize..).unwrap_or(&[]);
                    let input =
                        externs::Input { area: &self.context.area, rest, registers: &state.registers };
                    externs::hash(self.code, hash, &input, &mut state.buffer, &mut state.turns)
                });
                profile.choose(*group, choice, table.place)
            }),
            None => None,
        };
        let Some(call) = call else { return table.next(None, found.is_some()) };
        let position = table.position(call.action);
        self.back = table.next(Some(position), found.is_some());
        self.reason = table.drops + position as u32;
        call.arguments.pass(&mut state.arguments);
        call.begin
    }
}

/// What an entry that matched counts, remembers and measures.
#[inline]
fn hit(table: &mut Table, found: u32, meters: &[Meters], now_us: u64, context: &mut Context) {
    let (counted, timed, meter) = (table.counted, table.timed, table.meter);
    let Some(slot) = table.slots.get_mut(found as usize) else { return };
    if counted {
        slot.count.packets = slot.count.packets.wrapping_add(1);
        slot.count.bytes = slot.count.bytes.wrapping_add(u64::from(context.arrived));
    }
    if timed {
        slot.last_hit_us = Some(now_us);
    }
    let Some(meter) = meter.and_then(|meter| meters.get(usize::from(meter))) else { return };
    // Without a result the program asks for it (`ExecuteDirect`).
    if let Some(place) = meter.result {
        let color = slot.meter.as_mut().map_or(0, |one| one.execute(now_us, meter.units(context)));
        place.store(&mut context.area, color);
    }
}
