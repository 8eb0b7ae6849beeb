// SPDX-License-Identifier: Apache-2.0
//! Compiles ingress and egress: their tables, and the control-flow graph of tables, conditionals and calls.

use std::collections::{HashMap, VecDeque};

use num_bigint::BigInt;
use num_traits::Zero;
use qbed_p4engine::program::{
    ActionCall, ActionId, ConstEntry, Counter, FieldId, Key, Match, MatchKind, Next, Op, Pc, Profile, Table,
    TableId,
};
use serde_json::Value as Json;

use super::assign::Place;
use super::operands::Scope;
use super::{narrow, number, Loader};
use crate::bmv2::{self, part, Conditional, EntryKey, Pipeline};
use crate::error::{refuse, At, LoadError, Result};

/// A node of a control-flow graph.
#[derive(Clone, Copy)]
enum Node<'a> {
    Table(&'a bmv2::Table),
    Conditional(&'a Conditional),
    Call(&'a bmv2::ActionCall),
}

/// A reference to a node that is patched when the positions of all nodes are known.
enum Patch {
    Jump(usize),
    Action(TableId, usize),
    None(TableId),
    Hit(TableId),
    Miss(TableId),
}

/// References with their target node; None is the control's end.
type Patches<'a> = Vec<(Patch, Option<&'a str>)>;

impl<'a> Node<'a> {
    fn successors(self) -> Vec<Option<&'a str>> {
        match self {
            Self::Table(table) => {
                let next = table.next_tables.values().map(|next| next.as_deref());
                next.chain([table.base_default_next.as_deref()]).collect()
            }
            Self::Conditional(of) => vec![of.true_next.as_deref(), of.false_next.as_deref()],
            Self::Call(call) => vec![call.next_node.as_deref()],
        }
    }
}

impl<'a> Loader<'a> {
    pub(super) fn pipeline(&mut self, name: &str) -> Result<Pc> {
        let document = self.document;
        let Some(pipeline) = document.pipelines.iter().find(|pipeline| pipeline.name == name) else {
            return refuse(format!("no pipeline {name}: the program is not for simple_switch"));
        };
        self.control(pipeline).at(|| name.into())
    }

    fn control(&mut self, pipeline: &'a Pipeline) -> Result<Pc> {
        self.profiles(pipeline)?;
        for (index, table) in pipeline.tables.iter().enumerate() {
            self.table(table).at(|| format!("tables[{index}] {}", table.name))?;
        }
        let mut nodes = HashMap::new();
        let tables = pipeline.tables.iter().map(|table| (table.name.as_str(), Node::Table(table)));
        let conditionals = pipeline.conditionals.iter().map(|of| (of.name.as_str(), Node::Conditional(of)));
        let calls = pipeline.action_calls.iter().map(|call| (call.name.as_str(), Node::Call(call)));
        for (name, node) in tables.chain(conditionals).chain(calls) {
            if nodes.insert(name, node).is_some() {
                return refuse(format!("duplicate node {name}"));
            }
        }
        let order = topological_order(&nodes, pipeline.init_table.as_deref())?;
        self.graph(&nodes, &order)
    }

