// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Translation of a program as a whole, and of jumps.
//!
//! RAX and RDX have a number of the program, its lower and its upper half; RCX and RSI a second one.

use alloc::vec::Vec;

use crate::arith::bits::Window;
use crate::exec::context::NOT_DEFERRED;
use crate::exec::interpreter::HALT;
use crate::exec::state::State;
use crate::ir::liveness::{live_after, register, successors, Registers};
use crate::ir::{Op, Pc, Program, Reg, MAX_REGISTERS};
use crate::lower::fused::Emission;
use crate::lower::instructions::Instruction;
use crate::lower::Code;
use crate::native::assembler::{
    Alu, Assembler, Condition, Label, Memory, Shift, FRAME, NUMBERS, PACKET, PHV, RAX, RCX, RDI, RDX, RSI,
};
use crate::native::{
    FRAME_ARGUMENTS, FRAME_CODE, FRAME_CONTROL_REASON, FRAME_DEFERRED, FRAME_NUMBERS, FRAME_OFFSETS,
    FRAME_PACKET, FRAME_PHV, FRAME_RETURN_PC, FRAME_RETURN_REASON,
};

/// Translates a program to machine code. Returns it and the offset of each instruction's code.
pub(super) fn translate(
    program: &Program,
    code: &Code,
    phv_bytes: usize,
    state: &State,
) -> (Vec<u8>, Vec<u32>) {
    let mut translator = Translator {
        code,
        state,
        asm: Assembler::default(),
        phv_bytes,
        live: Registers::MAX,
        falls_through: false,
    };
    translator.begin();
    let (live_after, targets) = (live_after(program), targets(program));
    let (mut offsets, mut inside, mut sequence_end) = (Vec::new(), Vec::new(), 0);
    for (pc, instruction) in code.instructions.iter().enumerate() {
        offsets.push(translator.asm.offset());
        if pc < sequence_end {
            inside.push(pc);
            continue;
        }
        let mark = translator.asm.mark();
        let end = pc + instruction.operations();
        translator.live = live_after.get(end - 1).copied().unwrap_or(Registers::MAX);
        let is_entered = targets.get(pc + 1..end).is_none_or(|inside| inside.contains(&true));
        translator.falls_through = !is_entered && !matches!(instruction, Instruction::EmitEach { .. });
        if translator.translate(pc as Pc, *instruction).is_none() {
            translator.asm.rewind(mark);
            translator.asm.exit(pc as Pc);
        } else if translator.falls_through {
            sequence_end = end;
        }
    }
    let end = translator.asm.offset();
    translator.asm.exit(code.instructions.len() as Pc);
    // Nothing jumps into these fused instructions.
    for pc in inside {
        offsets[pc] = translator.asm.offset();
        translator.asm.exit(pc as Pc);
    }
    offsets.push(end);
    (translator.asm.finish(&offsets), offsets)
}

/// Whether another instruction than the one before continues at an instruction.
fn targets(program: &Program) -> Vec<bool> {
    let mut targets = alloc::vec![false; program.code.len()];
    let next = (0..program.code.len() as Pc).flat_map(|pc| {
        let mut next = successors(program, pc);
        next.retain(|next| *next != pc + 1);
        next
    });
    let actions = program.actions.iter().map(|action| action.begin);
    for target in next.chain(actions).chain(program.entry.blocks()) {
        if let Some(is_target) = targets.get_mut(target as usize) {
            *is_target = true;
        }
    }
    targets
}

pub(super) struct Translator<'a> {
    pub code: &'a Code,
    pub state: &'a State,
    pub asm: Assembler,
    pub phv_bytes: usize,
    /// The program's registers that are live after the instruction. The others are not written.
    live: Registers,
    /// Whether the code after a fused instruction follows it.
    falls_through: bool,
}

/// The lower half of a register of the program. The upper half follows.
pub(super) fn number(register: Reg) -> Memory {
    Memory::new(NUMBERS, (usize::from(register) % MAX_REGISTERS * 16) as i32)
}

