// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Emission of headers.

use crate::exec::interpreter::Interpreter;
use crate::exec::packet::Shell;
use crate::ir::HeaderId;

impl<'a, S: Shell> Interpreter<'a, S> {
    #[inline]
    pub fn emit(&mut self, header: HeaderId) {
        let Some(header) = self.header(header).filter(|header| self.is_valid(header)) else { return };
        let (at, bytes) = (header.at as usize, header.bytes as usize);
        match header.varbit {
            None => self.emit_bytes(at, bytes),
            Some(varbit) => {
                let (end, after) = (varbit.at + self.varbit_bytes(header), varbit.at + varbit.bytes);
                self.emit_bytes(at, end as usize);
                self.emit_bytes(at + after as usize, bytes.saturating_sub(after as usize));
            }
        }
    }

    /// Appends bytes of the PHV to the emitted headers.
    #[inline(always)]
    pub(super) fn emit_bytes(&mut self, at: usize, bytes: usize) {
        let context = &mut *self.context;
        if let Some(source) = context.phv.get(at..at + bytes) {
            context.headers.push(source);
        }
    }

    pub(super) fn emit_union(&mut self, union: u16) {
        let code = self.code;
        let headers = code.unions.get(usize::from(union)).map_or(&[][..], |union| union);
        headers.iter().for_each(|header| self.emit(*header));
    }
}
