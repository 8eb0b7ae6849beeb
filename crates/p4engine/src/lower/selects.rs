// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Translates transitions of the parser. Keys of up to 64 bits are compared as numbers.

use crate::arith::bits::peek;
use crate::ir::{self, select_width, Program, SelectKey, SelectOn};
use crate::lower::code::Code;
use crate::lower::operands::{Case, KeyPart, Select};

impl Code {
    pub(super) fn select(&self, program: &Program, select: &ir::Select) -> Select {
        let part = |key: &SelectKey| {
            let width = select_width(program, key);
            let place = match key {
                SelectKey::Field(field) if width <= 64 => Some(self.place(*field)),
                _ => None,
            };
            KeyPart { key: *key, width, place }
        };
        let keys = select.keys.iter().map(part).collect();
        let cases = select.cases.iter().map(|case| Case { on: case.on.clone(), next: case.next }).collect();
        let number = |bytes: &[u8]| peek(bytes, 0, bytes.len() as u32 * 8);
        let short = |case: &ir::SelectCase| match &case.on {
            SelectOn::Value { value, mask } => {
                let mask = mask.as_ref().map_or(u64::MAX, |mask| number(mask));
                Some((number(value) & mask, mask, case.next))
            }
            SelectOn::Set { .. } => None,
        };
        let short =
            if (1..=8).contains(&select.bytes) { select.cases.iter().map(short).collect() } else { None };
        Select { keys, cases, default: select.default, short }
    }
}
