// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Translation of hashes and checksums of bytes of the PHV.

use crate::arith::bits::Place;
use crate::arith::hash::{self, TABLE_BYTES};
use crate::ir::{FieldId, HashKind, Reg};
use crate::lower::operands::{Hash, HashPart};
use crate::native::assembler::{Alu, Condition, Memory, Shift, RAX, RCX, RDI, RDX, RSI};
use crate::native::translate::{number, Translator};

impl<'a> Translator<'a> {
    pub(super) fn checksum(&mut self, to: Reg, hash: u16) -> Option<()> {
        self.hash(hash)?;
        self.set_unsigned(to);
        Some(())
    }

    /// Stores base + hash mod size in a field. A size of 0 counts as 1.
    pub(super) fn hash_to(&mut self, field: FieldId, hash: u16, base: Reg, size: Reg) -> Option<()> {
        let field = self.code.field(field);
        if field.width > 64 {
            return None;
        }
        self.hash(hash)?;
        let asm = &mut self.asm;
        let (divide, divided) = (asm.local(), asm.local());
        asm.load64(RCX, number(size));
        asm.alu(Alu::Compare, RAX, RCX);
        asm.jump_if(Condition::Below, divided);
        asm.test(RCX);
        asm.jump_if(Condition::NotEqual, divide);
        asm.set(RCX, 1);
        asm.bind(divide);
        asm.set(RDX, 0);
        asm.divide(RCX);
        asm.copy(RAX, RDX);
        asm.bind(divided);
        asm.alu_memory(Alu::Add, RAX, number(base));
        self.store(Place::new(field.at, field.width))
    }

    /// Sets RAX to a hash of whole bytes of the PHV.
    fn hash(&mut self, hash: u16) -> Option<()> {
        let hash = self.code.hashes.get(usize::from(hash)).filter(|hash| !hash.payload)?;
        match hash.kind {
            HashKind::Crc32 | HashKind::Crc32Custom => {
                self.crc(hash, hash::crc32_tables(), u32::MAX)?;
                self.asm.set(RCX, u32::MAX.into());
                self.asm.alu(Alu::Xor, RAX, RCX);
            }
            HashKind::Crc16 | HashKind::Crc16Custom => self.crc(hash, hash::crc16_tables(), 0)?,
            HashKind::Csum16 if hash.words => self.internet_checksum(hash)?,
            _ => return None,
        }
        Some(())
    }

    /// Translates `each` for the bytes of each part of a hash with a valid header.
    fn each_part(&mut self, hash: &Hash, each: impl Fn(&mut Self, Memory, usize)) -> Option<()> {
        for part in &hash.parts {
            let HashPart::Phv { at, width, valid } = part else { return None };
            if (at | width) % 8 != 0 {
                return None;
            }
            let bytes = *width as usize / 8;
            let from = self.phv(at / 8, bytes)?;
            let skip = self.asm.local();
            if let Some(valid) = valid {
                let valid_at = self.phv(valid.at, 1)?;
                self.asm.test_byte(valid_at, valid.bit);
                self.asm.jump_if(Condition::Equal, skip);
            }
            each(self, from, bytes);
            self.asm.bind(skip);
        }
        Some(())
    }

    /// A CRC, as `arith::hash` computes it: with four tables, which begin at an address.
    fn crc(&mut self, hash: &Hash, tables: usize, start: u32) -> Option<()> {
        self.asm.set(RAX, start.into());
        self.asm.set(RDI, tables as u64);
        self.each_part(hash, |translator, from, bytes| {
            let asm = &mut translator.asm;
            for at in (0..bytes / 4 * 4).step_by(4) {
                asm.load32(RCX, from.plus(at as i32));
                asm.alu(Alu::Xor, RCX, RAX);
                for table in (0..4).rev() {
                    let entries = Memory::new(RDI, table * TABLE_BYTES);
                    asm.low_byte(RSI, RCX);
                    match table {
                        3 => asm.load32_indexed(RAX, entries, RSI),
                        _ => asm.xor32_indexed(RAX, entries, RSI),
                    }
                    asm.shift(Shift::Right, RCX, 8);
                }
            }
            for at in bytes / 4 * 4..bytes {
                asm.load8(RCX, from.plus(at as i32));
                asm.alu(Alu::Xor, RCX, RAX);
                asm.low_byte(RSI, RCX);
                asm.shift(Shift::Right, RAX, 8);
                asm.xor32_indexed(RAX, Memory::new(RDI, 0), RSI);
            }
        })
    }

    /// The Internet checksum of words. They are added as they are in memory (RFC 1071, section 2(B)).
    fn internet_checksum(&mut self, hash: &Hash) -> Option<()> {
        self.asm.set(RAX, 0);
        self.each_part(hash, |translator, from, bytes| {
            for word in (0..bytes).step_by(4) {
                match bytes - word {
                    2 => translator.asm.load16(RDX, from.plus(word as i32)),
                    _ => translator.asm.load32(RDX, from.plus(word as i32)),
                }
                translator.asm.alu(Alu::Add, RAX, RDX);
            }
        })?;
        // A PHV has at most 2^16 bytes, so the sum is less than 2^46. Three additions leave at most 2^16, four 2^16 - 1.
        for _ in 0..4 {
            self.asm.copy(RDX, RAX);
            self.asm.shift(Shift::Right, RDX, 16);
            self.asm.alu_constant(Alu::And, RAX, 0xffff);
            self.asm.alu(Alu::Add, RAX, RDX);
        }
        self.asm.alu_constant(Alu::Xor, RAX, 0xffff);
        self.asm.swap16(RAX);
        Some(())
    }
}
