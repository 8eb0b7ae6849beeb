// SPDX-License-Identifier: Apache-2.0
//! Optimizations of compiled code. p4c stores much in temporary variables that are read once or never.

use std::collections::HashMap;

use num_bigint::{BigInt, Sign};
use num_traits::ToPrimitive;
use qbed_p4engine::program::liveness::{live_after, register, result, successors};
use qbed_p4engine::program::{
    Binary, FieldId, HashInput, HeaderId, Next, Op, Pc, Program, Reg, SelectKey, Standard,
};

use super::expression::is_comparison;
use super::number;

/// Limit on passes over the code: each finds instructions that the previous pass made unnecessary.
const MAX_PASSES: usize = 6;

pub fn optimize(program: &mut Program) {
    clear_unused_actions(program);
    for _ in 0..MAX_PASSES {
        thread_jumps(program);
        let targets = targets(program);
        let mut needed = reachable(program);
        forward_loads(program, &targets, &mut needed);
        use_constants(program, &targets, &needed);
        drop_dead_stores(program, &mut needed);
        drop_dead_values(program, &mut needed);
        drop_jumps_to_next(program, &mut needed);
        if needed.iter().all(|needed| *needed) {
            break;
        }
        compact(program, &needed);
    }
    drop_unread_standard_fields(program);
}

/// Empty the actions of tables that no control applies: the control has their code inline.
fn clear_unused_actions(program: &mut Program) {
    let mut runs = vec![false; program.actions.len()];
    for op in &program.code {
        if let Op::Apply { table } = op {
            program.tables[*table as usize].actions.iter().for_each(|action| runs[*action as usize] = true);
        }
    }
    let Some(end) = program.code.iter().position(|op| matches!(op, Op::End)) else { return };
    for (action, runs) in program.actions.iter_mut().zip(runs) {
        if !runs {
            action.begin = end as Pc;
        }
    }
}

/// Visit all references to an instruction.
fn each_target(program: &mut Program, mut change: impl FnMut(&mut Pc)) {
    for op in &mut program.code {
        if let Op::Jump { to } | Op::JumpIf { to, .. } | Op::JumpUnless { to, .. } = op {
            change(to);
        }
    }
    for select in &mut program.selects {
        select.cases.iter_mut().for_each(|case| change(&mut case.next));
        select.default.iter_mut().for_each(&mut change);
    }
    for table in &mut program.tables {
        match &mut table.next {
            Next::ByAction { to, none } => to.iter_mut().chain([none]).for_each(&mut change),
            Next::ByHit { hit, miss } => [hit, miss].into_iter().for_each(&mut change),
        }
    }
    program.actions.iter_mut().for_each(|action| change(&mut action.begin));
    let entry = &mut program.entry;
    let parts = [&mut entry.parser, &mut entry.verify, &mut entry.ingress, &mut entry.egress];
    parts.into_iter().chain([&mut entry.update, &mut entry.deparser]).for_each(change);
}

/// Replace jumps to jumps by jumps to the final target.
fn thread_jumps(program: &mut Program) {
    let code = program.code.clone();
    each_target(program, |target| {
        // Bounded, because jumps can form a loop.
        for _ in 0..8 {
            match code.get(*target as usize) {
                Some(Op::Jump { to }) => *target = *to,
                _ => return,
            }
        }
    });
}

fn targets(program: &mut Program) -> Vec<bool> {
    let mut targets = vec![false; program.code.len()];
    each_target(program, |target| targets[*target as usize] = true);
    targets
}

/// Whether each instruction can be reached.
fn reachable(program: &Program) -> Vec<bool> {
    let entry = program.entry;
    let mut open =
        vec![entry.parser, entry.verify, entry.ingress, entry.egress, entry.update, entry.deparser];
    open.extend(program.actions.iter().map(|action| action.begin));
    let mut reached = vec![false; program.code.len()];
    while let Some(pc) = open.pop() {
        let pc = pc as usize;
        if std::mem::replace(&mut reached[pc], true) {
            continue;
        }
        open.extend(successors(program, pc as Pc));
    }
    reached
}

