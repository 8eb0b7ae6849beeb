// SPDX-License-Identifier: Apache-2.0
//! What the plan tells a table by names, as the engine is asked: by numbers and bytes.

use crate::plan::pipeline::{Entry, Session, Value, Values};
use crate::plan::text::Mac;
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
    Ok(Request::Insert { table, entry: control::Entry { matches, priority: 0, target, idle_us: 0 } })
}

pub fn session(session: &Session) -> Request {
    let replicas = session.ports.iter().map(|port| Replica { port: *port, instance: 0 }).collect();
    let clone = CloneSession { replicas, truncate_bytes: session.truncate_bytes };
    Request::SetCloneSession { session: session.session, clone: Some(clone) }
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
    check_names(values, table.keys.iter().map(|key| key.name.as_str())).map_err(here)?;
    let one = |key: &Key| {
        let width = program.fields.get(usize::from(key.field)).map_or(0, |field| field.width);
        found(key, &values[&key.name], width).map_err(|text| here(format!("{}: {text}", key.name)))
    };
    table.keys.iter().map(one).collect()
}

fn found(key: &Key, value: &Value, width: u32) -> Made<Match> {
    match (key.kind, value) {
        (MatchKind::Exact, value) => bytes(value, width).map(Match::Exact),
        (MatchKind::Lpm, Value::Text(text)) => {
            let wrong = || format!("{text:?} is not a value with a prefix length");
            let (prefix, length) = text.split_once('/').ok_or_else(wrong)?;
            let length: u16 = length.parse().map_err(|_| wrong())?;
            if u32::from(length) > width {
                return Err(format!("a prefix of {length} bits of {width}"));
            }
            let value = bytes(&Value::Text(prefix.to_owned()), width)?;
            Ok(Match::Lpm { value, length })
        }
        (kind, value) => Err(format!("{value:?} is no key of the kind {kind:?}")),
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
    let raw = match value {
        Value::Number(number) => number.to_be_bytes().to_vec(),
        Value::Text(text) => match (text.parse(), text.parse()) {
            (Ok(IpAddr::V4(address)), _) => address.octets().to_vec(),
            (Ok(IpAddr::V6(address)), _) => address.octets().to_vec(),
            (_, Ok(Mac(address))) => address.to_vec(),
            _ => return Err(format!("{text:?} is no number and no address")),
        },
    };
    if matches!(value, Value::Text(_)) && raw.len() != length {
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
                "destination is missing",
            ),
        ] {
            let message = request(&program, &entry(told)).unwrap_err();
            assert!(message.contains(says), "{message:?} does not say {says:?}");
        }
    }
}
