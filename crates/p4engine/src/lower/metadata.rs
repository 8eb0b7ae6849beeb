// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Instructions that set the standard metadata from `State::arguments`, before the parser and before egress. They are
//! instructions so that they are translated to machine code.

use alloc::vec::Vec;

use crate::exec::interpreter::HALT;
use crate::ir::{FieldId, Op, Pc, Program, Standard};
use crate::lower::Code;

/// Limit on the fields that are set.
pub(crate) const METADATA_ARGUMENTS: usize = 8;

/// The first instruction of each block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Preludes {
    pub parser: Pc,
    pub egress: Pc,
}

impl Default for Preludes {
    fn default() -> Preludes {
        Preludes { parser: HALT, egress: HALT }
    }
}

fn store_arguments(fields: &[Option<FieldId>]) -> Vec<Op> {
    let stores = |(argument, field): (u16, &Option<FieldId>)| {
        field.map(|field| [Op::Argument { to: 0, argument }, Op::Store { field, from: 0 }])
    };
    (0..).zip(fields).filter_map(stores).flatten().collect()
}

/// The parser's prelude. `Interpreter::run_parser` sets the arguments in this order.
fn parser(standard: &Standard) -> Vec<Op> {
    let Standard { packet_length, instance_type, ingress_port, ingress_global_timestamp, .. } = *standard;
    store_arguments(&[packet_length, instance_type, ingress_port, ingress_global_timestamp])
}

/// The prelude of egress. `departure_metadata` has the arguments in this order.
fn egress(standard: &Standard) -> Vec<Op> {
    let fields: [_; METADATA_ARGUMENTS] = [
        standard.egress_global_timestamp,
        standard.enq_timestamp,
        standard.enq_qdepth,
        standard.deq_timedelta,
        standard.deq_qdepth,
        standard.egress_port,
        standard.egress_spec,
        standard.packet_length,
    ];
    let mut ops = store_arguments(&fields);
    match (standard.qid, standard.priority) {
        (Some(qid), Some(priority)) => {
            ops.extend([Op::Load { to: 0, field: priority }, Op::Store { field: qid, from: 0 }]);
        }
        (Some(qid), None) => ops.push(Op::StoreConstant { field: qid, value: 0 }),
        (None, _) => {}
    }
    ops
}

impl Code {
    /// Appends the preludes to the instructions.
    pub(super) fn add_preludes(&mut self, program: &Program) {
        self.preludes.parser = self.append(parser(&program.standard));
        self.preludes.egress = self.append(egress(&program.standard));
    }

    fn append(&mut self, ops: Vec<Op>) -> Pc {
        let begin = self.instructions.len() as Pc;
        for op in ops.iter().chain([&Op::End]) {
            self.add(op);
        }
        begin
    }
}