/// Replace a load directly after a store to the same field by the register, unless the store truncated the value.
fn forward_loads(program: &mut Program, targets: &[bool], needed: &mut [bool]) {
    let mut bits: HashMap<Reg, u32> = HashMap::new();
    let mut stored: Option<(FieldId, Reg)> = None;
    for pc in 0..program.code.len() {
        if !needed[pc] {
            continue;
        }
        if targets[pc] {
            bits.clear();
            stored = None;
        }
        let before = stored.take();
        match program.code[pc] {
            Op::Store { field, from } => {
                let target = &program.fields[field as usize];
                let fits = bits.get(&from).is_some_and(|bits| *bits <= target.width);
                stored = (fits && !target.signed).then_some((field, from));
            }
            Op::Load { to, field } if before.is_some_and(|(loaded, _)| loaded == field) => {
                let from = before.map_or(to, |(_, from)| from);
                if from == to {
                    needed[pc] = false;
                } else {
                    program.code[pc] = Op::Move { to, from };
                }
                let known = bits.get(&from).copied();
                set_known_bits(&mut bits, to, known);
            }
            op => match result(&op) {
                Some(to) => {
                    let known = bits_of(program, &op, &bits);
                    set_known_bits(&mut bits, to, known);
                }
                None if writes_no_register(&op) => {}
                None => bits.clear(),
            },
        }
    }
}

fn set_known_bits(bits: &mut HashMap<Reg, u32>, register: Reg, known: Option<u32>) {
    match known {
        Some(known) => bits.insert(register, known),
        None => bits.remove(&register),
    };
}

/// The number of bits of an instruction's result, if it is known and never negative.
fn bits_of(program: &Program, op: &Op, bits: &HashMap<Reg, u32>) -> Option<u32> {
    let of = |register: &Reg| bits.get(register).copied();
    match op {
        Op::Set { value, .. } => u64::try_from(*value).ok().map(|value| number::bits(&BigInt::from(value))),
        Op::Load { field, .. } => {
            let field = &program.fields[*field as usize];
            (!field.signed).then_some(field.width)
        }
        Op::Lookahead { width, .. } => Some(*width),
        Op::Move { from, .. } => of(from),
        Op::Unary { op: qbed_p4engine::program::Unary::Not, .. } => Some(1),
        Op::Binary { op, .. } if is_comparison(*op) => Some(1),
        Op::Binary { op: Binary::And, left, right, .. } => match (of(left), of(right)) {
            (Some(left), Some(right)) => Some(left.min(right)),
            (left, right) => left.or(right),
        },
        Op::Binary { op: Binary::Or | Binary::Xor, left, right, .. } => Some(of(left)?.max(of(right)?)),
        Op::Binary { op: Binary::Add, left, right, .. } => Some(of(left)?.max(of(right)?) + 1),
        Op::Binary { op: Binary::ShiftRight, left, .. } => of(left),
        Op::BinaryWith { op: Binary::ShiftRight | Binary::Remainder, left, .. } => of(left),
        Op::BinaryWith { op, .. } if is_comparison(*op) => Some(1),
        Op::BinaryWith { op: Binary::And, value, .. } => {
            u64::try_from(*value).ok().map(|value| 64 - value.leading_zeros())
        }
        Op::BinaryWith { op: Binary::Add, left, value, .. } => {
            let value = u64::try_from(*value).ok()?;
            Some(of(left)?.max(64 - value.leading_zeros()) + 1)
        }
        Op::Cut { from, bits: cut, .. } => Some(of(from).unwrap_or(u32::MAX).min(u32::from(*cut))),
        _ => None,
    }
}

