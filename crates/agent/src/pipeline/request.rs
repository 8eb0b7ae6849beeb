// SPDX-License-Identifier: Apache-2.0
//! Translates entries of the plan, which have names and text, to requests of the engine, which have numbers and bytes.

use crate::plan::pipeline::{Entry, Group, Register, Session, Value, Values};
use crate::plan::text::{Hex, Mac};
use qbed_p4engine::control::{self, CloneSession, Replica, Request, Target};
use qbed_p4engine::program::{ActionCall, Key, Match, MatchKind, Program, Table};
use std::net::IpAddr;

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
    let value = bytes(&register.value, program.arrays[number].width).map_err(error)?;
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
        bytes(&entry.arguments[&parameter.name], parameter.width)
            .map_err(|text| error(format!("{}: {text}", parameter.name)))
    });
    Ok(ActionCall { action, arguments: arguments.collect::<Result<_>>()? })
}

fn matches(program: &Program, table: &Table, values: &Values) -> Result<Vec<Match>> {
    let error = |text: String| format!("table {}: {text}", table.name);
    let required = |key: &&Key| key.kind == MatchKind::Exact || values.contains_key(&key.name);
    check_names(values, table.keys.iter().filter(required).map(|key| key.name.as_str())).map_err(error)?;
    let parse = |key: &Key| {
        let width = program.fields.get(usize::from(key.field)).map_or(0, |field| field.width);
        let Some(value) = values.get(&key.name) else { return Ok(match_all(key.kind, width)) };
        parse_match(key, value, width).map_err(|text| error(format!("{}: {text}", key.name)))
    };
    table.keys.iter().map(parse).collect()
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

/// Splits text such as `5..9` at a separator.
fn split<'v>(value: &'v Value, separator: &str, expected: &str) -> Result<(&'v str, &'v str)> {
    let Value::Text(text) = value else { return Err(format!("{value:?} is not {expected}")) };
    text.split_once(separator).ok_or_else(|| format!("{text:?} is not {expected}"))
}

fn parse_match(key: &Key, value: &Value, width: u32) -> Result<Match> {
    let number = |text: &str| bytes(&Value::Text(text.to_owned()), width);
    match key.kind {
        MatchKind::Exact => bytes(value, width).map(Match::Exact),
        MatchKind::Optional => bytes(value, width).map(|value| Match::Optional(Some(value))),
        MatchKind::Lpm => {
            let (prefix, length) = split(value, "/", "a value with a prefix length")?;
            let length: u16 =
                length.parse().map_err(|_| format!("{value:?} is not a value with a prefix length"))?;
            if u32::from(length) > width {
                return Err(format!("prefix length {length} is larger than {width}"));
            }
            Ok(Match::Lpm { value: number(prefix)?, length })
        }
        MatchKind::Ternary => {
            let (value, mask) = split(value, "&&&", "a value with a mask")?;
            Ok(Match::Ternary { value: number(value)?, mask: number(mask)? })
        }
        MatchKind::Range => {
            let (low, high) = split(value, "..", "a range of two values")?;
            Ok(Match::Range { low: number(low)?, high: number(high)? })
        }
    }
}

/// Checks that `values` has exactly these names.
fn check_names<'a>(values: &Values, names: impl Iterator<Item = &'a str> + Clone) -> Result<()> {
    if let Some(name) = names.clone().find(|name| !values.contains_key(*name)) {
        return Err(format!("{name} is missing"));
    }
    match values.keys().find(|key| !names.clone().any(|name| name == key.as_str())) {
        Some(name) => Err(format!("there is no {name}")),
        None => Ok(()),
    }
}

/// Encodes a value as big-endian bytes of a field with `width` bits.
fn bytes(value: &Value, width: u32) -> Result<Vec<u8>> {
    let length = width.div_ceil(8) as usize;
    let (raw, exact) = match value {
        Value::Number(number) => (number.to_be_bytes().to_vec(), false),
        Value::Text(text) => {
            parse(text).ok_or_else(|| format!("{text:?} is neither a number nor an address"))?
        }
    };
    if exact && raw.len() != length {
        return Err(format!("{value:?} does not have {width} bits"));
    }
    let first = raw.iter().position(|byte| *byte != 0).unwrap_or(raw.len());
    let used = &raw[first..];
    let bits = used.first().map_or(0, |top| 8 * used.len() as u32 - top.leading_zeros());
    if bits > width {
        return Err(format!("{value:?} does not fit into {width} bits"));
    }
    let mut bytes = vec![0; length - used.len()];
    bytes.extend(used);
    Ok(bytes)
}

