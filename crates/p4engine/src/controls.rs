// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Carries out the control plane's requests.

use alloc::format;
use alloc::vec::Vec;

use crate::bits::{load_limbs, ones, PADDING};
use crate::control::{Answer, Count, Entry, Rates, Refusal, Replica, Request, SetMember, Target};
use crate::engine::Engine;
use crate::key::Refused;
use crate::meter::Meter;
use crate::packet::Unfit;
use crate::program::{ActionCall, Match, TableId};
use crate::table::{call, Call, Reaction, Table};

/// Values in one answer.
pub(crate) const AT_MOST: usize = 1 << 16;

pub(crate) type Done = Result<Answer, Refused>;

pub(crate) fn refuse<T>(refusal: Refusal, text: &str) -> Result<T, Refused> {
    Err((refusal, text.into()))
}

pub(crate) fn missing<T>(what: &str, number: impl core::fmt::Display) -> Result<T, Refused> {
    Err((Refusal::NotFound, format!("there is no {what} {number}")))
}

impl Engine {
    /// A request is carried out whole or not at all.
    pub fn control(&mut self, request: &Request) -> Answer {
        self.carry_out(request).unwrap_or_else(|(refusal, text)| Answer::Refused(refusal, text))
    }

    fn carry_out(&mut self, request: &Request) -> Done {
        match request {
            Request::Insert { table, entry } => self.insert(*table, entry),
            Request::Modify { table, entry } => self.modify(*table, entry),
            Request::Delete { table, matches, priority } => self.delete(*table, matches, *priority),
            Request::SetDefault { table, target } => self.set_default(*table, target),
            Request::ResetDefault { table } => self.reset_default(*table),
            Request::Entries { table, from, most } => {
                let entries = self.table(*table)?.entries();
                Ok(Answer::Entries(
                    entries.skip(*from as usize).take((*most as usize).min(AT_MOST)).collect(),
                ))
            }
            Request::Entry { table, matches, priority } => {
                let table = self.table(*table)?;
                let number = table.entry(matches, *priority)?;
                Ok(Answer::Entries(table.state(number).into_iter().collect()))
            }
            Request::InsertMember { profile, member, call } => self.insert_member(*profile, *member, call),
            Request::ModifyMember { profile, member, call } => self.modify_member(*profile, *member, call),
            Request::DeleteMember { profile, member } => self.delete_member(*profile, *member),
            Request::SetGroup { profile, group, members } => self.set_group(*profile, *group, members),
            Request::DeleteGroup { profile, group } => self.delete_group(*profile, *group),
            Request::Profile { profile } => self.profile_state(*profile),
            Request::ReadRegister { array, from, count } => self.read_register(*array, *from, *count),
            Request::WriteRegister { array, index, value } => self.write_register(*array, *index, value),
            Request::ReadCounter { counter, from, count } => {
                let counts = self.counter(*counter)?;
                let range = range(counts.len(), *from, *count)?;
                Ok(Answer::Counts(counts.get(range).unwrap_or(&[]).to_vec()))
            }
            Request::WriteCounter { counter, index, value } => {
                let place = self.counter(*counter)?.get_mut(*index as usize);
                place.map(|place| *place = *value).ok_or_else(out_of_range).map(|()| Answer::Done)
            }
            Request::SetMeter { meter, index, rates } => {
                let meter_ = fit(*rates)?;
                *self.meter(*meter, *index)? = meter_;
                Ok(Answer::Done)
            }
            Request::ReadMeter { meter, index } => {
                Ok(Answer::Meter(self.meter(*meter, *index)?.map(|meter| meter.rates())))
            }
            Request::SetDirectMeter { table, matches, priority, rates } => {
                self.set_direct_meter(*table, matches, *priority, *rates)
            }
            Request::WriteDirectCounter { table, matches, priority, value } => {
                self.write_direct_counter(*table, matches, *priority, *value)
            }
            other => self.carry_out_rest(other),
        }
    }

