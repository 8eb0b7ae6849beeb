// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Carries out the control plane's requests.

use alloc::format;
use alloc::vec::Vec;

use crate::control::refusal::{missing, refuse, Done};
use crate::control::{Answer, Refusal, Replica, Request, SetMember};
use crate::engine::arrays::{fit, out_of_range, range, AT_MOST};
use crate::engine::Engine;
use crate::ir::TableId;

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
