// SPDX-License-Identifier: Apache-2.0
//! Action profiles: members, groups and one-shot action sets (section "ActionProfileMember & ActionProfileGroup").
//!
//! A profile has either members and groups or one-shot action sets. So the engine's numbers of an action set's members
//! and group cannot collide with the ids of controllers.

use std::collections::{BTreeMap, BTreeSet};

use qbed_p4engine::control::{Answer, Request};

use super::actions::{decode_action, encode_action};
use super::arrays::lookup;
use super::{Entities, Session};
use crate::error::{
    accepted, already_exists, exhausted, invalid, not_found, precondition, unexpected, unimplemented, Result,
};
use crate::pipeline::{Action, Pipeline, Profile, Table};
use crate::proto::p4::v1::action_profile_action_set::{ActionSelectionMode, SizeSemantics};
use crate::proto::p4::v1::entity::Entity as Kind;
use crate::proto::p4::v1::update::Type;
use crate::proto::p4::v1::{action_profile_action, action_profile_group};
use crate::proto::p4::v1::{ActionProfileActionSet, ActionProfileGroup, ActionProfileMember};

/// Limit on the sum of a group's weights.
const MAX_GROUP_SIZE: u32 = 1 << 16;

/// State of one profile.
#[derive(Debug, Default)]
pub struct Members {
    /// Ids of the members that controllers wrote.
    members: BTreeSet<u32>,
    groups: BTreeMap<u32, ActionProfileGroup>,
    /// Number of action sets.
    one_shots: u32,
    /// Last number of an action set's member or group.
    last: u32,
}

/// A one-shot action set of a table entry, stored as members and a group in the engine.
#[derive(Debug, Clone, PartialEq)]
pub struct OneShot {
    pub profile: u32,
    pub group: u32,
    members: Vec<u32>,
    pub set: ActionProfileActionSet,
}

fn profile<'a>(session: &Session<'a>, id: u32) -> Result<&'a Profile> {
    lookup(&session.pipeline.profiles, id, "action profile")
}

/// The actions of the profile's first table that has a given action. Tables of a profile can have different actions.
fn actions_with<'a>(
    pipeline: &'a Pipeline,
    id: u32,
    profile: &'a Profile,
    is_it: impl Fn(&Action) -> bool,
) -> &'a [Action] {
    let mut tables = pipeline.tables.values().filter(|table| table.profile == Some(id));
    tables.find(|table| table.actions.iter().any(&is_it)).map_or(&profile.actions, |table| &table.actions)
}

fn no_one_shots(session: &mut Session, id: u32, profile: &Profile) -> Result<()> {
    match session.state.profiles.entry(id).or_default().one_shots {
        0 => Ok(()),
        _ => Err(invalid(format!(
            "{} has one-shot action sets, which exclude members and groups",
            profile.name
        ))),
    }
}

pub fn write_member(session: &mut Session, kind: Type, given: &ActionProfileMember) -> Result<()> {
    let (id, member) = (given.action_profile_id, given.member_id);
    let profile = profile(session, id)?;
    if member == 0 {
        return Err(invalid("expected a member id other than 0"));
    }
    no_one_shots(session, id, profile)?;
    let number = profile.number;
    if kind == Type::Delete {
        session.execute(Request::DeleteMember { profile: number, member })?;
        session.state.profiles.entry(id).or_default().members.remove(&member);
        return Ok(());
    }
    let action = given.action.as_ref().ok_or_else(|| invalid("a member without an action"))?;
    let actions = actions_with(session.pipeline, id, profile, |known| known.id == action.action_id);
    let (call, _) = decode_action(actions, &profile.name, action)?;
    if kind == Type::Modify {
        return session.execute(Request::ModifyMember { profile: number, member, call });
    }
    session.execute(Request::InsertMember { profile: number, member, call })?;
    session.state.profiles.entry(id).or_default().members.insert(member);
    Ok(())
}

