// SPDX-License-Identifier: Apache-2.0
//! Allocation of the program's registers.

use qbed_p4engine::program::{Program, Reg, WideReg};

use crate::error::{LoadError, Result};

/// A stack of free registers.
#[derive(Debug, Clone, Copy, Default)]
pub struct Registers {
    next: Reg,
    max: Reg,
    wide_next: WideReg,
    wide_max: WideReg,
    wide_bits: u32,
}

impl Registers {
    /// Write the numbers of registers to the program.
    pub fn report(&self, program: &mut Program) {
        program.registers = self.max;
        program.wide_registers = self.wide_max;
        // One more bit for the sign.
        program.wide_limbs = if self.wide_max == 0 { 0 } else { (self.wide_bits / 64 + 1) as u16 };
    }

    pub fn allocate(&mut self) -> Result<Reg> {
        let taken = self.next;
        self.next = taken.checked_add(1).ok_or_else(|| LoadError::new("too many registers"))?;
        self.max = self.max.max(self.next);
        Ok(taken)
    }

    pub fn allocate_wide(&mut self) -> Result<WideReg> {
        let taken = self.wide_next;
        self.wide_next = taken.checked_add(1).ok_or_else(|| LoadError::new("too many wide registers"))?;
        self.wide_max = self.wide_max.max(self.wide_next);
        Ok(taken)
    }

    /// Make wide registers at least `bits` wide.
    pub fn require_wide_bits(&mut self, bits: u32) {
        self.wide_bits = self.wide_bits.max(bits);
    }

    /// Free the registers allocated since `before`.
    pub fn free_to(&mut self, before: Self) {
        (self.next, self.wide_next) = (before.next, before.wide_next);
    }
}