/// Parses text to big-endian bytes. The flag is true for addresses, which must have the width of the field.
fn parse(text: &str) -> Option<(Vec<u8>, bool)> {
    if let Some(digits) = text.strip_prefix("0x") {
        let even = if digits.len() % 2 == 0 { digits.to_owned() } else { format!("0{digits}") };
        let Hex(raw) = even.parse().ok()?;
        return Some((raw, false));
    }
    if let Ok(number) = text.parse::<u64>() {
        return Some((number.to_be_bytes().to_vec(), false));
    }
    match (text.parse(), text.parse()) {
        (Ok(IpAddr::V4(address)), _) => Some((address.octets().to_vec(), true)),
        (Ok(IpAddr::V6(address)), _) => Some((address.octets().to_vec(), true)),
        (_, Ok(Mac(address))) => Some((address.to_vec(), true)),
        _ => None,
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
                {"port": 2, "source": "02:00:00:00:00:01", "destination": "02:00:00:00:00:02"}}),
            json!({"table": "ipv4_routes", "key": {"destination": "10.0.0.4/30"}, "action": "route", "arguments":
                {"first": 3, "count": 1, "shift_by": 16}}),
            json!({"table": "ipv6_routes", "key": {"destination": "fd00::4/126"}, "action": "route", "arguments":
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
        for value in [bin(json!("5..9"), 1), bin(json!("0x0a..18446744073709551615"), 1), bin(json!(null), 2)]
        {
            let request = entry(&bins, &plan_entry(value)).unwrap();
            assert_eq!(engine.control(&request), control::Answer::Done, "{request:?}");
        }
        let message = entry(&bins, &plan_entry(bin(json!(5), 1))).unwrap_err();
        assert!(message.contains("length: Number(5) is not a range of two values"), "{message}");

        let ternary = |key: &Key| parse_match(key, &Value::Text("0x10&&&0xf0".to_owned()), 8);
        let key = Key { name: "k".to_owned(), field: 0, kind: MatchKind::Ternary, mask: None };
        assert_eq!(ternary(&key), Ok(Match::Ternary { value: vec![0x10], mask: vec![0xf0] }));
        assert_eq!(ones(13), [0x1f, 0xff]);

        let mut engine = qbed_p4engine::Engine::load(program.clone()).unwrap();
        let array = &program.arrays[0].name;
        let known = Register { name: array.clone(), index: 0, value: Value::Number(1) };
        assert_eq!(engine.control(&register(&program, &known).unwrap()), control::Answer::Done);
        let request = group(&Group { group: 5, ports: vec![1, 2] });
        assert_eq!(engine.control(&request), control::Answer::Done);
        let unknown = Register { name: "none".to_owned(), index: 0, value: Value::Number(1) };
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
            (send(json!({"port": 1, "source": "02:00:00:00:00:01"})), "action send: destination is missing"),
            (
                send(json!({"port": 512, "source": 1, "destination": 2})),
                "port: Number(512) does not fit into 9 bits",
            ),
            (send(json!({"port": 1, "source": "10.0.0.1", "destination": 2})), "does not have 48 bits"),
            (send(json!({"port": 1, "source": "x", "destination": 2})), "is neither a number nor an address"),
            (
                json!({"table": "ipv4_routes", "key": {"destination": "10.0.0.0/33"}, "action": "no_route", "arguments": {}}),
                "destination: prefix length 33 is larger than 32",
            ),
            (
                json!({"table": "ipv4_routes", "key": {"destination": "10.0.0.0"}, "action": "no_route", "arguments": {}}),
                "is not a value with a prefix length",
            ),
            (
                json!({"table": "ipv4_routes", "key": {"to": "10.0.0.0/8"}, "action": "no_route", "arguments": {}}),
                "there is no to",
            ),
        ] {
            let message = entry(&program, &plan_entry(value)).unwrap_err();
            assert!(message.contains(expected), "{message:?} does not contain {expected:?}");
        }
    }
}
