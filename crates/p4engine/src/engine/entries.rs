// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Carries out requests for table entries and default actions.

use alloc::format;

use crate::control::refusal::{missing, refuse, Done, Refused};
use crate::control::{Answer, Count, Entry, Rates, Refusal, Target};
use crate::engine::arrays::fit;
use crate::engine::Engine;
use crate::ir::{self, ActionCall, Match, TableId};
use crate::tables::call::{call, Call};
use crate::tables::{Reaction, Table};
use crate::verify::Unfit;

impl Engine {
    pub(super) fn table(&self, table: TableId) -> Result<&Table, Refused> {
        self.state.tables.get(usize::from(table)).map_or_else(|| missing("table", table), Ok)
    }

    fn table_mut(&mut self, table: TableId) -> Result<&mut Table, Refused> {
        self.state.tables.get_mut(usize::from(table)).map_or_else(|| missing("table", table), Ok)
    }

    fn declared(&self, table: TableId) -> Result<&ir::Table, Refused> {
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

    pub(super) fn insert(&mut self, table: TableId, entry: &Entry) -> Done {
        self.open(table)?;
        let reaction = self.reaction(table, &entry.target)?;
        self.table_mut(table)?.insert(entry, reaction).map(|()| Answer::Done)
    }

    pub(super) fn modify(&mut self, table: TableId, entry: &Entry) -> Done {
        self.open(table)?;
        let reaction = self.reaction(table, &entry.target)?;
        self.table_mut(table)?.modify(entry, reaction).map(|()| Answer::Done)
    }

    pub(super) fn delete(&mut self, table: TableId, matches: &[Match], priority: u32) -> Done {
        self.open(table)?;
        self.table_mut(table)?.delete(matches, priority).map(|()| Answer::Done)
    }

    pub(super) fn set_default(&mut self, table: TableId, target: &Target) -> Done {
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

    pub(super) fn reset_default(&mut self, table: TableId) -> Done {
        let default = match self.declared(table)?.default.clone() {
            Some(default) => Some(Reaction::Call(self.call_in(table, &default)?)),
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

    pub(super) fn write_direct_counter(
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
}
