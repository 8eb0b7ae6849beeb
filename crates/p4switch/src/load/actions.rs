// SPDX-License-Identifier: Apache-2.0
//! Compiles actions: the primitives that p4c emits for v1model, and those of P4_14 in older files.

use num_traits::ToPrimitive;
use qbed_p4engine::program::{Action, Binary, HeaderId, ListId, Op, Parameter, StackId};
use serde_json::Value as Json;

use super::assign::Place;
use super::expression::Expression;
use super::layout::same_layout;
use super::operands::{Object, Scope};
use super::{narrow, Loader};
use crate::bmv2::{part, Call, Operand};
use crate::error::{refuse, At, LoadError, Result};

/// P4_14's arithmetic primitives, which write the result of a binary operation to their first operand.
const ARITHMETIC: &[(&str, Binary)] = &[
    ("add", Binary::Add),
    ("subtract", Binary::Subtract),
    ("bit_and", Binary::And),
    ("bit_or", Binary::Or),
    ("bit_xor", Binary::Xor),
    ("shift_left", Binary::ShiftLeft),
    ("shift_right", Binary::ShiftRight),
];

/// The arguments of a primitive's call.
struct Arguments<'a> {
    call: &'a Call,
    scope: Scope<'a>,
}

impl Loader<'_> {
    pub(super) fn compile_actions(&mut self) -> Result<()> {
        let document = self.document;
        for (index, action) in document.actions.iter().enumerate() {
            let place = || format!("actions[{index}] {}", action.name);
            let mut parameters = Vec::new();
            for parameter in &action.runtime_data {
                if parameter.bitwidth > 1 << 15 {
                    return refuse(format!("parameter {} of {} bits", parameter.name, parameter.bitwidth))
                        .at(place);
                }
                parameters.push(Parameter { name: parameter.name.clone(), width: parameter.bitwidth });
            }
            let begin = self.next_pc();
            self.body(&action.primitives, Scope { parameters: &parameters, values: None }).at(place)?;
            self.emit(Op::End);
            let id = narrow(self.program.actions.len(), "actions")?;
            if self.actions.insert(action.id, id).is_some() {
                return refuse(format!("duplicate action id {}", action.id)).at(place);
            }
            self.program.actions.push(Action { name: action.name.clone(), parameters, begin });
        }
        Ok(())
    }

    /// Compile the primitives of a body. Jumps refer to a primitive by its number.
    pub(super) fn body(&mut self, calls: &[Call], scope: Scope) -> Result<()> {
        let mut begins = Vec::new();
        let mut jumps = Vec::new();
        for (index, call) in calls.iter().enumerate() {
            begins.push(self.next_pc());
            let jump = self.primitive(call, scope).at(|| format!("primitive {index} {}", call.op))?;
            jumps.extend(jump.into_iter().map(|(at, to)| (index, at, to)));
        }
        begins.push(self.next_pc());
        for (index, at, to) in jumps {
            match begins.get(to) {
                Some(to) => self.patch_jump(at, *to),
                None => {
                    return refuse(format!("jump to primitive {to} of {}", calls.len()))
                        .at(|| format!("primitive {index}"))
                }
            }
        }
        Ok(())
    }

    /// Compile a primitive. Returns its jumps with the number of their target primitive.
    pub(super) fn primitive(&mut self, call: &Call, scope: Scope) -> Result<Vec<(usize, usize)>> {
        let arguments = Arguments { call, scope };
        self.scoped(|code| {
            match call.op.as_str() {
                "_jump" => return Ok(vec![(code.emit(Op::Jump { to: 0 }), arguments.constant(code, 0)?)]),
                "_jump_if_zero" => {
                    let condition = arguments.value(code, 0)?;
                    let to = arguments.constant(code, 1)?;
                    return Ok(code.skip_unless(&condition)?.into_iter().map(|at| (at, to)).collect());
                }
                _ => {}
            }
            if code.data_primitive(&arguments)?
                || code.header_primitive(&arguments)?
                || code.extern_primitive(&arguments)?
            {
                return Ok(Vec::new());
            }
            if code.forwarding_primitive(&arguments)? || code.report_primitive(&arguments)? {
                return Ok(Vec::new());
            }
            refuse("not a primitive of v1model")
        })
    }

    fn data_primitive(&mut self, call: &Arguments) -> Result<bool> {
        let op = call.call.op.as_str();
        match op {
            "assign" | "modify_field" | "set" => {
                let place = call.place(self, 0)?;
                self.assign(&place, &call.value(self, 1)?)?;
            }
            "add_to_field" | "subtract_from_field" => {
                let op = if op == "add_to_field" { Binary::Add } else { Binary::Subtract };
                let value = Expression::binary(op, call.value(self, 0)?, call.value(self, 1)?);
                let place = call.place(self, 0)?;
                self.assign(&place, &value)?;
            }
            "assign_VL" => {
                let (to, from) = (call.varbit(self, 0)?, call.varbit(self, 1)?);
                self.emit(Op::CopyVarbit { to, from });
            }
            "modify_field_rng_uniform" => {
                let place = call.place(self, 0)?;
                let low = self.evaluate(&call.value(self, 1)?)?;
                let high = self.evaluate(&call.value(self, 2)?)?;
                self.emit_into(&place, |field| Op::Random { field, low, high })?;
            }
            _ => match ARITHMETIC.iter().find(|(name, _)| *name == op) {
                Some((_, binary)) => {
                    let value = Expression::binary(*binary, call.value(self, 1)?, call.value(self, 2)?);
                    let place = call.place(self, 0)?;
                    self.assign(&place, &value)?;
                }
                None => return Ok(false),
            },
        }
        Ok(true)
    }

    fn header_primitive(&mut self, call: &Arguments) -> Result<bool> {
        match call.call.op.as_str() {
            "add_header" | "add_header_fast" => {
                self.emit_for_header(&call.object(self, 0)?, |header| Op::AddHeader { header })?;
            }
            "remove_header" => {
                self.emit_for_header(&call.object(self, 0)?, |header| Op::RemoveHeader { header })?
            }
            "assign_header" | "copy_header" => {
                self.copy_header(&call.object(self, 0)?, &call.object(self, 1)?)?;
            }
            "assign_union" => self.copy_union(&call.object(self, 0)?, &call.object(self, 1)?)?,
            "assign_header_stack" | "assign_union_stack" => {
                let (to, from) = (call.stack(self, 0)?, call.stack(self, 1)?);
                let length = |stack: StackId| {
                    let stack = &self.program.stacks[stack as usize];
                    (stack.headers.len(), stack.unions.len())
                };
                if length(to) != length(from) {
                    return refuse("stacks of different lengths");
                }
                self.emit(Op::CopyStack { to, from });
            }
            "push" | "pop" => {
                let stack = call.stack(self, 0)?;
                let count = narrow(call.constant(self, 1)?, "elements")?;
                let is_push = call.call.op == "push";
                self.emit(if is_push { Op::Push { stack, count } } else { Op::Pop { stack, count } });
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn copy_header(&mut self, to: &Object, from: &Object) -> Result<()> {
        match (to, from) {
            (Object::Header(to), Object::Header(from)) => {
                same_layout(&self.program, &[*to, *from])?;
                self.emit(Op::CopyHeader { to: *to, from: *from });
                Ok(())
            }
            (Object::HeaderAt { stack, member, index }, from) => {
                self.each_element(*stack, *member, index, |code, to| {
                    code.copy_header(&Object::Header(to), from)
                })
            }
            (to, Object::HeaderAt { stack, member, index }) => {
                self.each_element(*stack, *member, index, |code, from| {
                    code.copy_header(to, &Object::Header(from))
                })
            }
            _ => refuse("expected two headers"),
        }
    }

    fn copy_union(&mut self, to: &Object, from: &Object) -> Result<()> {
        match (to, from) {
            (Object::Union(to), Object::Union(from)) => {
                let of = |union: u16| self.program.unions[union as usize].headers.clone();
                for (to, from) in of(*to).into_iter().zip(of(*from)) {
                    same_layout(&self.program, &[to, from])?;
                }
                self.emit(Op::CopyUnion { to: *to, from: *from });
                Ok(())
            }
            _ => refuse("expected two named unions"),
        }
    }

    fn extern_primitive(&mut self, call: &Arguments) -> Result<bool> {
        match call.call.op.as_str() {
            "register_read" => {
                let place = call.place(self, 0)?;
                let array = self.array(&call.name(1, "register_array")?)?;
                let index = self.evaluate(&call.value(self, 2)?)?;
                self.emit_into(&place, |to| Op::RegisterRead { to, array, index })?;
            }
            "register_write" => {
                let array = self.array(&call.name(0, "register_array")?)?;
                let (index, value) = (call.value(self, 1)?, call.value(self, 2)?);
                self.write_register(array, &index, &value)?;
            }
            "count" => {
                let name = call.name(0, "counter_array")?;
                let counter = self.counters.get(name.as_str()).copied();
                let counter = counter.ok_or_else(|| LoadError::new(format!("no counter {name}")))?;
                let index = self.evaluate(&call.value(self, 1)?)?;
                self.emit(Op::Count { counter, index });
            }
            "execute_meter" => {
                let name = call.name(0, "meter_array")?;
                let meter = self.meters.get(name.as_str()).copied();
                let meter = meter.ok_or_else(|| LoadError::new(format!("no meter {name}")))?;
                let index = self.evaluate(&call.value(self, 1)?)?;
                let place = call.place(self, 2)?;
                self.emit_into(&place, |to| Op::Execute { meter, index, to })?;
            }
            "modify_field_with_hash_based_offset" => {
                let place = call.place(self, 0)?;
                let base = self.evaluate(&call.value(self, 1)?)?;
                let hash = self.calculation_of(&call.name(2, "calculation")?)?;
                let size = self.evaluate(&call.value(self, 3)?)?;
                self.prepare_hash(hash)?;
                self.emit_into(&place, |field| Op::HashTo { field, hash, base, size })?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    pub(super) fn calculation_of(&self, name: &str) -> Result<u16> {
        self.hashes.get(name).copied().ok_or_else(|| LoadError::new(format!("no calculation {name}")))
    }

    /// Primitives that decide where a packet goes.
    fn forwarding_primitive(&mut self, call: &Arguments) -> Result<bool> {
        match call.call.op.as_str() {
            "exit" => self.emit(Op::Exit),
            "no_op" => return Ok(true),
            "drop" => self.emit(Op::MarkToDrop),
            "mark_to_drop" => self.mark_to_drop(call)?,
            "truncate" => {
                let bytes = self.evaluate(&call.value(self, 0)?)?;
                self.emit(Op::Truncate { bytes })
            }
            "clone_ingress_pkt_to_egress" => {
                let session = self.evaluate(&call.value(self, 0)?)?;
                let list = call.list(self, 1)?;
                self.emit(Op::CloneIngress { session, list })
            }
            "clone_egress_pkt_to_egress" => {
                let session = self.evaluate(&call.value(self, 0)?)?;
                let list = call.list(self, 1)?;
                self.emit(Op::CloneEgress { session, list })
            }
            "resubmit" => {
                let list = call.list(self, 0)?;
                self.emit(Op::Resubmit { list })
            }
            "recirculate" => {
                let list = call.list(self, 0)?;
                self.emit(Op::Recirculate { list })
            }
            _ => return Ok(false),
        };
        Ok(true)
    }

    /// `mark_to_drop` on the standard metadata or on a copy: p4c copies it for a function with an `inout` parameter,
    /// and copies it back after the call.
    fn mark_to_drop(&mut self, call: &Arguments) -> Result<usize> {
        let Object::Header(header) = call.object(self, 0)? else {
            return call.at(0, refuse("not a header"));
        };
        let name = &self.program.headers[header as usize].name;
        let egress_spec = call.at(0, self.layout.field(name, "egress_spec"))?;
        let mcast_grp = self.layout.field(name, "mcast_grp").ok();
        Ok(self.emit(match self.program.standard.egress_spec {
            Some(standard) if standard == egress_spec => Op::MarkToDrop,
            _ => Op::MarkCopyToDrop { egress_spec, mcast_grp },
        }))
    }

    /// Digests, assertions and log messages.
    fn report_primitive(&mut self, call: &Arguments) -> Result<bool> {
        match call.call.op.as_str() {
            "generate_digest" => {
                let id = call.constant(self, 1)?;
                let digest = u32::try_from(id).ok().and_then(|id| self.digests.get(&id).copied());
                self.send_digest(
                    digest.ok_or_else(|| LoadError::new(format!("no set_known_bits list of id {id}")))?,
                )?;
            }
            "assert" | "assume" => {
                let condition = self.evaluate(&call.value(self, 0)?)?;
                let text = call.call.source_info.as_ref().map_or_else(String::new, |source| {
                    format!(" ({}:{}: {})", source.filename, source.line, source.source_fragment)
                });
                let message = self.message(format!("{}{text}", call.call.op))?;
                self.emit(Op::Assert { condition, message });
            }
            "log_msg" => {
                let operand: Operand = part(call.json(0)?)?;
                let message = self.message(part(&operand.value)?)?;
                let values: Operand = part(call.json(1)?)?;
                let values: Vec<Json> =
                    if values.value.is_array() { part(&values.value)? } else { Vec::new() };
                let values = values
                    .iter()
                    .map(|value| self.expression(value, call.scope))
                    .collect::<Result<Vec<_>>>()?;
                let arguments = narrow(values.len(), "values of a message")?;
                let registers =
                    values.iter().map(|_| self.registers.allocate()).collect::<Result<Vec<_>>>()?;
                for (register, value) in registers.iter().zip(&values) {
                    self.evaluate_into(*register, value)?;
                }
                let first = registers.first().copied().unwrap_or(0);
                self.emit(Op::Log { message, first, arguments });
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn message(&mut self, text: String) -> Result<u16> {
        self.program.messages.push(text);
        narrow(self.program.messages.len() - 1, "messages")
    }
}

impl Arguments<'_> {
    fn json(&self, index: usize) -> Result<&Json> {
        let count = self.call.parameters.len();
        self.call.parameters.get(index).ok_or_else(|| LoadError::new(format!("too few arguments: {count}")))
    }

    fn at<T>(&self, index: usize, result: Result<T>) -> Result<T> {
        result.at(|| format!("argument {index}"))
    }

    fn value(&self, code: &Loader, index: usize) -> Result<Expression> {
        self.at(index, code.expression(self.json(index)?, self.scope))
    }

    fn place(&self, code: &Loader, index: usize) -> Result<Place> {
        self.at(index, code.expression(self.json(index)?, self.scope).and_then(Place::new))
    }

    fn object(&self, code: &Loader, index: usize) -> Result<Object> {
        self.at(index, code.object(self.json(index)?, self.scope))
    }

    fn stack(&self, code: &Loader, index: usize) -> Result<StackId> {
        match self.object(code, index)? {
            Object::Stack(stack) => Ok(stack),
            _ => self.at(index, refuse("not a stack")),
        }
    }

    fn constant(&self, code: &Loader, index: usize) -> Result<usize> {
        let value = self.value(code, index)?;
        let number = value.constant().and_then(|value| value.to_usize());
        self.at(index, number.ok_or_else(|| LoadError::new("not a constant number")))
    }

    /// The name in an argument of type `kind`.
    fn name(&self, index: usize, kind: &str) -> Result<String> {
        let operand: Operand = self.at(index, part(self.json(index)?))?;
        if operand.kind != kind {
            return self
                .at(index, refuse(format!("expected an operand of type {kind}, found {}", operand.kind)));
        }
        self.at(index, part(&operand.value))
    }

    fn list(&self, code: &mut Loader, index: usize) -> Result<ListId> {
        let id = self.constant(code, index)?;
        match u32::try_from(id).ok().and_then(|id| code.lists.get(&id).copied()) {
            Some(list) => Ok(list),
            None => self.at(index, refuse(format!("no field list of id {id}"))),
        }
    }

    /// The header of the varbit field in an argument.
    fn varbit(&self, code: &Loader, index: usize) -> Result<HeaderId> {
        let Expression::Field(field) = self.value(code, index)? else {
            return self.at(index, refuse("not a varbit field"));
        };
        let of = |header: &qbed_p4engine::program::Header| {
            header.varbit.is_some_and(|varbit| varbit.field == field)
        };
        let header = code.program.headers.iter().position(of);
        let header = header.ok_or_else(|| LoadError::new("not a varbit field"));
        self.at(index, header.map(|header| header as HeaderId))
    }
}
