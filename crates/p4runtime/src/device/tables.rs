// SPDX-License-Identifier: Apache-2.0
//! Table entries, default entries, and their counters and meters (section "TableEntry").

use qbed_p4engine::control::{Answer, Count, Entry, EntryState, Rates, Request, Target};
use qbed_p4engine::program::{ActionCall, Match, TableId};

use super::arrays::{count_of, counter_data, meter_config, rates_of};
use super::{profiles, Found, Session, PAGE};
use crate::bytestring::encode;
use crate::matches::{decode_key, encode_key};
use crate::pipeline::{Action, MeterKind, Table};
use crate::proto::p4::v1::action::Param;
use crate::proto::p4::v1::entity::Entity as Kind;
use crate::proto::p4::v1::table_action::Type as ActionType;
use crate::proto::p4::v1::table_entry::IdleTimeout;
use crate::proto::p4::v1::update::Type;
use crate::proto::p4::v1::{self, DirectCounterEntry, DirectMeterEntry, TableAction, TableEntry};
use crate::refused::{
    accepted, denied, exhausted, invalid, not_found, unexpected, unimplemented, Refused, Result,
};

/// Of the bytes that a controller adds to an entry for itself.
const MOST_METADATA: usize = 4096;

/// What P4Runtime gives back of an entry and the engine need not know.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Notes {
    metadata: Vec<u8>,
    controller_metadata: u64,
    /// As it was written; the engine counts in microseconds.
    idle_timeout_ns: i64,
    pub one_shot: Option<profiles::OneShot>,
}

pub fn table<'a>(session: &Session<'a>, id: u32) -> Result<&'a Table> {
    session.pipeline.tables.get(&id).ok_or_else(|| match id {
        0 => invalid("no table is given"),
        id => not_found(format!("there is no table {id:#x}")),
    })
}

/// An entry by its key.
struct Key {
    matches: Vec<Match>,
    priority: u32,
}

