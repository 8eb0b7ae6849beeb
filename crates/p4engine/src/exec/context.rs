// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! The state of a packet between parser and deparser.

use alloc::vec;
use alloc::vec::Vec;

use crate::arith::bits::{copy_bits, copy_few, Place, PADDING};
use crate::exec::packet::PreservedFields;
use crate::ir::{FieldId, ListId};
use crate::lower::Code;

/// `Context::deferred` of a packet without such a checksum.
pub(crate) const NOT_DEFERRED: u32 = u32::MAX;

/// The headers that a deparser emits, in a buffer that is allocated in advance.
#[derive(Debug, Clone)]
pub(crate) struct Emitted {
    bytes: Vec<u8>,
    used: usize,
}

impl Emitted {
    fn with_capacity(bytes: usize) -> Emitted {
        Emitted { bytes: vec![0; bytes], used: 0 }
    }

    pub fn clear(&mut self) {
        self.used = 0;
    }

    /// Appends bytes. Bytes that exceed the buffer, which `Program::check` prevents, are ignored.
    #[inline(always)]
    pub fn push(&mut self, bytes: &[u8]) {
        if let Some(target) = self.bytes.get_mut(self.used..self.used + bytes.len()) {
            copy_few(target, bytes);
            self.used += bytes.len();
        }
    }

    /// The buffer and the number of bytes that are used.
    pub fn parts(&mut self) -> (&mut [u8], &mut usize) {
        (&mut self.bytes, &mut self.used)
    }

    pub fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.used).unwrap_or(&[])
    }
}

/// Headers, metadata and pending requests of a packet. `Engine::context` creates it for the engine's program. One
/// context can be reused for many packets.
#[derive(Debug, Clone)]
pub struct Context {
    pub(crate) phv: Vec<u8>,
    pub(crate) headers: Emitted,
    /// The PHV at the end of egress, for an egress clone.
    pub(crate) saved: Vec<u8>,
    pub(crate) clone_fields: PreservedFields,
    pub(crate) resubmit_fields: PreservedFields,
    /// Bytes of the packet that the parser extracted or skipped.
    pub(crate) parsed: u32,
    /// The packet's length on arrival, which counters and meters count.
    pub(crate) arrived: u32,
    /// The packet's length with headers that were added and removed since (`packet_length`).
    pub(crate) length: u32,
    pub(crate) truncate: Option<u32>,
    /// Place in the PHV of the checksum that is left to the device of the port, or `NOT_DEFERRED`.
    pub(crate) deferred: u32,
    /// `Arrival::checksum`, or `NOT_DEFERRED`.
    pub(crate) checksum: u32,
    pub(crate) pending: Pending,
    /// The reason for which the program marked the packet to drop.
    pub(crate) drop_reason: Option<u32>,
}

/// Calls of the program that take effect at the end of ingress or egress. As in BMv2, the last call of a kind counts.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Pending {
    pub clone: Option<(u16, ListId)>,
    pub resubmit: Option<ListId>,
    pub recirculate: Option<ListId>,
    pub digest: Option<u16>,
}

impl Context {
    pub(crate) fn new(code: &Code, headers: usize, kept: usize) -> Context {
        let kept = || PreservedFields { list: 0, values: Vec::with_capacity(kept) };
        Context {
            phv: vec![0; code.phv_bytes + PADDING],
            headers: Emitted::with_capacity(headers),
            saved: vec![0; code.phv_bytes + PADDING],
            clone_fields: kept(),
            resubmit_fields: kept(),
            parsed: 0,
            arrived: 0,
            length: 0,
            truncate: None,
            deferred: NOT_DEFERRED,
            checksum: NOT_DEFERRED,
            pending: Pending::default(),
            drop_reason: None,
        }
    }

    /// The headers after `Engine::egress`. They precede the unparsed rest of the packet.
    pub fn headers(&self) -> &[u8] {
        self.headers.as_slice()
    }

    /// The fields that a clone preserves, after a decision or an emission with a clone.
    pub fn clone_fields(&self) -> &PreservedFields {
        &self.clone_fields
    }

