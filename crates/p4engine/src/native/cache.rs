// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! A cache of table lookups, which machine code reads.
//!
//! The interpreter looks up a table and writes the result to the line of the key. Machine code runs the action of a
//! line that has its key, and returns to the interpreter otherwise. A change of a table clears its lines.

use crate::arith::bits::ones;
use crate::exec::state::State;
use crate::ir::Pc;
use crate::native::assembler::{Alu, Condition, Label, Memory, Shift, FRAME, PHV, RAX, RCX, RDI, RSI};
use crate::native::translate::Translator;
use crate::native::{
    Native, FRAME_ARGUMENTS, FRAME_BLOCKS, FRAME_CODE, FRAME_RETURN_PC, FRAME_RETURN_REASON,
};
use crate::tables::call::Call;
use crate::tables::Table;

/// Limit on the lines of a table, a power of two.
const MAX_LINES: usize = 32;
/// Limit on the words of a cached key.
const KEY_WORDS: usize = 2;
/// Limit on the arguments of a cached call.
const MAX_ARGUMENTS: usize = 28;

/// A cache line of the processor. A line of a table has one or more: the words of the key, the offset of the action's
/// machine code and the instruction to which the action returns, its drop reason, and the arguments.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
pub(crate) struct Block([u64; BLOCK_WORDS]);

const BLOCK_WORDS: usize = 8;
const _: () = assert!(size_of::<Block>() == BLOCK_WORDS * 8);

/// The lines of a table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lines {
    /// The first block of the first line.
    first: u32,
    /// Binary logarithms of the number of lines, at least 1, and of the blocks of a line.
    count_bits: u8,
    block_bits: u8,
    /// Words of the key, at least one.
    key_words: u8,
    arguments: u8,
}

/// A multiplier that mixes the upper bits of products: 2^64 over the golden ratio.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

impl Lines {
    /// The lines of a table. None: its lookups have effects beside the call, or its keys or calls are too long.
    fn new(table: &Table, first: usize) -> Option<Lines> {
        let (words, arguments) = (table.layout.words, table.arguments);
        if words > KEY_WORDS || table.tracks_hits || table.profile != u16::MAX || arguments > MAX_ARGUMENTS {
            return None;
        }
        let key_words = words.max(1);
        let blocks = (key_words + 2 + arguments).div_ceil(BLOCK_WORDS).next_power_of_two();
        let keys = 1usize << table.layout.bits().min(MAX_LINES.trailing_zeros());
        Some(Lines {
            first: first as u32,
            count_bits: keys.max(2).trailing_zeros() as u8,
            block_bits: blocks.trailing_zeros() as u8,
            key_words: key_words as u8,
            arguments: arguments as u8,
        })
    }

    fn blocks(&self) -> usize {
        1 << (self.count_bits + self.block_bits)
    }

    fn index(&self, key: [u64; KEY_WORDS]) -> usize {
        ((key[0] ^ key[1]).wrapping_mul(MULTIPLIER) >> (64 - self.count_bits)) as usize
    }

    /// The key of a line without a result, which no lookup finds: it belongs to another line.
    fn unused_key(&self, line: usize) -> u64 {
        (0..).find(|key| self.index([*key, 0]) != line).unwrap_or_default()
    }

    fn clear(&self, blocks: &mut [Block]) {
        let first = self.first as usize;
        let Some(blocks) = blocks.get_mut(first..first + self.blocks()) else { return };
        for (number, line) in blocks.chunks_exact_mut(1 << self.block_bits).enumerate() {
            line.fill(Block([0; BLOCK_WORDS]));
            line[0].0[0] = self.unused_key(number);
        }
    }

    /// The offset of a word after the key in its line.
    fn word(&self, word: usize) -> i32 {
        (usize::from(self.key_words) + word) as i32 * 8
    }
}

