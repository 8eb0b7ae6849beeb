// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! What a program needs of its surroundings, from the module's C.

use alloc::string::String;
use core::ffi::c_void;
use core::fmt::Write;

use qbed_p4engine::packet::Shell;

/// `enum qp4_event_kind`
const DIGEST: u32 = 1;
const LOG: u32 = 2;
const FAILED: u32 = 3;

extern "C" {
    fn qp4_random_u32() -> u32;
    fn qp4_event(owner: *mut c_void, kind: u32, id: u32, bytes: *const u8, length: usize);
}

/// The switch; nothing but C's own functions looks at it.
pub struct Owner(pub *mut c_void);

impl Owner {
    fn tell(&self, kind: u32, id: u32, bytes: &[u8]) {
        // SAFETY: the owner is what qp4_engine_load was given, and the bytes are copied before it returns.
        unsafe { qp4_event(self.0, kind, id, bytes.as_ptr(), bytes.len()) };
    }
}

impl Shell for Owner {
    fn random(&mut self) -> u64 {
        (u64::from(self.random_u32()) << 32) | u64::from(self.random_u32())
    }

    /// Of the numbers that the kernel's own switches draw: a scheme that draws as often as its qdisc draws the same.
    fn random_u32(&mut self) -> u32 {
        // SAFETY: may be called at any time.
        unsafe { qp4_random_u32() }
    }

    fn digest(&mut self, id: u32, values: &[u8]) {
        self.tell(DIGEST, id, values);
    }

    /// A value takes the place of each `{}`, as BMv2 writes it.
    fn log(&mut self, message: &str, values: &[i128]) {
        let mut text = String::with_capacity(message.len() + 8 * values.len());
        let mut values = values.iter();
        let mut rest = message;
        while let Some((before, behind)) = rest.split_once("{}") {
            text.push_str(before);
            match values.next() {
                Some(value) => drop(write!(text, "{value}")),
                None => text.push_str("{}"),
            }
            rest = behind;
        }
        text.push_str(rest);
        self.tell(LOG, 0, text.as_bytes());
    }

    fn failed(&mut self, message: &str) {
        self.tell(FAILED, 0, message.as_bytes());
    }
}
