// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Translation of loads and stores of fields.

use crate::arith::bits::{ones, Place, Window};
use crate::ir::Reg;
use crate::lower::instructions::Instruction;
use crate::native::assembler::{Alu, Memory, Register, Shift, PHV, RAX, RCX, RDX};
use crate::native::translate::{number, window_bytes, Translator};

impl<'a> Translator<'a> {
    /// A part of the PHV. None: it is outside.
    pub fn phv(&self, at: u32, bytes: usize) -> Option<Memory> {
        (at as usize + bytes <= self.phv_bytes).then_some(Memory::new(PHV, at as i32))
    }

    /// Loads a number of the PHV or the packet into RAX. Overwrites RDX.
    pub fn load(&mut self, place: Place, base: Register) -> Option<()> {
        let from = match base {
            PHV => self.phv(place.at.into(), window_bytes(place.window)?)?,
            _ => Memory::new(base, place.at.into()),
        };
        let asm = &mut self.asm;
        match place.window {
            Window::Byte => asm.load8(RAX, from),
            Window::Short => {
                asm.load16(RAX, from);
                asm.swap16(RAX);
            }
            Window::Word => {
                asm.load32(RAX, from);
                asm.swap32(RAX);
            }
            Window::SixBytes => {
                asm.load32(RAX, from);
                asm.swap32(RAX);
                asm.load16(RDX, from.plus(4));
                asm.swap16(RDX);
                asm.shift(Shift::Left, RAX, 16);
                asm.alu(Alu::Or, RAX, RDX);
            }
            Window::Long => {
                asm.load64(RAX, from);
                asm.swap64(RAX);
            }
            Window::Double => return None,
        }
        if place.trailing > 0 {
            asm.shift(Shift::Right, RAX, place.trailing);
        }
        if place.leading > 0 {
            self.mask(RAX, ones(place.width()));
        }
        Some(())
    }

    /// Clears the bits of a register that a mask does not have. Overwrites RDX.
    pub(super) fn mask(&mut self, register: Register, mask: u64) {
        match i32::try_from(mask as i64) {
            Ok(mask) => self.asm.alu_constant(Alu::And, register, mask),
            Err(_) => {
                self.asm.set(RDX, mask);
                self.asm.alu(Alu::And, register, RDX);
            }
        }
    }

    /// Stores the low bits of RAX in the PHV. Overwrites RAX, RCX and RDX.
    pub(super) fn store(&mut self, place: Place) -> Option<()> {
        let to = self.phv(place.at.into(), window_bytes(place.window)?)?;
        if !place.fills_window() {
            let mask = ones(place.width());
            self.mask(RAX, mask);
            if place.trailing > 0 {
                self.asm.shift(Shift::Left, RAX, place.trailing);
            }
            self.asm.copy(RCX, RAX);
            self.load(Place::full_window(place.window, place.at), PHV)?;
            self.mask(RAX, !(mask << place.trailing));
            self.asm.alu(Alu::Or, RAX, RCX);
        }
        let asm = &mut self.asm;
        match place.window {
            Window::Byte => asm.store8(to, RAX),
            Window::Short => {
                asm.swap16(RAX);
                asm.store16(to, RAX);
            }
            Window::Word => {
                asm.swap32(RAX);
                asm.store32(to, RAX);
            }
            Window::SixBytes => {
                asm.copy(RDX, RAX);
                asm.shift(Shift::Right, RDX, 16);
                asm.swap32(RDX);
                asm.store32(to, RDX);
                asm.swap16(RAX);
                asm.store16(to.plus(4), RAX);
            }
            Window::Long => {
                asm.swap64(RAX);
                asm.store64(to, RAX);
            }
            Window::Double => return None,
        }
        Some(())
    }

    pub(super) fn load_number(&mut self, to: Reg, place: Place) -> Option<()> {
        self.load(place, PHV)?;
        self.set_unsigned(to);
        Some(())
    }

    fn store_number(&mut self, place: Place, from: Reg) -> Option<()> {
        self.asm.load64(RAX, number(from));
        self.store(place)
    }

    pub(super) fn store_value(&mut self, place: Place, value: u64) -> Option<()> {
        self.asm.set(RAX, value);
        self.store(place)
    }

    fn copy_field(&mut self, to: u16, from: u16, window: Window) -> Option<()> {
        self.load(Place::full_window(window, from), PHV)?;
        self.store(Place::full_window(window, to))
    }

    /// Translates a load or a store. Returns None, with nothing encoded, if it is no such instruction.
    pub(super) fn access(&mut self, instruction: Instruction) -> Option<()> {
        use Instruction::*;
        match instruction {
            LoadByte { to, at } => self.load_number(to, Place::full_window(Window::Byte, at))?,
            LoadShort { to, at } => self.load_number(to, Place::full_window(Window::Short, at))?,
            LoadWord { to, at } => self.load_number(to, Place::full_window(Window::Word, at))?,
            LoadLong { to, at } => self.load_number(to, Place::full_window(Window::Long, at))?,
            LoadBits { to, place } => self.load_number(to, place)?,
            StoreByte { at, from } => self.store_number(Place::full_window(Window::Byte, at), from)?,
            StoreShort { at, from } => self.store_number(Place::full_window(Window::Short, at), from)?,
            StoreWord { at, from } => self.store_number(Place::full_window(Window::Word, at), from)?,
            StoreLong { at, from } => self.store_number(Place::full_window(Window::Long, at), from)?,
            StoreBits { place, from } => self.store_number(place, from)?,
            StoreConstant { place, value } => self.store_value(place, value)?,
            CopyByte { to, from } => self.copy_field(to, from, Window::Byte)?,
            CopyShort { to, from } => self.copy_field(to, from, Window::Short)?,
            CopyWord { to, from } => self.copy_field(to, from, Window::Word)?,
            CopyLong { to, from } => self.copy_field(to, from, Window::Long)?,
            CopyBytes { to, from, bytes } => {
                let bytes = bytes.into();
                let (to, from) = (self.phv(to, bytes)?, self.phv(from, bytes)?);
                self.copy_bytes(to, from, bytes)?;
            }
            _ => return None,
        }
        Some(())
    }
}
