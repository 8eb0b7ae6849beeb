// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! The interpreter's loop.
//!
//! `Program::check` checks every index before a program runs. An invalid index would have no effect or read zero.

use core::mem::offset_of;

use crate::arith::{bits, number};
use crate::exec::context::Context;
use crate::exec::packet::{Arrival, Instance, Shell};
use crate::exec::state::{State, EGRESS, INGRESS, LOOP_LIMIT};
use crate::ir::{Op, Pc};
use crate::lower::instructions::Instruction;
use crate::lower::Code;
use crate::native::Frame;

/// The program counter that ends a block.
pub(crate) const HALT: Pc = Pc::MAX;

/// Limit on the backward jumps of a parser, or of a control's actions.
pub(crate) const MAX_BACKWARD_JUMPS: u32 = 1 << 16;

/// The execution of a program's blocks for one packet.
pub(crate) struct Interpreter<'a, S> {
    pub code: &'a Code,
    pub state: &'a mut State,
    pub context: &'a mut Context,
    /// The packet, up to a checksum that it does not have yet.
    pub packet: &'a [u8],
    /// All bytes that the shell passed.
    pub head: &'a [u8],
    pub shell: &'a mut S,
    pub frame: Frame,
    /// The error that ended the parser.
    pub error: Option<u32>,
    pub parsing: bool,
    /// Whether the shell was asked for more of the packet.
    pub is_extended: bool,
}

/// The return of the running action, and the drop reasons of its `mark_to_drop`.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Return {
    /// The instruction to which the running action returns.
    pub pc: Pc,
    /// The drop reason at this point.
    pub reason: u32,
    /// The drop reason outside of actions.
    control_reason: u32,
}

/// Offsets in `Return`.
pub(crate) const RETURN_PC: i32 = offset_of!(Return, pc) as i32;
pub(crate) const RETURN_REASON: i32 = offset_of!(Return, reason) as i32;
pub(crate) const RETURN_CONTROL_REASON: i32 = offset_of!(Return, control_reason) as i32;

/// A mask of the lowest 1 to 127 bits.
#[inline(always)]
pub(crate) fn low_bits(bits: u16) -> i128 {
    i128::MAX >> (127u16.wrapping_sub(bits) & 127)
}

/// Whether the block continues after an instruction.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    Continue,
    Stop,
}