/// Use immediate operands where the right operand is a constant.
fn use_constants(program: &mut Program, targets: &[bool], needed: &[bool]) {
    let mut known: HashMap<Reg, BigInt> = HashMap::new();
    for pc in 0..program.code.len() {
        if !needed[pc] {
            continue;
        }
        if targets[pc] {
            known.clear();
        }
        program.code[pc] = with_constants(program.code[pc], &known);
        let value = match program.code[pc] {
            Op::Set { value, .. } => Some(BigInt::from(value)),
            Op::SetLong { constant, .. } => {
                Some(BigInt::from_bytes_be(Sign::Plus, &program.constants[constant as usize]))
            }
            _ => None,
        };
        match (result(&program.code[pc]), value) {
            (Some(to), Some(value)) => {
                known.insert(to, value);
            }
            (Some(to), None) => {
                known.remove(&to);
            }
            (None, _) if writes_no_register(&program.code[pc]) => {}
            (None, _) => known.clear(),
        }
    }
}

fn with_constants(op: Op, known: &HashMap<Reg, BigInt>) -> Op {
    let small = |register: Reg| known.get(&register).and_then(ToPrimitive::to_i64);
    match op {
        Op::Store { field, from } => small(from).map_or(op, |value| Op::StoreConstant { field, value }),
        Op::Binary { op: of, to, left, right } => {
            let commutes =
                matches!(of, Binary::Add | Binary::Multiply | Binary::And | Binary::Or | Binary::Xor);
            let commutes = commutes || matches!(of, Binary::Equal | Binary::NotEqual);
            let (left, right) =
                if commutes && known.contains_key(&left) { (right, left) } else { (left, right) };
            let mask = known.get(&right).filter(|_| of == Binary::And).map(|mask| (mask, mask.bits() as u32));
            if let Some((_, bits)) =
                mask.filter(|(mask, bits)| (1..=127).contains(bits) && **mask == number::mask(*bits))
            {
                return Op::Cut { to, from: left, bits: bits as u16 };
            }
            small(right).map_or(op, |value| Op::BinaryWith { op: of, to, left, value })
        }
        other => other,
    }
}

/// Whether an instruction writes no register. Other instructions may also return false.
fn writes_no_register(op: &Op) -> bool {
    matches!(
        op,
        Op::Store { .. }
            | Op::StoreConstant { .. }
            | Op::Copy { .. }
            | Op::Count { .. }
            | Op::AddHeader { .. }
            | Op::RemoveHeader { .. }
    )
}

/// Remove stores to metadata fields that nothing reads.
fn drop_dead_stores(program: &Program, needed: &mut [bool]) {
    let read = read_fields(program, needed);
    for (op, needed) in program.code.iter().zip(needed) {
        if let Op::Store { field, .. }
        | Op::StoreConstant { field, .. }
        | Op::WideStore { field, .. }
        | Op::Copy { to: field, .. } = op
        {
            *needed &= read[*field as usize];
        }
    }
}

/// Remove the standard metadata that only the program could read, if it does not.
fn drop_unread_standard_fields(program: &mut Program) {
    let all = vec![true; program.code.len()];
    let standard = std::mem::take(&mut program.standard);
    let read = read_fields(program, &all);
    let of = |field: Option<FieldId>| field.filter(|field| read[*field as usize]);
    program.standard = Standard {
        ingress_port: of(standard.ingress_port),
        egress_port: of(standard.egress_port),
        instance_type: of(standard.instance_type),
        packet_length: of(standard.packet_length),
        enq_timestamp: of(standard.enq_timestamp),
        enq_qdepth: of(standard.enq_qdepth),
        deq_timedelta: of(standard.deq_timedelta),
        deq_qdepth: of(standard.deq_qdepth),
        ingress_global_timestamp: of(standard.ingress_global_timestamp),
        egress_global_timestamp: of(standard.egress_global_timestamp),
        egress_rid: of(standard.egress_rid),
        qid: of(standard.qid),
        parser_error: of(standard.parser_error),
        // The switch reads the other fields.
        ..standard
    };
}

