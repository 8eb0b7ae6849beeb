// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Sizes of the buffers that are allocated in advance, so that a packet allocates nothing.

use alloc::format;
use alloc::vec::Vec;

use crate::ir::{FieldId, HashInput, HeaderId, Op, Program};
use crate::verify::error::{require, InvalidProgram};

/// Limit on the size of a buffer.
const MAX_BUFFER_BYTES: u64 = 1 << 20;

/// Largest number of bytes in each buffer.
pub(crate) struct Sizes {
    /// Hash inputs, select keys and digests.
    pub buffer: usize,
    /// Emitted headers.
    pub emitted: usize,
    /// Fields of a field list.
    pub kept: usize,
}

impl Program {
    pub(super) fn buffer_sizes(&self) -> Result<Sizes, InvalidProgram> {
        let bytes = |fields: &Vec<FieldId>| {
            fields.iter().map(|field| u64::from(self.width(*field).div_ceil(8))).sum::<u64>()
        };
        let header = |header: HeaderId| self.header(header).map_or(0, |header| u64::from(header.bytes));
        let union = |union: u16| {
            let headers = self.unions.get(usize::from(union)).map(|union| &union.headers);
            headers.into_iter().flatten().map(|id| header(*id)).sum::<u64>()
        };
        let emitted = self.code.iter().map(|op| match *op {
            Op::Emit { header: id } => header(id),
            Op::EmitUnion { of } => union(of),
            Op::EmitStack { stack } => self.stack(stack).map_or(0, |stack| {
                stack.headers.iter().map(|id| header(*id)).sum::<u64>()
                    + stack.unions.iter().map(|id| union(*id)).sum::<u64>()
            }),
            _ => 0,
        });
        let hashed = self.hashes.iter().map(|hash| {
            let bits = hash.input.iter().map(|input| match input {
                HashInput::Field(field) => u64::from(self.width(*field)),
                HashInput::Header(id) => header(*id) * 8,
                HashInput::Constant { width, .. } | HashInput::Register { width, .. } => u64::from(*width),
                HashInput::Payload => 0,
            });
            bits.sum::<u64>() / 8 + 1
        });
        let selected = self.selects.iter().map(|select| u64::from(select.bytes));
        let digests = self.digests.iter().map(|digest| bytes(&digest.fields));
        let buffer = hashed.chain(selected).chain(digests).max().unwrap_or(0);
        let kept = self.field_lists.iter().map(bytes).max().unwrap_or(0);
        let emitted = emitted.sum::<u64>();
        for (what, size) in [("hash input", buffer), ("a field list", kept), ("emitted headers", emitted)] {
            require(size <= MAX_BUFFER_BYTES, &format!("too many bytes of {what}"), size)?;
        }
        Ok(Sizes { buffer: buffer as usize, emitted: emitted as usize, kept: kept as usize })
    }
}