impl State {
    /// Allocates the lines of each table with lookups that machine code can repeat.
    pub(super) fn allocate_lines(&mut self) {
        let mut blocks = 0;
        for table in &mut self.tables {
            table.lines = Lines::new(table, blocks);
            blocks += table.lines.map_or(0, |lines| lines.blocks());
        }
        self.blocks = alloc::vec![Block([0; BLOCK_WORDS]); blocks];
        self.tables.iter().filter_map(|table| table.lines).for_each(|lines| lines.clear(&mut self.blocks));
    }

    /// Clears the lines of a table that changes.
    pub fn clear_lines(&mut self, table: usize) {
        if let Some(lines) = self.tables.get(table).and_then(|table| table.lines) {
            lines.clear(&mut self.blocks);
        }
    }
}

impl Native {
    /// Writes the result of a lookup to the line of its key. `keys` begins with the key.
    #[inline(always)]
    pub fn remember(
        &self,
        blocks: &mut [Block],
        table: &Table,
        keys: &[u64],
        call: &Call,
        (return_pc, return_reason): (Pc, u32),
    ) {
        let Some(lines) = table.lines else { return };
        let Some(begin) = self.offsets.get(call.begin as usize).copied() else { return };
        let mut key = [0; KEY_WORDS];
        key.iter_mut().zip(keys).take(table.layout.words).for_each(|(to, from)| *to = *from);
        let first = lines.first as usize + (lines.index(key) << lines.block_bits);
        let Some(line) = blocks.get_mut(first..first + (1 << lines.block_bits)) else { return };
        let words = key.into_iter().take(lines.key_words.into());
        let results = [u64::from(begin) | u64::from(return_pc) << 32, return_reason.into()];
        let arguments = call.arguments.as_slice().iter().take(lines.arguments.into()).copied();
        let to = line.iter_mut().flat_map(|block| &mut block.0);
        to.zip(words.chain(results).chain(arguments)).for_each(|(to, from)| *to = from);
    }
}

impl<'a> Translator<'a> {
    /// Loads a table's key into RSI, and its second word into RDI.
    fn load_key(&mut self, table: &Table) -> Option<()> {
        for (word, register) in [RSI, RDI].into_iter().enumerate().take(table.layout.words.max(1)) {
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
        let table = self.state.tables.get(usize::from(table))?;
        let lines = table.lines?;
        let first = i32::try_from(lines.first as usize * size_of::<Block>()).ok()?;
        self.load_key(table)?;
        let asm = &mut self.asm;
        asm.copy(RCX, RSI);
        if lines.key_words > 1 {
            asm.alu(Alu::Xor, RCX, RDI);
        }
        asm.set(RAX, MULTIPLIER);
        asm.multiply_registers(RCX, RAX);
        asm.shift(Shift::Right, RCX, 64 - lines.count_bits);
        asm.shift(Shift::Left, RCX, lines.block_bits + size_of::<Block>().trailing_zeros() as u8);
        asm.alu_memory(Alu::Add, RCX, Memory::new(FRAME, FRAME_BLOCKS));
        let line = Memory::new(RCX, first);
        for (word, register) in [RSI, RDI].into_iter().enumerate().take(lines.key_words.into()) {
            asm.alu_memory(Alu::Compare, register, line.plus(word as i32 * 8));
            asm.jump_if(Condition::NotEqual, Label::Exit(pc));
        }
        if lines.arguments > 0 {
            asm.load64(RDI, Memory::new(FRAME, FRAME_ARGUMENTS));
        }
        for argument in 0..usize::from(lines.arguments) {
            asm.load64(RAX, line.plus(lines.word(2 + argument)));
            asm.store64(Memory::new(RDI, argument as i32 * 8), RAX);
        }
        asm.load32(RAX, line.plus(lines.word(0) + 4));
        asm.store32(Memory::new(FRAME, FRAME_RETURN_PC), RAX);
        asm.load32(RAX, line.plus(lines.word(1)));
        asm.store32(Memory::new(FRAME, FRAME_RETURN_REASON), RAX);
        asm.load32(RAX, line.plus(lines.word(0)));
        asm.alu_memory(Alu::Add, RAX, Memory::new(FRAME, FRAME_CODE));
        asm.jump_to_register(RAX);
        Some(())
    }
}
