// SPDX-License-Identifier: Apache-2.0
//! What a program has, for people: `p4switch check`.

use std::fmt::{self, Display, Write};

use crate::load::liveness::successors;
use qbed_p4engine::program::{MatchKind, Op, Pc, Program, Table, TableId};

/// A program in a few lines: sizes, controls, tables with their keys, actions with their steps.
pub fn summary(program: &Program) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write_summary(program, &mut text);
    text
}

fn write_summary(program: &Program, to: &mut String) -> fmt::Result {
    writeln!(to, "{}", if program.name.is_empty() { "(no name)" } else { &program.name })?;
    writeln!(
        to,
        "  {} bytes a packet for {} headers and metadata; {} steps; registers: {} of 128 bits, {} of {}",
        program.area_bytes,
        program.headers.len(),
        program.code.len(),
        program.registers,
        program.wide_registers,
        u32::from(program.wide_limbs) * 64,
    )?;
    let entry = program.entry;
    let parts = [
        ("parser", entry.parser),
        ("verify", entry.verify),
        ("ingress", entry.ingress),
        ("egress", entry.egress),
        ("update", entry.update),
        ("deparser", entry.deparser),
    ];
    for (name, begin) in parts {
        writeln!(
            to,
            "  {name}: {} steps at most on the way",
            longest(program, begin, &mut vec![None; program.code.len()])
        )?;
    }
    let (applied, inlined): (Vec<_>, Vec<_>) =
        (0..).zip(&program.tables).partition(|(id, _)| is_applied(program, *id));
    for (_, table) in &applied {
        write_table(program, table, to)?;
    }
    writeln!(to, "  tables without keys whose action stands in the control itself: {}", inlined.len())?;
    let in_use = |id: &u16| applied.iter().any(|(_, table)| table.actions.contains(id));
    for (_, action) in (0..).zip(&program.actions).filter(|(id, _)| in_use(id)) {
        let parameters =
            action.parameters.iter().map(|parameter| format!("{}: {} bits", parameter.name, parameter.width));
        let steps = longest(program, action.begin, &mut vec![None; program.code.len()]);
        writeln!(to, "  action {}({}): {steps} steps at most", action.name, list(parameters))?;
    }
    for array in &program.arrays {
        writeln!(to, "  register {}: {} of {} bits", array.name, array.size, array.width)?;
    }
    for counter in &program.counters {
        writeln!(to, "  counter {}: {}", counter.name, extent(program, counter.table, counter.size))?;
    }
    for meter in &program.meters {
        let of = if meter.bytes { "bytes" } else { "packets" };
        writeln!(to, "  meter {} of {of}: {}", meter.name, extent(program, meter.table, meter.size))?;
    }
    for profile in &program.profiles {
        let kind = if profile.selector.is_some() { "selector" } else { "profile" };
        writeln!(to, "  action {kind} {}: {} members", profile.name, profile.max_size)?;
    }
    Ok(())
}

fn write_table(program: &Program, table: &Table, to: &mut String) -> fmt::Result {
    let keys = table.keys.iter().map(|key| format!("{} {}", key.name, kind(key.kind)));
    let actions = table.actions.iter().map(|action| &program.actions[*action as usize].name);
    write!(
        to,
        "  table {}: {} entries; keys: {}; actions: {}",
        table.name,
        table.max_size,
        list(keys),
        list(actions)
    )?;
    if !table.entries.is_empty() {
        write!(to, "; {} of the program", table.entries.len())?;
    }
    writeln!(to)
}

fn is_applied(program: &Program, id: TableId) -> bool {
    program.code.iter().any(|op| matches!(op, Op::Apply { table } if *table == id))
}

fn list(of: impl Iterator<Item = impl Display>) -> String {
    let all: Vec<String> = of.map(|one| one.to_string()).collect();
    if all.is_empty() {
        "-".into()
    } else {
        all.join(", ")
    }
}

fn kind(of: MatchKind) -> &'static str {
    match of {
        MatchKind::Exact => "exact",
        MatchKind::Lpm => "lpm",
        MatchKind::Ternary => "ternary",
        MatchKind::Range => "range",
        MatchKind::Optional => "optional",
    }
}

fn extent(program: &Program, table: Option<u16>, size: u32) -> String {
    match table {
        Some(table) => format!("one for each entry of {}", program.tables[table as usize].name),
        None => format!("{size} cells"),
    }
}

/// Steps on the longest way from `begin` to an end, tables counting as one; loops count once.
fn longest(program: &Program, begin: Pc, known: &mut [Option<u32>]) -> u32 {
    // Without recursion: each step is visited before and after those behind it.
    let mut open = vec![(begin, false)];
    while let Some((pc, behind)) = open.pop() {
        if behind {
            let most =
                successors(program, pc).iter().filter_map(|way| known[*way as usize]).max().unwrap_or(0);
            known[pc as usize] = Some(most + 1);
        } else if known[pc as usize].is_none() {
            known[pc as usize] = Some(0);
            open.push((pc, true));
            open.extend(successors(program, pc).into_iter().map(|way| (way, false)));
        }
    }
    known[begin as usize].unwrap_or(0)
}