pub fn read_members(session: &mut Session, filter: &ActionProfileMember, found: &mut Entities) -> Result<()> {
    if filter.action_profile_id != 0 {
        profile(session, filter.action_profile_id)?;
    } else if filter.member_id != 0 {
        return Err(invalid("a read of all action profiles takes no member's id"));
    }
    for (id, profile) in &session.pipeline.profiles {
        if filter.action_profile_id != 0 && filter.action_profile_id != *id {
            continue;
        }
        let members = match accepted(session.control.request(Request::Profile { profile: profile.number }))? {
            Answer::Profile { members, .. } => members,
            other => return Err(unexpected(&other)),
        };
        let written = session.state.profiles.entry(*id).or_default();
        for (member_id, call) in members {
            if written.members.contains(&member_id)
                && (filter.member_id == 0 || filter.member_id == member_id)
            {
                let actions =
                    actions_with(session.pipeline, *id, profile, |known| known.number == call.action);
                let action = encode_action(actions, &call);
                let member = ActionProfileMember { action_profile_id: *id, member_id, action };
                found.push(Kind::ActionProfileMember(member))?;
            }
        }
    }
    Ok(())
}

/// The weight of a member. Watch ports are not supported.
fn weight(profile: &Profile, given: i32, watched: bool) -> Result<u32> {
    if watched {
        return Err(unimplemented("watch ports are not supported"));
    }
    match (profile.weights, u32::try_from(given)) {
        (true, Ok(weight @ 1..)) => Ok(weight),
        (false, Ok(0)) => Ok(1),
        _ => Err(invalid(format!("{}: a weight of {given}", profile.name))),
    }
}

/// Check the size of a group. 0 for `max_size` means no limit.
fn check_size(profile: &Profile, weights: &[u32], max_size: u32) -> Result<()> {
    let sum: u64 = weights.iter().copied().map(u64::from).sum();
    let size = if profile.by_weight { sum } else { weights.len() as u64 };
    if sum > u64::from(MAX_GROUP_SIZE) || max_size != 0 && size > u64::from(max_size) {
        return Err(exhausted(format!("{}: a group of size {size}", profile.name)));
    }
    Ok(())
}

pub fn write_group(session: &mut Session, kind: Type, given: &ActionProfileGroup) -> Result<()> {
    let (id, group) = (given.action_profile_id, given.group_id);
    let profile = profile(session, id)?;
    if !profile.selector {
        return Err(invalid(format!("{} has no selector and thus no groups", profile.name)));
    }
    if group == 0 {
        return Err(invalid("expected a group id other than 0"));
    }
    no_one_shots(session, id, profile)?;
    let old = session.state.profiles.entry(id).or_default().groups.get(&group);
    match (kind, old) {
        (Type::Insert, Some(_)) => return Err(already_exists(format!("{}: group {group}", profile.name))),
        (Type::Modify | Type::Delete, None) => {
            return Err(not_found(format!("{}: group {group}", profile.name)))
        }
        (Type::Modify, Some(old)) if old.max_size != given.max_size => {
            return Err(invalid("the max_size of a group cannot change"));
        }
        _ => {}
    }
    if kind == Type::Delete {
        session.execute(Request::DeleteGroup { profile: profile.number, group })?;
        session.state.profiles.entry(id).or_default().groups.remove(&group);
        return Ok(());
    }
    let members = members_of(profile, given)?;
    session.execute(Request::SetGroup { profile: profile.number, group, members })?;
    session.state.profiles.entry(id).or_default().groups.insert(group, given.clone());
    Ok(())
}

/// The members of a group, each repeated according to its weight.
fn members_of(profile: &Profile, given: &ActionProfileGroup) -> Result<Vec<u32>> {
    let max_size = u32::try_from(given.max_size).map_err(|_| invalid("a negative max_size"))?;
    if profile.max_group_size != 0 && !(1..=profile.max_group_size).contains(&max_size) {
        return Err(invalid(format!("max_size is {max_size}: expected 1 to {}", profile.max_group_size)));
    }
    let mut seen = BTreeSet::new();
    if let Some(twice) = given.members.iter().find(|member| !seen.insert(member.member_id)) {
        return Err(invalid(format!("member {} twice", twice.member_id)));
    }
    use action_profile_group::member::WatchKind;
    let weights = given.members.iter().map(|member| {
        let watched = match &member.watch_kind {
            Some(WatchKind::Watch(port)) => *port != 0,
            Some(WatchKind::WatchPort(port)) => !port.is_empty(),
            None => false,
        };
        weight(profile, member.weight, watched)
    });
    let weights = weights.collect::<Result<Vec<_>>>()?;
    check_size(profile, &weights, max_size)?;
    let repeated = given.members.iter().zip(weights);
    Ok(repeated.flat_map(|(member, weight)| std::iter::repeat_n(member.member_id, weight as usize)).collect())
}