/// The bytes of a window that a register holds.
pub(super) fn window_bytes(window: Window) -> Option<usize> {
    (window != Window::Double).then_some(window.bits() as usize / 8)
}

impl<'a> Translator<'a> {
    /// Encodes the function that enters an instruction's code.
    fn begin(&mut self) {
        let asm = &mut self.asm;
        asm.copy(FRAME, RDI);
        for (register, at) in [(PHV, FRAME_PHV), (NUMBERS, FRAME_NUMBERS), (PACKET, FRAME_PACKET)] {
            asm.load64(register, Memory::new(FRAME, at));
        }
        asm.jump_to_register(RSI);
    }

    /// The target of a jump that `next` follows. The interpreter runs jumps past the end, which only unreachable
    /// instructions have.
    pub fn target(&self, pc: Pc, next: Pc, to: Pc) -> Label {
        if to as usize > self.code.instructions.len() {
            Label::Exit(pc)
        } else if to < next {
            Label::Backward(pc, to)
        } else {
            Label::Instruction(to)
        }
    }

    /// Whether a register of the program may be read later. Registers beyond 127 are not tracked.
    pub(super) fn is_live(&self, of: Reg) -> bool {
        register(of) == 0 || self.live & register(of) != 0
    }

    /// Continues after a fused instruction.
    pub(super) fn proceed(&mut self, next: Pc) {
        if !self.falls_through {
            self.asm.jump(Label::Instruction(next));
        }
    }

    /// Stores RAX as an unsigned number.
    pub(super) fn set_unsigned(&mut self, to: Reg) {
        if self.is_live(to) {
            self.asm.store64(number(to), RAX);
            self.asm.store_constant(number(to).plus(8), 0);
        }
    }

    pub(super) fn get(&mut self, from: Reg) {
        self.asm.load64(RAX, number(from));
        self.asm.load64(RDX, number(from).plus(8));
    }

    pub(super) fn put(&mut self, to: Reg) {
        if self.is_live(to) {
            self.asm.store64(number(to), RAX);
            self.asm.store64(number(to).plus(8), RDX);
        }
    }

    /// Loads the second number.
    pub(super) fn get_second(&mut self, from: Reg) {
        self.asm.load64(RCX, number(from));
        self.asm.load64(RSI, number(from).plus(8));
    }

    pub(super) fn set_second(&mut self, value: i64) {
        self.asm.set(RCX, value as u64);
        self.asm.set(RSI, if value < 0 { u64::MAX } else { 0 });
    }

    /// Applies an operation to the halves of both numbers.
    pub(super) fn binary(&mut self, lower: Alu, upper: Alu) {
        self.asm.alu(lower, RAX, RCX);
        self.asm.alu(upper, RDX, RSI);
    }

    pub(super) fn load_argument(&mut self, argument: u16) -> Option<()> {
        if usize::from(argument) >= self.state.arguments.len() {
            return None;
        }
        self.asm.load64(RDI, Memory::new(FRAME, FRAME_ARGUMENTS));
        self.asm.load64(RAX, Memory::new(RDI, i32::from(argument) * 8));
        Some(())
    }