fn key_of(table: &Table, entry: &TableEntry) -> Result<Key> {
    let matches = decode_key(&table.keys, &entry.r#match, &table.name)?;
    match (table.has_priorities(), u32::try_from(entry.priority)) {
        (true, Ok(priority @ 1..)) | (false, Ok(priority @ 0)) => Ok(Key { matches, priority }),
        (true, _) => Err(invalid(format!("{}: an entry needs a priority of 1 or more", table.name))),
        (false, _) => Err(invalid(format!("{}: entries have no priority", table.name))),
    }
}

pub fn decode_action(actions: &[Action], of: &str, given: &v1::Action) -> Result<(ActionCall, Action)> {
    let action = actions.iter().find(|action| action.id == given.action_id);
    let action = action.ok_or_else(|| invalid(format!("{of} has no action {:#x}", given.action_id)))?;
    if let Some(other) =
        given.params.iter().find(|one| !action.parameters.iter().any(|own| own.id == one.param_id))
    {
        return Err(invalid(format!("{} has no parameter {}", action.name, other.param_id)));
    }
    let arguments = action.parameters.iter().map(|own| {
        let mut values = given.params.iter().filter(|one| one.param_id == own.id);
        match (values.next(), values.next()) {
            (Some(one), None) => own.widths.decode(&one.value, &format!("{} of {}", own.name, action.name)),
            (None, _) => Err(invalid(format!("{} needs {}", action.name, own.name))),
            _ => Err(invalid(format!("{} has {} twice", action.name, own.name))),
        }
    });
    Ok((ActionCall { action: action.number, arguments: arguments.collect::<Result<_>>()? }, action.clone()))
}

/// None: an action that P4Info does not tell of.
pub fn encode_action(actions: &[Action], call: &ActionCall) -> Option<v1::Action> {
    let action = actions.iter().find(|action| action.number == call.action)?;
    let params = action.parameters.iter().zip(&call.arguments);
    let params = params.map(|(own, value)| Param { param_id: own.id, value: encode(value) });
    Some(v1::Action { action_id: action.id, params: params.collect() })
}

/// What a write says about an entry besides its key and action; all of it is looked at before anything is done.
struct Rest {
    notes: Notes,
    count: Option<Count>,
    rates: Option<Rates>,
}

fn rest_of(table: &Table, entry: &TableEntry) -> Result<Rest> {
    if entry.time_since_last_hit.is_some() {
        return Err(invalid("time_since_last_hit is read only"));
    }
    if entry.idle_timeout_ns < 0 || entry.idle_timeout_ns > 0 && !table.idle_timeout {
        return Err(invalid(format!("{}: an idle time-out of {} ns", table.name, entry.idle_timeout_ns)));
    }
    if entry.metadata.len() > MOST_METADATA {
        return Err(exhausted(format!("more than {MOST_METADATA} bytes of metadata")));
    }
    if entry.meter_counter_data.is_some() {
        return Err(unimplemented("meters do not count by colour"));
    }
    let count = match &entry.counter_data {
        Some(_) if !table.counted => return Err(invalid(format!("{} has no direct counter", table.name))),
        data => data.as_ref().map(count_of).transpose()?,
    };
    let rates = match (&entry.meter_config, table.meter) {
        (Some(_), None) => return Err(invalid(format!("{} has no direct meter", table.name))),
        (config, kind) => {
            config.as_ref().map(|one| rates_of(kind.unwrap_or(MeterKind::None), one)).transpose()?
        }
    };
    let notes = Notes {
        metadata: entry.metadata.clone(),
        #[allow(deprecated)]
        controller_metadata: entry.controller_metadata,
        idle_timeout_ns: entry.idle_timeout_ns,
        one_shot: None,
    };
    Ok(Rest { notes, count, rates })
}

pub fn write(session: &mut Session, kind: Type, entry: &TableEntry) -> Result<()> {
    let table = table(session, entry.table_id)?;
    if entry.is_const {
        return Err(invalid("is_const is the program's to say"));
    }
    if entry.is_default_action {
        return write_default(session, kind, table, entry);
    }
    if table.keys.is_empty() {
        return Err(invalid(format!("{} has no key: it has a default entry only", table.name)));
    }
    if kind == Type::Delete {
        let key = key_of(table, entry)?;
        return delete(session, table, key);
    }
    let rest = rest_of(table, entry)?;
    let key = key_of(table, entry)?;
    if table.constant && (kind != Type::Modify || entry.action.is_some()) {
        return Err(denied(format!("the entries of {} are constant", table.name)));
    }
    match kind {
        Type::Insert => insert(session, table, key, rest, entry.action.as_ref()),
        _ => modify(session, table, key, rest, entry.action.as_ref()),
    }
}

fn delete(session: &mut Session, table: &Table, key: Key) -> Result<()> {
    if table.constant {
        return Err(denied(format!("the entries of {} are constant", table.name)));
    }
    let Key { matches, priority } = key;
    session.done(Request::Delete { table: table.number, matches: matches.clone(), priority })?;
    if let Some(Notes { one_shot: Some(one_shot), .. }) =
        session.state.notes.remove(&(table.number, matches, priority))
    {
        profiles::drop_one_shot(session, one_shot)?;
    }
    Ok(())
}

fn insert(
    session: &mut Session,
    table: &Table,
    key: Key,
    mut rest: Rest,
    action: Option<&TableAction>,
) -> Result<()> {
    let action = action.ok_or_else(|| invalid(format!("{}: an entry without an action", table.name)))?;
    let (target, one_shot) = target_of(session, table, action)?;
    rest.notes.one_shot = one_shot;
    let entry = engine_entry(&key, target, &rest.notes);
    if let Err(refused) = session.done(Request::Insert { table: table.number, entry }) {
        undo_one_shot(session, rest.notes.one_shot);
        return Err(refused);
    }
    put_resources(session, table, &key, rest.count, rest.rates)?;
    put_notes(session, table, key, rest.notes);
    Ok(())
}

fn modify(
    session: &mut Session,
    table: &Table,
    key: Key,
    mut rest: Rest,
    action: Option<&TableAction>,
) -> Result<()> {
    let at = (table.number, key.matches.clone(), key.priority);
    let old = session.state.notes.get(&at).and_then(|notes| notes.one_shot.clone());
    let present =
        find(session, table, &key)?.ok_or_else(|| not_found(format!("{}: no such entry", table.name)))?;
    let target = match action {
        Some(action) => {
            let (target, one_shot) = target_of(session, table, action)?;
            rest.notes.one_shot = one_shot;
            target
        }
        None => {
            rest.notes.one_shot = old.clone();
            present.entry.target.clone()
        }
    };
    if !table.constant {
        let entry = engine_entry(&key, target, &rest.notes);
        if let Err(refused) = session.done(Request::Modify { table: table.number, entry }) {
            if action.is_some() {
                undo_one_shot(session, rest.notes.one_shot);
            }
            return Err(refused);
        }
    }
    // What is not set goes back to no limit; a count stays.
    let reset = table.meter.is_some() && rest.rates.is_none() && present.rates.is_some();
    if reset {
        set_rates(session, table, &key, None)?;
    }
    put_resources(session, table, &key, rest.count, rest.rates)?;
    put_notes(session, table, key, rest.notes);
    match old {
        Some(old) if action.is_some() => profiles::drop_one_shot(session, old),
        _ => Ok(()),
    }
}

fn engine_entry(key: &Key, target: Target, notes: &Notes) -> Entry {
    let idle_us = u64::try_from(notes.idle_timeout_ns).unwrap_or(0).div_ceil(1000);
    Entry { matches: key.matches.clone(), priority: key.priority, target, idle_us }
}

fn undo_one_shot(session: &mut Session, one_shot: Option<profiles::OneShot>) {
    if let Some(one_shot) = one_shot {
        let _ = profiles::drop_one_shot(session, one_shot); // no entry has it yet
    }
}

fn put_notes(session: &mut Session, table: &Table, key: Key, notes: Notes) {
    let at = (table.number, key.matches, key.priority);
    if notes == Notes::default() {
        session.state.notes.remove(&at);
    } else {
        session.state.notes.insert(at, notes);
    }
}

fn put_resources(
    session: &mut Session,
    table: &Table,
    key: &Key,
    count: Option<Count>,
    rates: Option<Rates>,
) -> Result<()> {
    if let Some(value) = count {
        let (matches, priority) = (key.matches.clone(), key.priority);
        session.done(Request::WriteDirectCounter { table: table.number, matches, priority, value })?;
    }
    match rates {
        Some(_) => set_rates(session, table, key, rates),
        None => Ok(()),
    }
}

fn set_rates(session: &mut Session, table: &Table, key: &Key, rates: Option<Rates>) -> Result<()> {
    let (matches, priority) = (key.matches.clone(), key.priority);
    session.done(Request::SetDirectMeter { table: table.number, matches, priority, rates })
}

fn target_of(
    session: &mut Session,
    table: &Table,
    given: &TableAction,
) -> Result<(Target, Option<profiles::OneShot>)> {
    let wrong = |expected: &str| invalid(format!("{}: expected {expected}", table.name));
    let profile = table.profile.and_then(|id| Some((id, session.pipeline.profiles.get(&id)?)));
    let Some((id, profile)) = profile else {
        let Some(ActionType::Action(action)) = &given.r#type else { return Err(wrong("an action")) };
        let (call, action) = decode_action(&table.actions, &table.name, action)?;
        if !action.in_entries {
            return Err(denied(format!("{} is for the default entry of {} only", action.name, table.name)));
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
        _ if profile.selector => Err(wrong("a member, a group or a set of actions")),
        _ => Err(wrong("a member")),
    }
}

fn write_default(session: &mut Session, kind: Type, table: &Table, entry: &TableEntry) -> Result<()> {
    if kind != Type::Modify {
        return Err(invalid(format!("the default entry of {} can be modified only", table.name)));
    }
    if !entry.r#match.is_empty() || entry.priority != 0 {
        return Err(invalid(format!("the default entry of {} has no match and no priority", table.name)));
    }
    let rest = rest_of(table, entry)?;
    if entry.idle_timeout_ns != 0 {
        return Err(invalid("a default entry has no idle time-out"));
    }
    if rest.count.is_some() || rest.rates.is_some() {
        return Err(unimplemented("default entries have no counter and no meter"));
    }
    if table.constant_default || table.profile.is_some() {
        return Err(denied(format!("the default entry of {} is constant", table.name)));
    }
    let Some(action) = &entry.action else {
        session.done(Request::ResetDefault { table: table.number })?;
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
    session.done(Request::SetDefault { table: table.number, target: Target::Call(call.clone()) })?;
    session.state.defaults.insert(table.number, (call, rest.notes));
    Ok(())
}

/// Writes to a table's counters and meters name an entry that is there.
fn entry_of<'a>(
    session: &mut Session<'a>,
    kind: Type,
    entry: Option<&TableEntry>,
) -> Result<(&'a Table, Key)> {
    if kind != Type::Modify {
        return Err(invalid("what belongs to an entry can be modified only"));
    }
    let entry = entry.ok_or_else(|| invalid("no table entry is given"))?;
    let table = table(session, entry.table_id)?;
    if entry.is_default_action {
        return Err(unimplemented("default entries have no counter and no meter"));
    }
    let key = key_of(table, entry)?;
    match find(session, table, &key)? {
        Some(_) => Ok((table, key)),
        None => Err(not_found(format!("{}: no such entry", table.name))),
    }
}

pub fn write_counter(session: &mut Session, kind: Type, entry: &DirectCounterEntry) -> Result<()> {
    let (table, key) = entry_of(session, kind, entry.table_entry.as_ref())?;
    if !table.counted {
        return Err(invalid(format!("{} has no direct counter", table.name)));
    }
    let count = entry.data.as_ref().map(count_of).transpose()?;
    put_resources(session, table, &key, count, None)
}

pub fn write_meter(session: &mut Session, kind: Type, entry: &DirectMeterEntry) -> Result<()> {
    let (table, key) = entry_of(session, kind, entry.table_entry.as_ref())?;
    let kind = table.meter.ok_or_else(|| invalid(format!("{} has no direct meter", table.name)))?;
    if entry.counter_data.is_some() {
        return Err(unimplemented("meters do not count by colour"));
    }
    let rates = entry.config.as_ref().map(|config| rates_of(kind, config)).transpose()?;
    set_rates(session, table, &key, rates)
}

fn find(session: &mut Session, table: &Table, key: &Key) -> Result<Option<EntryState>> {
    let (matches, priority) = (key.matches.clone(), key.priority);
    match accepted(session.control.request(Request::Entry { table: table.number, matches, priority })) {
        Ok(Answer::Entries(mut entries)) => Ok(entries.pop()),
        Ok(other) => Err(unexpected(&other)),
        Err(Refused { code: tonic::Code::NotFound, .. }) => Ok(None),
        Err(refused) => Err(refused),
    }
}

fn for_each(
    session: &mut Session,
    table: TableId,
    mut each: impl FnMut(&mut Session, EntryState) -> Result<()>,
) -> Result<()> {
    for from in (0..).step_by(PAGE as usize) {
        let page = match accepted(session.control.request(Request::Entries { table, from, most: PAGE }))? {
            Answer::Entries(page) => page,
            other => return Err(unexpected(&other)),
        };
        let last = page.len() < PAGE as usize;
        page.into_iter().try_for_each(|state| each(session, state))?;
        if last {
            break;
        }
    }
    Ok(())
}

/// Tables and entries that a read names: all of them, one table's, or one entry.
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
        let it_is = wanted.as_ref().is_none_or(|wanted| *wanted == state.entry.matches);
        if it_is && (priority == 0 || priority == state.entry.priority) {
            count += 1;
            each(session, filter.table_id, table, state)?;
        }
        Ok(())
    })?;
    Ok(count)
}

