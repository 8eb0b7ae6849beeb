// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Executes requests for table entries and default actions.

use alloc::format;

use crate::control::refusal::{not_found, refuse, Refused, RequestResult};
use crate::control::{Answer, Count, Entry, Rates, Refusal, Target};
use crate::engine::arrays::new_meter;
use crate::engine::Engine;
use crate::ir::{self, ActionCall, Match, TableId};
use crate::tables::call::{call, Call};
use crate::tables::{EntryAction, Table};
use crate::verify::InvalidProgram;

impl Engine {
    pub(super) fn table(&self, table: TableId) -> Result<&Table, Refused> {
        self.state.tables.get(usize::from(table)).map_or_else(|| not_found("table", table), Ok)
    }

    fn table_mut(&mut self, table: TableId) -> Result<&mut Table, Refused> {
        self.state.clear_lines(usize::from(table));
        self.state.tables.get_mut(usize::from(table)).map_or_else(|| not_found("table", table), Ok)
    }

    fn declaration(&self, table: TableId) -> Result<&ir::Table, Refused> {
        self.program.tables.get(usize::from(table)).map_or_else(|| not_found("table", table), Ok)
    }

    /// Checks that the control plane may change the table's entries.
    fn check_mutable(&self, table: TableId) -> Result<(), Refused> {
        if self.declaration(table)?.constant_entries {
            return refuse(Refusal::PermissionDenied, "the table's entries are constant");
        }
        Ok(())
    }

    fn call_in(&self, table: TableId, action_call: &ActionCall) -> Result<Call, Refused> {
        if !self.declaration(table)?.actions.contains(&action_call.action) {
            return refuse(Refusal::InvalidArgument, "the table does not have this action");
        }
        call(&self.program, action_call)
    }

    fn entry_action(&self, table: TableId, target: &Target) -> Result<EntryAction, Refused> {
        let profile = self.declaration(table)?.profile;
        match (target, profile) {
            (Target::Call(action_call), None) => Ok(EntryAction::Call(self.call_in(table, action_call)?)),
            (Target::Call(_), Some(_)) => refuse(Refusal::InvalidArgument, "the table has an action profile"),
            (Target::Member(member), Some(profile)) => {
                self.check_member(profile, table, *member).map(|()| EntryAction::Member(*member))
            }
            (Target::Group(group), Some(profile)) => {
                self.check_group(profile, table, *group).map(|()| EntryAction::Group(*group))
            }
            (_, None) => refuse(Refusal::InvalidArgument, "the table has no action profile"),
        }
    }

    pub(crate) fn insert_constant_entries(&mut self) -> Result<(), InvalidProgram> {
        for number in 0..self.program.tables.len() as TableId {
            let Some(table) = self.program.tables.get(usize::from(number)).cloned() else { continue };
            let invalid = |(_, text): Refused| InvalidProgram(format!("table {}: {text}", table.name));
            if let Some(default) = &table.default {
                let action = EntryAction::Call(self.call_in(number, default).map_err(invalid)?);
                self.table_mut(number).map_err(invalid)?.default = Some(action);
            }
            // The lowest priority has precedence in a program, the highest in a table.
            let lowest = table.entries.iter().map(|entry| entry.priority).max().unwrap_or(0);
            let ternary = self.table(number).map_err(invalid)?.ternary();
            for constant in &table.entries {
                let priority = if ternary { (lowest - constant.priority).saturating_add(1) } else { 0 };
                let target = Target::Call(constant.call.clone());
                let action = EntryAction::Call(self.call_in(number, &constant.call).map_err(invalid)?);
                let entry = Entry { matches: constant.matches.clone(), priority, target, idle_us: 0 };
                self.table_mut(number).and_then(|table| table.insert(&entry, action)).map_err(invalid)?;
            }
        }
        Ok(())
    }

    pub(super) fn insert(&mut self, table: TableId, entry: &Entry) -> RequestResult {
        self.check_mutable(table)?;
        let action = self.entry_action(table, &entry.target)?;
        self.table_mut(table)?.insert(entry, action).map(|()| Answer::Done)
    }

    pub(super) fn modify(&mut self, table: TableId, entry: &Entry) -> RequestResult {
        self.check_mutable(table)?;
        let action = self.entry_action(table, &entry.target)?;
        self.table_mut(table)?.modify(entry, action).map(|()| Answer::Done)
    }

    pub(super) fn delete(&mut self, table: TableId, matches: &[Match], priority: u32) -> RequestResult {
        self.check_mutable(table)?;
        self.table_mut(table)?.delete(matches, priority).map(|()| Answer::Done)
    }

    pub(super) fn set_default(&mut self, table: TableId, target: &Target) -> RequestResult {
        if self.declaration(table)?.constant_default {
            return refuse(Refusal::PermissionDenied, "the table's default action is constant");
        }
        let action = match target {
            Target::Call(action_call) => EntryAction::Call(self.call_in(table, action_call)?),
            other => self.entry_action(table, other)?,
        };
        self.table_mut(table)?.default = Some(action);
        Ok(Answer::Done)
    }

    pub(super) fn reset_default(&mut self, table: TableId) -> RequestResult {
        let default = match self.declaration(table)?.default.clone() {
            Some(default) => Some(EntryAction::Call(self.call_in(table, &default)?)),
            None => None,
        };
        self.table_mut(table)?.default = default;
        Ok(Answer::Done)
    }

    pub(super) fn set_direct_meter(
        &mut self,
        table: TableId,
        matches: &[Match],
        priority: u32,
        rates: Option<Rates>,
    ) -> RequestResult {
        let meter = new_meter(rates)?;
        let table = self.table_mut(table)?;
        if table.meter.is_none() {
            return refuse(Refusal::InvalidArgument, "the table has no direct meter");
        }
        let number = table.entry(matches, priority)?;
        table.slots.get_mut(number as usize).into_iter().for_each(|slot| slot.meter = meter);
        Ok(Answer::Done)
    }

    pub(super) fn write_direct_counter(
        &mut self,
        table: TableId,
        matches: &[Match],
        priority: u32,
        value: Count,
    ) -> RequestResult {
        let table = self.table_mut(table)?;
        if !table.has_counter {
            return refuse(Refusal::InvalidArgument, "the table has no direct counter");
        }
        let number = table.entry(matches, priority)?;
        table.slots.get_mut(number as usize).into_iter().for_each(|slot| slot.count = value);
        Ok(Answer::Done)
    }
}
