// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Executes the control plane's requests.

use alloc::format;
use alloc::vec::Vec;

use crate::control::refusal::{not_found, refuse, RequestResult};
use crate::control::{Answer, Refusal, Replica, Request, SetMember};
use crate::engine::arrays::{new_meter, out_of_range, range, MAX_VALUES};
use crate::engine::Engine;
use crate::ir::TableId;

impl Engine {
    /// Executes a request completely or not at all.
    pub fn control(&mut self, request: &Request) -> Answer {
        self.execute_request(request).unwrap_or_else(|(refusal, text)| Answer::Refused(refusal, text))
    }

    fn execute_request(&mut self, request: &Request) -> RequestResult {
        match request {
            Request::Insert { table, entry } => self.insert(*table, entry),
            Request::Modify { table, entry } => self.modify(*table, entry),
            Request::Delete { table, matches, priority } => self.delete(*table, matches, *priority),
            Request::SetDefault { table, target } => self.set_default(*table, target),
            Request::ResetDefault { table } => self.reset_default(*table),
            Request::Entries { table, from, limit } => {
                let entries = self.table(*table)?.entries();
                Ok(Answer::Entries(
                    entries.skip(*from as usize).take((*limit as usize).min(MAX_VALUES)).collect(),
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
                let count = self.counter(*counter)?.get_mut(*index as usize);
                count.map(|count| *count = *value).ok_or_else(out_of_range).map(|()| Answer::Done)
            }
            Request::SetMeter { meter, index, rates } => {
                let new = new_meter(*rates)?;
                *self.meter(*meter, *index)? = new;
                Ok(Answer::Done)
            }
            Request::ReadMeter { meter, index } => {
                Ok(Answer::Meter(self.meter(*meter, *index)?.map(|meter| meter.rates())))
            }
            Request::ReadColors { meter, from, count } => self.read_colors(*meter, *from, *count),
            Request::SetDirectMeter { table, matches, priority, rates } => {
                self.set_direct_meter(*table, matches, *priority, *rates)
            }
            Request::WriteDirectCounter { table, matches, priority, value } => {
                self.write_direct_counter(*table, matches, *priority, *value)
            }
            other => self.execute_other_request(other),
        }
    }

    fn execute_other_request(&mut self, request: &Request) -> RequestResult {
        match request {
            Request::SetValueSet { set, members } => self.set_value_set(*set, members),
            Request::ValueSet { set } => match self.state.sets.get(usize::from(*set)) {
                Some(members) => Ok(Answer::ValueSet(members.clone())),
                None => not_found("value set", set),
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
                        return not_found("clone session", session)
                    }
                    None => {}
                }
                Ok(Answer::Done)
            }
            Request::CloneSessions => {
                let sessions = self.state.sessions.iter().map(|(session, clone)| (*session, clone.clone()));
                Ok(Answer::CloneSessions(sessions.collect()))
            }
            Request::Idle { now_us, limit } => {
                self.state.now_us = self.state.now_us.max(*now_us);
                let mut found = Vec::new();
                for (number, table) in self.state.tables.iter_mut().enumerate() {
                    table.idle(*now_us, number as TableId, (*limit as usize).min(MAX_VALUES), &mut found);
                }
                Ok(Answer::Idle(found))
            }
            Request::Totals => Ok(Answer::Totals(self.state.totals(&self.program))),
            _ => refuse(Refusal::Unimplemented, "no such request"),
        }
    }

    fn set_value_set(&mut self, set: u16, members: &[SetMember]) -> RequestResult {
        let Some(declared) = self.program.value_sets.get(usize::from(set)) else {
            return not_found("value set", set);
        };
        let bytes = usize::from(declared.bytes);
        if members.len() > declared.max_size as usize {
            return Err((
                Refusal::ResourceExhausted,
                format!("the value set is full: {}", declared.max_size),
            ));
        }
        let has_other_size = |member: &SetMember| {
            member.value.len() != bytes || member.mask.as_ref().is_some_and(|mask| mask.len() != bytes)
        };
        if members.iter().any(has_other_size) {
            return Err((
                Refusal::InvalidArgument,
                format!("a member of {} has {bytes} bytes", declared.name),
            ));
        }
        self.state.sets.get_mut(usize::from(set)).into_iter().for_each(|set| *set = members.to_vec());
        Ok(Answer::Done)
    }

    fn set_multicast_group(&mut self, group: u16, replicas: Option<&[Replica]>) -> RequestResult {
        match replicas {
            _ if group == 0 => return refuse(Refusal::InvalidArgument, "multicast group 0 is none"),
            Some(replicas) => drop(self.state.groups.insert(group, replicas.to_vec())),
            None if self.state.groups.remove(&group).is_none() => return not_found("multicast group", group),
            None => {}
        }
        Ok(Answer::Done)
    }
}