impl<'a, S: Shell> Interpreter<'a, S> {
    pub fn new(
        code: &'a Code,
        state: &'a mut State,
        context: &'a mut Context,
        packet: &'a [u8],
        shell: &'a mut S,
    ) -> Interpreter<'a, S> {
        let frame = Frame::new(code, state, context, packet);
        Interpreter {
            code,
            state,
            context,
            packet,
            head: packet,
            shell,
            frame,
            error: None,
            parsing: false,
            is_extended: false,
        }
    }

    /// Sets the metadata of a packet's arrival, and runs the parser and the verification of checksums.
    pub fn parse(&mut self, arrival: &Arrival) {
        let standard = self.code.standard;
        if let Some(visible) = arrival.checksum.and_then(|at| self.head.get(..at as usize)) {
            self.packet = visible;
            self.frame.show_packet(visible.len());
        }
        let error = self.run_parser(arrival);
        self.context.put(standard.checksum_error, 0);
        self.run(self.code.entry.verify, INGRESS);
        let totals = &mut self.state.totals;
        totals.parser_errors = totals.parser_errors.wrapping_add(error.is_some().into());
        self.context.put(standard.parser_error, error.unwrap_or(self.code.errors.none).into());
        let failed = self.context.get(standard.checksum_error) != 0;
        totals.checksum_errors = totals.checksum_errors.wrapping_add(failed.into());
    }

    /// Runs the parser and returns the error that ended it.
    fn run_parser(&mut self, arrival: &Arrival) -> Option<u32> {
        let (length, instance) = (u64::from(arrival.length), arrival.instance as u64);
        let (preludes, standard, parser) = (self.code.preludes, self.code.standard, self.code.entry.parser);
        self.parsing = true;
        if arrival.instance == Instance::Normal {
            self.state.set_arguments([length, instance, arrival.port.into(), arrival.now_us]);
            self.run_both(preludes.parser, parser, 0);
        } else {
            self.context.put(standard.packet_length, length);
            self.context.put(standard.instance_type, instance);
            // The parser of a clone can read the port. Egress can read it only if it is preserved.
            if arrival.instance == Instance::IngressClone {
                self.context.put(standard.ingress_port, arrival.port.into());
            }
            self.run(parser, 0);
        }
        self.parsing = false;
        self.error.take()
    }

    /// Runs the update of checksums and the deparser.
    pub fn deparse(&mut self) {
        let (code, reason) = (self.code, EGRESS);
        if code.update_precedes_deparser {
            self.run_both(code.entry.update, code.entry.deparser, reason);
        } else {
            self.run(code.entry.update, reason);
            self.run(code.entry.deparser, reason);
        }
    }

    /// The target of a jump, or `HALT` if there were too many backward jumps.
    #[inline(always)]
    pub fn jump(&mut self, from: Pc, to: Pc) -> Pc {
        if to < from {
            self.frame.backward_jumps_left = self.frame.backward_jumps_left.saturating_sub(1);
            if self.frame.backward_jumps_left == 0 {
                return self.exceed_loop_limit();
            }
        }
        to
    }

    #[cold]
    fn exceed_loop_limit(&mut self) -> Pc {
        if self.parsing {
            self.error = Some(self.code.errors.parser_timeout);
        } else {
            self.mark_to_drop(LOOP_LIMIT);
        }
        HALT
    }

    /// Runs a block from `begin` to its end. `reason` is the drop reason outside of tables.
    pub fn run(&mut self, begin: Pc, reason: u32) {
        self.run_both(begin, HALT, reason);
    }

    /// Runs two blocks. The first one has neither tables nor `Op::Exit`.
    ///
    /// This loop has the most frequent instructions, so that one indirect jump dispatches each.
    pub fn run_both(&mut self, begin: Pc, second: Pc, reason: u32) {
        self.frame.returning = Return { pc: second, reason, control_reason: reason };
        self.frame.backward_jumps_left = MAX_BACKWARD_JUMPS;
        let code = self.code;
        let mut pc = begin;
        loop {
            pc = self.run_native(pc);
            let Some(instruction) = code.instructions.get(pc as usize) else { break };
            pc += 1;
            pc = self.step(*instruction, pc);
        }
    }

    /// Runs one instruction and returns the next one.
    #[inline(always)]
    fn step(&mut self, instruction: Instruction, pc: Pc) -> Pc {
        use Instruction::*;
        match instruction {
            LoadByte { to, at } => self.fetch(to, at, bits::byte),
            LoadShort { to, at } => self.fetch(to, at, bits::short),
            LoadWord { to, at } => self.fetch(to, at, bits::word),
            LoadLong { to, at } => self.fetch(to, at, bits::long),
            LoadBits { to, place } => self.load(to, place.load(&self.context.phv)),
            StoreByte { at, from } => self.put(at, from, bits::put_byte),
            StoreShort { at, from } => self.put(at, from, bits::put_short),
            StoreWord { at, from } => self.put(at, from, bits::put_word),
            StoreLong { at, from } => self.put(at, from, bits::put_long),
            StoreBits { place, from } => self.store_into(place, from),
            CopyByte { to, from } => self.copy(to, from, bits::byte, bits::put_byte),
            CopyShort { to, from } => self.copy(to, from, bits::short, bits::put_short),
            CopyWord { to, from } => self.copy(to, from, bits::word, bits::put_word),
            CopyLong { to, from } => self.copy(to, from, bits::long, bits::put_long),
            Set { to, value } => self.set(to, i128::from(value)),
            Move { to, from } => self.set(to, self.number(from)),
            Add { to, left, right } => self.binary(to, left, right, i128::wrapping_add),
            Subtract { to, left, right } => self.binary(to, left, right, i128::wrapping_sub),
            And { to, left, right } => self.binary(to, left, right, |left, right| left & right),
            Invert { to, from } => self.unary(to, from, |from| !from),
            AddWith { to, left, value } => self.unary(to, left, |left| left.wrapping_add(value.into())),
            AndWith { to, left, value } => self.unary(to, left, |left| left & i128::from(value)),
            ShiftLeftWith { to, left, bits } => self.unary(to, left, |left| left << (bits & 127)),
            ShiftRightWith { to, left, bits } => self.unary(to, left, |left| left >> (bits & 127)),
            Cut { to, from, bits } => self.unary(to, from, |from| from & low_bits(bits)),
            Jump { to } => return self.jump(pc, to),
            JumpIf { condition, to } => return self.jump_when(self.number(condition) != 0, pc, to),
            JumpUnless { condition, to } => return self.jump_when(self.number(condition) == 0, pc, to),
            JumpByte { when, to, field, jump } => return self.jump_byte(pc, when, (to, field), jump),
            JumpCompareByte { comparison, to, field, value, jump } => {
                return self.jump_compare_byte(pc, (comparison, to), field, value, jump);
            }
            JumpCompareWith { comparison, to, left, value, jump } => {
                return self.jump_compare(pc, (comparison, to), left, value.into(), jump);
            }
            JumpCompare { comparison, to, left, right, jump } => {
                return self.jump_compare(pc, (comparison, to), left, self.number(right), jump);
            }
            StoreConstants { count, first } => return self.store_constants(pc, first, count),
            StoreArguments { count, to, first } => return self.store_arguments(pc, to, first, count),
            LoadLongs { first, second } => return self.load_longs(pc, first, second),
            Transfer { to, from, into } => return self.transfer(pc, to, from, into),
            AddStore { to, left, right, into } => return self.add_store(pc, to, (left, right), into),
            InvertStore { to, from, into } => return self.invert_store(pc, to, from, into),
            AddByte { to, at, value } => return self.add_byte(pc, to, at, value),
            EmitEach { first, count } => return self.emit_each(pc, first, count),
            End => return self.end(),
            instruction => return self.run_other(instruction, pc),
        }
        pc
    }

    /// Runs one of the other instructions and returns the next one.
    #[inline]
    fn run_other(&mut self, instruction: Instruction, pc: Pc) -> Pc {
        use Instruction::*;
        match instruction {
            LoadSigned { to, place } => self.set(to, self.signed(place)),
            Argument { to, argument } => self.load(to, self.argument(argument)),
            Multiply { to, left, right } => self.binary(to, left, right, i128::wrapping_mul),
            Or { to, left, right } => self.binary(to, left, right, |left, right| left | right),
            Compare { comparison, to, left, right } => {
                self.binary(to, left, right, |left, right| comparison.is_true(left, right).into());
            }
            CompareWith { comparison, to, left, value } => {
                self.unary(to, left, |left| comparison.is_true(left, value.into()).into());
            }
            Binary { op, to, left, right } => {
                self.binary(to, left, right, |left, right| number::binary(op, left, right));
            }
            BinaryWith { op, to, left, value } => {
                self.unary(to, left, |left| number::binary(op, left, value.into()));
            }
            Unary { op, to, from } => self.unary(to, from, |from| number::unary(op, from)),
            StoreConstant { place, value } => place.store(&mut self.context.phv, value),
            Lookahead { to, at, width } => return self.lookahead(pc, to, at, width),
            CopyBytes { to, from, bytes } => self.copy_bytes(to, from, bytes),
            Count { counter, index } => self.count(counter, index),
            RegisterRead { to, array, index } => self.register_read(to, array, index),
            RegisterWrite { array, index, from } => self.register_write(array, index, from),
            Checksum { to, hash } => {
                let value = self.hash(hash);
                self.load(to, value);
            }
            Select { select } => return self.select(pc, select),
            Apply { table } => return self.apply(table),
            Emit { header } => self.emit(header),
            Extract { header } if self.extract(header, 0) == Flow::Stop => return HALT,
            Verify { condition, error } if self.number(condition) == 0 => {
                self.error = Some(self.number(error) as u32);
                return HALT;
            }
            Guarded { instruction } => return self.run_guarded(instruction, pc),
            Rare { op } if self.run_rare(op) == Flow::Stop => return HALT,
            _ => {}
        }
        pc
    }

    /// Returns from an action to its control, or ends the block.
    #[inline(always)]
    fn end(&mut self) -> Pc {
        let returning = &mut self.frame.returning;
        returning.reason = returning.control_reason;
        core::mem::replace(&mut returning.pc, HALT)
    }

    #[inline(always)]
    pub(super) fn jump_when(&mut self, taken: bool, next: Pc, jump: Pc) -> Pc {
        if taken {
            self.jump(next, jump)
        } else {
            next
        }
    }

    /// Completes the checksum that the packet's sender left to its device, and runs an instruction that accesses it.
    #[inline(never)]
    fn run_guarded(&mut self, instruction: u32, pc: Pc) -> Pc {
        let Some(instruction) = self.code.guarded.get(instruction as usize).copied() else { return HALT };
        self.complete_checksum();
        self.step(instruction, pc)
    }

    pub(super) fn complete_checksum(&mut self) {
        if self.context.defers_checksum() {
            let checksum = self.shell.checksum();
            self.context.complete_checksum(checksum);
        }
    }

    #[inline(never)]
    fn run_rare(&mut self, op: u32) -> Flow {
        let Some(op) = self.code.rare.get(op as usize).copied() else { return Flow::Stop };
        match op {
            Op::Exit => return Flow::Stop,
            Op::Reject { .. }
            | Op::ExtractNext { .. }
            | Op::ExtractVarbit { .. }
            | Op::ExtractNextVarbit { .. }
            | Op::WideLookahead { .. }
            | Op::LoadLast { .. }
            | Op::Advance { .. } => return self.run_parser_op(op),
            Op::StoreConstant { .. }
            | Op::SetLong { .. }
            | Op::WideSet { .. }
            | Op::WideLoad { .. }
            | Op::WideStore { .. }
            | Op::WideArgument { .. }
            | Op::WideUnary { .. }
            | Op::WideBinary { .. }
            | Op::WideCompare { .. }
            | Op::Widen { .. }
            | Op::Narrow { .. }
            | Op::Copy { .. } => self.run_wide_op(op),
            Op::AddHeader { .. }
            | Op::RemoveHeader { .. }
            | Op::CopyHeader { .. }
            | Op::CopyStack { .. }
            | Op::CopyUnion { .. }
            | Op::CopyVarbit { .. }
            | Op::Push { .. }
            | Op::Pop { .. }
            | Op::LoadIndexed { .. }
            | Op::ValidIndexed { .. }
            | Op::StackLastIndex { .. }
            | Op::EmitStack { .. }
            | Op::EmitUnion { .. } => self.run_header_op(op),
            other => self.run_extern_op(other),
        }
        Flow::Continue
    }
}
