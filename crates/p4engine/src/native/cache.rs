// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! A cache of table lookups, which machine code reads.
//!
//! The interpreter looks up a table and writes the result to the line of the key. Machine code runs the action of a
//! line that has its key, and returns to the interpreter otherwise. A change of a table clears its lines.

use core::mem::offset_of;

use crate::arith::bits::ones;
use crate::exec::state::State;
use crate::ir::Pc;
use crate::native::assembler::{Alu, Condition, Label, Memory, Shift, FRAME, PHV, RAX, RCX, RDI, RSI};
use crate::native::translate::Translator;
use crate::native::{Native, FRAME_ARGUMENTS, FRAME_CODE, FRAME_LINES, FRAME_RETURN_PC, FRAME_RETURN_REASON};
use crate::tables::call::Call;
use crate::tables::Table;

/// Lines of a table, a power of two.
const LINES: usize = 8;
/// Limit on the words of a cached key.
const KEY_WORDS: usize = 2;
/// Limit on the arguments of a cached call.
pub(crate) const LINE_ARGUMENTS: usize = 4;

/// The result of a lookup.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Line {
    key: [u64; KEY_WORDS],
    /// The offset of the action's machine code.
    begin: u32,
    /// The instruction to which the action returns, and its drop reason.
    return_pc: Pc,
    return_reason: u32,
    arguments: [u64; LINE_ARGUMENTS],
}

/// Offsets in `Line`.
const LINE_KEY: i32 = offset_of!(Line, key) as i32;
const LINE_BEGIN: i32 = offset_of!(Line, begin) as i32;
const LINE_RETURN_PC: i32 = offset_of!(Line, return_pc) as i32;
const LINE_RETURN_REASON: i32 = offset_of!(Line, return_reason) as i32;
const LINE_ARGUMENT: i32 = offset_of!(Line, arguments) as i32;
const LINE_SHIFT: u8 = size_of::<Line>().trailing_zeros() as u8;
const _: () = assert!(size_of::<Line>().is_power_of_two() && LINES.is_power_of_two());

/// A multiplier that mixes the upper bits of products: 2^64 over the golden ratio.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
/// Shift of a product that leaves the number of a line.
const INDEX_SHIFT: u8 = 64 - LINES.trailing_zeros() as u8;

fn index(key: [u64; KEY_WORDS]) -> usize {
    ((key[0] ^ key[1]).wrapping_mul(MULTIPLIER) >> INDEX_SHIFT) as usize
}

/// A line without a result: it has the key of another line.
fn unused(number: usize) -> Line {
    let key = (0..).map(|key| [key, 0]).find(|key| index(*key) != number).unwrap_or_default();
    Line { key, begin: 0, return_pc: 0, return_reason: 0, arguments: [0; LINE_ARGUMENTS] }
}

fn clear(lines: &mut [Line]) {
    lines.iter_mut().enumerate().for_each(|(number, line)| *line = unused(number));
}

/// Whether a table's lookups have no effect but the call, and its key fits a line.
fn is_cacheable(table: &Table) -> bool {
    table.layout.words <= KEY_WORDS && !table.tracks_hits && table.profile == u16::MAX
}

impl State {
    /// Allocates the lines of each table with lookups that machine code can repeat.
    pub(super) fn allocate_lines(&mut self) {
        let mut lines = 0;
        for table in self.tables.iter_mut().filter(|table| is_cacheable(table)) {
            table.lines = Some(lines as u32);
            lines += LINES;
        }
        self.lines = alloc::vec![unused(0); lines];
        self.lines.chunks_exact_mut(LINES).for_each(clear);
    }

    /// Clears the lines of a table that changes.
    pub fn clear_lines(&mut self, table: usize) {
        let Some(first) = self.tables.get(table).and_then(|table| table.lines) else { return };
        let first = first as usize;
        self.lines.get_mut(first..first + LINES).into_iter().for_each(clear);
    }
}

