// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Translation of the parser's and the deparser's instructions.

use crate::arith::bits::Place;
use crate::ir::{HeaderId, Pc, SelectKey};
use crate::lower::checksums::CHECKSUM_OFFSETS;
use crate::lower::fused::Emission;
use crate::lower::operands::Header;
use crate::native::assembler::{
    Alu, Condition, Label, Memory, Register, Shift, FRAME, PACKET, PHV, RAX, RCX, RDI, RDX, RSI,
};
use crate::native::translate::{window_bytes, Translator};
use crate::native::{
    FRAME_DEFERRED, FRAME_HEADERS, FRAME_HEADERS_USED, FRAME_HEAD_BYTES, FRAME_MAX_HEADERS,
    FRAME_PACKET_BYTES, FRAME_PARSED,
};

/// Maximum size of a header that is copied without a loop.
const MAX_COPIED: usize = 256;

impl<'a> Translator<'a> {
    /// Copies up to `MAX_COPIED` bytes by RAX.
    pub(super) fn copy_bytes(&mut self, to: Memory, from: Memory, bytes: usize) -> Option<()> {
        if bytes > MAX_COPIED {
            return None;
        }
        let mut done = 0;
        while done < bytes {
            let left = bytes - done;
            // The last of several words overlaps the one before.
            let (size, at) = match left {
                8.. => (8, done),
                _ if bytes >= 8 => (8, bytes - 8),
                4.. => (4, done),
                2..=3 => (2, done),
                _ => (1, done),
            };
            let (asm, at32) = (&mut self.asm, at as i32);
            let (to, from) = (to.plus(at32), from.plus(at32));
            match size {
                8 => {
                    asm.load64(RAX, from);
                    asm.store64(to, RAX);
                }
                4 => {
                    asm.load32(RAX, from);
                    asm.store32(to, RAX);
                }
                2 => {
                    asm.load16(RAX, from);
                    asm.store16(to, RAX);
                }
                _ => {
                    asm.load8(RAX, from);
                    asm.store8(to, RAX);
                }
            }
            done = at + size;
        }
        Some(())
    }

    /// Sets RDI to the parser's position in the packet, and `end` to the position after as many bytes. Returns to
    /// the interpreter if the packet is shorter.
    fn position(&mut self, pc: Pc, bytes: usize, end: Register) {
        self.offsets(bytes, end);
        let asm = &mut self.asm;
        asm.alu_memory(Alu::Compare, end, Memory::new(FRAME, FRAME_PACKET_BYTES));
        asm.jump_if(Condition::Above, Label::Exit(pc));
        asm.alu(Alu::Add, RDI, PACKET);
    }

    /// Sets RDI to the parser's offset in the packet, and `end` to the offset after as many bytes.
    fn offsets(&mut self, bytes: usize, end: Register) {
        let asm = &mut self.asm;
        asm.load64(RDI, Memory::new(FRAME, FRAME_PARSED));
        asm.load32(RDI, Memory::new(RDI, 0));
        asm.copy(end, RDI);
        asm.alu_constant(Alu::Add, end, bytes as i32);
    }

    /// `position` of a header that may have a checksum. If the packet is cut before it, it is deferred, as by
    /// `Interpreter::extend_to`.
    fn position_or_defer(&mut self, pc: Pc, header: &Header) {
        self.offsets(header.bytes as usize, RCX);
        let asm = &mut self.asm;
        let (defer, inside) = (asm.local(), asm.local());
        asm.load64(RAX, Memory::new(FRAME, FRAME_PACKET_BYTES));
        asm.alu(Alu::Compare, RCX, RAX);
        asm.jump_if(Condition::BelowOrEqual, inside);
        asm.alu(Alu::Subtract, RAX, RDI);
        for (offset, _) in CHECKSUM_OFFSETS.iter().zip(header.defers).filter(|(_, defers)| *defers) {
            asm.alu_constant(Alu::Compare, RAX, *offset as i32);
            asm.jump_if(Condition::Equal, defer);
        }
        asm.jump(Label::Exit(pc));
        asm.bind(defer);
        asm.load64(RDX, Memory::new(FRAME, FRAME_HEAD_BYTES));
        asm.alu(Alu::Compare, RCX, RDX);
        asm.jump_if(Condition::Above, Label::Exit(pc));
        asm.store64(Memory::new(FRAME, FRAME_PACKET_BYTES), RDX);
        asm.load64(RDX, Memory::new(FRAME, FRAME_DEFERRED));
        asm.alu_constant(Alu::Add, RAX, header.at as i32);
        asm.store32(Memory::new(RDX, 0), RAX);
        asm.bind(inside);
        asm.alu(Alu::Add, RDI, PACKET);
    }

