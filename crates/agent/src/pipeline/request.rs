// SPDX-License-Identifier: Apache-2.0
//! What the plan tells a table by names, as the engine is asked: by numbers and bytes.

use crate::plan::pipeline::{Entry, Group, Register, Session, Value, Values};
use crate::plan::text::{Hex, Mac};
use qbed_p4engine::control::{self, CloneSession, Replica, Request, Target};
use qbed_p4engine::program::{ActionCall, Key, Match, MatchKind, Program, Table};
use std::net::IpAddr;

type Made<T> = std::result::Result<T, String>;

pub fn request(program: &Program, entry: &Entry) -> Made<Request> {
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

pub fn register(program: &Program, told: &Register) -> Made<Request> {
    let here = |text: String| format!("register {}: {text}", told.name);
    let position = program.arrays.iter().position(|array| array.name == told.name);
    let number = position.ok_or_else(|| here("the program has none of this name".to_owned()))?;
    let value = bytes(&told.value, program.arrays[number].width).map_err(here)?;
    let array = u16::try_from(number).map_err(|_| "too many registers".to_owned())?;
    Ok(Request::WriteRegister { array, index: told.index, value })
}

fn call(program: &Program, table: &Table, entry: &Entry) -> Made<ActionCall> {
    let named = |number: &&u16| {
        program.actions.get(usize::from(**number)).is_some_and(|action| action.name == entry.action)
    };
    let found = table.actions.iter().find(named);
    let action = *found.ok_or_else(|| format!("table {}: no action {}", table.name, entry.action))?;
    let parameters = &program.actions[usize::from(action)].parameters;
    let here = |text: String| format!("table {}, action {}: {text}", table.name, entry.action);
    let names = parameters.iter().map(|parameter| parameter.name.as_str());
    check_names(&entry.arguments, names).map_err(here)?;
    let arguments = parameters.iter().map(|parameter| {
        bytes(&entry.arguments[&parameter.name], parameter.width)
            .map_err(|text| here(format!("{}: {text}", parameter.name)))
    });
    Ok(ActionCall { action, arguments: arguments.collect::<Made<_>>()? })
}

fn matches(program: &Program, table: &Table, values: &Values) -> Made<Vec<Match>> {
    let here = |text: String| format!("table {}: {text}", table.name);
    let wanted = |key: &&Key| key.kind == MatchKind::Exact || values.contains_key(&key.name);
    check_names(values, table.keys.iter().filter(wanted).map(|key| key.name.as_str())).map_err(here)?;
    let one = |key: &Key| {
        let width = program.fields.get(usize::from(key.field)).map_or(0, |field| field.width);
        let Some(value) = values.get(&key.name) else { return Ok(any(key.kind, width)) };
        found(key, value, width).map_err(|text| here(format!("{}: {text}", key.name)))
    };
    table.keys.iter().map(one).collect()
}

/// What fits all.
fn any(kind: MatchKind, width: u32) -> Match {
    let zeros = vec![0; width.div_ceil(8) as usize];
    match kind {
        MatchKind::Exact | MatchKind::Ternary => Match::Ternary { value: zeros.clone(), mask: zeros },
        MatchKind::Lpm => Match::Lpm { value: zeros, length: 0 },
        MatchKind::Range => Match::Range { low: zeros, high: ones(width) },
        MatchKind::Optional => Match::Optional(None),
    }
}

/// The largest number of so many bits.
fn ones(width: u32) -> Vec<u8> {
    let mut found = vec![0xff; width.div_ceil(8) as usize];
    if let (Some(first), 1..) = (found.first_mut(), width % 8) {
        *first >>= 8 - width % 8;
    }
    found
}

/// Of `5..9` and the like both numbers, as text.
fn parts<'v>(value: &'v Value, between: &str, expected: &str) -> Made<(&'v str, &'v str)> {
    let Value::Text(text) = value else { return Err(format!("{value:?} is not {expected}")) };
    text.split_once(between).ok_or_else(|| format!("{text:?} is not {expected}"))
}

fn found(key: &Key, value: &Value, width: u32) -> Made<Match> {
    let number = |text: &str| bytes(&Value::Text(text.to_owned()), width);
    match key.kind {
        MatchKind::Exact => bytes(value, width).map(Match::Exact),
        MatchKind::Optional => bytes(value, width).map(|value| Match::Optional(Some(value))),
        MatchKind::Lpm => {
            let (prefix, length) = parts(value, "/", "a value with a prefix length")?;
            let length: u16 =
                length.parse().map_err(|_| format!("{value:?} is not a value with a prefix length"))?;
            if u32::from(length) > width {
                return Err(format!("a prefix of {length} bits of {width}"));
            }
            Ok(Match::Lpm { value: number(prefix)?, length })
        }
        MatchKind::Ternary => {
            let (value, mask) = parts(value, "&&&", "a value with a mask")?;
            Ok(Match::Ternary { value: number(value)?, mask: number(mask)? })
        }
        MatchKind::Range => {
            let (low, high) = parts(value, "..", "two values, from and to")?;
            Ok(Match::Range { low: number(low)?, high: number(high)? })
        }
    }
}

