// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Carries out the control plane's requests for action profiles.
//!
//! p4c gives each table its own copy of an action; the copies have one name, and one id in P4Info. A member of a profile that
//! tables share names one copy, and each table calls its own. A table without a copy refuses the entries that need one.

use alloc::format;
use alloc::vec::Vec;

use crate::control::refusal::{missing, refuse, Done, Refused};
use crate::control::{Answer, Refusal, Target};
use crate::engine::arrays::AT_MOST;
use crate::engine::Engine;
use crate::exec::state::{Member, Profile};
use crate::ir::{ActionCall, ActionId, TableId};
use crate::tables::call::{call, Call};
use crate::tables::Table;

impl Engine {
    fn profile(&self, profile: u16) -> Result<&Profile, Refused> {
        self.state.profiles.get(usize::from(profile)).map_or_else(|| missing("action profile", profile), Ok)
    }

    fn profile_mut(&mut self, profile: u16) -> Result<&mut Profile, Refused> {
        self.state
            .profiles
            .get_mut(usize::from(profile))
            .map_or_else(|| missing("action profile", profile), Ok)
    }

    fn tables_of(&self, profile: u16) -> impl Iterator<Item = (TableId, &Table)> + '_ {
        let tables = (0..).zip(&self.state.tables);
        tables.filter(move |(_, table)| table.profile == profile)
    }

    fn action_name(&self, action: ActionId) -> Option<&str> {
        self.program.actions.get(usize::from(action)).map(|action| action.name.as_str())
    }

    /// A table's own copy of an action.
    fn copy_in(&self, table: &Table, action: ActionId) -> Option<ActionId> {
        let name = self.action_name(action);
        let same = |copy: &&ActionId| self.action_name(**copy) == name;
        table
            .actions
            .iter()
            .find(|copy| **copy == action)
            .or_else(|| table.actions.iter().find(same))
            .copied()
    }

    fn member(&self, profile: u16, asked: &ActionCall) -> Result<Member, Refused> {
        call(&self.program, asked)?;
        let call_in = |(_, table): (TableId, &Table)| {
            let copy = self.copy_in(table, asked.action);
            copy.map(|action| call(&self.program, &ActionCall { action, ..asked.clone() })).transpose()
        };
        let calls: Vec<Option<Call>> = self.tables_of(profile).map(call_in).collect::<Result<_, _>>()?;
        if !calls.is_empty() && calls.iter().all(Option::is_none) {
            return refuse(Refusal::InvalidArgument, "its table does not have this action");
        }
        Ok(Member { asked: asked.clone(), calls })
    }

    /// Whether the entries of a table may name a member: it exists, and the table has its action.
    pub(crate) fn member_fits(&self, profile: u16, table: TableId, member: u32) -> Result<(), Refused> {
        let members = &self.profile(profile)?.members;
        let known = members.get(&member).map_or_else(|| missing("member", member), Ok)?;
        self.call_fits(table, member, known)
    }

    /// Whether they may name a group: it exists, and they may name all its members.
    pub(crate) fn group_fits(&self, profile: u16, table: TableId, group: u32) -> Result<(), Refused> {
        let groups = &self.profile(profile)?.groups;
        let members = groups.get(&group).map_or_else(|| missing("group", group), Ok)?;
        members.iter().try_for_each(|member| self.member_fits(profile, table, *member))
    }

    fn call_fits(&self, table: TableId, number: u32, member: &Member) -> Result<(), Refused> {
        let place = self.state.tables.get(usize::from(table)).map_or(0, |table| table.place);
        if member.calls.get(usize::from(place)).is_some_and(Option::is_some) {
            return Ok(());
        }
        let name = self.program.tables.get(usize::from(table)).map_or("", |table| &table.name);
        let action = self.action_name(member.asked.action).unwrap_or_default();
        let text = format!("member {number} calls {action}, which table {name} does not have");
        Err((Refusal::InvalidArgument, text))
    }

    fn room(&self, profile: u16, used: usize, more: usize) -> Result<(), Refused> {
        let most =
            self.program.profiles.get(usize::from(profile)).map_or(0, |profile| profile.max_size as usize);
        if used + more > most {
            return Err((Refusal::ResourceExhausted, format!("the action profile is full: {most}")));
        }
        Ok(())
    }

    pub(crate) fn insert_member(&mut self, profile: u16, member: u32, asked: &ActionCall) -> Done {
        let known = self.profile(profile)?;
        if known.members.contains_key(&member) {
            return refuse(Refusal::AlreadyExists, "a member of this number exists");
        }
        self.room(profile, known.members.len(), 1)?;
        let new = self.member(profile, asked)?;
        self.profile_mut(profile)?.members.insert(member, new);
        Ok(Answer::Done)
    }

    pub(crate) fn modify_member(&mut self, profile: u16, member: u32, asked: &ActionCall) -> Done {
        let known = self.profile(profile)?;
        if !known.members.contains_key(&member) {
            return missing("member", member);
        }
        let new = self.member(profile, asked)?;
        for (number, table) in self.tables_of(profile) {
            let fits = self.call_fits(number, member, &new);
            if fits.is_err() && uses(known, table, member) {
                return fits.map(|()| Answer::Done);
            }
        }
        self.profile_mut(profile)?.members.insert(member, new);
        Ok(Answer::Done)
    }

    pub(crate) fn delete_member(&mut self, profile: u16, member: u32) -> Done {
        let known = self.profile(profile)?;
        if !known.members.contains_key(&member) {
            return missing("member", member);
        }
        let in_group = known.groups.values().any(|members| members.contains(&member));
        if in_group || self.tables_of(profile).any(|(_, table)| table.uses(&Target::Member(member))) {
            return refuse(Refusal::FailedPrecondition, "the member is in use");
        }
        self.profile_mut(profile)?.members.remove(&member);
        Ok(Answer::Done)
    }

    pub(crate) fn set_group(&mut self, profile: u16, group: u32, members: &[u32]) -> Done {
        let known = self.profile(profile)?;
        if let Some(member) = members.iter().find(|member| !known.members.contains_key(member)) {
            return missing("member", member);
        }
        if known.selector.is_none() {
            return refuse(Refusal::InvalidArgument, "its action profile has no selector");
        }
        if members.len() > AT_MOST || known.groups.len() >= AT_MOST && !known.groups.contains_key(&group) {
            return refuse(Refusal::ResourceExhausted, "too many members or groups");
        }
        for (number, table) in self.tables_of(profile) {
            let fits = members.iter().try_for_each(|member| self.member_fits(profile, number, *member));
            if fits.is_err() && table.uses(&Target::Group(group)) {
                return fits.map(|()| Answer::Done);
            }
        }
        let mut members = members.to_vec();
        // BMv2 (`RandAccessUIntSet`) counts them so: the same hash chooses the same member.
        members.sort_unstable();
        self.profile_mut(profile)?.groups.insert(group, members);
        Ok(Answer::Done)
    }

    pub(crate) fn delete_group(&mut self, profile: u16, group: u32) -> Done {
        if !self.profile(profile)?.groups.contains_key(&group) {
            return missing("group", group);
        }
        if self.tables_of(profile).any(|(_, table)| table.uses(&Target::Group(group))) {
            return refuse(Refusal::FailedPrecondition, "the group is in use");
        }
        self.profile_mut(profile)?.groups.remove(&group);
        Ok(Answer::Done)
    }

    pub(crate) fn profile_state(&self, profile: u16) -> Done {
        let profile = self.profile(profile)?;
        let members =
            profile.members.iter().map(|(number, member)| (*number, member.asked.clone())).collect();
        let groups = profile.groups.iter().map(|(group, members)| (*group, members.clone())).collect();
        Ok(Answer::Profile { members, groups })
    }
}

/// Whether a table's entries name a member, or a group that it is in.
fn uses(profile: &Profile, table: &Table, member: u32) -> bool {
    let mut groups = profile.groups.iter().filter(|(_, members)| members.contains(&member));
    table.uses(&Target::Member(member)) || groups.any(|(group, _)| table.uses(&Target::Group(*group)))
}
