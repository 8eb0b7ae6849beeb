// SPDX-License-Identifier: Apache-2.0
//! Reads of table entries, default entries, and their counters and meters.

use qbed_p4engine::control::{Entry, EntryState, Target};
use qbed_p4engine::program::{Match, TableId};

use super::{find, for_each, table, Annotations, Key};
use crate::device::actions::encode_action;
use crate::device::arrays::{counter_data, meter_config};
use crate::device::{Entities, Session};
use crate::error::{invalid, not_found, unimplemented, Result};
use crate::matches::{decode_key, encode_key};
use crate::pipeline::Table;
use crate::proto::p4::v1::entity::Entity as Kind;
use crate::proto::p4::v1::table_action::Type as ActionType;
use crate::proto::p4::v1::table_entry::IdleTimeout;
use crate::proto::p4::v1::{DirectCounterEntry, DirectMeterEntry, TableAction, TableEntry};

/// Visit the entries of all tables, of one table, or one entry. Returns their number.
fn select(
    session: &mut Session,
    filter: &TableEntry,
    mut each: impl FnMut(&mut Session, u32, &Table, EntryState) -> Result<()>,
) -> Result<usize> {
    let mut count = 0;
    if filter.table_id == 0 {
        for (id, table) in &session.pipeline.tables {
            for_each(session, table.number, |session, state| {
                count += 1;
                each(session, *id, table, state)
            })?;
        }
        return Ok(count);
    }
    let table = table(session, filter.table_id)?;
    let wanted = match filter.r#match.is_empty() {
        true => None,
        false => Some(decode_key(&table.keys, &filter.r#match, &table.name)?),
    };
    let priority = u32::try_from(filter.priority).map_err(|_| invalid("a negative priority"))?;
    if let (Some(matches), true) = (&wanted, priority != 0 || !table.has_priorities()) {
        let key = Key { matches: matches.clone(), priority };
        return match find(session, table, &key)? {
            Some(state) => each(session, filter.table_id, table, state).map(|()| 1),
            None => Ok(0),
        };
    }
    for_each(session, table.number, |session, state| {
        let matches = wanted.as_ref().is_none_or(|wanted| *wanted == state.entry.matches);
        if matches && (priority == 0 || priority == state.entry.priority) {
            count += 1;
            each(session, filter.table_id, table, state)?;
        }
        Ok(())
    })?;
    Ok(count)
}

pub fn read(session: &mut Session, filter: &TableEntry, found: &mut Entities) -> Result<()> {
    #[allow(deprecated)]
    let unfiltered = filter.r#match.is_empty()
        && filter.action.is_none()
        && filter.priority == 0
        && filter.metadata.is_empty()
        && filter.controller_metadata == 0;
    if filter.table_id == 0 && !unfiltered {
        return Err(invalid("a read of all tables takes no other filter"));
    }
    if filter.meter_counter_data.is_some() {
        return Err(unimplemented("meters have no counters by colour"));
    }
    if filter.is_default_action {
        return read_defaults(session, filter, found);
    }
    if filter.table_id != 0
        && filter.time_since_last_hit.is_some()
        && !table(session, filter.table_id)?.idle_timeout
    {
        return Err(invalid("the table has no idle timeout"));
    }
    let action = match filter.action.as_ref().map(|action| &action.r#type) {
        None => None,
        Some(Some(ActionType::Action(action))) => Some(action.action_id),
        Some(_) => return Err(invalid("entries can only be filtered by the id of an action")),
    };
    let now_us = session.control.now_us();
    select(session, filter, |session, id, table, state| {
        let entry = entry_message(session, id, table, &state);
        let action_id = match entry.action.as_ref().and_then(|action| action.r#type.as_ref()) {
            Some(ActionType::Action(action)) => Some(action.action_id),
            _ => None,
        };
        if action.is_some() && action != action_id || !annotations_match(filter, &entry) {
            return Ok(());
        }
        found.push(Kind::TableEntry(with_resources(entry, filter, table, &state, now_us)))
    })
    .map(drop)
}

#[allow(deprecated)]
fn annotations_match(filter: &TableEntry, entry: &TableEntry) -> bool {
    (filter.metadata.is_empty() || filter.metadata == entry.metadata)
        && (filter.controller_metadata == 0 || filter.controller_metadata == entry.controller_metadata)
}

/// Add the resources that are set in the filter.
fn with_resources(
    mut entry: TableEntry,
    filter: &TableEntry,
    table: &Table,
    state: &EntryState,
    now_us: u64,
) -> TableEntry {
    if filter.counter_data.is_some() && table.has_counter {
        entry.counter_data = Some(counter_data(state.count.unwrap_or_default()));
    }
    if filter.meter_config.is_some() && table.meter.is_some() {
        entry.meter_config = state.rates.map(meter_config);
    }
    if filter.time_since_last_hit.is_some() && table.idle_timeout {
        let elapsed_us = now_us.saturating_sub(state.last_hit_us);
        let elapsed_ns = i64::try_from(elapsed_us.saturating_mul(1000)).unwrap_or(i64::MAX);
        entry.time_since_last_hit = Some(IdleTimeout { elapsed_ns });
    }
    entry
}

fn entry_message(session: &Session, id: u32, table: &Table, state: &EntryState) -> TableEntry {
    let entry = &state.entry;
    let none = Annotations::default();
    let annotations = session
        .state
        .annotations
        .get(&(table.number, entry.matches.clone(), entry.priority))
        .unwrap_or(&none);
    let action = match (&entry.target, &annotations.one_shot) {
        (_, Some(one_shot)) => Some(ActionType::ActionProfileActionSet(one_shot.set.clone())),
        (Target::Call(call), _) => encode_action(&table.actions, call).map(ActionType::Action),
        (Target::Member(member), _) => Some(ActionType::ActionProfileMemberId(*member)),
        (Target::Group(group), _) => Some(ActionType::ActionProfileGroupId(*group)),
    };
    TableEntry {
        table_id: id,
        r#match: encode_key(&table.keys, &entry.matches),
        action: action.map(|action| TableAction { r#type: Some(action) }),
        priority: i32::try_from(entry.priority).unwrap_or(i32::MAX),
        metadata: annotations.metadata.clone(),
        #[allow(deprecated)]
        controller_metadata: annotations.controller_metadata,
        idle_timeout_ns: annotations.idle_timeout_ns,
        is_const: table.constant,
        ..Default::default()
    }
}

fn read_defaults(session: &mut Session, filter: &TableEntry, found: &mut Entities) -> Result<()> {
    if !filter.r#match.is_empty() || filter.priority != 0 {
        return Err(invalid("a default entry has no match and no priority"));
    }
    if filter.table_id != 0 {
        table(session, filter.table_id)?;
    }
    for (id, table) in &session.pipeline.tables {
        if filter.table_id != 0 && filter.table_id != *id {
            continue;
        }
        let none = Annotations::default();
        let (call, annotations) = match session.state.defaults.get(&table.number) {
            Some((call, annotations)) => (Some(call), annotations),
            None => (session.pipeline.program.tables[usize::from(table.number)].default.as_ref(), &none),
        };
        let action = call.and_then(|call| encode_action(&table.actions, call)).map(ActionType::Action);
        let entry = TableEntry {
            table_id: *id,
            action: action.map(|action| TableAction { r#type: Some(action) }),
            is_default_action: true,
            metadata: annotations.metadata.clone(),
            #[allow(deprecated)]
            controller_metadata: annotations.controller_metadata,
            is_const: table.constant_default,
            ..Default::default()
        };
        if annotations_match(filter, &entry) {
            found.push(Kind::TableEntry(entry))?;
        }
    }
    Ok(())
}

/// Visit the entries with a direct counter or meter. One entry must exist.
fn read_direct(
    session: &mut Session,
    filter: Option<&TableEntry>,
    has: impl Fn(&Table) -> bool,
    mut each: impl FnMut(TableEntry, &EntryState) -> Result<()>,
) -> Result<()> {
    let filter = filter.cloned().unwrap_or_default();
    if filter.is_default_action {
        return Err(unimplemented("default entries have no counter or meter"));
    }
    if filter.table_id == 0 && !filter.r#match.is_empty() {
        return Err(invalid("a read of all tables takes no other filter"));
    }
    if filter.table_id != 0 && !has(table(session, filter.table_id)?) {
        return Err(invalid(format!("{} has no such resource", table(session, filter.table_id)?.name)));
    }
    let count = select(session, &filter, |_, id, table, state| {
        if !has(table) {
            return Ok(());
        }
        let (r#match, priority) = (encode_key(&table.keys, &state.entry.matches), state.entry.priority);
        let priority = i32::try_from(priority).unwrap_or(i32::MAX);
        each(TableEntry { table_id: id, r#match, priority, ..Default::default() }, &state)
    })?;
    match count {
        0 if !filter.r#match.is_empty() => Err(not_found("no such entry")),
        _ => Ok(()),
    }
}

pub fn read_counters(session: &mut Session, entry: &DirectCounterEntry, found: &mut Entities) -> Result<()> {
    read_direct(
        session,
        entry.table_entry.as_ref(),
        |table| table.has_counter,
        |entry, state| {
            let data = Some(counter_data(state.count.unwrap_or_default()));
            found.push(Kind::DirectCounterEntry(DirectCounterEntry { table_entry: Some(entry), data }))
        },
    )
}

pub fn read_meters(session: &mut Session, entry: &DirectMeterEntry, found: &mut Entities) -> Result<()> {
    if entry.counter_data.is_some() {
        return Err(unimplemented("meters have no counters by colour"));
    }
    read_direct(
        session,
        entry.table_entry.as_ref(),
        |table| table.meter.is_some(),
        |entry, state| {
            let config = state.rates.map(meter_config);
            found.push(Kind::DirectMeterEntry(DirectMeterEntry {
                table_entry: Some(entry),
                config,
                counter_data: None,
            }))
        },
    )
}

/// The entries of an idle timeout notification.
pub fn idle_entries(session: &mut Session, keys: Vec<(TableId, Vec<Match>, u32)>) -> Vec<TableEntry> {
    let message = |(number, matches, priority): (TableId, Vec<Match>, u32)| {
        let (id, table) = session.pipeline.table_of(number)?;
        let target = Target::Member(0);
        let entry = Entry { matches, priority, target, idle_us: 0 };
        let state = EntryState { entry, count: None, rates: None, last_hit_us: 0 };
        Some(TableEntry { action: None, ..entry_message(session, id, table, &state) })
    };
    keys.into_iter().filter_map(message).collect()
}