fn read_fields(program: &Program, needed: &[bool]) -> Vec<bool> {
    let mut read = vec![false; program.fields.len()];
    let fields_of = |id: HeaderId| {
        let header = &program.headers[id as usize];
        header.first_field..header.first_field + header.fields
    };
    let mut fields: Vec<FieldId> = Vec::new();
    let hidden =
        |header: &qbed_p4engine::program::Header| [Some(header.valid), header.varbit.map(|of| of.width)];
    fields.extend(program.headers.iter().flat_map(hidden).flatten());
    fields.extend(program.stacks.iter().map(|stack| stack.next));
    fields.extend(
        (0..).zip(&program.headers).filter(|(_, header)| !header.metadata).flat_map(|(id, _)| fields_of(id)),
    );
    fields.extend(program.tables.iter().flat_map(|table| table.keys.iter().map(|key| key.field)));
    fields.extend(
        program.field_lists.iter().chain(program.digests.iter().map(|digest| &digest.fields)).flatten(),
    );
    for key in program.selects.iter().flat_map(|select| &select.keys) {
        if let SelectKey::Field(field) = key {
            fields.push(*field);
        }
    }
    for input in program.hashes.iter().flat_map(|hash| &hash.input) {
        match input {
            HashInput::Field(field) => fields.push(*field),
            HashInput::Header(header) => fields.extend(fields_of(*header)),
            _ => {}
        }
    }
    for (op, _) in program.code.iter().zip(needed).filter(|(_, needed)| **needed) {
        match op {
            Op::Load { field, .. } | Op::WideLoad { field, .. } | Op::Copy { from: field, .. } => {
                fields.push(*field)
            }
            Op::CopyHeader { to, from } | Op::CopyVarbit { to, from } => {
                fields.extend(fields_of(*to).chain(fields_of(*from)))
            }
            _ => {}
        }
    }
    fields.into_iter().for_each(|field| read[field as usize] = true);
    standard_fields(&program.standard).for_each(|field| read[field as usize] = true);
    read
}

/// Fields that the switch reads or writes.
fn standard_fields(of: &Standard) -> impl Iterator<Item = FieldId> {
    let at_ingress =
        [of.egress_spec, of.mcast_grp, of.priority, of.instance_type, of.ingress_port, of.packet_length];
    let at_egress =
        [of.egress_port, of.egress_rid, of.enq_timestamp, of.enq_qdepth, of.deq_timedelta, of.deq_qdepth];
    let others =
        [of.qid, of.parser_error, of.checksum_error, of.ingress_global_timestamp, of.egress_global_timestamp];
    at_ingress.into_iter().chain(at_egress).chain(others).flatten()
}

/// Remove computations of values that nothing reads.
fn drop_dead_values(program: &mut Program, needed: &mut [bool]) {
    // Removed instructions neither read nor write.
    for (op, _) in program.code.iter_mut().zip(needed.iter()).filter(|(_, needed)| !**needed) {
        *op = Op::None;
    }
    let live = live_after(program);
    for ((op, needed), live) in program.code.iter().zip(needed).zip(live) {
        // Registers that liveness does not track stay.
        if let Some(to) = result(op).map(register).filter(|to| *to != 0) {
            *needed &= live & to != 0;
        }
    }
}

/// Remove jumps to the next instruction.
fn drop_jumps_to_next(program: &Program, needed: &mut [bool]) {
    for (pc, op) in program.code.iter().enumerate() {
        if let Op::Jump { to } | Op::JumpIf { to, .. } | Op::JumpUnless { to, .. } = op {
            let to = *to as usize;
            if needed[pc] && pc < to && needed[pc + 1..to].iter().all(|needed| !needed) {
                needed[pc] = false;
            }
        }
    }
}

fn compact(program: &mut Program, needed: &[bool]) {
    let mut positions = Vec::with_capacity(needed.len());
    let mut position = 0;
    for needed in needed {
        positions.push(position);
        position += Pc::from(*needed);
    }
    // An unreachable parser state may refer to removed instructions.
    let last = position.saturating_sub(1);
    each_target(program, |target| *target = positions[*target as usize].min(last));
    let mut needed = needed.iter();
    program.code.retain(|_| needed.next().is_some_and(|needed| *needed));
}
