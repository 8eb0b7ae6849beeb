// SPDX-License-Identifier: Apache-2.0
//! Compiles the parser's states and the deparser.

use std::collections::HashMap;

use qbed_p4engine::program::{Binary, Op, Pc, Select, SelectCase, SelectKey, SelectOn, StackId};
use qbed_p4engine::select_width;

use super::expression::Expression;
use super::operands::{Object, Scope};
use super::{narrow, number, Loader};
use crate::bmv2::{part, Call, Operand, ParseState, ParserOp, Transition};
use crate::error::{refuse, At, LoadError, Result};

/// A reference to a state that is patched when the positions of all states are known.
enum Patch {
    Jump(usize),
    Case(usize, usize),
    Default(usize),
}

/// The destination of an extraction.
enum Target {
    Header(qbed_p4engine::program::HeaderId),
    Next { stack: StackId, member: u16 },
}

impl Loader<'_> {
    pub(super) fn parser(&mut self) -> Result<Pc> {
        let document = self.document;
        let parser = match document.parsers.as_slice() {
            [parser] => parser,
            parsers => return refuse(format!("{} parsers: expected one", parsers.len())),
        };
        let place = || format!("parser {}", parser.name);
        let mut begins: HashMap<&str, Pc> = HashMap::new();
        let mut patches = Vec::new();
        for state in &parser.parse_states {
            begins.insert(&state.name, self.next_pc());
            let compiled = self.state(state, &mut patches);
            compiled.at(|| format!("state {}", state.name)).at(place)?;
        }
        let accept = self.next_pc();
        self.emit(Op::End);
        let find = |state: Option<&str>| match state {
            None => Ok(accept),
            Some(name) => {
                let found = begins.get(name).copied();
                found.ok_or_else(|| LoadError::new(format!("no state {name}"))).at(place)
            }
        };
        for (patch, next) in patches {
            let to = find(next)?;
            match patch {
                Patch::Jump(at) => self.patch_jump(at, to),
                Patch::Case(select, case) => self.program.selects[select].cases[case].next = to,
                Patch::Default(select) => self.program.selects[select].default = Some(to),
            }
        }
        find(parser.init_state.as_deref())
    }

    fn state<'s>(
        &mut self,
        state: &'s ParseState,
        patches: &mut Vec<(Patch, Option<&'s str>)>,
    ) -> Result<()> {
        for (index, op) in state.parser_ops.iter().enumerate() {
            let compiled = self.scoped(|code| code.parser_op(op));
            compiled.at(|| format!("op {index} {}", op.op))?;
        }
        let is_default = |transition: &Transition| {
            transition.kind.as_deref().unwrap_or_else(|| transition.value.as_deref().unwrap_or_default())
                == "default"
        };
        if state.transition_key.is_empty() {
            let next = state.transitions.iter().find(|transition| is_default(transition));
            let at = self.emit(Op::Jump { to: 0 });
            patches.push((Patch::Jump(at), next.and_then(|next| next.next_state.as_deref())));
            return Ok(());
        }
        let keys = state.transition_key.iter().enumerate();
        let keys = keys.map(|(index, key)| self.select_key(key).at(|| format!("transition key {index}")));
        let keys: Vec<SelectKey> = keys.filter_map(Result::transpose).collect::<Result<_>>()?;
        let bytes =
            keys.iter().map(|key| select_width(&self.program, key).div_ceil(8) as usize).sum::<usize>();
        let select = self.program.selects.len();
        let mut cases = Vec::new();
        for (index, transition) in state.transitions.iter().enumerate() {
            let next = transition.next_state.as_deref();
            if is_default(transition) {
                patches.push((Patch::Default(select), next));
                continue;
            }
            let on = self.select_on(transition, bytes).at(|| format!("transition {index}"))?;
            patches.push((Patch::Case(select, cases.len()), next));
            cases.push(SelectCase { on, next: 0 });
        }
        let bytes = narrow(bytes, "bytes in a transition key")?;
        self.program.selects.push(Select { keys, bytes, cases, default: None });
        self.emit(Op::Select { select: narrow(select, "transitions")? });
        Ok(())
    }

    /// A select key. None if it has 0 bits.
    fn select_key(&self, key: &Operand) -> Result<Option<SelectKey>> {
        match self.operand(key, Scope::default())? {
            Expression::Field(field) => Ok(Some(SelectKey::Field(field))),
            Expression::Lookahead { at, width } => Ok(Some(SelectKey::Lookahead { at, width })),
            Expression::Last { stack, member, field } => {
                Ok(Some(SelectKey::StackLast { stack, member, field }))
            }
            Expression::Empty => Ok(None),
            _ => refuse(format!("an operand of type {} cannot be a select key", key.kind)),
        }
    }

    fn select_on(&mut self, transition: &Transition, bytes: usize) -> Result<SelectOn> {
        let mask = match &transition.mask {
            Some(mask) => Some(number::bytes(&number::hexstr(mask)?, bytes).at(|| "mask".into())?),
            None => None,
        };
        let value = transition.value.as_deref().ok_or_else(|| LoadError::new("no value"))?;
        match transition.kind.as_deref().unwrap_or("hexstr") {
            "hexstr" => Ok(SelectOn::Value { value: number::bytes(&number::hexstr(value)?, bytes)?, mask }),
            "parse_vset" => {
                let set = self.value_sets.get(value).copied();
                let set = set.ok_or_else(|| LoadError::new(format!("no value set {value}")))?;
                // The width in the JSON does not include the padding of several keys.
                self.program.value_sets[set as usize].bytes = narrow(bytes, "bytes in a value set")?;
                Ok(SelectOn::Set { set, mask })
            }
            other => refuse(format!("unknown transition type {other}")),
        }
    }

    fn parser_op(&mut self, op: &ParserOp) -> Result<()> {
        let parameter = |index: usize| {
            let found = op.parameters.get(index);
            found.ok_or_else(|| LoadError::new(format!("too few parameters: {}", op.parameters.len())))
        };
        match op.op.as_str() {
            "extract" => {
                match self.target(&part(parameter(0)?)?)? {
                    Target::Header(header) => self.emit(Op::Extract { header }),
                    Target::Next { stack, member } => self.emit(Op::ExtractNext { stack, member }),
                };
            }
            "extract_VL" => {
                let width = self.evaluate(&self.expression(parameter(1)?, Scope::default())?)?;
                match self.target(&part(parameter(0)?)?)? {
                    Target::Header(header) => self.emit(Op::ExtractVarbit { header, width }),
                    Target::Next { stack, member } => {
                        self.emit(Op::ExtractNextVarbit { stack, member, width })
                    }
                };
            }
            "set" => return self.set(parameter(0)?, parameter(1)?),
            "verify" => {
                let condition = self.evaluate(&self.expression(parameter(0)?, Scope::default())?)?;
                let error = self.evaluate(&self.expression(parameter(1)?, Scope::default())?)?;
                self.emit(Op::Verify { condition, error });
            }
            "shift" => {
                let bytes = match parameter(0)? {
                    serde_json::Value::Number(bytes) => Expression::number(bytes.as_u64().unwrap_or(0)),
                    other => self.expression(other, Scope::default())?,
                };
                let bits = Expression::binary(Binary::Multiply, bytes, Expression::number(8));
                let bits = self.evaluate(&bits)?;
                self.emit(Op::Advance { bits });
            }
            "advance" => {
                let bits = self.evaluate(&self.expression(parameter(0)?, Scope::default())?)?;
                self.emit(Op::Advance { bits });
            }
            "primitive" => {
                let call: Call = part(parameter(0)?)?;
                if !self.primitive(&call, Scope::default()).at(|| call.op.clone())?.is_empty() {
                    return refuse(format!("{} in a parser", call.op));
                }
            }
            _ => return refuse("not a parser operation of v1model"),
        }
        Ok(())
    }

    fn set(&mut self, to: &serde_json::Value, from: &serde_json::Value) -> Result<()> {
        let to = self.expression(to, Scope::default())?;
        let from = self.expression(from, Scope::default())?;
        if let (Some(to), Some(from)) = (self.varbit_header(&to), self.varbit_header(&from)) {
            self.emit(Op::CopyVarbit { to, from });
            return Ok(());
        }
        let place = super::assign::Place::new(to)?;
        self.assign(&place, &from)
    }

    /// The header of a varbit field.
    fn varbit_header(&self, of: &Expression) -> Option<u16> {
        let Expression::Field(field) = of else { return None };
        let is = |header: &qbed_p4engine::program::Header| {
            header.varbit.is_some_and(|varbit| varbit.field == *field)
        };
        self.program.headers.iter().position(is).map(|header| header as u16)
    }

    fn target(&self, operand: &Operand) -> Result<Target> {
        match operand.kind.as_str() {
            "regular" => Ok(Target::Header(self.header(&part::<String>(&operand.value)?)?)),
            "stack" => Ok(Target::Next { stack: self.stack(&part::<String>(&operand.value)?)?, member: 0 }),
            "union_stack" => {
                let (stack, member) = part::<(String, String)>(&operand.value)?;
                let stack = self.stack(&stack)?;
                Ok(Target::Next { stack, member: self.union_member(stack, &member)? })
            }
            "header" => match self
                .object(&serde_json::json!({"type": "header", "value": operand.value}), Scope::default())?
            {
                Object::Header(header) => Ok(Target::Header(header)),
                _ => refuse("not a header"),
            },
            other => refuse(format!("cannot extract into an operand of type {other}")),
        }
    }

    pub(super) fn deparser(&mut self) -> Result<Pc> {
        let document = self.document;
        let deparser = match document.deparsers.as_slice() {
            [deparser] => deparser,
            deparsers => return refuse(format!("{} deparsers: expected one", deparsers.len())),
        };
        let place = || format!("deparser {}", deparser.name);
        let begin = self.next_pc();
        self.body(&deparser.primitives, Scope::default()).at(place)?;
        for name in &deparser.order {
            let header = self.header(name).at(place)?;
            if self.program.headers[header as usize].metadata {
                return refuse(format!("{name} is metadata: expected a header")).at(place);
            }
            self.emit(Op::Emit { header });
        }
        self.emit(Op::End);
        Ok(begin)
    }
}
