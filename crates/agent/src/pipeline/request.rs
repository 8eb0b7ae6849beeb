// SPDX-License-Identifier: Apache-2.0
//! Translates entries of the plan, which have names and numbers, to requests of the engine, which have positions and
//! bytes.

use crate::plan::pipeline::{self as plan, Entry, Group, Register, Session};
use qbed_p4engine::control::{self, CloneSession, Replica, Request, Target};
use qbed_p4engine::program::{ActionCall, Key, Match, MatchKind, Program, Table};
use std::collections::BTreeMap;

type Result<T> = std::result::Result<T, String>;

/// The request that inserts an entry or sets a default action.
pub fn entry(program: &Program, entry: &Entry) -> Result<Request> {
    let position = program.tables.iter().position(|table| table.name == entry.table);
    let number = position.ok_or_else(|| format!("the program has no table {}", entry.table))?;
    let declared = &program.tables[number];
    let table = u16::try_from(number).map_err(|_| "too many tables".to_owned())?;
    let target = Target::Call(call(program, declared, entry)?);
    let Some(values) = &entry.key else {
        return Ok(Request::SetDefault { table, target });
    };
    let matches = matches(program, declared, values)?;
    let entry = control::Entry { matches, priority: entry.priority, target, idle_us: 0 };
    Ok(Request::Insert { table, entry })
}

pub fn session(session: &Session) -> Request {
    let clone = CloneSession { replicas: replicas(&session.ports), truncate_bytes: session.truncate_bytes };
    Request::SetCloneSession { session: session.session, clone: Some(clone) }
}

pub fn group(group: &Group) -> Request {
    Request::SetMulticastGroup { group: group.group, replicas: Some(replicas(&group.ports)) }
}

fn replicas(ports: &[u16]) -> Vec<Replica> {
    ports.iter().map(|port| Replica { port: *port, instance: 0 }).collect()
}

pub fn register(program: &Program, register: &Register) -> Result<Request> {
    let error = |text: String| format!("register {}: {text}", register.name);
    let position = program.arrays.iter().position(|array| array.name == register.name);
    let number = position.ok_or_else(|| error("the program has no such register".to_owned()))?;
    let value = register.value.to_field(program.arrays[number].width).map_err(error)?;
    let array = u16::try_from(number).map_err(|_| "too many registers".to_owned())?;
    Ok(Request::WriteRegister { array, index: register.index, value })
}

fn call(program: &Program, table: &Table, entry: &Entry) -> Result<ActionCall> {
    let matches_name = |number: &&u16| {
        program.actions.get(usize::from(**number)).is_some_and(|action| action.name == entry.action)
    };
    let found = table.actions.iter().find(matches_name);
    let action = *found.ok_or_else(|| format!("table {}: no action {}", table.name, entry.action))?;
    let parameters = &program.actions[usize::from(action)].parameters;
    let error = |text: String| format!("table {}, action {}: {text}", table.name, entry.action);
    let names = parameters.iter().map(|parameter| parameter.name.as_str());
    check_names(&entry.arguments, names).map_err(error)?;
    let arguments = parameters.iter().map(|parameter| {
        entry.arguments[&parameter.name]
            .to_field(parameter.width)
            .map_err(|text| error(format!("{}: {text}", parameter.name)))
    });
    Ok(ActionCall { action, arguments: arguments.collect::<Result<_>>()? })
}

fn matches(program: &Program, table: &Table, values: &BTreeMap<String, plan::Match>) -> Result<Vec<Match>> {
    let error = |text: String| format!("table {}: {text}", table.name);
    let required = |key: &&Key| key.kind == MatchKind::Exact || values.contains_key(&key.name);
    check_names(values, table.keys.iter().filter(required).map(|key| key.name.as_str())).map_err(error)?;
    let translate = |key: &Key| {
        let width = program.fields.get(usize::from(key.field)).map_or(0, |field| field.width);
        let Some(value) = values.get(&key.name) else { return Ok(match_all(key.kind, width)) };
        key_match(key.kind, value, width).map_err(|text| error(format!("{}: {text}", key.name)))
    };
    table.keys.iter().map(translate).collect()
}

