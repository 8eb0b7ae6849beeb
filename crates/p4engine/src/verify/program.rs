// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Checks every index, bound, width and jump of a program before it runs.

use alloc::format;

use crate::arith::wide::LIMBS;
use crate::ir::{Program, MAX_PHV_BYTES, MAX_REGISTERS};
use crate::verify::buffers::Sizes;
use crate::verify::control_flow;
use crate::verify::error::{must, Unfit};

impl Program {
    /// What of the program cannot run, if anything (but for its entries, which `Engine::load` looks at).
    pub fn check(&self) -> Result<(), Unfit> {
        self.checked().map(drop)
    }

    pub(crate) fn checked(&self) -> Result<Sizes, Unfit> {
        must(
            self.area_bytes <= MAX_PHV_BYTES,
            "its headers and metadata take too many bytes",
            self.area_bytes,
        )?;
        must(usize::from(self.registers) <= MAX_REGISTERS, "too many registers", self.registers)?;
        must(usize::from(self.wide_limbs) <= LIMBS, "wide registers of too many words", self.wide_limbs)?;
        must(
            self.wide_registers == 0 || self.wide_limbs > 0,
            "wide registers without words",
            self.wide_registers,
        )?;
        must(self.code.len() < 1 << 24, "too many steps", self.code.len())?;
        self.fields.iter().try_for_each(|field| {
            let end = u64::from(field.at) + u64::from(field.width);
            must(
                field.width > 0 && end <= u64::from(self.area_bytes) * 8,
                "a field beyond its area",
                &field.name,
            )
        })?;
        self.headers.iter().try_for_each(|header| self.header_fits(header))?;
        self.unions
            .iter()
            .flat_map(|union| &union.headers)
            .try_for_each(|header| self.has_header(*header))?;
        self.stacks.iter().try_for_each(|stack| self.stack_fits(stack))?;
        self.selects.iter().try_for_each(|select| self.select_fits(select))?;
        self.hashes.iter().try_for_each(|hash| self.hash_fits(hash))?;
        self.objects_fit()?;
        self.tables.iter().try_for_each(|table| self.table_fits(table))?;
        self.standard_fits(&self.standard)?;
        self.code.iter().enumerate().try_for_each(|(pc, op)| {
            self.op_fits(op).map_err(|Unfit(text)| Unfit(format!("step {pc}, {op:?}: {text}")))
        })?;
        control_flow::check(self)?;
        self.buffer_sizes()
    }
}