    pub fn extract(&mut self, pc: Pc, header: HeaderId) -> Option<()> {
        let header = *self.code.headers.get(usize::from(header))?;
        let bytes = header.bytes as usize;
        if header.varbit.is_some() || header.union_of.is_some() {
            return None;
        }
        let (to, valid) = (self.phv(header.at, bytes)?, self.phv(header.valid_at, 1)?);
        if header.defers == [false; 2] {
            self.position(pc, bytes, RCX);
        } else {
            self.position_or_defer(pc, &header);
        }
        self.copy_bytes(to, Memory::new(RDI, 0), bytes)?;
        self.asm.or_byte(valid, header.valid_bit);
        self.asm.load64(RDI, Memory::new(FRAME, FRAME_PARSED));
        self.asm.store32(Memory::new(RDI, 0), RCX);
        Some(())
    }

    /// Loads bits after the parser's position into RAX.
    pub fn look_ahead(&mut self, pc: Pc, at: u32, width: u32) -> Option<()> {
        if !(1..=64).contains(&width) || at > 1 << 16 {
            return None;
        }
        let place = Place::new(at, width);
        let bytes = window_bytes(place.window)?;
        self.position(pc, usize::from(place.at) + bytes, RAX);
        self.load(place, RDI)
    }

    /// Compares the key, in RSI, with each case.
    pub fn select(&mut self, pc: Pc, select: u16) -> Option<()> {
        let code = self.code;
        let select = code.selects.get(usize::from(select))?;
        let cases = select.short.as_ref()?;
        for (index, part) in select.keys.iter().enumerate() {
            match part.key {
                SelectKey::Field(_) => self.load(part.place?, PHV)?,
                SelectKey::Lookahead { at, width } => self.look_ahead(pc, at, width)?,
                SelectKey::StackLast { .. } => return None,
            }
            if index == 0 {
                self.asm.copy(RSI, RAX);
            } else {
                let bits = part.width.div_ceil(8) * 8;
                if bits >= 64 {
                    return None;
                }
                self.asm.shift(Shift::Left, RSI, bits as u8);
                self.asm.alu(Alu::Or, RSI, RAX);
            }
        }
        for (value, mask, to) in cases {
            let mut key = RSI;
            if *mask != u64::MAX {
                key = RCX;
                self.asm.set(RCX, *mask);
                self.asm.alu(Alu::And, RCX, RSI);
            }
            self.asm.set(RDX, *value);
            self.asm.alu(Alu::Compare, key, RDX);
            self.asm.jump_if(Condition::Equal, self.target(pc, pc + 1, *to));
        }
        let default = select.default.map_or(Label::Exit(pc), |to| self.target(pc, pc + 1, to));
        self.asm.jump(default);
        Some(())
    }

    /// Emits headers. The interpreter emits a header of variable length.
    pub fn emit_each(&mut self, pc: Pc, first: u32, count: u16) -> Option<()> {
        let (code, first) = (self.code, first as usize);
        for (at, header) in (pc..).zip(code.sequences.emitted.get(first..first + usize::from(count))?) {
            self.emit(at, header)?;
        }
        self.asm.jump(Label::Instruction(pc + Pc::from(count)));
        Some(())
    }

    /// Emits a header if it is valid.
    pub fn emit(&mut self, pc: Pc, header: &Emission) -> Option<()> {
        let valid = self.phv(header.valid_at.into(), 1)?;
        self.asm.test_byte(valid, header.valid_bit);
        let bytes = usize::from(header.bytes);
        if header.varbit || bytes > MAX_COPIED {
            self.asm.jump_if(Condition::NotEqual, Label::Exit(pc));
            return Some(());
        }
        let (from, skip) = (self.phv(header.at.into(), bytes)?, self.asm.local());
        self.asm.jump_if(Condition::Equal, skip);
        let asm = &mut self.asm;
        asm.load64(RSI, Memory::new(FRAME, FRAME_HEADERS_USED));
        asm.load64(RDI, Memory::new(RSI, 0));
        asm.copy(RCX, RDI);
        asm.alu_constant(Alu::Add, RCX, bytes as i32);
        asm.alu_memory(Alu::Compare, RCX, Memory::new(FRAME, FRAME_MAX_HEADERS));
        asm.jump_if(Condition::Above, Label::Exit(pc));
        asm.alu_memory(Alu::Add, RDI, Memory::new(FRAME, FRAME_HEADERS));
        self.copy_bytes(Memory::new(RDI, 0), from, bytes)?;
        self.asm.store64(Memory::new(RSI, 0), RCX);
        self.asm.bind(skip);
        Some(())
    }
}
