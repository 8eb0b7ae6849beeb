// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Translates inputs of hashes. Consecutive fields become one part.

use alloc::vec::Vec;

use crate::ir::{self, FieldId, HashInput, HeaderId, Program};
use crate::lower::code::Code;
use crate::lower::operands::{owner, Hash, HashPart, Header};

impl Code {
    pub(super) fn hash(&self, program: &Program, hash: &ir::Hash) -> Hash {
        let (mut parts, mut payload) = (Vec::new(), false);
        for input in &hash.input {
            match input {
                HashInput::Field(field) => self.hash_field(program, *field, &mut parts),
                HashInput::Header(header) => self.hash_header(*header, &mut parts),
                HashInput::Constant { value, width } => {
                    parts.push(HashPart::Constant { value: value.clone(), width: *width });
                }
                HashInput::Register { register, width } => {
                    parts.push(HashPart::Register { register: *register, width: *width });
                }
                HashInput::Payload => payload = true,
            }
        }
        let words = !payload
            && parts.iter().all(|part| match part {
                HashPart::Phv { at, width, .. } => at % 8 == 0 && width % 16 == 0,
                _ => false,
            });
        Hash { kind: hash.kind, parts, payload, words }
    }

    fn hash_field(&self, program: &Program, field: FieldId, parts: &mut Vec<HashPart>) {
        let owner = owner(program, field).and_then(|header| self.headers.get(header));
        let field = self.field(field);
        let valid = owner.and_then(Header::validity);
        if let (Some(header), Some(valid)) = (owner, valid) {
            if let Some(varbit) = header.varbit.filter(|varbit| (header.at + varbit.at) * 8 == field.at) {
                let (at, max_width) = (field.at, field.width);
                parts.push(HashPart::Varbit { at, width: varbit.width, max_width, valid });
                return;
            }
        }
        match parts.last_mut() {
            Some(HashPart::Phv { at, width, valid: other })
                if *at + *width == field.at && *other == valid =>
            {
                *width += field.width;
            }
            _ => parts.push(HashPart::Phv { at: field.at, width: field.width, valid }),
        }
    }

    fn hash_header(&self, header: HeaderId, parts: &mut Vec<HashPart>) {
        let Some(header) = self.headers.get(usize::from(header)) else { return };
        let valid = header.validity();
        let (at, width) = (header.at * 8, header.bytes * 8);
        match (header.varbit, valid) {
            (Some(varbit), Some(validity)) => {
                let (first, max_width) = (varbit.at * 8, varbit.bytes * 8);
                parts.push(HashPart::Phv { at, width: first, valid });
                parts.push(HashPart::Varbit {
                    at: at + first,
                    width: varbit.width,
                    max_width,
                    valid: validity,
                });
                parts.push(HashPart::Phv {
                    at: at + first + max_width,
                    width: width - first - max_width,
                    valid,
                });
            }
            _ => parts.push(HashPart::Phv { at, width, valid }),
        }
    }
}
