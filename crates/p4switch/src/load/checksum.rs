// SPDX-License-Identifier: Apache-2.0
//! Checksums: verified after the parser, updated before the deparser.

use qbed_p4engine::program::{Op, Pc};

use super::expression::Expression;
use super::operands::Scope;
use super::Loader;
use crate::bmv2::Checksum;
use crate::error::{refuse, At, Result};

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Verify,
    Update,
}

impl Loader<'_> {
    pub(super) fn checksums(&mut self, phase: Phase) -> Result<Pc> {
        let begin = self.next_pc();
        let document = self.document;
        for (index, checksum) in document.checksums.iter().enumerate() {
            let wanted = match phase {
                Phase::Verify => checksum.verify,
                Phase::Update => checksum.update,
            };
            if wanted {
                let compiled = self.scoped(|code| code.checksum(checksum, phase));
                compiled.at(|| format!("checksums[{index}] {}", checksum.name))?;
            }
        }
        self.emit(Op::End);
        Ok(begin)
    }

    fn checksum(&mut self, of: &Checksum, phase: Phase) -> Result<()> {
        if of.kind != "generic" {
            return refuse(format!("unknown checksum type {}", of.kind));
        }
        let target = self.layout.field(&of.target.0, &of.target.1)?;
        let hash = self.calculation_of(&of.calculation)?;
        let mut skips = Vec::new();
        if let Some(condition) = &of.if_cond {
            match self.operand(condition, Scope::default()).at(|| "if_cond".into())? {
                Expression::Constant(value) if value != 0.into() => {}
                condition => skips.extend(self.skip_unless(&condition)?),
            }
        }
        if phase == Phase::Verify {
            // BMv2 does not verify an invalid header.
            let valid = self.valid(self.header(&of.target.0)?);
            skips.extend(self.skip_unless(&valid)?);
        }
        self.prepare_hash(hash)?;
        let to = self.registers.allocate()?;
        self.emit(Op::Checksum { to, hash });
        match phase {
            Phase::Update => {
                self.emit(Op::Store { field: target, from: to });
            }
            Phase::Verify => {
                let Some(error) = self.program.standard.checksum_error else {
                    self.patch_jumps(skips);
                    return Ok(());
                };
                let field = self.evaluate(&Expression::Field(target))?;
                let op = qbed_p4engine::program::Binary::NotEqual;
                self.emit(Op::Binary { op, to, left: to, right: field });
                let skip = self.emit(Op::JumpUnless { condition: to, to: 0 });
                self.emit(Op::Store { field: error, from: to });
                skips.push(skip);
            }
        }
        self.patch_jumps(skips);
        Ok(())
    }
}
