// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Steps as they run: each with its places resolved, and what often comes one behind the other in one step.
//!
//! A joined step stands where the first of its steps stood, and goes on behind the last. The others stay where they are, for
//! jumps that lead to them, and all registers become what they would have become: so nothing has to be known of a program to
//! join its steps.

use alloc::vec::Vec;

use crate::arith::bits::{ones, Place, Window};
use crate::ir::{HeaderId, Pc, Reg};
use crate::lower::instructions::{Piece, Step};
use crate::lower::operands::Header;

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
    let mask = ones(place.width()) as u8;
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
