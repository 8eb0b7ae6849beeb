// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Table lookup and selection of the action.

use crate::exec::context::Context;
use crate::exec::hash_input::{self, Input};
use crate::exec::interpreter::{Interpreter, HALT};
use crate::exec::packet::Shell;
use crate::exec::state::Meters;
use crate::ir::{Pc, TableId};
use crate::tables::call::Call;
use crate::tables::{EntryAction, Table};

impl<'a, S: Shell> Interpreter<'a, S> {
    /// Looks up a table and returns the first instruction of the action. The action returns to the table's next
    /// instruction.
    #[inline]
    pub(super) fn apply(&mut self, table: TableId) -> Pc {
        let state = &mut *self.state;
        let Some(table) = state.tables.get_mut(usize::from(table)) else { return HALT };
        let found = table.find(&self.context.phv, &mut state.keys);
        table.last = found;
        if let Some(found) = found.filter(|_| table.tracks_hits) {
            record_hit(table, found, &state.meters, state.now_us, self.context);
        }
        let action = match found {
            Some(found) => table.entry_actions.get(found as usize),
            None => table.default.as_ref(),
        };
        let profile = state.profiles.get(usize::from(table.profile));
        let call: Option<&Call> = match action {
            Some(EntryAction::Call(call)) => Some(call),
            Some(EntryAction::Member(member)) => {
                profile.and_then(|profile| profile.call(*member, table.profile_index))
            }
            Some(EntryAction::Group(group)) => profile.and_then(|profile| {
                let hash_value = profile.selector.map_or(0, |hash| {
                    let rest = self.packet.get(self.context.parsed as usize..).unwrap_or(&[]);
                    let input = Input { phv: &self.context.phv, rest, registers: &state.registers };
                    hash_input::hash(self.code, hash, &input, &mut state.buffer, &mut state.round_robin)
                });
                profile.choose(*group, hash_value, table.profile_index)
            }),
            None => None,
        };
        let Some(call) = call else { return table.next(None, found.is_some()) };
        let position = table.position(call.action);
        let (pc, reason) =
            (table.next(Some(position), found.is_some()), table.first_drop_reason + position as u32);
        (self.frame.returning.pc, self.frame.returning.reason) = (pc, reason);
        call.arguments.pass(&mut state.arguments);
        if let Some(native) = &self.code.native {
            native.remember(&mut state.blocks, table, &state.keys, call, (pc, reason));
        }
        call.begin
    }
}

/// Updates the direct counter, the time of the last hit and the direct meter of an entry that matched.
#[inline]
fn record_hit(table: &mut Table, found: u32, meters: &[Meters], now_us: u64, context: &mut Context) {
    let (has_counter, has_timeout, meter) = (table.has_counter, table.has_timeout, table.meter);
    let Some(slot) = table.slots.get_mut(found as usize) else { return };
    if has_counter {
        slot.count.packets = slot.count.packets.wrapping_add(1);
        slot.count.bytes = slot.count.bytes.wrapping_add(u64::from(context.arrived));
    }
    if has_timeout {
        slot.last_hit_us = Some(now_us);
    }
    let Some(meter) = meter.and_then(|meter| meters.get(usize::from(meter))) else { return };
    // A meter without a result field is executed by `ExecuteDirect`.
    if let Some(place) = meter.result {
        let color = slot.meter.as_mut().map_or(0, |direct| direct.execute(now_us, meter.units(context)));
        place.store(&mut context.phv, color);
    }
}