/// The match of any value.
fn match_all(kind: MatchKind, width: u32) -> Match {
    let zeros = vec![0; width.div_ceil(8) as usize];
    match kind {
        MatchKind::Exact | MatchKind::Ternary => Match::Ternary { value: zeros.clone(), mask: zeros },
        MatchKind::Lpm => Match::Lpm { value: zeros, length: 0 },
        MatchKind::Range => Match::Range { low: zeros, high: ones(width) },
        MatchKind::Optional => Match::Optional(None),
    }
}

/// The largest value of `width` bits.
fn ones(width: u32) -> Vec<u8> {
    let mut bytes = vec![0xff; width.div_ceil(8) as usize];
    if let (Some(first), 1..) = (bytes.first_mut(), width % 8) {
        *first >>= 8 - width % 8;
    }
    bytes
}

fn key_match(kind: MatchKind, value: &plan::Match, width: u32) -> Result<Match> {
    Ok(match (kind, value) {
        (MatchKind::Exact, plan::Match::Value(value)) => Match::Exact(value.to_field(width)?),
        (MatchKind::Optional, plan::Match::Value(value)) => Match::Optional(Some(value.to_field(width)?)),
        (MatchKind::Lpm, plan::Match::Prefix { value, prefix }) => {
            if u32::from(*prefix) > width {
                return Err(format!("prefix length {prefix} is larger than {width}"));
            }
            Match::Lpm { value: value.to_field(width)?, length: *prefix }
        }
        // BMv2's JSON has ternary keys for P4Info's optional ones.
        (MatchKind::Ternary, plan::Match::Value(value)) => {
            Match::Ternary { value: value.to_field(width)?, mask: ones(width) }
        }
        (MatchKind::Ternary, plan::Match::Masked { value, mask }) => {
            Match::Ternary { value: value.to_field(width)?, mask: mask.to_field(width)? }
        }
        (MatchKind::Range, plan::Match::Range { low, high }) => {
            Match::Range { low: low.to_field(width)?, high: high.to_field(width)? }
        }
        _ => return Err(format!("{value:?} is not a match of the kind {kind:?}")),
    })
}

