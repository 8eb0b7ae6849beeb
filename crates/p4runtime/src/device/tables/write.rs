// SPDX-License-Identifier: Apache-2.0
//! Writes of table entries, default entries, and their counters and meters.

use qbed_p4engine::control::{Count, Entry, Rates, Request, Target};

use super::{find, for_each, key_of, table, Annotations, Key, MAX_METADATA};
use crate::device::actions::decode_action;
use crate::device::arrays::{count_of, rates_of};
use crate::device::{profiles, Session};
use crate::error::{denied, exhausted, invalid, not_found, unimplemented, Result};
use crate::pipeline::{MeterKind, Table};
use crate::proto::p4::v1::table_action::Type as ActionType;
use crate::proto::p4::v1::update::Type;
use crate::proto::p4::v1::{DirectCounterEntry, DirectMeterEntry, TableAction, TableEntry};

/// Properties of a written entry besides key and action. They are checked before the write begins.
struct Options {
    annotations: Annotations,
    count: Option<Count>,
    rates: Option<Rates>,
}

fn options_of(table: &Table, entry: &TableEntry) -> Result<Options> {
    if entry.time_since_last_hit.is_some() {
        return Err(invalid("time_since_last_hit is read-only"));
    }
    if entry.idle_timeout_ns < 0 || entry.idle_timeout_ns > 0 && !table.idle_timeout {
        return Err(invalid(format!("{}: invalid idle timeout of {} ns", table.name, entry.idle_timeout_ns)));
    }
    if entry.metadata.len() > MAX_METADATA {
        return Err(exhausted(format!("more than {MAX_METADATA} bytes of metadata")));
    }
    if entry.meter_counter_data.is_some() {
        return Err(unimplemented("meters have no counters by colour"));
    }
    let count = match &entry.counter_data {
        Some(_) if !table.has_counter => {
            return Err(invalid(format!("{} has no direct counter", table.name)))
        }
        data => data.as_ref().map(count_of).transpose()?,
    };
    let rates = match (&entry.meter_config, table.meter) {
        (Some(_), None) => return Err(invalid(format!("{} has no direct meter", table.name))),
        (config, kind) => {
            config.as_ref().map(|config| rates_of(kind.unwrap_or(MeterKind::None), config)).transpose()?
        }
    };
    let annotations = Annotations {
        metadata: entry.metadata.clone(),
        #[allow(deprecated)]
        controller_metadata: entry.controller_metadata,
        idle_timeout_ns: entry.idle_timeout_ns,
        one_shot: None,
    };
    Ok(Options { annotations, count, rates })
}

pub fn write(session: &mut Session, kind: Type, entry: &TableEntry) -> Result<()> {
    let table = table(session, entry.table_id)?;
    if entry.is_const {
        return Err(invalid("is_const is set by the program only"));
    }
    if entry.is_default_action {
        return write_default(session, kind, table, entry);
    }
    if table.keys.is_empty() {
        return Err(invalid(format!("{} has no key and thus only a default entry", table.name)));
    }
    if kind == Type::Delete {
        let key = key_of(table, entry)?;
        return delete(session, table, key);
    }
    let options = options_of(table, entry)?;
    let key = key_of(table, entry)?;
    if table.constant && (kind != Type::Modify || entry.action.is_some()) {
        return Err(denied(format!("the entries of {} are constant", table.name)));
    }
    match kind {
        Type::Insert => insert(session, table, key, options, entry.action.as_ref()),
        _ => modify(session, table, key, options, entry.action.as_ref()),
    }
}

fn delete(session: &mut Session, table: &Table, key: Key) -> Result<()> {
    if table.constant {
        return Err(denied(format!("the entries of {} are constant", table.name)));
    }
    let Key { matches, priority } = key;
    session.execute(Request::Delete { table: table.number, matches: matches.clone(), priority })?;
    if let Some(Annotations { one_shot: Some(one_shot), .. }) =
        session.state.annotations.remove(&(table.number, matches, priority))
    {
        profiles::drop_one_shot(session, one_shot)?;
    }
    Ok(())
}

