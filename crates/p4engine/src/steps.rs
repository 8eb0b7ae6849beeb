// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Steps as they run: each with its places resolved, and what often comes one behind the other in one step.
//!
//! A joined step stands where the first of its steps stood, and goes on behind the last. The others stay where they are, for
//! jumps that lead to them, and all registers become what they would have become: so nothing has to be known of a program to
//! join its steps.

use alloc::vec::Vec;

use crate::bits::{Place, Window};
use crate::code::Header;
use crate::program::{ArrayId, Binary, FieldId, HeaderId, Pc, Reg, TableId, Unary};

/// The rest are as the program has them.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step {
    LoadByte {
        to: Reg,
        at: u16,
    },
    LoadShort {
        to: Reg,
        at: u16,
    },
    LoadWord {
        to: Reg,
        at: u16,
    },
    LoadLong {
        to: Reg,
        at: u16,
    },
    LoadBits {
        to: Reg,
        place: Place,
    },
    LoadSigned {
        to: Reg,
        place: Place,
    },
    StoreByte {
        at: u16,
        from: Reg,
    },
    StoreShort {
        at: u16,
        from: Reg,
    },
    StoreWord {
        at: u16,
        from: Reg,
    },
    StoreLong {
        at: u16,
        from: Reg,
    },
    StoreBits {
        place: Place,
        from: Reg,
    },
    Set {
        to: Reg,
        value: i64,
    },
    Move {
        to: Reg,
        from: Reg,
    },
    Argument {
        to: Reg,
        argument: u16,
    },
    Add {
        to: Reg,
        left: Reg,
        right: Reg,
    },
    Subtract {
        to: Reg,
        left: Reg,
        right: Reg,
    },
    Multiply {
        to: Reg,
        left: Reg,
        right: Reg,
    },
    And {
        to: Reg,
        left: Reg,
        right: Reg,
    },
    Or {
        to: Reg,
        left: Reg,
        right: Reg,
    },
    Compare {
        test: Test,
        to: Reg,
        left: Reg,
        right: Reg,
    },
    Binary {
        op: Binary,
        to: Reg,
        left: Reg,
        right: Reg,
    },
    Invert {
        to: Reg,
        from: Reg,
    },
    Unary {
        op: Unary,
        to: Reg,
        from: Reg,
    },
    AddWith {
        to: Reg,
        left: Reg,
        value: i64,
    },
    AndWith {
        to: Reg,
        left: Reg,
        value: i64,
    },
    CompareWith {
        test: Test,
        to: Reg,
        left: Reg,
        value: i64,
    },
    /// By fewer than 128.
    ShiftLeftWith {
        to: Reg,
        left: Reg,
        bits: u8,
    },
    ShiftRightWith {
        to: Reg,
        left: Reg,
        bits: u8,
    },
    BinaryWith {
        op: Binary,
        to: Reg,
        left: Reg,
        value: i64,
    },
    StoreConstant {
        place: Place,
        value: u64,
    },
    Cut {
        to: Reg,
        from: Reg,
        bits: u16,
    },
    /// Between fields of whole bytes.
    CopyByte {
        to: u16,
        from: u16,
    },
    CopyShort {
        to: u16,
        from: u16,
    },
    CopyWord {
        to: u16,
        from: u16,
    },
    CopyLong {
        to: u16,
        from: u16,
    },
    CopyBytes {
        to: u32,
        from: u32,
        bytes: u16,
    },
    Jump {
        to: Pc,
    },
    JumpIf {
        condition: Reg,
        to: Pc,
    },
    JumpUnless {
        condition: Reg,
        to: Pc,
    },
    Select {
        select: u16,
    },
    Apply {
        table: TableId,
    },
    Extract {
        header: HeaderId,
    },
    Lookahead {
        to: Reg,
        at: u32,
        width: u32,
    },
    Verify {
        condition: Reg,
        error: Reg,
    },
    Emit {
        header: HeaderId,
    },
    Checksum {
        to: Reg,
        hash: u16,
    },
    Count {
        counter: u16,
        index: Reg,
    },
    RegisterRead {
        to: FieldId,
        array: ArrayId,
        index: Reg,
    },
    RegisterWrite {
        array: ArrayId,
        index: Reg,
        from: Reg,
    },
    End,
    /// Of `Code::rare`: so that a step stays within 16 bytes.
    Rare {
        op: u32,
    },

    // Joined: `to` and the others get what the steps one by one would leave in them.
    /// `Load` of a field within a byte, jump if it is 0 (`when` false) or is not.
    JumpByte {
        when: bool,
        to: Reg,
        piece: Piece,
        jump: Pc,
    },
    /// `Load` of a field within a byte, comparison, jump.
    TestByte {
        test: Test,
        to: Reg,
        piece: Piece,
        value: u8,
        jump: Pc,
    },
    /// `LoadByte`, `AddWith`, `StoreByte`.
    AddByte {
        to: Reg,
        at: u16,
        value: i64,
    },
    /// Comparison, jump.
    TestWith {
        test: Test,
        to: Reg,
        left: Reg,
        value: i32,
        jump: Pc,
    },
    Test {
        test: Test,
        to: Reg,
        left: Reg,
        right: Reg,
        jump: Pc,
    },
    /// Two `LoadLong`s.
    LoadLongs {
        first: (Reg, u16),
        second: (Reg, u16),
    },
    /// `Argument` and `Store`, some times: those of `Runs::arguments` from `first` on.
    StoreArguments {
        count: u16,
        to: Reg,
        first: u32,
    },
    /// `StoreConstant`, more than once: those of `Runs::constants` from `first` on.
    StoreConstants {
        count: u16,
        first: u32,
    },
    /// `Emit`, more than once: those of `Runs::emitted` from `first` on.
    EmitEach {
        count: u16,
        first: u32,
    },
    /// `Load` and `Store`.
    Transfer {
        to: Reg,
        from: Place,
        into: Place,
    },
    /// An operation whose result is stored.
    AddStore {
        to: Reg,
        left: Reg,
        right: Reg,
        into: Place,
    },
    InvertStore {
        to: Reg,
        from: Reg,
        into: Place,
    },
}

