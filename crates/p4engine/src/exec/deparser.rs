// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Emits headers.

use crate::exec::interpreter::Run;
use crate::exec::packet::Shell;
use crate::ir::HeaderId;

impl<'a, S: Shell> Run<'a, S> {
    #[inline]
    pub fn emit(&mut self, header: HeaderId) {
        let Some(header) = self.header(header).filter(|header| self.is_valid(header)) else { return };
        let (at, bytes) = (header.at as usize, header.bytes as usize);
        match header.varbit {
            None => self.put_out(at, bytes),
            Some(varbit) => {
                let (end, behind) = (varbit.at + self.varbit_bytes(header), varbit.at + varbit.bytes);
                self.put_out(at, end as usize);
                self.put_out(at + behind as usize, bytes.saturating_sub(behind as usize));
            }
        }
    }

    /// Of the area, to what stands before the rest of the packet.
    #[inline(always)]
    pub(super) fn put_out(&mut self, at: usize, bytes: usize) {
        let context = &mut *self.context;
        if let Some(source) = context.area.get(at..at + bytes) {
            context.headers.push(source);
        }
    }

    pub(super) fn emit_union(&mut self, union: u16) {
        let code = self.code;
        let headers = code.unions.get(usize::from(union)).map_or(&[][..], |union| union);
        headers.iter().for_each(|header| self.emit(*header));
    }
}