fn insert(
    session: &mut Session,
    table: &Table,
    key: Key,
    mut options: Options,
    action: Option<&TableAction>,
) -> Result<()> {
    let action = action.ok_or_else(|| invalid(format!("{}: an entry without an action", table.name)))?;
    let (target, one_shot) = target_of(session, table, action)?;
    options.annotations.one_shot = one_shot;
    let entry = engine_entry(&key, target, &options.annotations);
    if let Err(refused) = session.execute(Request::Insert { table: table.number, entry }) {
        undo_one_shot(session, options.annotations.one_shot);
        return Err(refused);
    }
    set_resources(session, table, &key, options.count, options.rates)?;
    set_annotations(session, table, key, options.annotations);
    Ok(())
}

fn modify(
    session: &mut Session,
    table: &Table,
    key: Key,
    mut options: Options,
    action: Option<&TableAction>,
) -> Result<()> {
    let at = (table.number, key.matches.clone(), key.priority);
    let old = session.state.annotations.get(&at).and_then(|annotations| annotations.one_shot.clone());
    let present =
        find(session, table, &key)?.ok_or_else(|| not_found(format!("{}: no such entry", table.name)))?;
    let target = match action {
        Some(action) => {
            let (target, one_shot) = target_of(session, table, action)?;
            options.annotations.one_shot = one_shot;
            target
        }
        None => {
            options.annotations.one_shot = old.clone();
            present.entry.target.clone()
        }
    };
    if !table.constant {
        let entry = engine_entry(&key, target, &options.annotations);
        if let Err(refused) = session.execute(Request::Modify { table: table.number, entry }) {
            if action.is_some() {
                undo_one_shot(session, options.annotations.one_shot);
            }
            return Err(refused);
        }
    }
    // Without a meter_config the meter has no limit. Without counter_data the counter keeps its value.
    let reset = table.meter.is_some() && options.rates.is_none() && present.rates.is_some();
    if reset {
        set_rates(session, table, &key, None)?;
    }
    set_resources(session, table, &key, options.count, options.rates)?;
    set_annotations(session, table, key, options.annotations);
    match old {
        Some(old) if action.is_some() => profiles::drop_one_shot(session, old),
        _ => Ok(()),
    }
}

fn engine_entry(key: &Key, target: Target, annotations: &Annotations) -> Entry {
    let idle_us = u64::try_from(annotations.idle_timeout_ns).unwrap_or(0).div_ceil(1000);
    Entry { matches: key.matches.clone(), priority: key.priority, target, idle_us }
}

fn undo_one_shot(session: &mut Session, one_shot: Option<profiles::OneShot>) {
    if let Some(one_shot) = one_shot {
        let _ = profiles::drop_one_shot(session, one_shot); // no entry has it yet
    }
}

fn set_annotations(session: &mut Session, table: &Table, key: Key, annotations: Annotations) {
    let at = (table.number, key.matches, key.priority);
    if annotations == Annotations::default() {
        session.state.annotations.remove(&at);
    } else {
        session.state.annotations.insert(at, annotations);
    }
}

fn set_resources(
    session: &mut Session,
    table: &Table,
    key: &Key,
    count: Option<Count>,
    rates: Option<Rates>,
) -> Result<()> {
    if let Some(value) = count {
        let (matches, priority) = (key.matches.clone(), key.priority);
        session.execute(Request::WriteDirectCounter { table: table.number, matches, priority, value })?;
    }
    match rates {
        Some(_) => set_rates(session, table, key, rates),
        None => Ok(()),
    }
}

fn set_rates(session: &mut Session, table: &Table, key: &Key, rates: Option<Rates>) -> Result<()> {
    let (matches, priority) = (key.matches.clone(), key.priority);
    session.execute(Request::SetDirectMeter { table: table.number, matches, priority, rates })
}

fn target_of(
    session: &mut Session,
    table: &Table,
    given: &TableAction,
) -> Result<(Target, Option<profiles::OneShot>)> {
    let expected = |expected: &str| invalid(format!("{}: expected {expected}", table.name));
    let profile = table.profile.and_then(|id| Some((id, session.pipeline.profiles.get(&id)?)));
    let Some((id, profile)) = profile else {
        let Some(ActionType::Action(action)) = &given.r#type else { return Err(expected("an action")) };
        let (call, action) = decode_action(&table.actions, &table.name, action)?;
        if !action.in_entries {
            return Err(denied(format!("{} is only for the default entry of {}", action.name, table.name)));
        }
        return Ok((Target::Call(call), None));
    };
    match &given.r#type {
        Some(ActionType::ActionProfileMemberId(member)) => Ok((Target::Member(*member), None)),
        Some(ActionType::ActionProfileGroupId(group)) if profile.selector => {
            Ok((Target::Group(*group), None))
        }
        Some(ActionType::ActionProfileActionSet(set)) if profile.selector => {
            let one_shot = profiles::add_one_shot(session, id, profile, table, set)?;
            Ok((Target::Group(one_shot.group), Some(one_shot)))
        }
        _ if profile.selector => Err(expected("a member, a group or a set of actions")),
        _ => Err(expected("a member")),
    }
}