const _: () = assert!(size_of::<Step>() == 16);

/// Bits of a byte.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece {
    pub at: u16,
    pub behind: u8,
    pub mask: u8,
}

impl Piece {
    #[inline(always)]
    pub fn load(self, area: &[u8]) -> u64 {
        crate::bits::byte(area, self.at) >> (self.behind & 7) & u64::from(self.mask)
    }
}

/// A comparison, without a jump for which: a bit each for less, equal and greater; and whether a jump is made where it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Test(u8);

const WHEN: u8 = 8;

impl Test {
    pub fn of(op: Binary) -> Option<Test> {
        Some(Test(match op {
            Binary::Less => 0b001,
            Binary::Equal => 0b010,
            Binary::LessOrEqual => 0b011,
            Binary::Greater => 0b100,
            Binary::NotEqual => 0b101,
            Binary::GreaterOrEqual => 0b110,
            _ => return None,
        }))
    }

    fn jumps(self, when: bool) -> Test {
        Test(self.0 | if when { WHEN } else { 0 })
    }

    #[inline(always)]
    pub fn holds<T: PartialOrd>(self, left: T, right: T) -> bool {
        let order = u8::from(left > right) + u8::from(left >= right);
        self.0 >> (order & 3) & 1 != 0
    }

    /// Whether to jump, where it holds or not.
    #[inline(always)]
    pub fn taken(self, holds: bool) -> bool {
        holds == (self.0 & WHEN != 0)
    }
}

/// Stores that stand one behind the other.
#[derive(Debug, Clone, Default)]
pub(crate) struct Runs {
    pub arguments: Vec<(u16, Place)>,
    pub constants: Vec<(u64, Place)>,
    pub emitted: Vec<Emission>,
}