    /// The fields that a resubmitted or recirculated packet preserves.
    pub fn resubmit_fields(&self) -> &PreservedFields {
        &self.resubmit_fields
    }

    /// Number of bytes that the parser extracted or skipped. The rest of the packet is sent unchanged.
    pub fn parsed(&self) -> u32 {
        self.parsed
    }

    /// Whether the headers have a checksum that the packet's sender left to its device, and that is not completed.
    pub fn defers_checksum(&self) -> bool {
        self.deferred != NOT_DEFERRED
    }

    /// The position of this checksum in the packet.
    pub fn deferred_checksum(&self) -> Option<u32> {
        self.defers_checksum().then_some(self.checksum)
    }

    /// Stores the completed checksum.
    pub(crate) fn complete_checksum(&mut self, checksum: u16) {
        let at = core::mem::replace(&mut self.deferred, NOT_DEFERRED) as usize;
        if let Some(field) = self.phv.get_mut(at..at + 2) {
            field.copy_from_slice(&checksum.to_be_bytes());
        }
    }

    #[inline(always)]
    pub(crate) fn put(&mut self, place: Option<Place>, value: u64) {
        if let Some(place) = place {
            place.store(&mut self.phv, value);
        }
    }

    #[inline(always)]
    pub(crate) fn get(&self, place: Option<Place>) -> u64 {
        match place {
            Some(place) => place.load(&self.phv),
            None => 0,
        }
    }

    /// Resets the context for a new packet.
    pub(crate) fn begin(&mut self, length: u32, checksum: Option<u32>) {
        self.phv.fill(0);
        self.headers.clear();
        (self.parsed, self.arrived, self.length) = (0, length, length);
        (self.truncate, self.pending, self.drop_reason) = (None, Pending::default(), None);
        (self.deferred, self.checksum) = (NOT_DEFERRED, checksum.unwrap_or(NOT_DEFERRED));
    }

    pub(crate) fn reset_metadata(&mut self, code: &Code) {
        for (at, bytes) in &code.metadata {
            if let Some(metadata) = self.phv.get_mut(*at as usize..(at + bytes) as usize) {
                metadata.fill(0);
            }
        }
    }

    pub(crate) fn restore(&mut self, code: &Code, kept: &PreservedFields) {
        let mut rest = kept.values.as_slice();
        for field in list(code, kept.list) {
            let field = code.field(*field);
            let Some((value, after)) = rest.split_at_checked(field.width.div_ceil(8) as usize) else {
                return;
            };
            put_bytes(&mut self.phv, field.at, field.width, value);
            rest = after;
        }
    }

    pub(crate) fn copy_bits(&mut self, to: u32, from: u32, width: u32) {
        copy_bits(&mut self.phv, to, from, width);
    }
}

fn list(code: &Code, list: ListId) -> &[FieldId] {
    code.lists.get(usize::from(list)).map_or(&[], Vec::as_slice)
}

/// Saves the fields of a list. The context has the capacity for them.
pub(crate) fn keep(code: &Code, phv: &[u8], id: ListId, kept: &mut PreservedFields) {
    kept.list = id;
    kept.values.clear();
    for field in list(code, id) {
        let field = code.field(*field);
        push_bytes(phv, field.at, field.width, &mut kept.values);
    }
}

/// Appends a field in whole bytes, big endian.
pub(crate) fn push_bytes(phv: &[u8], at: u32, width: u32, bytes: &mut Vec<u8>) {
    if (at | width) % 8 == 0 {
        let first = at as usize / 8;
        bytes.extend_from_slice(phv.get(first..first + width as usize / 8).unwrap_or(&[]));
        return;
    }
    let mut done = 0;
    while done < width {
        let bits = if done == 0 && width % 8 > 0 { width % 8 } else { 8 };
        bytes.push(Place::new(at + done, bits).load(phv) as u8);
        done += bits;
    }
}

fn put_bytes(phv: &mut [u8], at: u32, width: u32, bytes: &[u8]) {
    let mut done = 0;
    for byte in bytes {
        let bits = if done == 0 && width % 8 > 0 { width % 8 } else { 8 };
        Place::new(at + done, bits).store(phv, u64::from(*byte));
        done += bits;
    }
}
