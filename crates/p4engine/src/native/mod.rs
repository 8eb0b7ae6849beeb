// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Translation of a program's instructions to x86-64 machine code.
//!
//! The translation consists of straight code for the frequent instructions: fields, arithmetic, jumps, extraction,
//! selects, emission, cached table lookups, hashes, values of registers, wide numbers. At any other instruction, and
//! wherever an instruction would end the parser, exceed a buffer or the limit on backward jumps, the code returns the
//! number of that instruction. The interpreter runs it and enters the code again. So the code calls no function, and both
//! have the same results: tests/native.rs compares them.
//!
//! The engine has no unsafe code. It passes the machine code to `Engine::translate`'s caller, which places it in
//! executable memory. On other processors there is no translation.

mod arithmetic;
mod assembler;
pub(crate) mod cache;
mod externs;
mod fields;
mod fused;
mod hash;
mod parser;
mod translate;
mod wide;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::any::Any;
use core::mem::offset_of;

use crate::arith::bits::PADDING;
use crate::control::Count;
use crate::exec::context::Context;
use crate::exec::interpreter::{
    Interpreter, Return, MAX_BACKWARD_JUMPS, RETURN_CONTROL_REASON, RETURN_PC, RETURN_REASON,
};
use crate::exec::packet::Shell;
use crate::exec::state::State;
use crate::ir::{Pc, Program, MAX_REGISTERS};
use crate::lower::Code;
use crate::native::cache::Block;

/// The memory that machine code accesses. The interpreter of a packet's blocks has one.
#[derive(Debug)]
#[repr(C)]
pub struct Frame {
    pub(crate) returning: Return,
    pub(crate) backward_jumps_left: u32,
    phv: *mut u8,
    numbers: *mut i128,
    wide: *mut u64,
    arguments: *mut u64,
    packet: *const u8,
    /// Bytes of the packet that the parser may access, and that the shell passed.
    packet_bytes: usize,
    head_bytes: usize,
    parsed: *mut u32,
    headers: *mut u8,
    headers_used: *mut usize,
    max_headers: usize,
    blocks: *const Block,
    counters: *const Span,
    arrays: *const Span,
    arrived: u64,
    deferred: *mut u32,
    offsets: *const u32,
    /// The code's beginning. 0: the interpreter runs all instructions.
    code: usize,
}

/// Offsets in `Frame`.
const FRAME_PHV: i32 = offset_of!(Frame, phv) as i32;
const FRAME_NUMBERS: i32 = offset_of!(Frame, numbers) as i32;
const FRAME_WIDE: i32 = offset_of!(Frame, wide) as i32;
const FRAME_ARGUMENTS: i32 = offset_of!(Frame, arguments) as i32;
const FRAME_PACKET: i32 = offset_of!(Frame, packet) as i32;
const FRAME_PACKET_BYTES: i32 = offset_of!(Frame, packet_bytes) as i32;
const FRAME_HEAD_BYTES: i32 = offset_of!(Frame, head_bytes) as i32;
const FRAME_PARSED: i32 = offset_of!(Frame, parsed) as i32;
const FRAME_HEADERS: i32 = offset_of!(Frame, headers) as i32;
const FRAME_HEADERS_USED: i32 = offset_of!(Frame, headers_used) as i32;
const FRAME_MAX_HEADERS: i32 = offset_of!(Frame, max_headers) as i32;
const FRAME_RETURN_PC: i32 = offset_of!(Frame, returning) as i32 + RETURN_PC;
const FRAME_RETURN_REASON: i32 = offset_of!(Frame, returning) as i32 + RETURN_REASON;
const FRAME_CONTROL_REASON: i32 = offset_of!(Frame, returning) as i32 + RETURN_CONTROL_REASON;
const FRAME_BACKWARD_JUMPS_LEFT: i32 = offset_of!(Frame, backward_jumps_left) as i32;
const FRAME_BLOCKS: i32 = offset_of!(Frame, blocks) as i32;
const FRAME_COUNTERS: i32 = offset_of!(Frame, counters) as i32;
const FRAME_ARRAYS: i32 = offset_of!(Frame, arrays) as i32;
const FRAME_ARRIVED: i32 = offset_of!(Frame, arrived) as i32;
const FRAME_DEFERRED: i32 = offset_of!(Frame, deferred) as i32;
const FRAME_OFFSETS: i32 = offset_of!(Frame, offsets) as i32;
const FRAME_CODE: i32 = offset_of!(Frame, code) as i32;