/// A header that is emitted if its validity's byte and bit say so.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Emission {
    pub valid_at: u16,
    pub valid_bit: u8,
    /// Its length depends on the packet.
    pub varbit: bool,
    pub at: u16,
    pub bytes: u16,
    pub header: HeaderId,
}

impl Emission {
    /// An area has at most 2^16 bytes (`check`).
    fn of(id: HeaderId, header: &Header) -> Option<Emission> {
        let [valid_at, at, bytes] = [header.valid_at, header.at, header.bytes].map(u16::try_from);
        (!header.metadata).then_some(Emission {
            valid_at: valid_at.ok()?,
            valid_bit: header.valid_bit,
            varbit: header.varbit.is_some(),
            at: at.ok()?,
            bytes: bytes.ok()?,
            header: id,
        })
    }
}

/// Joins what can be joined, from every step on.
pub(crate) fn join(steps: &mut [Step], headers: &[Header]) -> Runs {
    let mut runs = Runs::default();
    // Within a run no other begins.
    let mut behind_run = 0;
    for at in 0..steps.len() {
        // What stands behind is one by one still.
        let Some(rest) = steps.get(at..) else { break };
        let mut joined = three(rest).or_else(|| two(rest));
        if joined.is_none() && at >= behind_run {
            joined =
                runs.arguments(rest).or_else(|| runs.constants(rest)).or_else(|| runs.emitted(rest, headers));
            behind_run = match joined {
                Some(Step::StoreArguments { count, .. }) => at + 2 * usize::from(count),
                Some(Step::StoreConstants { count, .. } | Step::EmitEach { count, .. }) => {
                    at + usize::from(count)
                }
                _ => at,
            };
        }
        if let (Some(joined), Some(step)) = (joined, steps.get_mut(at)) {
            *step = joined;
        }
    }
    runs
}

/// A run's steps at most.
const LONGEST: usize = 1 << 15;

impl Runs {
    /// What an action does first, mostly: keep its arguments.
    fn arguments(&mut self, steps: &[Step]) -> Option<Step> {
        let Step::Argument { to, .. } = *steps.first()? else { return None };
        let first = self.arguments.len();
        for pair in steps.chunks_exact(2).take(LONGEST) {
            let [Step::Argument { to: one, argument }, store] = *pair else { break };
            let Some((_, place)) = stored(store).filter(|(from, _)| *from == to && one == to) else { break };
            self.arguments.push((argument, place));
        }
        let count = (self.arguments.len() - first) as u16;
        (count > 0).then_some(Step::StoreArguments { count, to, first: first as u32 })
    }

    /// What a control does first, mostly: give its variables their first values.
    fn constants(&mut self, steps: &[Step]) -> Option<Step> {
        let constant = |step: &Step| match *step {
            Step::StoreConstant { place, value } => Some((value, place)),
            _ => None,
        };
        let count = steps.iter().take(LONGEST).map_while(constant).count();
        if count < 2 {
            return None;
        }
        let first = self.constants.len() as u32;
        self.constants.extend(steps.iter().take(count).filter_map(constant));
        Some(Step::StoreConstants { count: count as u16, first })
    }

    /// What a deparser does.
    fn emitted(&mut self, steps: &[Step], headers: &[Header]) -> Option<Step> {
        let emission = |step: &Step| match *step {
            Step::Emit { header } => Emission::of(header, headers.get(usize::from(header))?),
            _ => None,
        };
        let first = self.emitted.len();
        self.emitted.extend(steps.iter().take(LONGEST).map_while(emission));
        let count = (self.emitted.len() - first) as u16;
        if count < 2 {
            self.emitted.truncate(first);
            return None;
        }
        Some(Step::EmitEach { count, first: first as u32 })
    }
}

/// A jump that depends on a register: whether it is made where that is not 0, and where it goes.
fn branch(step: Step, on: Reg) -> Option<(bool, Pc)> {
    match step {
        Step::JumpIf { condition, to } if condition == on => Some((true, to)),
        Step::JumpUnless { condition, to } if condition == on => Some((false, to)),
        _ => None,
    }
}