    /// Emit the nodes in topological order, so that most continue by falling through.
    fn graph(&mut self, nodes: &HashMap<&'a str, Node<'a>>, order: &[&'a str]) -> Result<Pc> {
        let begin = self.next_pc();
        let mut begins = HashMap::new();
        let mut patches = Vec::new();
        for (position, name) in order.iter().enumerate() {
            begins.insert(*name, self.next_pc());
            let following = order.get(position + 1).copied();
            match nodes[name] {
                Node::Conditional(of) => {
                    let place = || format!("conditional {name}");
                    let condition = self.operand(&of.expression, Scope::default()).at(place)?;
                    let jumps = self.skip_unless(&condition).at(place)?;
                    patches.extend(jumps.into_iter().map(|at| (Patch::Jump(at), of.false_next.as_deref())));
                    self.continue_at(of.true_next.as_deref(), following, &mut patches);
                }
                Node::Call(call) => {
                    let action = document_action(self.document, call.action_id)
                        .at(|| format!("action call {name}"))?;
                    self.body(&action.primitives, Scope::default()).at(|| format!("action call {name}"))?;
                    self.continue_at(call.next_node.as_deref(), following, &mut patches);
                }
                Node::Table(table) => match self.inlined(table) {
                    Some((action, values, next)) => {
                        let parameters =
                            self.program.actions[self.actions[&action.id] as usize].parameters.clone();
                        let scope = Scope { parameters: &parameters, values: Some(&values) };
                        self.body(&action.primitives, scope).at(|| format!("table {name}"))?;
                        self.continue_at(next, following, &mut patches);
                    }
                    None => {
                        let id = self.table_number(name)?;
                        for (field, key) in self.computed_keys.remove(&id).unwrap_or_default() {
                            self.assign(&Place::Field(field), &key).at(|| format!("table {name}"))?;
                        }
                        self.emit(Op::Apply { table: id });
                        self.next_nodes(table, id, &mut patches);
                    }
                },
            }
        }
        let end = self.next_pc();
        self.emit(Op::End);
        for (patch, next) in patches {
            let to = match next {
                None => end,
                Some(name) => *begins.get(name).ok_or_else(|| LoadError::new(format!("no node {name}")))?,
            };
            self.patch(&patch, to);
        }
        Ok(begin)
    }

    fn continue_at(&mut self, next: Option<&'a str>, following: Option<&str>, patches: &mut Patches<'a>) {
        if next.is_none() || next != following {
            let at = self.emit(Op::Jump { to: 0 });
            patches.push((Patch::Jump(at), next));
        }
    }

    fn patch(&mut self, patch: &Patch, to: Pc) {
        match patch {
            Patch::Jump(at) => self.patch_jump(*at, to),
            Patch::Action(table, index) => {
                if let Next::ByAction { to: targets, .. } = &mut self.program.tables[*table as usize].next {
                    targets[*index] = to;
                }
            }
            Patch::None(table) => {
                if let Next::ByAction { none, .. } = &mut self.program.tables[*table as usize].next {
                    *none = to;
                }
            }
            Patch::Hit(table) => {
                if let Next::ByHit { hit, .. } = &mut self.program.tables[*table as usize].next {
                    *hit = to;
                }
            }
            Patch::Miss(table) => {
                if let Next::ByHit { miss, .. } = &mut self.program.tables[*table as usize].next {
                    *miss = to;
                }
            }
        }
    }

    fn next_nodes(&self, table: &'a bmv2::Table, id: TableId, patches: &mut Patches<'a>) {
        let base = table.base_default_next.as_deref();
        let next_of = |key: &str| table.next_tables.get(key).map_or(base, |next| next.as_deref());
        match &self.program.tables[id as usize].next {
            Next::ByHit { .. } => {
                patches.push((Patch::Hit(id), next_of("__HIT__")));
                patches.push((Patch::Miss(id), next_of("__MISS__")));
            }
            Next::ByAction { .. } => {
                for (index, action) in self.program.tables[id as usize].actions.iter().enumerate() {
                    patches.push((
                        Patch::Action(id, index),
                        next_of(&self.program.actions[*action as usize].name),
                    ));
                }
                patches.push((Patch::None(id), base));
            }
        }
    }

    /// The action, arguments and next node of a table that can be inlined: p4c wraps each statement of a control in a
    /// table without keys. Tables with a dropping action are kept, because drops are counted by table.
    fn inlined(&self, table: &'a bmv2::Table) -> Option<(&'a bmv2::Action, Vec<BigInt>, Option<&'a str>)> {
        let entry = table.default_entry.as_ref()?;
        let fixed = entry.action_const && entry.action_entry_const && table.entries.is_none();
        let alone = table.key.is_empty()
            && table.kind == "simple"
            && !table.with_counters
            && table.direct_meters.is_none();
        if !fixed || !alone {
            return None;
        }
        let action = document_action(self.document, entry.action_id).ok()?;
        if action.primitives.iter().any(|call| matches!(call.op.as_str(), "mark_to_drop" | "drop")) {
            return None;
        }
        let data = entry.action_data.as_deref().unwrap_or_default();
        let values = data.iter().map(|value| number::hexstr(value).ok()).collect::<Option<Vec<_>>>()?;
        let base = || table.base_default_next.as_deref();
        let by_hit = is_by_hit(table);
        let key = if by_hit { "__MISS__" } else { action.name.as_str() };
        Some((action, values, table.next_tables.get(key).map_or_else(base, |next| next.as_deref())))
    }

    fn profiles(&mut self, pipeline: &'a Pipeline) -> Result<()> {
        for (index, profile) in pipeline.action_profiles.iter().enumerate() {
            let place = || format!("action_profiles[{index}] {}", profile.name);
            if self.program.profiles.iter().any(|known| known.name == profile.name) {
                return refuse("duplicate action profile").at(place);
            }
            let selector = match &profile.selector {
                Some(of) => {
                    Some(self.hash(&format!("{}.selector", profile.name), &of.algo, &of.input).at(place)?)
                }
                None => None,
            };
            let max_size = profile.max_size.unwrap_or(u32::MAX);
            self.program.profiles.push(Profile { name: profile.name.clone(), max_size, selector });
        }
        Ok(())
    }

    fn table(&mut self, table: &'a bmv2::Table) -> Result<()> {
        let id: TableId = narrow(self.program.tables.len(), "tables")?;
        if self.table_number(&table.name)? != id {
            return refuse("duplicate table, or pipelines out of order");
        }
        let keys = table.key.iter().enumerate();
        let keys = keys.map(|(index, key)| self.key(id, key).at(|| format!("key {index}")));
        let keys: Vec<Key> = keys.collect::<Result<_>>()?;
        let actions = self.table_actions(table)?;
        let default = match &table.default_entry {
            None => None,
            Some(entry) => {
                let data = entry.action_data.as_deref();
                Some(self.action_call(&actions, entry.action_id, data).at(|| "default_entry".into())?)
            }
        };
        let fixed =
            table.default_entry.as_ref().is_some_and(|entry| entry.action_const || entry.action_entry_const);
        let mut entries = Vec::new();
        for (index, entry) in table.entries.iter().flatten().enumerate() {
            let entry = self.entry(&keys, &actions, entry).at(|| format!("entries[{index}]"))?;
            entries.push(entry);
        }
        let next = match is_by_hit(table) {
            true => Next::ByHit { hit: 0, miss: 0 },
            false => Next::ByAction { to: vec![0; actions.len()], none: 0 },
        };
        let (profile, counter, meter) =
            (self.profile_of(table)?, self.counter_of(table, id)?, self.meter_of(table)?);
        self.program.tables.push(Table {
            name: table.name.clone(),
            keys,
            max_size: table.max_size.unwrap_or(1024),
            actions,
            profile,
            default,
            constant_default: fixed,
            constant_entries: table.entries.is_some() && table.constant_entries,
            entries,
            next,
            counter,
            meter,
            idle_timeout: table.support_timeout,
        });
        Ok(())
    }

    fn profile_of(&self, table: &bmv2::Table) -> Result<Option<u16>> {
        match table.kind.as_str() {
            "simple" => return Ok(None),
            "indirect" | "indirect_ws" => {}
            other => return refuse(format!("unknown table type {other}")),
        }
        let name = table.action_profile.as_ref().or(table.act_prof_name.as_ref());
        let name = name.ok_or_else(|| LoadError::new("an indirect table without an action profile"))?;
        let found = self.program.profiles.iter().position(|profile| profile.name == *name);
        let index = found.ok_or_else(|| LoadError::new(format!("no action profile {name}")))?;
        if table.kind == "indirect_ws" && self.program.profiles[index].selector.is_none() {
            return refuse(format!("the action profile {name} has no selector"));
        }
        Ok(Some(index as u16))
    }

    fn counter_of(&mut self, table: &bmv2::Table, id: TableId) -> Result<Option<u16>> {
        let found = self.program.counters.iter().position(|counter| counter.table == Some(id));
        match found {
            Some(index) => Ok(Some(index as u16)),
            None if table.with_counters => {
                let index = narrow(self.program.counters.len(), "counters")?;
                self.program.counters.push(Counter { name: table.name.clone(), table: Some(id), size: 0 });
                Ok(Some(index))
            }
            None => Ok(None),
        }
    }

    fn meter_of(&self, table: &bmv2::Table) -> Result<Option<u16>> {
        let Some(name) = &table.direct_meters else { return Ok(None) };
        let found = self.meters.get(name.as_str()).copied();
        found.map(Some).ok_or_else(|| LoadError::new(format!("no meter {name}")))
    }

    fn table_actions(&self, table: &bmv2::Table) -> Result<Vec<ActionId>> {
        let by_id = |id: &u32| {
            let found = self.actions.get(id).copied();
            found.ok_or_else(|| LoadError::new(format!("no action of id {id}")))
        };
        if let Some(ids) = &table.action_ids {
            return ids.iter().map(by_id).collect();
        }
        let by_name = |name: &String| {
            let found = self.program.actions.iter().position(|action| action.name == *name);
            found.map(|index| index as ActionId).ok_or_else(|| LoadError::new(format!("no action {name}")))
        };
        table.actions.iter().map(by_name).collect()
    }

    fn key(&mut self, table: TableId, key: &bmv2::Key) -> Result<Key> {
        let kind = match key.match_type.as_str() {
            "exact" | "valid" => MatchKind::Exact,
            "lpm" => MatchKind::Lpm,
            "ternary" => MatchKind::Ternary,
            "range" => MatchKind::Range,
            "optional" => MatchKind::Optional,
            other => return refuse(format!("match type {other} is unknown")),
        };
        let (field_id, default_name) = self.key_field(table, key).at(|| "target".into())?;
        let bytes = self.program.fields[field_id as usize].width.div_ceil(8) as usize;
        let mask = match &key.mask {
            Some(mask) => Some(number::bytes(&number::hexstr(mask)?, bytes).at(|| "mask".into())?),
            None => None,
        };
        let name = key.name.clone().unwrap_or(default_name);
        Ok(Key { name, field: field_id, kind, mask })
    }

    /// The field of a key, and the key's default name.
    fn key_field(&mut self, table: TableId, key: &bmv2::Key) -> Result<(FieldId, String)> {
        let (header, field) = match &key.target {
            Json::String(header) if key.match_type == "valid" => (header.clone(), "$valid$".to_owned()),
            // p4c's form of a stack element at a computed index, which BMv2 does not read.
            target @ Json::Object(_) => {
                let expression = self.expression(target, Scope::default())?;
                let width = expression.bits(&self.program).filter(|width| *width <= 1 << 15);
                let width = width.ok_or_else(|| LoadError::new("an expression of unknown width"))?;
                let field = self.layout.scratch(&mut self.program, width)?;
                self.computed_keys.entry(table).or_default().push((field, expression));
                return Ok((field, self.program.fields[field as usize].name.clone()));
            }
            target => part::<(String, String)>(target)?,
        };
        Ok((self.layout.field(&header, &field)?, format!("{header}.{field}")))
    }

    fn action_call(&self, actions: &[ActionId], id: u32, data: Option<&[String]>) -> Result<ActionCall> {
        let action = self.actions.get(&id).copied();
        let action = action.ok_or_else(|| LoadError::new(format!("no action of id {id}")))?;
        let of = &self.program.actions[action as usize];
        if !actions.contains(&action) {
            return refuse(format!("{} is not among the table's actions", of.name));
        }
        let data = data.unwrap_or_default();
        if data.len() != of.parameters.len() {
            return refuse(format!(
                "{}: {} arguments, expected {}",
                of.name,
                data.len(),
                of.parameters.len()
            ));
        }
        let value = |(text, width): (&String, u32)| Ok(number::value(&number::hexstr(text)?, width));
        let widths = of.parameters.iter().map(|parameter| parameter.width);
        let arguments = data.iter().zip(widths).map(value).collect::<Result<Vec<_>>>()?;
        Ok(ActionCall { action, arguments })
    }

    fn entry(&self, keys: &[Key], actions: &[ActionId], entry: &bmv2::Entry) -> Result<ConstEntry> {
        if entry.match_key.len() != keys.len() {
            return refuse(format!("{} keys: the table has {}", entry.match_key.len(), keys.len()));
        }
        let pairs = entry.match_key.iter().zip(keys).enumerate();
        let matches = pairs.map(|(index, (of, key))| self.entry_match(of, key).at(|| format!("key {index}")));
        let matches: Vec<Match> = matches.collect::<Result<_>>()?;
        let call =
            self.action_call(actions, entry.action_entry.action_id, Some(&entry.action_entry.action_data))?;
        Ok(ConstEntry { matches, priority: entry.priority.unwrap_or(0), call })
    }

    fn entry_match(&self, of: &EntryKey, key: &Key) -> Result<Match> {
        let width = self.program.fields[key.field as usize].width;
        let bytes = width.div_ceil(8) as usize;
        let read = |text: Option<&str>, member: &str| {
            let text = text.ok_or_else(|| LoadError::new(format!("no {member}")))?;
            number::bytes(&number::hexstr(text)?, bytes)
        };
        let value = || match &of.key {
            Json::Bool(value) => number::bytes(&u8::from(*value).into(), bytes),
            Json::String(text) => read(Some(text), "key"),
            _ => refuse("no key"),
        };
        match (of.match_type.as_str(), key.kind) {
            ("exact" | "valid", MatchKind::Exact) => Ok(Match::Exact(value()?)),
            ("lpm", MatchKind::Lpm) => {
                let length = of.prefix_length.filter(|length| *length <= width);
                let length = length
                    .ok_or_else(|| LoadError::new(format!("expected a prefix_length of 0 to {width}")))?;
                Ok(Match::Lpm { value: value()?, length: length as u16 })
            }
            ("ternary", MatchKind::Ternary) => {
                Ok(Match::Ternary { value: value()?, mask: read(of.mask.as_deref(), "mask")? })
            }
            ("ternary" | "optional", MatchKind::Optional) => {
                let is_set =
                    of.mask.as_deref().map_or(Ok(true), |mask| Ok(!number::hexstr(mask)?.is_zero()))?;
                Ok(Match::Optional(if is_set { Some(value()?) } else { None }))
            }
            ("range", MatchKind::Range) => {
                let (low, high) = (read(of.start.as_deref(), "start")?, read(of.end.as_deref(), "end")?);
                Ok(Match::Range { low, high })
            }
            (other, kind) => refuse(format!("match type {other}: the table's key is {kind:?}")),
        }
    }
}

fn is_by_hit(table: &bmv2::Table) -> bool {
    table.next_tables.contains_key("__HIT__") || table.next_tables.contains_key("__MISS__")
}

fn document_action(document: &bmv2::Document, id: u32) -> Result<&bmv2::Action> {
    let found = document.actions.iter().find(|action| action.id == id);
    found.ok_or_else(|| LoadError::new(format!("no action of id {id}")))
}

/// The reachable nodes in topological order. Fails if the graph has a cycle.
fn topological_order<'a>(nodes: &HashMap<&'a str, Node<'a>>, first: Option<&'a str>) -> Result<Vec<&'a str>> {
    let Some(first) = first else { return Ok(Vec::new()) };
    let node = |name: &str| nodes.get(name).copied().ok_or_else(|| LoadError::new(format!("no node {name}")));
    let mut arrivals: HashMap<&str, usize> = HashMap::from([(first, 0)]);
    let mut to_see = VecDeque::from([first]);
    while let Some(name) = to_see.pop_front() {
        for next in node(name)?.successors().into_iter().flatten() {
            match arrivals.get_mut(next) {
                Some(count) => *count += 1,
                None => {
                    arrivals.insert(next, 1);
                    to_see.push_back(next);
                }
            }
        }
    }
    let mut order = Vec::new();
    let mut ready = if arrivals[first] == 0 { vec![first] } else { Vec::new() };
    while let Some(name) = ready.pop() {
        order.push(name);
        // Reversed, because `ready` is a stack: the true branch of a conditional follows it.
        for next in node(name)?.successors().into_iter().rev().flatten() {
            let count = arrivals.entry(next).or_default();
            *count -= 1;
            if *count == 0 {
                ready.push(next);
            }
        }
    }
    match arrivals.iter().find(|(_, count)| **count > 0) {
        Some((name, _)) => refuse(format!("the control flow has a cycle through {name}")),
        None => Ok(order),
    }
}