    /// Translates one instruction. Returns None if the interpreter runs it.
    fn translate(&mut self, pc: Pc, instruction: Instruction) -> Option<()> {
        use Instruction::*;
        let next = pc + 1;
        match instruction {
            Jump { to } => self.asm.jump(self.target(pc, next, to)),
            JumpIf { condition, to } => {
                self.test_number(condition);
                self.asm.jump_if(Condition::NotEqual, self.target(pc, next, to));
            }
            JumpUnless { condition, to } => {
                self.test_number(condition);
                self.asm.jump_if(Condition::Equal, self.target(pc, next, to));
            }
            Verify { condition, .. } => {
                self.test_number(condition);
                self.asm.jump_if(Condition::Equal, Label::Exit(pc));
            }
            End => self.end(),
            Guarded { instruction } => self.guarded(pc, instruction)?,
            Apply { table } => self.apply(pc, table)?,
            Rare { op } => self.rare(op)?,
            Count { counter, index } => self.count(counter, index)?,
            RegisterRead { to, array, index } => self.register_read(to, array, index)?,
            RegisterWrite { array, index, from } => self.register_write(array, index, from)?,
            Checksum { to, hash } => self.checksum(to, hash)?,
            Extract { header } => self.extract(pc, header)?,
            Select { select } => self.select(pc, select)?,
            Lookahead { to, at, width } => {
                self.look_ahead(pc, at, width)?;
                self.set_unsigned(to);
            }
            Emit { header } => {
                let header = Emission::new(header, self.code.headers.get(usize::from(header))?)?;
                self.emit(pc, &header)?;
            }
            EmitEach { first, count } => self.emit_each(pc, first, count)?,
            StoreArguments { .. } | StoreConstants { .. } | LoadLongs { .. } => {
                self.sequence(pc, instruction)?
            }
            Transfer { .. } | AddStore { .. } | InvertStore { .. } | AddByte { .. } => {
                self.fused(pc, instruction)?
            }
            JumpByte { .. } | JumpCompareByte { .. } | JumpCompareWith { .. } | JumpCompare { .. } => {
                self.fused_jump(pc, instruction)?;
            }
            other => self.access(other).or_else(|| self.arithmetic(pc, other))?,
        }
        Some(())
    }

    fn rare(&mut self, op: u32) -> Option<()> {
        let code = self.code;
        match *code.rare.get(op as usize)? {
            Op::SetLong { to, constant } => {
                let bytes = code.constants.get(usize::from(constant))?;
                let value = bytes.iter().fold(0u128, |value, byte| value << 8 | u128::from(*byte));
                self.asm.set(RAX, value as u64);
                self.asm.set(RDX, (value >> 64) as u64);
                self.put(to);
            }
            Op::HashTo { field, hash, base, size } => self.hash_to(field, hash, base, size)?,
            Op::Copy { to, from } if code.field(to).width <= 64 => {
                self.load(code.place(from), PHV)?;
                self.store(code.place(to))?;
            }
            op => self.wide(op)?,
        }
        Some(())
    }

    /// Runs an instruction unless a checksum is deferred.
    fn guarded(&mut self, pc: Pc, instruction: u32) -> Option<()> {
        let instruction = *self.code.guarded.get(instruction as usize)?;
        self.asm.load64(RAX, Memory::new(FRAME, FRAME_DEFERRED));
        self.asm.load32(RAX, Memory::new(RAX, 0));
        self.asm.set(RCX, NOT_DEFERRED.into());
        self.asm.alu(Alu::Compare, RAX, RCX);
        self.asm.jump_if(Condition::NotEqual, Label::Exit(pc));
        self.translate(pc, instruction)
    }

    /// Returns from an action to its control, or to the interpreter at the end of a block.
    fn end(&mut self) {
        let asm = &mut self.asm;
        asm.load32(RAX, Memory::new(FRAME, FRAME_RETURN_PC));
        asm.load32(RCX, Memory::new(FRAME, FRAME_CONTROL_REASON));
        asm.store32(Memory::new(FRAME, FRAME_RETURN_REASON), RCX);
        asm.set(RCX, HALT.into());
        asm.store32(Memory::new(FRAME, FRAME_RETURN_PC), RCX);
        // HALT, too, is past the end.
        let inside = asm.local();
        asm.alu_constant(Alu::Compare, RAX, self.code.instructions.len() as i32);
        asm.jump_if(Condition::Below, inside);
        asm.ret();
        asm.bind(inside);
        asm.shift(Shift::Left, RAX, 2);
        asm.alu_memory(Alu::Add, RAX, Memory::new(FRAME, FRAME_OFFSETS));
        asm.load32(RAX, Memory::new(RAX, 0));
        asm.alu_memory(Alu::Add, RAX, Memory::new(FRAME, FRAME_CODE));
        asm.jump_to_register(RAX);
    }
}