pub fn read(session: &mut Session, filter: &TableEntry, found: &mut Found) -> Result<()> {
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
        return Err(unimplemented("meters do not count by colour"));
    }
    if filter.is_default_action {
        return read_defaults(session, filter, found);
    }
    if filter.table_id != 0
        && filter.time_since_last_hit.is_some()
        && !table(session, filter.table_id)?.idle_timeout
    {
        return Err(invalid("the table has no idle time-out"));
    }
    let action = match filter.action.as_ref().map(|action| &action.r#type) {
        None => None,
        Some(Some(ActionType::Action(action))) => Some(action.action_id),
        Some(_) => return Err(invalid("entries can be read by their action's id only")),
    };
    let now_us = session.control.now_us();
    select(session, filter, |session, id, table, state| {
        let entry = entry_message(session, id, table, &state);
        let action_id = match entry.action.as_ref().and_then(|action| action.r#type.as_ref()) {
            Some(ActionType::Action(action)) => Some(action.action_id),
            _ => None,
        };
        if action.is_some() && action != action_id || !noted_alike(filter, &entry) {
            return Ok(());
        }
        found.push(Kind::TableEntry(with_resources(entry, filter, table, &state, now_us)))
    })
    .map(drop)
}

#[allow(deprecated)]
fn noted_alike(filter: &TableEntry, entry: &TableEntry) -> bool {
    (filter.metadata.is_empty() || filter.metadata == entry.metadata)
        && (filter.controller_metadata == 0 || filter.controller_metadata == entry.controller_metadata)
}

