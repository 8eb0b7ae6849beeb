// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Follows each part of a program from its beginning: every way ends, only the parser and actions loop
//! (`run` says how often), and each step stands where it may.

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use crate::ir::{Action, Next, Op, Pc, Program};
use crate::verify::error::{unfit, Checked, Unfit};

/// Steps that all parts together may have, those of shared code counted as often as it is shared.
const WORK: usize = 1 << 24;

#[derive(Clone, Copy)]
enum Part<'a> {
    Parser,
    Control,
    Deparser,
    Action(&'a Action),
}

pub(crate) fn check(program: &Program) -> Checked {
    let entry = program.entry;
    let mut walk = Walk { program, seen: vec![0; program.code.len()], turn: 0, work: 0 };
    let parts = [
        ("the parser", Part::Parser, entry.parser),
        ("verify", Part::Control, entry.verify),
        ("ingress", Part::Control, entry.ingress),
        ("egress", Part::Control, entry.egress),
        ("update", Part::Control, entry.update),
        ("the deparser", Part::Deparser, entry.deparser),
    ];
    for (name, part, begin) in parts {
        walk.part(part, begin).map_err(|Unfit(text)| Unfit(format!("{name}: {text}")))?;
    }
    for action in &program.actions {
        walk.part(Part::Action(action), action.begin)
            .map_err(|Unfit(text)| Unfit(format!("action {}: {text}", action.name)))?;
    }
    Ok(())
}

struct Walk<'a> {
    program: &'a Program,
    /// By step: 2 * turn while the walk is below it, 2 * turn + 1 when it is done.
    seen: Vec<u32>,
    turn: u32,
    work: usize,
}

impl Walk<'_> {
    /// In depth, by hand: the kernel's stack is short.
    fn part(&mut self, part: Part, begin: Pc) -> Checked {
        self.turn += 1;
        let (open, done) = (2 * self.turn, 2 * self.turn + 1);
        let mut way: Vec<(Pc, usize)> = Vec::new();
        self.enter(part, begin, &mut way)?;
        while let Some((pc, next)) = way.last_mut() {
            let (pc, index) = (*pc, *next);
            *next += 1;
            let op = self.program.code.get(pc as usize);
            let Some(to) = op.and_then(|op| successor(self.program, pc, op, index)) else {
                self.seen.get_mut(pc as usize).into_iter().for_each(|seen| *seen = done);
                way.pop();
                continue;
            };
            match self.seen.get(to as usize) {
                Some(seen) if *seen == open && !matches!(part, Part::Parser | Part::Action(_)) => {
                    return unfit(format!("step {to} loops"))
                }
                Some(seen) if *seen == open || *seen == done => {}
                _ => self.enter(part, to, &mut way)?,
            }
        }
        Ok(())
    }

    fn enter(&mut self, part: Part, pc: Pc, way: &mut Vec<(Pc, usize)>) -> Checked {
        self.work += 1;
        if self.work > WORK {
            return unfit("too many steps in all".into());
        }
        let Some(op) = self.program.code.get(pc as usize) else {
            return unfit(format!("there is no step {pc}"));
        };
        if !self.belongs(part, op) {
            return unfit(format!("step {pc}, {op:?}, does not belong here"));
        }
        self.seen.get_mut(pc as usize).into_iter().for_each(|seen| *seen = 2 * self.turn);
        way.push((pc, 0));
        Ok(())
    }

    fn belongs(&self, part: Part, op: &Op) -> bool {
        match op {
            Op::Select { .. }
            | Op::Reject { .. }
            | Op::Verify { .. }
            | Op::Extract { .. }
            | Op::ExtractNext { .. }
            | Op::ExtractVarbit { .. }
            | Op::ExtractNextVarbit { .. }
            | Op::Lookahead { .. }
            | Op::WideLookahead { .. }
            | Op::Advance { .. } => matches!(part, Part::Parser),
            Op::Emit { .. } | Op::EmitStack { .. } | Op::EmitUnion { .. } => matches!(part, Part::Deparser),
            Op::Apply { .. } => matches!(part, Part::Control),
            Op::Argument { argument, .. } => self.argument(part, *argument, 64),
            Op::WideArgument { argument, .. } => {
                self.argument(part, *argument, u32::MAX) && !self.argument(part, *argument, 64)
            }
            _ => true,
        }
    }

    fn argument(&self, part: Part, argument: u16, most: u32) -> bool {
        let Part::Action(action) = part else { return false };
        action.parameters.get(usize::from(argument)).is_some_and(|parameter| parameter.width <= most)
    }
}

/// The steps that may come behind this one.
pub(crate) fn successors<'a>(program: &'a Program, pc: Pc, op: &'a Op) -> impl Iterator<Item = Pc> + 'a {
    (0..).map_while(move |index| successor(program, pc, op, index))
}

/// The next step but `index`.
fn successor(program: &Program, pc: Pc, op: &Op, index: usize) -> Option<Pc> {
    match *op {
        Op::End | Op::Exit | Op::Reject { .. } => None,
        Op::Jump { to } => [to].get(index).copied(),
        Op::JumpIf { to, .. } | Op::JumpUnless { to, .. } => [pc + 1, to].get(index).copied(),
        Op::Select { select } => {
            let select = program.selects.get(usize::from(select))?;
            let cases = select.cases.len();
            if index == cases {
                select.default
            } else {
                select.cases.get(index).map(|case| case.next)
            }
        }
        Op::Apply { table } => {
            let table = program.tables.get(usize::from(table))?;
            match &table.next {
                Next::ByHit { hit, miss } => [*hit, *miss].get(index).copied(),
                Next::ByAction { to, none } => to.iter().chain([none]).nth(index).copied(),
            }
        }
        _ => [pc + 1].get(index).copied(),
    }
}
