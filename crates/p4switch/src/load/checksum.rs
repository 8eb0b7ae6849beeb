// SPDX-License-Identifier: Apache-2.0
//! Checksums: verified behind the parser, updated before the deparser.

use qbed_p4engine::program::{Op, Pc};

use super::expression::{Expression, Scope};
use super::Loader;
use crate::bmv2::Checksum;
use crate::error::{refuse, At, Result};

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Verify,
    Update,
}

impl Loader<'_> {
    pub(super) fn checksums(&mut self, side: Side) -> Result<Pc> {
        let begin = self.here();
        let document = self.document;
        for (index, checksum) in document.checksums.iter().enumerate() {
            let wanted = match side {
                Side::Verify => checksum.verify,
                Side::Update => checksum.update,
            };
            if wanted {
                let steps = self.scoped(|code| code.checksum(checksum, side));
                steps.at(|| format!("checksums[{index}] {}", checksum.name))?;
            }
        }
        self.emit(Op::End);
        Ok(begin)
    }

    fn checksum(&mut self, of: &Checksum, side: Side) -> Result<()> {
        if of.kind != "generic" {
            return refuse(format!("of type {}, which p4c does not emit", of.kind));
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
        if side == Side::Verify {
            // BMv2 verifies nothing in a header that is not there.
            let valid = self.valid(self.header(&of.target.0)?);
            skips.extend(self.skip_unless(&valid)?);
        }
        self.prepare_hash(hash)?;
        let to = self.registers.take()?;
        self.emit(Op::Checksum { to, hash });
        match side {
            Side::Update => {
                self.emit(Op::Store { field: target, from: to });
            }
            Side::Verify => {
                let Some(error) = self.program.standard.checksum_error else {
                    self.land(skips);
                    return Ok(());
                };
                let field = self.number(&Expression::Field(target))?;
                let op = qbed_p4engine::program::Binary::NotEqual;
                self.emit(Op::Binary { op, to, left: to, right: field });
                let same = self.emit(Op::JumpUnless { condition: to, to: 0 });
                self.emit(Op::Store { field: error, from: to });
                skips.push(same);
            }
        }
        self.land(skips);
        Ok(())
    }
}