impl Native {
    /// Writes the result of a lookup to the line of its key. `keys` begins with the key.
    #[inline(always)]
    pub fn remember(
        &self,
        lines: &mut [Line],
        table: &Table,
        keys: &[u64],
        call: &Call,
        (return_pc, return_reason): (Pc, u32),
    ) {
        let (Some(first), Some(arguments)) = (table.lines, call.arguments.few()) else { return };
        let mut key = [0; KEY_WORDS];
        key.iter_mut().zip(keys).take(table.layout.words).for_each(|(to, from)| *to = *from);
        let Some(begin) = self.offsets.get(call.begin as usize).copied() else { return };
        if let Some(line) = lines.get_mut(first as usize + index(key)) {
            *line = Line { key, begin, return_pc, return_reason, arguments };
        }
    }
}

impl<'a> Translator<'a> {
    /// Loads a table's key into RSI, and its second word into RDI.
    fn load_key(&mut self, table: &Table) -> Option<()> {
        for (word, register) in [RSI, RDI].into_iter().enumerate() {
            self.asm.set(register, 0);
            for fragment in
                table.layout.fragments.iter().filter(|fragment| usize::from(fragment.word) == word)
            {
                let skip = self.asm.local();
                if let Some(valid) = fragment.valid {
                    let valid_at = self.phv(valid.at, 1)?;
                    self.asm.test_byte(valid_at, valid.bit);
                    self.asm.jump_if(Condition::Equal, skip);
                }
                self.load(fragment.place, PHV)?;
                // `load` keeps the bits of the place.
                if fragment.mask != ones(fragment.place.width()) {
                    self.mask(RAX, fragment.mask);
                }
                self.asm.shift(Shift::Left, RAX, fragment.shift & 63);
                self.asm.alu(Alu::Or, register, RAX);
                self.asm.bind(skip);
            }
        }
        Some(())
    }

    /// Runs the action of a cached lookup, or returns to the interpreter.
    pub fn apply(&mut self, pc: Pc, table: u16) -> Option<()> {
        let table = self.tables.get(usize::from(table))?;
        let first = i32::try_from(table.lines? as usize * size_of::<Line>()).ok()?;
        self.load_key(table)?;
        let asm = &mut self.asm;
        asm.copy(RCX, RSI);
        asm.alu(Alu::Xor, RCX, RDI);
        asm.set(RAX, MULTIPLIER);
        asm.multiply_registers(RCX, RAX);
        asm.shift(Shift::Right, RCX, INDEX_SHIFT);
        asm.shift(Shift::Left, RCX, LINE_SHIFT);
        asm.alu_memory(Alu::Add, RCX, Memory::new(FRAME, FRAME_LINES));
        let line = Memory::new(RCX, first);
        asm.alu_memory(Alu::Compare, RSI, line.plus(LINE_KEY));
        asm.jump_if(Condition::NotEqual, Label::Exit(pc));
        asm.alu_memory(Alu::Compare, RDI, line.plus(LINE_KEY + 8));
        asm.jump_if(Condition::NotEqual, Label::Exit(pc));
        asm.load64(RDI, Memory::new(FRAME, FRAME_ARGUMENTS));
        for argument in (0..LINE_ARGUMENTS as i32).map(|argument| argument * 8) {
            asm.load64(RAX, line.plus(LINE_ARGUMENT + argument));
            asm.store64(Memory::new(RDI, argument), RAX);
        }
        asm.load32(RAX, line.plus(LINE_RETURN_PC));
        asm.store32(Memory::new(FRAME, FRAME_RETURN_PC), RAX);
        asm.load32(RAX, line.plus(LINE_RETURN_REASON));
        asm.store32(Memory::new(FRAME, FRAME_RETURN_REASON), RAX);
        asm.load32(RAX, line.plus(LINE_BEGIN));
        asm.alu_memory(Alu::Add, RAX, Memory::new(FRAME, FRAME_CODE));
        asm.jump_to_register(RAX);
        Some(())
    }
}