pub fn read_groups(session: &mut Session, filter: &ActionProfileGroup, found: &mut Entities) -> Result<()> {
    if filter.action_profile_id != 0 {
        profile(session, filter.action_profile_id)?;
    } else if filter.group_id != 0 {
        return Err(invalid("a read of all action profiles takes no group's id"));
    }
    for (id, written) in &session.state.profiles {
        let wanted = filter.action_profile_id == 0 || filter.action_profile_id == *id;
        for group in written.groups.values().filter(|_| wanted) {
            if filter.group_id == 0 || filter.group_id == group.group_id {
                found.push(Kind::ActionProfileGroup(group.clone()))?;
            }
        }
    }
    Ok(())
}

/// Add the members and the group of an action set, before the entry that refers to them.
pub fn add_one_shot(
    session: &mut Session,
    id: u32,
    profile: &Profile,
    table: &Table,
    set: &ActionProfileActionSet,
) -> Result<OneShot> {
    let written = session.state.profiles.entry(id).or_default();
    if !written.members.is_empty() || !written.groups.is_empty() {
        return Err(invalid(format!(
            "{} has members or groups, which exclude one-shot action sets",
            profile.name
        )));
    }
    if set.action_selection_mode() == ActionSelectionMode::Random {
        return Err(unimplemented("members are selected by hash only"));
    }
    let by_weight = match set.size_semantics() {
        SizeSemantics::DefaultSizeDeterminedByActionSelector => profile.by_weight,
        SizeSemantics::SumOfWeights => true,
        SizeSemantics::SumOfMembers => false,
    };
    use action_profile_action::WatchKind;
    let mut calls = vec![];
    let mut weights = vec![];
    let mut set = set.clone();
    for member in &mut set.action_profile_actions {
        let watched = match &member.watch_kind {
            Some(WatchKind::Watch(port)) => *port != 0,
            Some(WatchKind::WatchPort(port)) => !port.is_empty(),
            None => false,
        };
        weights.push(weight(profile, member.weight, watched)?);
        let action = member.action.as_ref().ok_or_else(|| invalid("an action set with an empty action"))?;
        let (call, _) = decode_action(&table.actions, &table.name, action)?;
        member.action = encode_action(&table.actions, &call); // with the shortest byte strings
        calls.push(call);
    }
    check_size(&Profile { by_weight, ..profile.clone() }, &weights, profile.max_group_size)?;
    let first = written.last.checked_add(1).filter(|first| u32::MAX - first > MAX_GROUP_SIZE);
    let first = first.ok_or_else(|| exhausted(format!("{}: too many one-shot action sets", profile.name)))?;
    let members: Vec<u32> = (first..).take(calls.len()).collect();
    written.last = first + members.len() as u32;
    let mut one_shot = OneShot { profile: id, group: first, members: vec![], set };
    let mut added = Ok(());
    for (&member, call) in members.iter().zip(calls) {
        added = session.execute(Request::InsertMember { profile: profile.number, member, call });
        if added.is_err() {
            break;
        }
        one_shot.members.push(member);
    }
    let repeated = members
        .iter()
        .zip(weights)
        .flat_map(|(member, weight)| std::iter::repeat_n(*member, weight as usize));
    let group = Request::SetGroup { profile: profile.number, group: first, members: repeated.collect() };
    if let Err(refused) = added.and_then(|()| session.execute(group)) {
        delete_members(session, profile, &one_shot)?;
        return Err(refused);
    }
    session.state.profiles.entry(id).or_default().one_shots += 1;
    Ok(one_shot)
}

fn delete_members(session: &mut Session, profile: &Profile, one_shot: &OneShot) -> Result<()> {
    let delete =
        |member: &u32| session.execute(Request::DeleteMember { profile: profile.number, member: *member });
    one_shot.members.iter().try_for_each(delete)
}

/// Delete the members and the group of an action set that no entry refers to.
pub fn drop_one_shot(session: &mut Session, one_shot: OneShot) -> Result<()> {
    let profile = profile(session, one_shot.profile)?;
    session.execute(Request::DeleteGroup { profile: profile.number, group: one_shot.group })?;
    delete_members(session, profile, &one_shot)?;
    let written = session.state.profiles.entry(one_shot.profile).or_default();
    written.one_shots =
        written.one_shots.checked_sub(1).ok_or_else(|| precondition("an action set was deleted twice"))?;
    Ok(())
}
