// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Computes how many bytes of a packet a program can access: a shell passes only these and leaves the rest in place.

use alloc::vec;
use alloc::vec::Vec;

use crate::ir::{HashInput, HeaderId, Op, Pc, Program, SelectKey, StackId};
use crate::verify::control_flow;

/// Limit on a parser's instructions. A larger parser has no bound.
const MAX_INSTRUCTIONS: usize = 4096;

impl Program {
    /// Upper bound on the bytes of a packet that the program parses or looks ahead at. None: there is no bound, or a
    /// checksum covers the payload. The bound is the size of all extracted headers and stacks and the longest
    /// lookahead.
    pub(crate) fn lookahead_bytes(&self) -> Option<u32> {
        if self.hashes.iter().any(|hash| hash.input.contains(&HashInput::Payload)) {
            return None;
        }
        let parser = self.reachable(vec![self.entry.parser]);
        if parser.len() > MAX_INSTRUCTIONS {
            return None;
        }
        let (mut parsed, mut ahead) = (0u64, 0u64);
        let mut stacks: Vec<StackId> = Vec::new();
        for pc in parser {
            let op = self.code.get(pc as usize)?;
            match *op {
                Op::Advance { .. } | Op::Push { .. } | Op::Pop { .. } | Op::CopyStack { .. } => return None,
                Op::Extract { header } | Op::ExtractVarbit { header, .. } => {
                    if self.reachable(control_flow::successors(self, pc, op).collect()).contains(&pc) {
                        return None;
                    }
                    parsed += self.header_bytes(header);
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
        parsed += stacks.into_iter().map(|stack| self.stack_bytes(stack)).sum::<u64>();
        u32::try_from(parsed + ahead.div_ceil(8)).ok()
    }

    /// Whether a block always reaches an `Op::End` of its own.
    pub(crate) fn always_ends(&self, begin: Pc) -> bool {
        let ends = |pc: &Pc| !matches!(self.code.get(*pc as usize), Some(Op::Apply { .. } | Op::Exit) | None);
        self.reachable(vec![begin]).iter().all(ends)
    }

    /// These instructions and all that can follow them.
    pub(crate) fn reachable(&self, mut open: Vec<Pc>) -> Vec<Pc> {
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