/// A load of a field that lies within a byte.
fn piece(step: Step) -> Option<(Reg, Piece)> {
    let (to, place) = match step {
        Step::LoadByte { to, at } => (to, Place::of_window(Window::Byte, at)),
        Step::LoadBits { to, place } if place.window == Window::Byte => (to, place),
        _ => return None,
    };
    let mask = crate::bits::ones(place.width()) as u8;
    Some((to, Piece { at: place.at, behind: place.behind, mask }))
}

fn loaded(step: Step) -> Option<(Reg, Place)> {
    match step {
        Step::LoadByte { to, at } => Some((to, Place::of_window(Window::Byte, at))),
        Step::LoadShort { to, at } => Some((to, Place::of_window(Window::Short, at))),
        Step::LoadWord { to, at } => Some((to, Place::of_window(Window::Word, at))),
        Step::LoadLong { to, at } => Some((to, Place::of_window(Window::Long, at))),
        Step::LoadBits { to, place } => Some((to, place)),
        _ => None,
    }
}

fn stored(step: Step) -> Option<(Reg, Place)> {
    match step {
        Step::StoreByte { at, from } => Some((from, Place::of_window(Window::Byte, at))),
        Step::StoreShort { at, from } => Some((from, Place::of_window(Window::Short, at))),
        Step::StoreWord { at, from } => Some((from, Place::of_window(Window::Word, at))),
        Step::StoreLong { at, from } => Some((from, Place::of_window(Window::Long, at))),
        Step::StoreBits { place, from } => Some((from, place)),
        _ => None,
    }
}

fn three(steps: &[Step]) -> Option<Step> {
    if let [Step::LoadByte { to, at }, Step::AddWith { to: sum, left, value }, Step::StoreByte { at: into, from }, ..] =
        *steps
    {
        let same = to == sum && to == left && to == from && at == into;
        return same.then_some(Step::AddByte { to, at, value });
    }
    let [load, Step::CompareWith { test, to, left, value }, jump, ..] = *steps else { return None };
    let (loaded, piece) = piece(load).filter(|(loaded, _)| *loaded == left && left == to)?;
    let (when, jump) = branch(jump, loaded)?;
    Some(Step::TestByte { test: test.jumps(when), to, piece, value: u8::try_from(value).ok()?, jump })
}

fn two(steps: &[Step]) -> Option<Step> {
    let [first, second, ..] = *steps else { return None };
    match (first, second) {
        (Step::CompareWith { test, to, left, value }, jump) => {
            let (when, jump) = branch(jump, to)?;
            Some(Step::TestWith { test: test.jumps(when), to, left, value: i32::try_from(value).ok()?, jump })
        }
        (Step::Compare { test, to, left, right }, jump) => {
            let (when, jump) = branch(jump, to)?;
            Some(Step::Test { test: test.jumps(when), to, left, right, jump })
        }
        (Step::LoadLong { to: one, at }, Step::LoadLong { to: other, at: other_at }) => {
            Some(Step::LoadLongs { first: (one, at), second: (other, other_at) })
        }
        (Step::Add { to, left, right }, store) => {
            let (_, into) = stored(store).filter(|(from, _)| *from == to)?;
            Some(Step::AddStore { to, left, right, into })
        }
        (Step::Invert { to, from }, store) => {
            let (_, into) = stored(store).filter(|(from, _)| *from == to)?;
            Some(Step::InvertStore { to, from, into })
        }
        (load, next) => {
            if let Some((when, to, piece, jump)) = piece(load)
                .and_then(|(to, piece)| branch(next, to).map(|(when, jump)| (when, to, piece, jump)))
            {
                return Some(Step::JumpByte { when, to, piece, jump });
            }
            let (to, from) = loaded(load)?;
            let (_, into) = stored(next).filter(|(stored, _)| *stored == to)?;
            Some(Step::Transfer { to, from, into })
        }
    }
}
