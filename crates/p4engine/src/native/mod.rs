// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Translation of a program's instructions to x86-64 machine code.
//!
//! The translation consists of straight code for the frequent instructions: fields, arithmetic, jumps, extraction,
//! selects, emission. At any other instruction, and wherever an instruction would end the parser, jump backward or
//! exceed a buffer, the code returns the number of that instruction. The interpreter runs it and enters the code again.
//! So the code calls no function, and both have the same results: tests/native.rs compares them.
//!
//! The engine has no unsafe code. It passes the machine code to `Engine::translate`'s caller, which places it in
//! executable memory. On other processors there is no translation.

mod assembler;
mod parser;
mod translate;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::any::Any;
use core::mem::offset_of;

use crate::arith::bits::PADDING;
use crate::exec::interpreter::{Interpreter, Return};
use crate::exec::packet::Shell;
use crate::ir::{Pc, MAX_REGISTERS};
use crate::lower::Code;

/// The memory that machine code accesses.
#[derive(Debug)]
#[repr(C)]
pub struct Frame {
    phv: *mut u8,
    numbers: *mut i128,
    arguments: *const u64,
    packet: *const u8,
    packet_bytes: usize,
    parsed: *mut u32,
    headers: *mut u8,
    headers_used: *mut usize,
    max_headers: usize,
    returning: *mut Return,
    offsets: *const u32,
    code: usize,
}

/// Offsets in `Frame`.
const FRAME_PHV: i32 = offset_of!(Frame, phv) as i32;
const FRAME_NUMBERS: i32 = offset_of!(Frame, numbers) as i32;
const FRAME_ARGUMENTS: i32 = offset_of!(Frame, arguments) as i32;
const FRAME_PACKET: i32 = offset_of!(Frame, packet) as i32;
const FRAME_PACKET_BYTES: i32 = offset_of!(Frame, packet_bytes) as i32;
const FRAME_PARSED: i32 = offset_of!(Frame, parsed) as i32;
const FRAME_HEADERS: i32 = offset_of!(Frame, headers) as i32;
const FRAME_HEADERS_USED: i32 = offset_of!(Frame, headers_used) as i32;
const FRAME_MAX_HEADERS: i32 = offset_of!(Frame, max_headers) as i32;
const FRAME_RETURNING: i32 = offset_of!(Frame, returning) as i32;
const FRAME_OFFSETS: i32 = offset_of!(Frame, offsets) as i32;
const FRAME_CODE: i32 = offset_of!(Frame, code) as i32;

/// The function at the code's beginning. It gets the address of an instruction's code, and returns the number of the
/// instruction at which the interpreter continues.
#[cfg(target_arch = "x86_64")]
pub type Enter = extern "sysv64" fn(frame: &mut Frame, instruction: usize) -> u64;
#[cfg(not(target_arch = "x86_64"))]
pub type Enter = extern "C" fn(frame: &mut Frame, instruction: usize) -> u64;

/// Machine code in executable memory.
#[derive(Debug)]
pub struct Executable {
    /// The code's beginning.
    pub enter: Enter,
    /// The memory, which is freed with this value.
    pub memory: Box<dyn Any + Send + Sync>,
}

/// The translation of a program.
#[derive(Debug)]
pub(crate) struct Native {
    executable: Executable,
    /// The offset of each instruction's code.
    offsets: Vec<u32>,
    /// Whether an instruction's code is more than a return to the interpreter.
    translated: Vec<bool>,
    phv_bytes: usize,
}

impl Native {
    /// Translates a program. `place` copies machine code to executable memory; it returns None if there is none.
    pub fn new(
        code: &Code,
        arguments: usize,
        place: impl FnOnce(&[u8]) -> Option<Executable>,
    ) -> Option<Native> {
        if !cfg!(target_arch = "x86_64") {
            return None;
        }
        let phv_bytes = code.phv_bytes + PADDING;
        let (bytes, offsets, translated) = translate::translate(code, phv_bytes, arguments);
        Some(Native { executable: place(&bytes)?, offsets, translated, phv_bytes })
    }
}

impl<'a, S: Shell> Interpreter<'a, S> {
    /// Runs machine code from an instruction on. Returns the instruction that the interpreter runs next.
    #[inline(always)]
    pub(crate) fn run_native(&mut self, pc: Pc) -> Pc {
        let Some(native) = &self.code.native else { return pc };
        let context = &mut *self.context;
        // A context of another engine has no place for this program's fields.
        if native.translated.get(pc as usize) != Some(&true) || context.phv.len() != native.phv_bytes {
            return pc;
        }
        let (headers, headers_used) = context.headers.parts();
        let code = native.executable.enter as usize;
        let mut frame = Frame {
            phv: context.phv.as_mut_ptr(),
            numbers: self.state.registers.as_mut_ptr(),
            arguments: self.state.arguments.as_ptr(),
            packet: self.packet.as_ptr(),
            packet_bytes: self.packet.len(),
            parsed: &mut context.parsed,
            headers: headers.as_mut_ptr(),
            max_headers: headers.len(),
            headers_used,
            returning: &mut self.returning,
            offsets: native.offsets.as_ptr(),
            code,
        };
        let instruction = code + native.offsets.get(pc as usize).copied().unwrap_or(0) as usize;
        (native.executable.enter)(&mut frame, instruction) as Pc
    }
}

const _: () = assert!(MAX_REGISTERS * 16 < i32::MAX as usize);
