// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Runs a part of a program: the loop over its steps, numbers, jumps and tables.
//!
//! `Program::check` has looked at every index; where one is wrong all the same, nothing happens or a zero is read.

use crate::bits::{self, Place, Window};
use crate::code::{Code, Step};
use crate::context::Context;
use crate::externs;
use crate::number;
use crate::packet::Shell;
use crate::program::{Op, Pc, Reg, TableId, WideReg};
use crate::state::{Meters, State, ENDLESS, REGISTERS};
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

    #[inline(always)]
    fn put(&mut self, from: Reg, store: impl FnOnce(&mut [u8], u64)) {
        let value = self.number(from) as u64;
        store(&mut self.context.area, value);
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
    pub fn run(&mut self, begin: Pc, reason: u32) {
        (self.back, self.reason, self.plain_reason, self.patience) = (NOWHERE, reason, reason, PATIENCE);
        let code = self.code;
        let mut pc = begin;
        while let Some(step) = code.steps.get(pc as usize) {
            pc += 1;
            match *step {
                Step::Jump { to } => pc = self.jump(pc, to),
                Step::JumpIf { condition, to } if self.number(condition) != 0 => pc = self.jump(pc, to),
                Step::JumpUnless { condition, to } if self.number(condition) == 0 => pc = self.jump(pc, to),
                Step::JumpIf { .. } | Step::JumpUnless { .. } => {}
                Step::Select { select } => pc = self.select(pc, select),
                Step::Apply { table } => pc = self.apply(table),
                Step::Extract { header } if self.extract(header, 0) == Then::Stop => break,
                Step::Extract { .. } => {}
                Step::End if self.back == NOWHERE => break,
                Step::End => (pc, self.back, self.reason) = (self.back, NOWHERE, self.plain_reason),
                Step::Rare { op } if self.rare(op) == Then::Stop => break,
                Step::Rare { .. } => {}
                step => self.compute(step),
            }
        }
    }

    /// A step that leads to the next.
    #[inline(always)]
    fn compute(&mut self, step: Step) {
        match step {
            Step::LoadByte { to, at } => self.load(to, bits::byte(&self.context.area, at)),
            Step::LoadShort { to, at } => self.load(to, bits::short(&self.context.area, at)),
            Step::LoadWord { to, at } => self.load(to, bits::word(&self.context.area, at)),
            Step::LoadLong { to, at } => self.load(to, bits::long(&self.context.area, at)),
            Step::LoadBits { to, place } => self.load(to, place.load(&self.context.area)),
            Step::LoadSigned { to, place } => self.set(to, self.signed(place)),
            Step::StoreByte { at, from } => self.put(from, |area, value| bits::put_byte(area, at, value)),
            Step::StoreShort { at, from } => self.put(from, |area, value| bits::put_short(area, at, value)),
            Step::StoreWord { at, from } => self.put(from, |area, value| bits::put_word(area, at, value)),
            Step::StoreLong { at, from } => self.put(from, |area, value| bits::put_long(area, at, value)),
            Step::StoreBits { place, from } => self.put(from, |area, value| place.store(area, value)),
            Step::Set { to, value } => self.set(to, i128::from(value)),
            Step::Move { to, from } => self.set(to, self.number(from)),
            Step::Argument { to, argument } => self.load(to, self.argument(argument)),
            Step::Add { to, left, right } => self.set(to, self.number(left).wrapping_add(self.number(right))),
            Step::Subtract { to, left, right } => {
                self.set(to, self.number(left).wrapping_sub(self.number(right)))
            }
            Step::And { to, left, right } => self.set(to, self.number(left) & self.number(right)),
            Step::Or { to, left, right } => self.set(to, self.number(left) | self.number(right)),
            Step::Equal { to, left, right } => {
                self.load(to, u64::from(self.number(left) == self.number(right)))
            }
            Step::Binary { op, to, left, right } => {
                self.set(to, number::binary(op, self.number(left), self.number(right)));
            }
            Step::Unary { op, to, from } => self.set(to, number::unary(op, self.number(from))),
            Step::AddWith { to, left, value } => self.with(to, left, |left| left.wrapping_add(value.into())),
            Step::AndWith { to, left, value } => self.with(to, left, |left| left & i128::from(value)),
            Step::EqualWith { to, left, value } => self.with(to, left, |left| (left == value.into()).into()),
            Step::BinaryWith { op, to, left, value } => {
                self.with(to, left, |left| number::binary(op, left, value.into()));
            }
            Step::StoreConstant { window, at, value } => self.store_constant(window, at, value),
            Step::Cut { to, from, bits } => {
                self.with(to, from, |from| from & i128::MAX >> (127u16.wrapping_sub(bits) & 127))
            }
            Step::CopyBytes { to, from, bytes } => self.copy_bytes(to, from, bytes),
            Step::Emit { header } => self.emit(header),
            Step::RegisterRead { to, array, index } => self.register_read(to, array, index),
            Step::RegisterWrite { array, index, from } => self.register_write(array, index, from),
            _ => {}
        }
    }

    #[inline(always)]
    fn with(&mut self, to: Reg, from: Reg, apply: impl FnOnce(i128) -> i128) {
        self.set(to, apply(self.number(from)));
    }

    #[inline(always)]
    fn store_constant(&mut self, window: Window, at: u32, value: u64) {
        Place::of_window(window, at).store(&mut self.context.area, value);
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
            | Op::Verify { .. }
            | Op::ExtractNext { .. }
            | Op::ExtractVarbit { .. }
            | Op::ExtractNextVarbit { .. }
            | Op::Lookahead { .. }
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
            Some(Reaction::Member(member)) => profile.and_then(|profile| profile.members.get(member)),
            Some(Reaction::Group(group)) => profile.and_then(|profile| {
                let choice = profile.selector.map_or(0, |hash| {
                    let rest = self.packet.get(self.context.parsed as usize..).unwrap_or(&[]);
                    let input =
                        externs::Input { area: &self.context.area, rest, registers: &state.registers };
                    externs::hash(self.code, hash, &input, &mut state.buffer, &mut state.turns)
                });
                profile.choose(*group, choice)
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
        (slot.last_hit_us, slot.told) = (Some(now_us), false);
    }
    let Some(meter) = meter.and_then(|meter| meters.get(usize::from(meter))) else { return };
    // Without a result the program asks for it (`ExecuteDirect`).
    if let Some(place) = meter.result {
        let color = slot.meter.as_mut().map_or(0, |one| one.execute(now_us, meter.units(context)));
        place.store(&mut context.area, color);
    }
}