/// Offsets in `Span` and in `Count`.
const SPAN_ADDRESS: i32 = offset_of!(Span, address) as i32;
const SPAN_SIZE: i32 = offset_of!(Span, size) as i32;
const COUNT_PACKETS: i32 = offset_of!(Count, packets) as i32;
const COUNT_BYTES: i32 = offset_of!(Count, bytes) as i32;
const _: () = assert!(size_of::<Count>().is_power_of_two());

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
    phv_bytes: usize,
}

impl Native {
    /// Translates a program. `place` copies machine code to executable memory; it returns None if there is none.
    pub fn new(
        program: &Program,
        code: &Code,
        state: &mut State,
        place: impl FnOnce(&[u8]) -> Option<Executable>,
    ) -> Option<Native> {
        if !cfg!(target_arch = "x86_64") {
            return None;
        }
        let phv_bytes = code.phv_bytes + PADDING;
        state.allocate_lines();
        let (bytes, offsets) = translate::translate(program, code, phv_bytes, state);
        Some(Native { executable: place(&bytes)?, offsets, phv_bytes })
    }
}

impl Frame {
    /// A frame for a packet. Its pointers stay valid because none of these buffers grows or moves while an interpreter
    /// runs.
    #[inline(always)]
    pub(crate) fn new(code: &Code, state: &mut State, context: &mut Context, packet: &[u8]) -> Frame {
        // A context of another engine has no place for this program's fields.
        let native = code.native.as_ref().filter(|native| context.phv.len() == native.phv_bytes);
        let (headers, headers_used) = context.headers.parts();
        Frame {
            returning: Return::default(),
            backward_jumps_left: MAX_BACKWARD_JUMPS,
            phv: context.phv.as_mut_ptr(),
            numbers: state.registers.as_mut_ptr(),
            wide: state.wide.as_mut_ptr(),
            arguments: state.arguments.as_mut_ptr(),
            packet: packet.as_ptr(),
            packet_bytes: packet.len(),
            head_bytes: packet.len(),
            parsed: &mut context.parsed,
            headers: headers.as_mut_ptr(),
            max_headers: headers.len(),
            headers_used,
            blocks: state.blocks.as_ptr(),
            counters: state.counter_spans.as_ptr(),
            arrays: state.array_spans.as_ptr(),
            arrived: context.arrived.into(),
            deferred: &mut context.deferred,
            offsets: native.map_or(core::ptr::null(), |native| native.offsets.as_ptr()),
            code: native.map_or(0, |native| native.executable.enter as usize),
        }
    }

    #[inline(always)]
    pub(crate) fn set_packet(&mut self, packet: &[u8]) {
        self.packet = packet.as_ptr();
        (self.packet_bytes, self.head_bytes) = (packet.len(), packet.len());
    }

    /// Lets the parser access so many of the bytes that the shell passed.
    #[inline(always)]
    pub(crate) fn show_packet(&mut self, bytes: usize) {
        self.packet_bytes = bytes;
    }
}

/// Address and size of the counts of a counter or the values of an array, which neither grow nor move.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct Span {
    address: usize,
    size: usize,
}

impl Span {
    pub fn new<T>(elements: &[T]) -> Span {
        Span { address: elements.as_ptr() as usize, size: elements.len() }
    }
}

impl<'a, S: Shell> Interpreter<'a, S> {
    /// Runs machine code from an instruction on. Returns the instruction that the interpreter runs next.
    #[inline(always)]
    pub(crate) fn run_native(&mut self, pc: Pc) -> Pc {
        let Some(native) = self.code.native.as_ref().filter(|_| self.frame.code != 0) else { return pc };
        let Some(offset) = native.offsets.get(pc as usize) else { return pc };
        let instruction = self.frame.code + *offset as usize;
        let next = (native.executable.enter)(&mut self.frame, instruction) as Pc;
        // The code deferred a checksum.
        if self.frame.packet_bytes != self.packet.len() {
            self.packet = self.head;
        }
        next
    }
}

const _: () = assert!(MAX_REGISTERS * 16 < i32::MAX as usize);