    fn carry_out_rest(&mut self, request: &Request) -> Done {
        match request {
            Request::SetValueSet { set, members } => self.set_value_set(*set, members),
            Request::ValueSet { set } => match self.state.sets.get(usize::from(*set)) {
                Some(members) => Ok(Answer::ValueSet(members.clone())),
                None => missing("value set", set),
            },
            Request::SetMulticastGroup { group, replicas } => {
                self.set_multicast_group(*group, replicas.as_deref())
            }
            Request::MulticastGroups => {
                let groups = self.state.groups.iter().map(|(group, replicas)| (*group, replicas.clone()));
                Ok(Answer::MulticastGroups(groups.collect()))
            }
            Request::SetCloneSession { session, clone } => {
                if *session > 0x7fff {
                    return refuse(Refusal::OutOfRange, "a clone session's number has 15 bits");
                }
                match clone {
                    Some(clone) => drop(self.state.sessions.insert(*session, clone.clone())),
                    None if self.state.sessions.remove(session).is_none() => {
                        return missing("clone session", session)
                    }
                    None => {}
                }
                Ok(Answer::Done)
            }
            Request::CloneSessions => {
                let sessions = self.state.sessions.iter().map(|(session, clone)| (*session, clone.clone()));
                Ok(Answer::CloneSessions(sessions.collect()))
            }
            Request::Idle { now_us, most } => {
                self.state.now_us = self.state.now_us.max(*now_us);
                let mut found = Vec::new();
                for (number, table) in self.state.tables.iter_mut().enumerate() {
                    table.idle(*now_us, number as TableId, (*most as usize).min(AT_MOST), &mut found);
                }
                Ok(Answer::Idle(found))
            }
            Request::Totals => Ok(Answer::Totals(self.state.totals(&self.program))),
            _ => refuse(Refusal::Unimplemented, "no such request"),
        }
    }

    fn table(&self, table: TableId) -> Result<&Table, Refused> {
        self.state.tables.get(usize::from(table)).map_or_else(|| missing("table", table), Ok)
    }

    fn table_mut(&mut self, table: TableId) -> Result<&mut Table, Refused> {
        self.state.tables.get_mut(usize::from(table)).map_or_else(|| missing("table", table), Ok)
    }

    fn declared(&self, table: TableId) -> Result<&crate::program::Table, Refused> {
        self.program.tables.get(usize::from(table)).map_or_else(|| missing("table", table), Ok)
    }

    /// A table whose entries the control plane may change.
    fn open(&self, table: TableId) -> Result<(), Refused> {
        if self.declared(table)?.constant_entries {
            return refuse(Refusal::PermissionDenied, "its entries are constant");
        }
        Ok(())
    }

    fn call_in(&self, table: TableId, asked: &ActionCall) -> Result<Call, Refused> {
        if !self.declared(table)?.actions.contains(&asked.action) {
            return refuse(Refusal::InvalidArgument, "its table does not have this action");
        }
        call(&self.program, asked)
    }

    fn reaction(&self, table: TableId, target: &Target) -> Result<Reaction, Refused> {
        let profile = self.declared(table)?.profile;
        match (target, profile) {
            (Target::Call(asked), None) => Ok(Reaction::Call(self.call_in(table, asked)?)),
            (Target::Call(_), Some(_)) => {
                refuse(Refusal::InvalidArgument, "its table goes by an action profile")
            }
            (Target::Member(member), Some(profile)) => {
                self.member_fits(profile, table, *member).map(|()| Reaction::Member(*member))
            }
            (Target::Group(group), Some(profile)) => {
                self.group_fits(profile, table, *group).map(|()| Reaction::Group(*group))
            }
            (_, None) => refuse(Refusal::InvalidArgument, "its table has no action profile"),
        }
    }

