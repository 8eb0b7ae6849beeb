// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Fuses common sequences of instructions into one instruction.
//!
//! A fused instruction replaces the first instruction of its sequence and continues after the last. The others stay in
//! place as targets of jumps, and every register gets the value that the separate instructions would give it. So fusing
//! needs no analysis of the program.

use alloc::vec::Vec;

use crate::arith::bits::{ones, Place, Window};
use crate::ir::{HeaderId, Pc, Reg};
use crate::lower::instructions::{ByteField, Instruction};
use crate::lower::operands::Header;

/// Operands of fused sequences of any length.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sequences {
    pub arguments: Vec<(u16, Place)>,
    pub constants: Vec<(u64, Place)>,
    pub emitted: Vec<Emission>,
}

/// A header of `EmitEach`, with the place of its validity bit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Emission {
    pub valid_at: u16,
    pub valid_bit: u8,
    /// Whether the length depends on the packet.
    pub varbit: bool,
    pub at: u16,
    pub bytes: u16,
    pub header: HeaderId,
}

impl Emission {
    /// None: metadata, which is not emitted. Offsets fit 16 bits because a PHV has at most 2^16 bytes.
    pub fn new(id: HeaderId, header: &Header) -> Option<Emission> {
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

/// Fuses instructions in place, starting at each instruction.
pub(crate) fn fuse(instructions: &mut [Instruction], headers: &[Header]) -> Sequences {
    let mut sequences = Sequences::default();
    // No sequence starts inside another.
    let mut sequence_end = 0;
    for at in 0..instructions.len() {
        // Later instructions are not fused yet.
        let Some(rest) = instructions.get(at..) else { break };
        let mut fused = fuse_three(rest).or_else(|| fuse_two(rest));
        if fused.is_none() && at >= sequence_end {
            fused = sequences
                .arguments(rest)
                .or_else(|| sequences.constants(rest))
                .or_else(|| sequences.emitted(rest, headers));
            sequence_end = match fused {
                Some(Instruction::StoreArguments { count, .. }) => at + 2 * usize::from(count),
                Some(Instruction::StoreConstants { count, .. } | Instruction::EmitEach { count, .. }) => {
                    at + usize::from(count)
                }
                _ => at,
            };
        }
        if let (Some(fused), Some(instruction)) = (fused, instructions.get_mut(at)) {
            *instruction = fused;
        }
    }
    sequences
}

/// Limit on the instructions of a sequence.
const MAX_SEQUENCE: usize = 1 << 15;

impl Sequences {
    /// Stores of arguments, which are typically at the beginning of an action.
    fn arguments(&mut self, instructions: &[Instruction]) -> Option<Instruction> {
        let Instruction::Argument { to, .. } = *instructions.first()? else { return None };
        let first = self.arguments.len();
        for pair in instructions.chunks_exact(2).take(MAX_SEQUENCE) {
            let [Instruction::Argument { to: argument_to, argument }, store] = *pair else { break };
            let Some((_, place)) = stored(store).filter(|(from, _)| *from == to && argument_to == to) else {
                break;
            };
            self.arguments.push((argument, place));
        }
        let count = (self.arguments.len() - first) as u16;
        (count > 0).then_some(Instruction::StoreArguments { count, to, first: first as u32 })
    }

    /// Stores of constants, which typically initialise a control's variables.
    fn constants(&mut self, instructions: &[Instruction]) -> Option<Instruction> {
        let constant = |instruction: &Instruction| match *instruction {
            Instruction::StoreConstant { place, value } => Some((value, place)),
            _ => None,
        };
        let count = instructions.iter().take(MAX_SEQUENCE).map_while(constant).count();
        if count < 2 {
            return None;
        }
        let first = self.constants.len() as u32;
        self.constants.extend(instructions.iter().take(count).filter_map(constant));
        Some(Instruction::StoreConstants { count: count as u16, first })
    }

    /// Emits of headers.
    fn emitted(&mut self, instructions: &[Instruction], headers: &[Header]) -> Option<Instruction> {
        let emission = |instruction: &Instruction| match *instruction {
            Instruction::Emit { header } => Emission::new(header, headers.get(usize::from(header))?),
            _ => None,
        };
        let first = self.emitted.len();
        self.emitted.extend(instructions.iter().take(MAX_SEQUENCE).map_while(emission));
        let count = (self.emitted.len() - first) as u16;
        if count < 2 {
            self.emitted.truncate(first);
            return None;
        }
        Some(Instruction::EmitEach { count, first: first as u32 })
    }
}

/// A conditional jump on register `on`: whether it is taken if the register is not 0, and its target.
fn branch(instruction: Instruction, on: Reg) -> Option<(bool, Pc)> {
    match instruction {
        Instruction::JumpIf { condition, to } if condition == on => Some((true, to)),
        Instruction::JumpUnless { condition, to } if condition == on => Some((false, to)),
        _ => None,
    }
}

/// A load of a field that is inside one byte.
fn byte_field(instruction: Instruction) -> Option<(Reg, ByteField)> {
    let (to, place) = match instruction {
        Instruction::LoadByte { to, at } => (to, Place::full_window(Window::Byte, at)),
        Instruction::LoadBits { to, place } if place.window == Window::Byte => (to, place),
        _ => return None,
    };
    let mask = ones(place.width()) as u8;
    Some((to, ByteField { at: place.at, trailing: place.trailing, mask }))
}

fn loaded(instruction: Instruction) -> Option<(Reg, Place)> {
    match instruction {
        Instruction::LoadByte { to, at } => Some((to, Place::full_window(Window::Byte, at))),
        Instruction::LoadShort { to, at } => Some((to, Place::full_window(Window::Short, at))),
        Instruction::LoadWord { to, at } => Some((to, Place::full_window(Window::Word, at))),
        Instruction::LoadLong { to, at } => Some((to, Place::full_window(Window::Long, at))),
        Instruction::LoadBits { to, place } => Some((to, place)),
        _ => None,
    }
}

fn stored(instruction: Instruction) -> Option<(Reg, Place)> {
    match instruction {
        Instruction::StoreByte { at, from } => Some((from, Place::full_window(Window::Byte, at))),
        Instruction::StoreShort { at, from } => Some((from, Place::full_window(Window::Short, at))),
        Instruction::StoreWord { at, from } => Some((from, Place::full_window(Window::Word, at))),
        Instruction::StoreLong { at, from } => Some((from, Place::full_window(Window::Long, at))),
        Instruction::StoreBits { place, from } => Some((from, place)),
        _ => None,
    }
}

fn fuse_three(instructions: &[Instruction]) -> Option<Instruction> {
    use Instruction::*;
    if let [LoadByte { to, at }, AddWith { to: sum, left, value }, StoreByte { at: into, from }, ..] =
        *instructions
    {
        let same = to == sum && to == left && to == from && at == into;
        return same.then_some(AddByte { to, at, value });
    }
    let [load, CompareWith { comparison, to, left, value }, jump, ..] = *instructions else {
        return None;
    };
    let (loaded, field) = byte_field(load).filter(|(loaded, _)| *loaded == left && left == to)?;
    let (when, jump) = branch(jump, loaded)?;
    Some(JumpCompareByte {
        comparison: comparison.with_jump(when),
        to,
        field,
        value: u8::try_from(value).ok()?,
        jump,
    })
}

fn fuse_two(instructions: &[Instruction]) -> Option<Instruction> {
    use Instruction::*;
    let [first, second, ..] = *instructions else { return None };
    match (first, second) {
        (CompareWith { comparison, to, left, value }, jump) => {
            let (when, jump) = branch(jump, to)?;
            Some(JumpCompareWith {
                comparison: comparison.with_jump(when),
                to,
                left,
                value: i32::try_from(value).ok()?,
                jump,
            })
        }
        (Compare { comparison, to, left, right }, jump) => {
            let (when, jump) = branch(jump, to)?;
            Some(JumpCompare { comparison: comparison.with_jump(when), to, left, right, jump })
        }
        (LoadLong { to: first, at }, LoadLong { to: other, at: other_at }) => {
            Some(LoadLongs { first: (first, at), second: (other, other_at) })
        }
        (Add { to, left, right }, store) => {
            let (_, into) = stored(store).filter(|(from, _)| *from == to)?;
            Some(AddStore { to, left, right, into })
        }
        (Invert { to, from }, store) => {
            let (_, into) = stored(store).filter(|(from, _)| *from == to)?;
            Some(InvertStore { to, from, into })
        }
        (load, next) => {
            if let Some((when, to, field, jump)) = byte_field(load)
                .and_then(|(to, field)| branch(next, to).map(|(when, jump)| (when, to, field, jump)))
            {
                return Some(JumpByte { when, to, field, jump });
            }
            let (to, from) = loaded(load)?;
            let (_, into) = stored(next).filter(|(stored, _)| *stored == to)?;
            Some(Transfer { to, from, into })
        }
    }
}
