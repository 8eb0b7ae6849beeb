// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! How far into a packet a program can look: so much of it a shell shows, and leaves the rest where it is.

use alloc::vec;
use alloc::vec::Vec;

use crate::ir::{HashInput, HeaderId, Op, Pc, Program, SelectKey, StackId};
use crate::verify::control_flow;

/// Of a parser of more steps no bound is looked for.
const MOST_STEPS: usize = 4096;

impl Program {
    /// Bytes of a packet's front that the program takes or looks at, at most; none if that is not bounded, or a checksum
    /// goes over the payload. Each header comes once, each stack whole, and the longest look ahead behind them.
    pub(crate) fn reach(&self) -> Option<u32> {
        if self.hashes.iter().any(|hash| hash.input.contains(&HashInput::Payload)) {
            return None;
        }
        let steps = self.behind(vec![self.entry.parser]);
        if steps.len() > MOST_STEPS {
            return None;
        }
        let (mut taken, mut ahead) = (0u64, 0u64);
        let mut stacks: Vec<StackId> = Vec::new();
        for pc in steps {
            let op = self.code.get(pc as usize)?;
            match *op {
                Op::Advance { .. } | Op::Push { .. } | Op::Pop { .. } | Op::CopyStack { .. } => return None,
                Op::Extract { header } | Op::ExtractVarbit { header, .. } => {
                    if self.behind(control_flow::successors(self, pc, op).collect()).contains(&pc) {
                        return None;
                    }
                    taken += self.header_bytes(header);
                }
                Op::ExtractNext { stack, .. } | Op::ExtractNextVarbit { stack, .. } => stacks.push(stack),
                Op::Lookahead { at, width, .. } | Op::WideLookahead { at, width, .. } => {
                    ahead = ahead.max(u64::from(at) + u64::from(width));
                }
                Op::Select { select } => {
                    let keys = self.selects.get(usize::from(select)).map(|select| select.keys.as_slice());
                    for key in keys.into_iter().flatten() {
                        if let SelectKey::Lookahead { at, width } = *key {
                            ahead = ahead.max(u64::from(at) + u64::from(width));
                        }
                    }
                }
                _ => {}
            }
        }
        stacks.sort_unstable();
        stacks.dedup();
        taken += stacks.into_iter().map(|stack| self.stack_bytes(stack)).sum::<u64>();
        u32::try_from(taken + ahead.div_ceil(8)).ok()
    }

    /// These steps and all that come behind them.
    fn behind(&self, mut open: Vec<Pc>) -> Vec<Pc> {
        let (mut seen, mut found) = (vec![false; self.code.len()], Vec::new());
        while let Some(pc) = open.pop() {
            let Some(seen) = seen.get_mut(pc as usize).filter(|seen| !**seen) else { continue };
            *seen = true;
            found.push(pc);
            if let Some(op) = self.code.get(pc as usize) {
                open.extend(control_flow::successors(self, pc, op));
            }
        }
        found
    }

    fn header_bytes(&self, header: HeaderId) -> u64 {
        self.headers.get(usize::from(header)).map_or(0, |header| u64::from(header.bytes))
    }

    fn stack_bytes(&self, stack: StackId) -> u64 {
        let Some(stack) = self.stacks.get(usize::from(stack)) else { return 0 };
        let unions = stack.unions.iter().filter_map(|union| self.unions.get(usize::from(*union)));
        let members = unions.flat_map(|union| &union.headers);
        stack.headers.iter().chain(members).map(|header| self.header_bytes(*header)).sum()
    }
}