    pub(crate) fn insert_own_entries(&mut self) -> Result<(), Unfit> {
        for number in 0..self.program.tables.len() as TableId {
            let Some(table) = self.program.tables.get(usize::from(number)).cloned() else { continue };
            let unfit = |(_, text): Refused| Unfit(format!("table {}: {text}", table.name));
            if let Some(default) = &table.default {
                let reaction = Reaction::Call(self.call_in(number, default).map_err(unfit)?);
                self.table_mut(number).map_err(unfit)?.default = Some(reaction);
            }
            // The lowest wins there, the highest here.
            let least = table.entries.iter().map(|entry| entry.priority).max().unwrap_or(0);
            let ternary = self.table(number).map_err(unfit)?.ternary();
            for own in &table.entries {
                let priority = if ternary { (least - own.priority).saturating_add(1) } else { 0 };
                let target = Target::Call(own.call.clone());
                let reaction = Reaction::Call(self.call_in(number, &own.call).map_err(unfit)?);
                let entry = Entry { matches: own.matches.clone(), priority, target, idle_us: 0 };
                self.table_mut(number).and_then(|table| table.insert(&entry, reaction)).map_err(unfit)?;
            }
        }
        Ok(())
    }

    fn insert(&mut self, table: TableId, entry: &Entry) -> Done {
        self.open(table)?;
        let reaction = self.reaction(table, &entry.target)?;
        self.table_mut(table)?.insert(entry, reaction).map(|()| Answer::Done)
    }

    fn modify(&mut self, table: TableId, entry: &Entry) -> Done {
        self.open(table)?;
        let reaction = self.reaction(table, &entry.target)?;
        self.table_mut(table)?.modify(entry, reaction).map(|()| Answer::Done)
    }

    fn delete(&mut self, table: TableId, matches: &[Match], priority: u32) -> Done {
        self.open(table)?;
        self.table_mut(table)?.delete(matches, priority).map(|()| Answer::Done)
    }

    fn set_default(&mut self, table: TableId, target: &Target) -> Done {
        if self.declared(table)?.constant_default {
            return refuse(Refusal::PermissionDenied, "its default action is constant");
        }
        let reaction = match target {
            Target::Call(asked) => Reaction::Call(self.call_in(table, asked)?),
            other => self.reaction(table, other)?,
        };
        self.table_mut(table)?.default = Some(reaction);
        Ok(Answer::Done)
    }

    fn reset_default(&mut self, table: TableId) -> Done {
        let default = match self.declared(table)?.default.clone() {
            Some(default) => Some(Reaction::Call(self.call_in(table, &default)?)),
            None => None,
        };
        self.table_mut(table)?.default = default;
        Ok(Answer::Done)
    }

    fn read_register(&self, array: u16, from: u32, count: u32) -> Done {
        let Some(array) = self.state.arrays.get(usize::from(array)) else {
            return missing("register", array);
        };
        let bytes = array.width.div_ceil(8) as usize;
        let value = |index: usize| {
            let limbs = array.value(index as i128).unwrap_or(&[]);
            let all: Vec<u8> = limbs.iter().rev().flat_map(|limb| limb.to_be_bytes()).collect();
            all.get(all.len().saturating_sub(bytes)..).unwrap_or(&[]).to_vec()
        };
        Ok(Answer::Values(range(array.size as usize, from, count)?.map(value).collect()))
    }

    fn write_register(&mut self, array: u16, index: u32, value: &[u8]) -> Done {
        let Some(array) = self.state.arrays.get_mut(usize::from(array)) else {
            return missing("register", array);
        };
        let (width, bytes) = (array.width, array.width.div_ceil(8));
        let top = value.first().copied().map(u64::from).unwrap_or(0);
        if value.len() != bytes as usize || top & !ones(8 - (bytes * 8 - width)) != 0 {
            return Err((Refusal::InvalidArgument, format!("not a value of {width} bits")));
        }
        let mut padded = value.to_vec();
        padded.resize(value.len() + PADDING, 0);
        match array.value_mut(index.into()) {
            Some(limbs) => load_limbs(&padded, bytes * 8 - width, width, limbs),
            None => return Err(out_of_range()),
        }
        Ok(Answer::Done)
    }