/// Checks that `values` has exactly these names.
fn check_names<'a, V>(
    values: &BTreeMap<String, V>,
    names: impl Iterator<Item = &'a str> + Clone,
) -> Result<()> {
    if let Some(name) = names.clone().find(|name| !values.contains_key(*name)) {
        return Err(format!("{name} is missing"));
    }
    match values.keys().find(|key| !names.clone().any(|name| name == key.as_str())) {
        Some(name) => Err(format!("there is no {name}")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn ecn() -> Program {
        let text = include_bytes!("../../../../schemes/ecn/p4/ecn.json");
        qbed_p4switch::load::load(text).unwrap()
    }

    fn plan_entry(value: serde_json::Value) -> Entry {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn the_engine_accepts_translated_entries() {
        let program = ecn();
        let mut engine = qbed_p4engine::Engine::load(program.clone()).unwrap();
        for value in [
            json!({"table": "next_hops", "key": {"hop": 3}, "action": "send", "arguments":
                {"port": 2, "source": 0x0200_0000_0001_u64, "destination": 0x0200_0000_0002_u64}}),
            json!({"table": "ipv4_routes", "key": {"destination": {"value": 0x0a00_0004, "prefix": 30}}, "action": "route", "arguments":
                {"first": 3, "count": 1, "shift_by": 16}}),
            json!({"table": "ipv6_routes", "key": {"destination":
                {"value": "0xfd000000000000000000000000000004", "prefix": 126}}, "action": "route", "arguments":
                {"first": 3, "count": 1, "shift_by": 0}}),
            json!({"table": "marking", "key": {"port": 510}, "action": "mark_above", "arguments": {"packets": 524287}}),
            json!({"table": "marking", "action": "mark_above", "arguments": {"packets": 7}}),
        ] {
            let request = entry(&program, &plan_entry(value)).unwrap();
            assert_eq!(engine.control(&request), control::Answer::Done, "{request:?}");
        }
    }

    #[test]
    fn match_kinds_priorities_groups_and_registers() {
        let text = include_bytes!("../../../../crates/p4runtime/tests/programs/everything.json");
        let program = qbed_p4switch::load::load(text).unwrap();
        let bins =
            qbed_p4switch::load::load(include_bytes!("../../../../schemes/stamp/p4/stamp.json")).unwrap();
        let mut engine = qbed_p4engine::Engine::load(bins.clone()).unwrap();
        let bin = |length: serde_json::Value, priority| {
            let mut key = json!({"port": 1, "unit": 0, "bits": "0x4"});
            if !length.is_null() {
                key["length"] = length;
            }
            let arguments = json!({"value": "0xffffffffffffffff"});
            let action = "stands_for";
            json!({"table": "bins", "key": key, "action": action, "arguments": arguments, "priority": priority})
        };
        for value in [
            bin(json!({"low": 5, "high": 9}), 1),
            bin(json!({"low": "0x0a", "high": u64::MAX}), 1),
            bin(json!(null), 2),
        ] {
            let request = entry(&bins, &plan_entry(value)).unwrap();
            assert_eq!(engine.control(&request), control::Answer::Done, "{request:?}");
        }
        let message = entry(&bins, &plan_entry(bin(json!(5), 1))).unwrap_err();
        assert!(message.contains("length: Value(Number([5])) is not a match of the kind Range"), "{message}");

        let ternary = plan::Match::Masked { value: 0x10.into(), mask: 0xf0.into() };
        let expected = Match::Ternary { value: vec![0x10], mask: vec![0xf0] };
        assert_eq!(key_match(MatchKind::Ternary, &ternary, 8), Ok(expected));
        let optional = key_match(MatchKind::Ternary, &plan::Match::Value(7.into()), 13);
        assert_eq!(optional, Ok(Match::Ternary { value: vec![0, 7], mask: vec![0x1f, 0xff] }));

        let mut engine = qbed_p4engine::Engine::load(program.clone()).unwrap();
        let array = &program.arrays[0].name;
        let known = Register { name: array.clone(), index: 0, value: 1.into() };
        assert_eq!(engine.control(&register(&program, &known).unwrap()), control::Answer::Done);
        let request = group(&Group { group: 5, ports: vec![1, 2] });
        assert_eq!(engine.control(&request), control::Answer::Done);
        let unknown = Register { name: "none".to_owned(), index: 0, value: 1.into() };
        assert!(register(&program, &unknown)
            .unwrap_err()
            .contains("register none: the program has no such register"));
    }

    #[test]
    fn errors_name_the_cause() {
        let program = ecn();
        let send = |arguments| json!({"table": "next_hops", "key": {"hop": 0}, "action": "send", "arguments": arguments});
        for (value, expected) in [
            (
                json!({"table": "nexthops", "action": "send", "arguments": {}}),
                "the program has no table nexthops",
            ),
            (
                json!({"table": "next_hops", "action": "route", "arguments": {}}),
                "table next_hops: no action route",
            ),
            (send(json!({"port": 1, "source": 1})), "action send: destination is missing"),
            (
                send(json!({"port": 512, "source": 1, "destination": 2})),
                "port: 0x0200 does not fit into 9 bits",
            ),
            (
                send(json!({"port": 1, "source": "0x1000000000000", "destination": 2})),
                "source: 0x01000000000000 does not fit into 48 bits",
            ),
            (
                json!({"table": "ipv4_routes", "key": {"destination": {"value": 0, "prefix": 33}}, "action": "no_route", "arguments": {}}),
                "destination: prefix length 33 is larger than 32",
            ),
            (
                json!({"table": "ipv4_routes", "key": {"destination": 0}, "action": "no_route", "arguments": {}}),
                "destination: Value(Number([])) is not a match of the kind Lpm",
            ),
            (
                json!({"table": "ipv4_routes", "key": {"to": {"value": 0, "prefix": 8}}, "action": "no_route", "arguments": {}}),
                "there is no to",
            ),
        ] {
            let message = entry(&program, &plan_entry(value)).unwrap_err();
            assert!(message.contains(expected), "{message:?} does not contain {expected:?}");
        }
    }

    #[test]
    fn numbers_are_digits_without_signs_or_units() {
        for text in ["7", "10.0.0.1", "0xg", "-1", "1.5", "0x", "02:00:00:00:00:01"] {
            assert!(serde_json::from_value::<plan::Number>(json!(text)).is_err(), "{text}");
        }
        for value in [json!(-1), json!(1.5), json!(true), json!([1]), json!(null)] {
            assert!(serde_json::from_value::<plan::Number>(value).is_err());
        }
        for value in [json!({"value": 1}), json!({"value": 1, "prefix": 1, "mask": 1}), json!({"low": 1})] {
            assert!(serde_json::from_value::<plan::Match>(value).is_err());
        }
    }
}
