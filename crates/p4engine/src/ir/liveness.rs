// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Liveness analysis: the registers that instructions read and write, and those that are live after each.

use alloc::vec;
use alloc::vec::Vec;

use crate::ir::{ActionId, HashInput, Next, Op, Pc, Program, Reg, Table};

/// A set of registers. Registers beyond 127, which programs hardly use, are not tracked.
pub type Registers = u128;

pub fn register(register: Reg) -> Registers {
    1_u128.checked_shl(register.into()).unwrap_or(0)
}

/// Instructions that can follow an instruction.
pub fn successors(program: &Program, pc: Pc) -> Vec<Pc> {
    match &program.code[pc as usize] {
        Op::End | Op::Exit | Op::Reject { .. } => Vec::new(),
        Op::Jump { to } => vec![*to],
        Op::JumpIf { to, .. } | Op::JumpUnless { to, .. } => vec![pc + 1, *to],
        Op::Select { select } => {
            let select = &program.selects[*select as usize];
            select.cases.iter().map(|case| case.next).chain(select.default).collect()
        }
        Op::Apply { table } => after_table(&program.tables[*table as usize]),
        _ => vec![pc + 1],
    }
}

/// Instructions that can follow a table and its action.
fn after_table(table: &Table) -> Vec<Pc> {
    match &table.next {
        Next::ByAction { to, none } => to.iter().copied().chain([*none]).collect(),
        Next::ByHit { hit, miss } => vec![*hit, *miss],
    }
}

/// The register that an instruction writes, if that is its only effect.
pub fn result(op: &Op) -> Option<Reg> {
    match op {
        Op::Set { to, .. }
        | Op::SetLong { to, .. }
        | Op::Load { to, .. }
        | Op::Argument { to, .. }
        | Op::Unary { to, .. }
        | Op::Binary { to, .. }
        | Op::BinaryWith { to, .. }
        | Op::Cut { to, .. }
        | Op::Move { to, .. }
        | Op::Narrow { to, .. }
        | Op::WideCompare { to, .. }
        | Op::StackLastIndex { to, .. } => Some(*to),
        _ => None,
    }
}

/// The registers that an instruction writes.
fn written(op: &Op) -> Registers {
    match op {
        Op::Lookahead { to, .. } | Op::Checksum { to, .. } => register(*to),
        Op::LoadIndexed { to, .. } | Op::ValidIndexed { to, .. } | Op::LoadLast { to, .. } => register(*to),
        other => result(other).map_or(0, register),
    }
}

/// The registers that an instruction reads. Each instruction is listed, so that a new one cannot be forgotten.
pub fn read(program: &Program, op: &Op) -> Registers {
    let hash = |hash: u16| {
        let inputs = program.hashes[hash as usize].input.iter();
        inputs.fold(0, |all, input| match input {
            HashInput::Register { register: index, .. } => all | register(*index),
            _ => all,
        })
    };
    match op {
        Op::Store { from, .. }
        | Op::Unary { from, .. }
        | Op::Move { from, .. }
        | Op::Cut { from, .. }
        | Op::Widen { from, .. } => register(*from),
        Op::BinaryWith { left, .. } => register(*left),
        Op::Binary { left, right, .. } => register(*left) | register(*right),
        Op::JumpIf { condition, .. } | Op::JumpUnless { condition, .. } | Op::Assert { condition, .. } => {
            register(*condition)
        }
        Op::LoadIndexed { index, .. }
        | Op::ValidIndexed { index, .. }
        | Op::RegisterRead { index, .. }
        | Op::WideRegisterWrite { index, .. }
        | Op::Count { index, .. }
        | Op::Execute { index, .. } => register(*index),
        Op::RegisterWrite { index, from, .. } => register(*index) | register(*from),
        Op::Verify { condition, error } => register(*condition) | register(*error),
        Op::ExtractVarbit { width, .. } | Op::ExtractNextVarbit { width, .. } => register(*width),
        Op::Advance { bits } => register(*bits),
        Op::Truncate { bytes } => register(*bytes),
        Op::Checksum { hash: of, .. } => hash(*of),
        Op::HashTo { hash: of, base, size, .. } => hash(*of) | register(*base) | register(*size),
        Op::Random { low, high, .. } => register(*low) | register(*high),
        Op::CloneIngress { session, .. } | Op::CloneEgress { session, .. } => register(*session),
        Op::Log { first, arguments, .. } => {
            (*first..first.saturating_add(*arguments)).fold(0, |all, index| all | register(index))
        }
        Op::Apply { table } => {
            let profile =
                program.tables[*table as usize].profile.and_then(|of| program.profiles.get(of as usize));
            profile.and_then(|profile| profile.selector).map_or(0, hash)
        }
        other => reads_none(other),
    }
}