    fn counter(&mut self, counter: u16) -> Result<&mut Vec<Count>, Refused> {
        self.state.counters.get_mut(usize::from(counter)).map_or_else(|| missing("counter", counter), Ok)
    }

    fn meter(&mut self, meter: u16, index: u32) -> Result<&mut Option<Meter>, Refused> {
        let Some(meters) = self.state.meters.get_mut(usize::from(meter)) else {
            return missing("meter", meter);
        };
        meters.meters.get_mut(index as usize).ok_or_else(out_of_range)
    }

    fn set_direct_meter(
        &mut self,
        table: TableId,
        matches: &[Match],
        priority: u32,
        rates: Option<Rates>,
    ) -> Done {
        let meter = fit(rates)?;
        let table = self.table_mut(table)?;
        if table.meter.is_none() {
            return refuse(Refusal::InvalidArgument, "its table has no direct meter");
        }
        let number = table.entry(matches, priority)?;
        table.slots.get_mut(number as usize).into_iter().for_each(|slot| slot.meter = meter);
        Ok(Answer::Done)
    }

    fn write_direct_counter(
        &mut self,
        table: TableId,
        matches: &[Match],
        priority: u32,
        value: Count,
    ) -> Done {
        let table = self.table_mut(table)?;
        if !table.counted {
            return refuse(Refusal::InvalidArgument, "its table has no direct counter");
        }
        let number = table.entry(matches, priority)?;
        table.slots.get_mut(number as usize).into_iter().for_each(|slot| slot.count = value);
        Ok(Answer::Done)
    }

    fn set_value_set(&mut self, set: u16, members: &[SetMember]) -> Done {
        let Some(declared) = self.program.value_sets.get(usize::from(set)) else {
            return missing("value set", set);
        };
        let bytes = usize::from(declared.bytes);
        if members.len() > declared.max_size as usize {
            return Err((
                Refusal::ResourceExhausted,
                format!("the value set is full: {}", declared.max_size),
            ));
        }
        let wrong = |member: &SetMember| {
            member.value.len() != bytes || member.mask.as_ref().is_some_and(|mask| mask.len() != bytes)
        };
        if members.iter().any(wrong) {
            return Err((
                Refusal::InvalidArgument,
                format!("a member of {} has {bytes} bytes", declared.name),
            ));
        }
        self.state.sets.get_mut(usize::from(set)).into_iter().for_each(|set| *set = members.to_vec());
        Ok(Answer::Done)
    }

    fn set_multicast_group(&mut self, group: u16, replicas: Option<&[Replica]>) -> Done {
        match replicas {
            _ if group == 0 => return refuse(Refusal::InvalidArgument, "multicast group 0 is none"),
            Some(replicas) => drop(self.state.groups.insert(group, replicas.to_vec())),
            None if self.state.groups.remove(&group).is_none() => return missing("multicast group", group),
            None => {}
        }
        Ok(Answer::Done)
    }
}

fn out_of_range() -> Refused {
    (Refusal::OutOfRange, "the index is out of range".into())
}

/// A count of 0 means all that follow.
fn range(size: usize, from: u32, count: u32) -> Result<core::ops::Range<usize>, Refused> {
    let from = from as usize;
    let count = if count == 0 { size.saturating_sub(from) } else { count as usize };
    match from.checked_add(count.min(AT_MOST)) {
        Some(end) if end <= size => Ok(from..end),
        _ => Err(out_of_range()),
    }
}

/// RFC 2698 section 2: the peak is not below the committed rate.
fn fit(rates: Option<Rates>) -> Result<Option<Meter>, Refused> {
    match rates {
        Some(rates) if rates.peak < rates.committed => {
            refuse(Refusal::InvalidArgument, "the peak rate is below the committed one")
        }
        rates => Ok(rates.map(Meter::new)),
    }
}
