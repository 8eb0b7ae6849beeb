// SPDX-License-Identifier: Apache-2.0
//! Summary of a program: `p4switch check`.

use std::fmt::{self, Display, Write};

use qbed_p4engine::program::liveness::successors;
use qbed_p4engine::program::{MatchKind, Op, Pc, Program, Table, TableId};

/// A program's sizes, controls, tables with their keys, and actions with their instruction counts.
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
        "  {} bytes per packet for {} headers and metadata; {} instructions; registers: {} of 128 bits, {} of {}",
        program.phv_bytes,
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
            "  {name}: at most {} instructions",
            longest_path(program, begin, &mut vec![None; program.code.len()])
        )?;
    }
    let (applied, inlined): (Vec<_>, Vec<_>) =
        (0..).zip(&program.tables).partition(|(id, _)| is_applied(program, *id));
    for (_, table) in &applied {
        write_table(program, table, to)?;
    }
    writeln!(to, "  inlined tables (without keys): {}", inlined.len())?;
    let in_use = |id: &u16| applied.iter().any(|(_, table)| table.actions.contains(id));
    for (_, action) in (0..).zip(&program.actions).filter(|(id, _)| in_use(id)) {
        let parameters =
            action.parameters.iter().map(|parameter| format!("{}: {} bits", parameter.name, parameter.width));
        let count = longest_path(program, action.begin, &mut vec![None; program.code.len()]);
        writeln!(to, "  action {}({}): at most {count} instructions", action.name, list(parameters))?;
    }
    for array in &program.arrays {
        writeln!(to, "  register {}: {} of {} bits", array.name, array.size, array.width)?;
    }
    for counter in &program.counters {
        writeln!(to, "  counter {}: {}", counter.name, extent(program, counter.table, counter.size))?;
    }
    for meter in &program.meters {
        let unit = if meter.bytes { "bytes" } else { "packets" };
        writeln!(to, "  meter {} of {unit}: {}", meter.name, extent(program, meter.table, meter.size))?;
    }
    for profile in &program.profiles {
        let kind = if profile.selector.is_some() { "selector" } else { "profile" };
        writeln!(to, "  action {kind} {}: {} members", profile.name, profile.max_size)?;
    }
    Ok(())
}

fn write_table(program: &Program, table: &Table, to: &mut String) -> fmt::Result {
    let keys = table.keys.iter().map(|key| format!("{} {}", key.name, match_kind(key.kind)));
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
        write!(to, "; {} entries in the program", table.entries.len())?;
    }
    writeln!(to)
}

fn is_applied(program: &Program, id: TableId) -> bool {
    program.code.iter().any(|op| matches!(op, Op::Apply { table } if *table == id))
}

fn list(items: impl Iterator<Item = impl Display>) -> String {
    let all: Vec<String> = items.map(|item| item.to_string()).collect();
    if all.is_empty() {
        "-".into()
    } else {
        all.join(", ")
    }
}

fn match_kind(kind: MatchKind) -> &'static str {
    match kind {
        MatchKind::Exact => "exact",
        MatchKind::Lpm => "lpm",
        MatchKind::Ternary => "ternary",
        MatchKind::Range => "range",
        MatchKind::Optional => "optional",
    }
}

fn extent(program: &Program, table: Option<u16>, size: u32) -> String {
    match table {
        Some(table) => format!("one per entry of {}", program.tables[table as usize].name),
        None => format!("{size} cells"),
    }
}

/// Instructions on the longest path from `begin` to an end. A table counts as one, a loop runs once.
fn longest_path(program: &Program, begin: Pc, known: &mut [Option<u32>]) -> u32 {
    // Depth first, without recursion: each instruction is visited before and after its successors.
    let mut open = vec![(begin, false)];
    while let Some((pc, done)) = open.pop() {
        if done {
            let longest =
                successors(program, pc).iter().filter_map(|next| known[*next as usize]).max().unwrap_or(0);
            known[pc as usize] = Some(longest + 1);
        } else if known[pc as usize].is_none() {
            known[pc as usize] = Some(0);
            open.push((pc, true));
            open.extend(successors(program, pc).into_iter().map(|next| (next, false)));
        }
    }
    known[begin as usize].unwrap_or(0)
}
