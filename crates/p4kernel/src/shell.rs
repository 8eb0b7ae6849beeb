// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! The engine's shell: random numbers, digests and messages through the module's C code.

use alloc::string::String;
use core::ffi::c_void;
use core::fmt::Write;
use core::slice;

use qbed_p4engine::packet::Shell;

/// `enum qp4_event_kind`
const DIGEST: u32 = 1;
const LOG: u32 = 2;
const FAILED: u32 = 3;

extern "C" {
    fn qp4_random_u32() -> u32;
    fn qp4_checksum(owner: *mut c_void) -> u16;
    fn qp4_extend(owner: *mut c_void, length: *mut usize) -> *const u8;
    fn qp4_event(owner: *mut c_void, kind: u32, id: u32, bytes: *const u8, length: usize);
}

/// The switch of an engine. Only C code accesses it.
pub struct Owner(pub *mut c_void);

impl Owner {
    fn send_event(&self, kind: u32, id: u32, bytes: &[u8]) {
        // SAFETY: the owner is an argument of qp4_engine_load, and the bytes are copied before the call returns.
        unsafe { qp4_event(self.0, kind, id, bytes.as_ptr(), bytes.len()) };
    }
}

impl Shell for Owner {
    fn random(&mut self) -> u64 {
        (u64::from(self.random_u32()) << 32) | u64::from(self.random_u32())
    }

    /// The kernel's generator, which qdiscs also use: a program and a qdisc that draw equally often get the same
    /// numbers.
    fn random_u32(&mut self) -> u32 {
        // SAFETY: may be called at any time.
        unsafe { qp4_random_u32() }
    }

    fn digest(&mut self, id: u32, values: &[u8]) {
        self.send_event(DIGEST, id, values);
    }

    /// Replaces each `{}` with a value, as BMv2 does.
    fn log(&mut self, message: &str, values: &[i128]) {
        let mut text = String::with_capacity(message.len() + 8 * values.len());
        let mut values = values.iter();
        let mut rest = message;
        while let Some((before, after)) = rest.split_once("{}") {
            text.push_str(before);
            match values.next() {
                Some(value) => drop(write!(text, "{value}")),
                None => text.push_str("{}"),
            }
            rest = after;
        }
        text.push_str(rest);
        self.send_event(LOG, 0, text.as_bytes());
    }

    fn failed(&mut self, message: &str) {
        self.send_event(FAILED, 0, message.as_bytes());
    }

    fn checksum(&mut self) -> u16 {
        // SAFETY: the owner is an argument of qp4_engine_load.
        unsafe { qp4_checksum(self.0) }
    }

    fn extend<'a>(&mut self, packet: &'a [u8]) -> &'a [u8] {
        let mut length = packet.len();
        // SAFETY: the owner is an argument of qp4_engine_load. C code returns `length` bytes, or NULL. They stay
        // unchanged until the function that got `packet` returns.
        let bytes = unsafe { qp4_extend(self.0, &mut length) };
        if bytes.is_null() {
            return packet;
        }
        // SAFETY: as above.
        unsafe { slice::from_raw_parts(bytes, length) }
    }
}