fn write_default(session: &mut Session, kind: Type, table: &Table, entry: &TableEntry) -> Result<()> {
    if kind != Type::Modify {
        return Err(invalid(format!("the default entry of {} can only be modified", table.name)));
    }
    if !entry.r#match.is_empty() || entry.priority != 0 {
        return Err(invalid(format!("the default entry of {} has no match and no priority", table.name)));
    }
    let options = options_of(table, entry)?;
    if entry.idle_timeout_ns != 0 {
        return Err(invalid("a default entry has no idle timeout"));
    }
    if options.count.is_some() || options.rates.is_some() {
        return Err(unimplemented("default entries have no counter or meter"));
    }
    if table.constant_default || table.profile.is_some() {
        return Err(denied(format!("the default entry of {} is constant", table.name)));
    }
    let Some(action) = &entry.action else {
        session.execute(Request::ResetDefault { table: table.number })?;
        session.state.defaults.remove(&table.number);
        return Ok(());
    };
    let Some(ActionType::Action(action)) = &action.r#type else {
        return Err(invalid(format!("{}: expected an action", table.name)));
    };
    let (call, action) = decode_action(&table.actions, &table.name, action)?;
    if !action.as_default {
        return Err(denied(format!("{} is not for the default entry of {}", action.name, table.name)));
    }
    session.execute(Request::SetDefault { table: table.number, target: Target::Call(call.clone()) })?;
    session.state.defaults.insert(table.number, (call, options.annotations));
    Ok(())
}

/// The existing entry of a write to a direct counter or meter.
fn entry_of<'a>(
    session: &mut Session<'a>,
    kind: Type,
    entry: Option<&TableEntry>,
) -> Result<(&'a Table, Key)> {
    if kind != Type::Modify {
        return Err(invalid("direct counters and meters can only be modified"));
    }
    let entry = entry.ok_or_else(|| invalid("expected a table entry"))?;
    let table = table(session, entry.table_id)?;
    if entry.is_default_action {
        return Err(unimplemented("default entries have no counter or meter"));
    }
    let key = key_of(table, entry)?;
    match find(session, table, &key)? {
        Some(_) => Ok((table, key)),
        None => Err(not_found(format!("{}: no such entry", table.name))),
    }
}

pub fn write_counter(session: &mut Session, kind: Type, entry: &DirectCounterEntry) -> Result<()> {
    let (table, key) = entry_of(session, kind, entry.table_entry.as_ref())?;
    if !table.has_counter {
        return Err(invalid(format!("{} has no direct counter", table.name)));
    }
    let count = entry.data.as_ref().map(count_of).transpose()?;
    set_resources(session, table, &key, count, None)
}

pub fn write_meter(session: &mut Session, kind: Type, entry: &DirectMeterEntry) -> Result<()> {
    let (table, key) = entry_of(session, kind, entry.table_entry.as_ref())?;
    let kind = table.meter.ok_or_else(|| invalid(format!("{} has no direct meter", table.name)))?;
    if entry.counter_data.is_some() {
        return Err(unimplemented("meters have no counters by colour"));
    }
    let rates = entry.config.as_ref().map(|config| rates_of(kind, config)).transpose()?;
    set_rates(session, table, &key, rates)
}

/// Delete all entries except those of constant tables.
pub fn clear(session: &mut Session) -> Result<()> {
    for table in session.pipeline.tables.values().filter(|table| !table.constant) {
        let mut keys = vec![];
        for_each(session, table.number, |_, state| {
            keys.push((state.entry.matches, state.entry.priority));
            Ok(())
        })?;
        for (matches, priority) in keys {
            session.execute(Request::Delete { table: table.number, matches, priority })?;
        }
    }
    Ok(())
}
