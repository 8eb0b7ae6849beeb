// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! A packet between parser and deparser: its headers and metadata, and what the program asked for.

use alloc::vec;
use alloc::vec::Vec;

use crate::arith::bits::{copy_bits, copy_few, Place, PADDING};
use crate::exec::packet::Kept;
use crate::ir::{FieldId, ListId};
use crate::lower::Code;

/// What a deparser emits, in room that there is already.
#[derive(Debug, Clone)]
pub(crate) struct Emitted {
    bytes: Vec<u8>,
    used: usize,
}

impl Emitted {
    fn with_room(bytes: usize) -> Emitted {
        Emitted { bytes: vec![0; bytes], used: 0 }
    }

    pub fn clear(&mut self) {
        self.used = 0;
    }

    /// What has no room, which `Program::check` rules out, is left out.
    #[inline(always)]
    pub fn push(&mut self, bytes: &[u8]) {
        if let Some(room) = self.bytes.get_mut(self.used..self.used + bytes.len()) {
            copy_few(room, bytes);
            self.used += bytes.len();
        }
    }

    pub fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.used).unwrap_or(&[])
    }
}

/// Made by `Engine::context`, for that engine's program; it may serve many packets, one after the other.
#[derive(Debug, Clone)]
pub struct Context {
    pub(crate) area: Vec<u8>,
    pub(crate) headers: Emitted,
    /// The area as egress left it, where an egress clone wants it.
    pub(crate) saved: Vec<u8>,
    pub(crate) clone_kept: Kept,
    pub(crate) again_kept: Kept,
    /// Bytes of the packet that the parser took.
    pub(crate) parsed: u32,
    /// The packet's length when it came, which counters and meters count.
    pub(crate) arrived: u32,
    /// The same with the headers that came and went since (`packet_length`).
    pub(crate) length: u32,
    pub(crate) truncate: Option<u32>,
    pub(crate) asked: Asked,
    /// Who marked it to be dropped.
    pub(crate) dropper: Option<u32>,
}

/// Of the calls of one kind the last counts, as in BMv2.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Asked {
    pub clone: Option<(u16, ListId)>,
    pub resubmit: Option<ListId>,
    pub recirculate: Option<ListId>,
    pub digest: Option<u16>,
}

impl Context {
    pub(crate) fn new(code: &Code, headers: usize, kept: usize) -> Context {
        let kept = Kept { list: 0, values: Vec::with_capacity(kept) };
        Context {
            area: vec![0; code.area_bytes + PADDING],
            headers: Emitted::with_room(headers),
            saved: vec![0; code.area_bytes + PADDING],
            clone_kept: kept_like(&kept),
            again_kept: kept,
            parsed: 0,
            arrived: 0,
            length: 0,
            truncate: None,
            asked: Asked::default(),
            dropper: None,
        }
    }

    /// After `Engine::egress`: what stands before the rest of the packet.
    pub fn headers(&self) -> &[u8] {
        self.headers.as_slice()
    }

    /// After a decision or an emission with a clone: what the clone keeps.
    pub fn clone_kept(&self) -> &Kept {
        &self.clone_kept
    }

    /// After a decision to resubmit or an emission to recirculate: what the packet keeps.
    pub fn again_kept(&self) -> &Kept {
        &self.again_kept
    }

    /// How many bytes of the packet the parser took; the rest leaves as it came.
    pub fn parsed(&self) -> u32 {
        self.parsed
    }

    #[inline(always)]
    pub(crate) fn put(&mut self, place: Option<Place>, value: u64) {
        if let Some(place) = place {
            place.store(&mut self.area, value);
        }
    }

    #[inline(always)]
    pub(crate) fn get(&self, place: Option<Place>) -> u64 {
        place.map_or(0, |place| place.load(&self.area))
    }

    /// All of a packet that is not there yet.
    pub(crate) fn begin(&mut self, length: u32) {
        self.area.fill(0);
        self.headers.clear();
        (self.parsed, self.arrived, self.length) = (0, length, length);
        (self.truncate, self.asked, self.dropper) = (None, Asked::default(), None);
    }

    pub(crate) fn reset_metadata(&mut self, code: &Code) {
        for (at, bytes) in &code.metadata {
            if let Some(metadata) = self.area.get_mut(*at as usize..(at + bytes) as usize) {
                metadata.fill(0);
            }
        }
    }

    pub(crate) fn restore(&mut self, code: &Code, kept: &Kept) {
        let mut rest = kept.values.as_slice();
        for field in list(code, kept.list) {
            let field = code.field(*field);
            let Some((value, behind)) = rest.split_at_checked(field.width.div_ceil(8) as usize) else {
                return;
            };
            put_bytes(&mut self.area, field.at, field.width, value);
            rest = behind;
        }
    }

    pub(crate) fn copy_bits(&mut self, to: u32, from: u32, width: u32) {
        copy_bits(&mut self.area, to, from, width);
    }
}

fn kept_like(kept: &Kept) -> Kept {
    Kept { list: kept.list, values: Vec::with_capacity(kept.values.capacity()) }
}

fn list(code: &Code, list: ListId) -> &[FieldId] {
    code.lists.get(usize::from(list)).map_or(&[], Vec::as_slice)
}

/// What the fields of a list have now; the room was made when the context was.
pub(crate) fn keep(code: &Code, area: &[u8], id: ListId, kept: &mut Kept) {
    kept.list = id;
    kept.values.clear();
    for field in list(code, id) {
        let field = code.field(*field);
        push_bytes(area, field.at, field.width, &mut kept.values);
    }
}

/// A field in whole bytes, big endian.
pub(crate) fn push_bytes(area: &[u8], at: u32, width: u32, bytes: &mut Vec<u8>) {
    if (at | width) % 8 == 0 {
        let first = at as usize / 8;
        bytes.extend_from_slice(area.get(first..first + width as usize / 8).unwrap_or(&[]));
        return;
    }
    let mut done = 0;
    while done < width {
        let bits = if done == 0 && width % 8 > 0 { width % 8 } else { 8 };
        bytes.push(Place::of(at + done, bits).load(area) as u8);
        done += bits;
    }
}

fn put_bytes(area: &mut [u8], at: u32, width: u32, bytes: &[u8]) {
    let mut done = 0;
    for byte in bytes {
        let bits = if done == 0 && width % 8 > 0 { width % 8 } else { 8 };
        Place::of(at + done, bits).store(area, u64::from(*byte));
        done += bits;
    }
}
