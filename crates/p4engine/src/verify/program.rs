// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Checks every index, bound, width and jump of a program before it runs.

use alloc::format;

use crate::arith::wide::LIMBS;
use crate::ir::{Program, MAX_PHV_BYTES, MAX_REGISTERS};
use crate::verify::buffers::Sizes;
use crate::verify::control_flow;
use crate::verify::error::{require, InvalidProgram};

impl Program {
    /// Checks the whole program except its constant entries, which `Engine::load` checks.
    pub fn check(&self) -> Result<(), InvalidProgram> {
        self.check_with_sizes().map(drop)
    }

    /// Checks the program and returns the sizes of its buffers.
    pub(crate) fn check_with_sizes(&self) -> Result<Sizes, InvalidProgram> {
        require(self.phv_bytes <= MAX_PHV_BYTES, "headers and metadata are too large", self.phv_bytes)?;
        require(usize::from(self.registers) <= MAX_REGISTERS, "too many registers", self.registers)?;
        require(
            usize::from(self.wide_limbs) <= LIMBS,
            "wide registers have too many limbs",
            self.wide_limbs,
        )?;
        require(
            self.wide_registers == 0 || self.wide_limbs > 0,
            "wide registers have no limbs",
            self.wide_registers,
        )?;
        require(self.code.len() < 1 << 24, "too many instructions", self.code.len())?;
        self.fields.iter().try_for_each(|field| {
            let end = u64::from(field.at) + u64::from(field.width);
            require(
                field.width > 0 && end <= u64::from(self.phv_bytes) * 8,
                "a field is outside the PHV",
                &field.name,
            )
        })?;
        self.headers.iter().try_for_each(|header| self.check_header(header))?;
        self.unions
            .iter()
            .flat_map(|union| &union.headers)
            .try_for_each(|header| self.check_header_id(*header))?;
        self.stacks.iter().try_for_each(|stack| self.check_stack(stack))?;
        self.selects.iter().try_for_each(|select| self.check_select(select))?;
        self.hashes.iter().try_for_each(|hash| self.check_hash(hash))?;
        self.check_externs()?;
        self.tables.iter().try_for_each(|table| self.check_table(table))?;
        self.check_standard(&self.standard)?;
        self.code.iter().enumerate().try_for_each(|(pc, op)| {
            self.check_op(op)
                .map_err(|InvalidProgram(text)| InvalidProgram(format!("instruction {pc}, {op:?}: {text}")))
        })?;
        control_flow::check(self)?;
        self.buffer_sizes()
    }
}