/// What is asked for by being set.
fn with_resources(
    mut entry: TableEntry,
    filter: &TableEntry,
    table: &Table,
    state: &EntryState,
    now_us: u64,
) -> TableEntry {
    if filter.counter_data.is_some() && table.counted {
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
    let none = Notes::default();
    let notes =
        session.state.notes.get(&(table.number, entry.matches.clone(), entry.priority)).unwrap_or(&none);
    let action = match (&entry.target, &notes.one_shot) {
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
        metadata: notes.metadata.clone(),
        #[allow(deprecated)]
        controller_metadata: notes.controller_metadata,
        idle_timeout_ns: notes.idle_timeout_ns,
        is_const: table.constant,
        ..Default::default()
    }
}

fn read_defaults(session: &mut Session, filter: &TableEntry, found: &mut Found) -> Result<()> {
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
        let none = Notes::default();
        let (call, notes) = match session.state.defaults.get(&table.number) {
            Some((call, notes)) => (Some(call), notes),
            None => (session.pipeline.program.tables[usize::from(table.number)].default.as_ref(), &none),
        };
        let action = call.and_then(|call| encode_action(&table.actions, call)).map(ActionType::Action);
        let entry = TableEntry {
            table_id: *id,
            action: action.map(|action| TableAction { r#type: Some(action) }),
            is_default_action: true,
            metadata: notes.metadata.clone(),
            #[allow(deprecated)]
            controller_metadata: notes.controller_metadata,
            is_const: table.constant_default,
            ..Default::default()
        };
        if noted_alike(filter, &entry) {
            found.push(Kind::TableEntry(entry))?;
        }
    }
    Ok(())
}

/// Of all entries, of a table's, or of one: which must be there.
fn read_direct(
    session: &mut Session,
    filter: Option<&TableEntry>,
    has: impl Fn(&Table) -> bool,
    mut each: impl FnMut(TableEntry, &EntryState) -> Result<()>,
) -> Result<()> {
    let filter = filter.cloned().unwrap_or_default();
    if filter.is_default_action {
        return Err(unimplemented("default entries have no counter and no meter"));
    }
    if filter.table_id == 0 && !filter.r#match.is_empty() {
        return Err(invalid("a read of all tables takes no other filter"));
    }
    if filter.table_id != 0 && !has(table(session, filter.table_id)?) {
        return Err(invalid(format!("{} has none", table(session, filter.table_id)?.name)));
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

pub fn read_counters(session: &mut Session, entry: &DirectCounterEntry, found: &mut Found) -> Result<()> {
    read_direct(
        session,
        entry.table_entry.as_ref(),
        |table| table.counted,
        |entry, state| {
            let data = Some(counter_data(state.count.unwrap_or_default()));
            found.push(Kind::DirectCounterEntry(DirectCounterEntry { table_entry: Some(entry), data }))
        },
    )
}

pub fn read_meters(session: &mut Session, entry: &DirectMeterEntry, found: &mut Found) -> Result<()> {
    if entry.counter_data.is_some() {
        return Err(unimplemented("meters do not count by colour"));
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

/// Of a notification.
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

/// Without the entries that a program brings for tables that are not constant.
pub fn clear(session: &mut Session) -> Result<()> {
    for table in session.pipeline.tables.values().filter(|table| !table.constant) {
        let mut keys = vec![];
        for_each(session, table.number, |_, state| {
            keys.push((state.entry.matches, state.entry.priority));
            Ok(())
        })?;
        for (matches, priority) in keys {
            session.done(Request::Delete { table: table.number, matches, priority })?;
        }
    }
    Ok(())
}
