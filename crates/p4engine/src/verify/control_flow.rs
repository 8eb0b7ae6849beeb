// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Follows the control flow of each block: every path ends, only the parser and actions loop (the interpreter limits
//! how often), and each instruction is allowed in its block.

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use crate::ir::{Action, Next, Op, Pc, Program};
use crate::verify::error::{invalid, CheckResult, InvalidProgram};

/// Limit on the instructions of all blocks. Shared code counts once per block.
const MAX_VISITS: usize = 1 << 24;

#[derive(Clone, Copy)]
enum Block<'a> {
    Parser,
    Control,
    Deparser,
    Action(&'a Action),
}

pub(crate) fn check(program: &Program) -> CheckResult {
    let entry = program.entry;
    let mut walk = Walk { program, state: vec![0; program.code.len()], block: 0, visits: 0 };
    let blocks = [
        ("the parser", Block::Parser, entry.parser),
        ("verify", Block::Control, entry.verify),
        ("ingress", Block::Control, entry.ingress),
        ("egress", Block::Control, entry.egress),
        ("update", Block::Control, entry.update),
        ("the deparser", Block::Deparser, entry.deparser),
    ];
    for (name, block, begin) in blocks {
        walk.block(block, begin).map_err(|InvalidProgram(text)| InvalidProgram(format!("{name}: {text}")))?;
    }
    for action in &program.actions {
        walk.block(Block::Action(action), action.begin)
            .map_err(|InvalidProgram(text)| InvalidProgram(format!("action {}: {text}", action.name)))?;
    }
    Ok(())
}

struct Walk<'a> {
    program: &'a Program,
    /// State of each instruction: `2 * block` while it is on the current path, `2 * block + 1` when all paths from it
    /// end.
    state: Vec<u32>,
    block: u32,
    visits: usize,
}

impl Walk<'_> {
    /// Depth-first search with an explicit stack, since the kernel's stack is small.
    fn block(&mut self, block: Block, begin: Pc) -> CheckResult {
        self.block += 1;
        let (open, done) = (2 * self.block, 2 * self.block + 1);
        let mut path: Vec<(Pc, usize)> = Vec::new();
        self.enter(block, begin, &mut path)?;
        while let Some((pc, next)) = path.last_mut() {
            let (pc, index) = (*pc, *next);
            *next += 1;
            let op = self.program.code.get(pc as usize);
            let Some(to) = op.and_then(|op| successor(self.program, pc, op, index)) else {
                self.state.get_mut(pc as usize).into_iter().for_each(|state| *state = done);
                path.pop();
                continue;
            };
            match self.state.get(to as usize) {
                Some(state) if *state == open && !matches!(block, Block::Parser | Block::Action(_)) => {
                    return invalid(format!("instruction {to} is in a loop"))
                }
                Some(state) if *state == open || *state == done => {}
                _ => self.enter(block, to, &mut path)?,
            }
        }
        Ok(())
    }

    fn enter(&mut self, block: Block, pc: Pc, path: &mut Vec<(Pc, usize)>) -> CheckResult {
        self.visits += 1;
        if self.visits > MAX_VISITS {
            return invalid("too many instructions in all blocks".into());
        }
        let Some(op) = self.program.code.get(pc as usize) else {
            return invalid(format!("there is no instruction {pc}"));
        };
        if !self.is_allowed(block, op) {
            return invalid(format!("instruction {pc}, {op:?}, is not allowed in this block"));
        }
        self.state.get_mut(pc as usize).into_iter().for_each(|state| *state = 2 * self.block);
        path.push((pc, 0));
        Ok(())
    }

    fn is_allowed(&self, block: Block, op: &Op) -> bool {
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
            | Op::Advance { .. } => matches!(block, Block::Parser),
            Op::Emit { .. } | Op::EmitStack { .. } | Op::EmitUnion { .. } => matches!(block, Block::Deparser),
            Op::Apply { .. } => matches!(block, Block::Control),
            Op::Argument { argument, .. } => self.argument(block, *argument, 64),
            Op::WideArgument { argument, .. } => {
                self.argument(block, *argument, u32::MAX) && !self.argument(block, *argument, 64)
            }
            _ => true,
        }
    }

    fn argument(&self, block: Block, argument: u16, max: u32) -> bool {
        let Block::Action(action) = block else { return false };
        action.parameters.get(usize::from(argument)).is_some_and(|parameter| parameter.width <= max)
    }
}

/// The instructions that may follow this one.
pub(crate) fn successors<'a>(program: &'a Program, pc: Pc, op: &'a Op) -> impl Iterator<Item = Pc> + 'a {
    (0..).map_while(move |index| successor(program, pc, op, index))
}

/// The successor of an instruction with this index.
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
