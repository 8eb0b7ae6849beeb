// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Executes the control plane's requests for action profiles.
//!
//! p4c makes a copy of an action for each table. The copies have the same name and the same id in P4Info. A member of a
//! shared profile refers to one copy, and each table calls its copy. A table without a copy rejects entries that refer
//! to the member.

use alloc::format;
use alloc::vec::Vec;

use crate::control::refusal::{not_found, refuse, Refused, RequestResult};
use crate::control::{Answer, Refusal, Target};
use crate::engine::arrays::MAX_VALUES;
use crate::engine::Engine;
use crate::exec::state::{Member, Profile};
use crate::ir::{ActionCall, ActionId, TableId};
use crate::tables::call::{call, Call};
use crate::tables::Table;

impl Engine {
    fn profile(&self, profile: u16) -> Result<&Profile, Refused> {
        self.state.profiles.get(usize::from(profile)).map_or_else(|| not_found("action profile", profile), Ok)
    }

    fn profile_mut(&mut self, profile: u16) -> Result<&mut Profile, Refused> {
        self.state
            .profiles
            .get_mut(usize::from(profile))
            .map_or_else(|| not_found("action profile", profile), Ok)
    }

    fn tables_of(&self, profile: u16) -> impl Iterator<Item = (TableId, &Table)> + '_ {
        let tables = (0..).zip(&self.state.tables);
        tables.filter(move |(_, table)| table.profile == profile)
    }

    fn action_name(&self, action: ActionId) -> Option<&str> {
        self.program.actions.get(usize::from(action)).map(|action| action.name.as_str())
    }

    /// A table's copy of an action.
    fn action_copy(&self, table: &Table, action: ActionId) -> Option<ActionId> {
        let name = self.action_name(action);
        let same = |copy: &&ActionId| self.action_name(**copy) == name;
        table
            .actions
            .iter()
            .find(|copy| **copy == action)
            .or_else(|| table.actions.iter().find(same))
            .copied()
    }

    fn new_member(&self, profile: u16, action_call: &ActionCall) -> Result<Member, Refused> {
        call(&self.program, action_call)?;
        let call_in = |(_, table): (TableId, &Table)| {
            let copy = self.action_copy(table, action_call.action);
            copy.map(|action| call(&self.program, &ActionCall { action, ..action_call.clone() })).transpose()
        };
        let calls: Vec<Option<Call>> = self.tables_of(profile).map(call_in).collect::<Result<_, _>>()?;
        if !calls.is_empty() && calls.iter().all(Option::is_none) {
            return refuse(Refusal::InvalidArgument, "no table of the profile has this action");
        }
        Ok(Member { call: action_call.clone(), calls })
    }

    /// Checks that a table's entries may refer to a member: it exists, and the table has its action.
    pub(crate) fn check_member(&self, profile: u16, table: TableId, member: u32) -> Result<(), Refused> {
        let members = &self.profile(profile)?.members;
        let known = members.get(&member).map_or_else(|| not_found("member", member), Ok)?;
        self.check_member_call(table, member, known)
    }

    /// Checks that a table's entries may refer to a group: it exists, and they may refer to all its members.
    pub(crate) fn check_group(&self, profile: u16, table: TableId, group: u32) -> Result<(), Refused> {
        let groups = &self.profile(profile)?.groups;
        let members = groups.get(&group).map_or_else(|| not_found("group", group), Ok)?;
        members.iter().try_for_each(|member| self.check_member(profile, table, *member))
    }

    fn check_member_call(&self, table: TableId, number: u32, member: &Member) -> Result<(), Refused> {
        let index = self.state.tables.get(usize::from(table)).map_or(0, |table| table.profile_index);
        if member.calls.get(usize::from(index)).is_some_and(Option::is_some) {
            return Ok(());
        }
        let name = self.program.tables.get(usize::from(table)).map_or("", |table| &table.name);
        let action = self.action_name(member.call.action).unwrap_or_default();
        let text = format!("member {number} calls {action}, which table {name} does not have");
        Err((Refusal::InvalidArgument, text))
    }

    fn check_capacity(&self, profile: u16, used: usize, more: usize) -> Result<(), Refused> {
        let limit =
            self.program.profiles.get(usize::from(profile)).map_or(0, |profile| profile.max_size as usize);
        if used + more > limit {
            return Err((Refusal::ResourceExhausted, format!("the action profile is full: {limit}")));
        }
        Ok(())
    }

    pub(crate) fn insert_member(
        &mut self,
        profile: u16,
        member: u32,
        action_call: &ActionCall,
    ) -> RequestResult {
        let known = self.profile(profile)?;
        if known.members.contains_key(&member) {
            return refuse(Refusal::AlreadyExists, "a member with this number exists");
        }
        self.check_capacity(profile, known.members.len(), 1)?;
        let new = self.new_member(profile, action_call)?;
        self.profile_mut(profile)?.members.insert(member, new);
        Ok(Answer::Done)
    }

    pub(crate) fn modify_member(
        &mut self,
        profile: u16,
        member: u32,
        action_call: &ActionCall,
    ) -> RequestResult {
        let known = self.profile(profile)?;
        if !known.members.contains_key(&member) {
            return not_found("member", member);
        }
        let new = self.new_member(profile, action_call)?;
        for (number, table) in self.tables_of(profile) {
            let fits = self.check_member_call(number, member, &new);
            if fits.is_err() && uses(known, table, member) {
                return fits.map(|()| Answer::Done);
            }
        }
        self.profile_mut(profile)?.members.insert(member, new);
        Ok(Answer::Done)
    }

    pub(crate) fn delete_member(&mut self, profile: u16, member: u32) -> RequestResult {
        let known = self.profile(profile)?;
        if !known.members.contains_key(&member) {
            return not_found("member", member);
        }
        let in_group = known.groups.values().any(|members| members.contains(&member));
        if in_group || self.tables_of(profile).any(|(_, table)| table.uses(&Target::Member(member))) {
            return refuse(Refusal::FailedPrecondition, "the member is in use");
        }
        self.profile_mut(profile)?.members.remove(&member);
        Ok(Answer::Done)
    }

    pub(crate) fn set_group(&mut self, profile: u16, group: u32, members: &[u32]) -> RequestResult {
        let known = self.profile(profile)?;
        if let Some(member) = members.iter().find(|member| !known.members.contains_key(member)) {
            return not_found("member", member);
        }
        if known.selector.is_none() {
            return refuse(Refusal::InvalidArgument, "the action profile has no selector");
        }
        if members.len() > MAX_VALUES
            || known.groups.len() >= MAX_VALUES && !known.groups.contains_key(&group)
        {
            return refuse(Refusal::ResourceExhausted, "too many members or groups");
        }
        for (number, table) in self.tables_of(profile) {
            let fits = members.iter().try_for_each(|member| self.check_member(profile, number, *member));
            if fits.is_err() && table.uses(&Target::Group(group)) {
                return fits.map(|()| Answer::Done);
            }
        }
        let mut members = members.to_vec();
        // BMv2 (`RandAccessUIntSet`) has this order, so that a hash selects the same member.
        members.sort_unstable();
        self.profile_mut(profile)?.groups.insert(group, members);
        Ok(Answer::Done)
    }

    pub(crate) fn delete_group(&mut self, profile: u16, group: u32) -> RequestResult {
        if !self.profile(profile)?.groups.contains_key(&group) {
            return not_found("group", group);
        }
        if self.tables_of(profile).any(|(_, table)| table.uses(&Target::Group(group))) {
            return refuse(Refusal::FailedPrecondition, "the group is in use");
        }
        self.profile_mut(profile)?.groups.remove(&group);
        Ok(Answer::Done)
    }

    pub(crate) fn profile_state(&self, profile: u16) -> RequestResult {
        let profile = self.profile(profile)?;
        let members = profile.members.iter().map(|(number, member)| (*number, member.call.clone())).collect();
        let groups = profile.groups.iter().map(|(group, members)| (*group, members.clone())).collect();
        Ok(Answer::Profile { members, groups })
    }
}

/// Whether a table's entries refer to a member or to a group with it.
fn uses(profile: &Profile, table: &Table, member: u32) -> bool {
    let mut groups = profile.groups.iter().filter(|(_, members)| members.contains(&member));
    table.uses(&Target::Member(member)) || groups.any(|(group, _)| table.uses(&Target::Group(*group)))
}