/// Exactly these are given.
fn check_names<'a>(values: &Values, names: impl Iterator<Item = &'a str> + Clone) -> Made<()> {
    if let Some(name) = names.clone().find(|name| !values.contains_key(*name)) {
        return Err(format!("{name} is missing"));
    }
    match values.keys().find(|given| !names.clone().any(|name| name == given.as_str())) {
        Some(name) => Err(format!("there is no {name}")),
        None => Ok(()),
    }
}

/// A value in the bytes of a field of so many bits, big endian.
fn bytes(value: &Value, width: u32) -> Made<Vec<u8>> {
    let length = width.div_ceil(8) as usize;
    let (raw, whole) = match value {
        Value::Number(number) => (number.to_be_bytes().to_vec(), false),
        Value::Text(text) => read(text).ok_or_else(|| format!("{text:?} is no number and no address"))?,
    };
    if whole && raw.len() != length {
        return Err(format!("{value:?} does not have {width} bits"));
    }
    let first = raw.iter().position(|byte| *byte != 0).unwrap_or(raw.len());
    let used = &raw[first..];
    let bits = used.first().map_or(0, |top| 8 * used.len() as u32 - top.leading_zeros());
    if bits > width {
        return Err(format!("{value:?} does not fit into {width} bits"));
    }
    let mut found = vec![0; length - used.len()];
    found.extend(used);
    Ok(found)
}

/// Big endian; and whether it is all of a field: an address.
fn read(text: &str) -> Option<(Vec<u8>, bool)> {
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

    fn entry(value: serde_json::Value) -> Entry {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn entries_become_what_the_engine_takes() {
        let program = ecn();
        let mut engine = qbed_p4engine::Engine::load(program.clone()).unwrap();
        for told in [
            json!({"table": "next_hops", "key": {"hop": 3}, "action": "send", "arguments":
                {"port": 2, "source": "02:00:00:00:00:01", "destination": "02:00:00:00:00:02"}}),
            json!({"table": "ipv4_routes", "key": {"destination": "10.0.0.4/30"}, "action": "route", "arguments":
                {"first": 3, "count": 1, "shift_by": 16}}),
            json!({"table": "ipv6_routes", "key": {"destination": "fd00::4/126"}, "action": "route", "arguments":
                {"first": 3, "count": 1, "shift_by": 0}}),
            json!({"table": "marking", "key": {"port": 510}, "action": "mark_above", "arguments": {"packets": 524287}}),
            json!({"table": "marking", "action": "mark_above", "arguments": {"packets": 7}}),
        ] {
            let asked = request(&program, &entry(told)).unwrap();
            assert_eq!(engine.control(&asked), control::Answer::Done, "{asked:?}");
        }
    }

    #[test]
    fn keys_of_every_kind_priorities_groups_and_registers() {
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
        for told in [bin(json!("5..9"), 1), bin(json!("0x0a..18446744073709551615"), 1), bin(json!(null), 2)]
        {
            let asked = request(&bins, &entry(told)).unwrap();
            assert_eq!(engine.control(&asked), control::Answer::Done, "{asked:?}");
        }
        let message = request(&bins, &entry(bin(json!(5), 1))).unwrap_err();
        assert!(message.contains("length: Number(5) is not two values, from and to"), "{message}");

        let ternary = |key: &Key| found(key, &Value::Text("0x10&&&0xf0".to_owned()), 8);
        let key = Key { name: "k".to_owned(), field: 0, kind: MatchKind::Ternary, mask: None };
        assert_eq!(ternary(&key), Ok(Match::Ternary { value: vec![0x10], mask: vec![0xf0] }));
        assert_eq!(ones(13), [0x1f, 0xff]);

        let mut engine = qbed_p4engine::Engine::load(program.clone()).unwrap();
        let array = &program.arrays[0].name;
        let told = Register { name: array.clone(), index: 0, value: Value::Number(1) };
        assert_eq!(engine.control(&register(&program, &told).unwrap()), control::Answer::Done);
        let asked = group(&Group { group: 5, ports: vec![1, 2] });
        assert_eq!(engine.control(&asked), control::Answer::Done);
        let told = Register { name: "none".to_owned(), index: 0, value: Value::Number(1) };
        assert!(register(&program, &told)
            .unwrap_err()
            .contains("register none: the program has none of this name"));
    }

    #[test]
    fn refusals_say_what_is_wrong() {
        let program = ecn();
        let send = |arguments| json!({"table": "next_hops", "key": {"hop": 0}, "action": "send", "arguments": arguments});
        for (told, says) in [
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
            (send(json!({"port": 1, "source": "x", "destination": 2})), "is no number and no address"),
            (
                json!({"table": "ipv4_routes", "key": {"destination": "10.0.0.0/33"}, "action": "no_route", "arguments": {}}),
                "destination: a prefix of 33 bits of 32",
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
            let message = request(&program, &entry(told)).unwrap_err();
            assert!(message.contains(says), "{message:?} does not say {says:?}");
        }
    }
}