fn reads_none(op: &Op) -> Registers {
    use Op::{
        AddHeader, Advance, Apply, Argument, Assert, Binary, BinaryWith, Checksum, CloneEgress, CloneIngress,
    };
    use Op::{
        Copy, CopyHeader, CopyStack, CopyUnion, CopyVarbit, Count, Cut, Digest, Emit, EmitStack, EmitUnion,
        End,
    };
    use Op::{
        Execute, ExecuteDirect, Exit, Extract, ExtractNext, ExtractNextVarbit, ExtractVarbit, HashTo, Jump,
    };
    use Op::{
        JumpIf, JumpUnless, Load, LoadIndexed, LoadLast, Log, Lookahead, MarkCopyToDrop, MarkToDrop, Move,
        Narrow, Pop, Push,
    };
    use Op::{
        Random, Recirculate, RegisterRead, RegisterWrite, Reject, RemoveHeader, Resubmit, Select, Set,
        SetLong,
    };
    use Op::{
        StackLastIndex, Store, StoreConstant, Truncate, Unary, ValidIndexed, Verify, WideArgument, WideBinary,
    };
    use Op::{WideCompare, WideLoad, WideLookahead, WideRegisterWrite, WideSet, WideStore, WideUnary, Widen};
    match op {
        Set { .. }
        | SetLong { .. }
        | Load { .. }
        | StoreConstant { .. }
        | Argument { .. }
        | WideSet { .. } => 0,
        WideLoad { .. } | WideStore { .. } | WideArgument { .. } | WideUnary { .. } | WideBinary { .. } => 0,
        WideCompare { .. } | Narrow { .. } | Copy { .. } | AddHeader { .. } | RemoveHeader { .. } => 0,
        CopyHeader { .. }
        | CopyStack { .. }
        | CopyUnion { .. }
        | CopyVarbit { .. }
        | Push { .. }
        | Pop { .. } => 0,
        LoadLast { .. } | StackLastIndex { .. } | Jump { .. } | Select { .. } | End | Exit => 0,
        Reject { .. } | Extract { .. } | ExtractNext { .. } | Lookahead { .. } | WideLookahead { .. } => 0,
        Emit { .. } | EmitStack { .. } | EmitUnion { .. } | ExecuteDirect { .. } | Digest { .. } => 0,
        Resubmit { .. } | Recirculate { .. } | MarkToDrop | MarkCopyToDrop { .. } | Op::None => 0,
        // Listed in `read`.
        Store { .. } | Unary { .. } | Move { .. } | Cut { .. } | Widen { .. } | BinaryWith { .. } => {
            Registers::MAX
        }
        Binary { .. } | JumpIf { .. } | JumpUnless { .. } | Assert { .. } | LoadIndexed { .. } => {
            Registers::MAX
        }
        ValidIndexed { .. } | RegisterRead { .. } | WideRegisterWrite { .. } | Count { .. } => Registers::MAX,
        Execute { .. } | RegisterWrite { .. } | Verify { .. } | ExtractVarbit { .. } => Registers::MAX,
        ExtractNextVarbit { .. } | Advance { .. } | Truncate { .. } | Checksum { .. } => Registers::MAX,
        Apply { .. }
        | HashTo { .. }
        | Random { .. }
        | CloneIngress { .. }
        | CloneEgress { .. }
        | Log { .. } => Registers::MAX,
    }
}

/// The registers that are live after each instruction. An action may return to any table, and a block may end at any
/// instruction and leave the registers to the next one.
pub fn live_after(program: &Program) -> Vec<Registers> {
    let count = program.code.len();
    let returns: Vec<Pc> = program.tables.iter().flat_map(after_table).collect();
    let begin = |action: &ActionId| program.actions[*action as usize].begin;
    let (mut before, mut after): (Vec<Registers>, Vec<Registers>) = (vec![0; count], vec![0; count]);
    let union = |before: &[Registers], of: &[Pc]| {
        of.iter().filter_map(|pc| before.get(*pc as usize)).fold(0, |all, live| all | live)
    };
    // Iterate backwards to the fixed point: one pass, and one for each level of nested loops.
    loop {
        let mut changed = false;
        let (at_entry, at_return) = (union(&before, &program.entry.blocks()), union(&before, &returns));
        for pc in (0..count).rev() {
            let op = &program.code[pc];
            let mut live = at_entry | union(&before, &successors(program, pc as Pc));
            match op {
                Op::End => live |= at_return,
                Op::Apply { table } => {
                    let actions: Vec<Pc> =
                        program.tables[*table as usize].actions.iter().map(begin).collect();
                    live |= union(&before, &actions);
                }
                _ => {}
            }
            after[pc] = live;
            let live = read(program, op) | (after[pc] & !written(op));
            changed |= live != before[pc];
            before[pc] = live;
        }
        if !changed {
            return after;
        }
    }
}
