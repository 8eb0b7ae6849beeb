// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Applies tables.

use crate::exec::context::Context;
use crate::exec::hash_input::{self, Input};
use crate::exec::interpreter::{Run, NOWHERE};
use crate::exec::packet::Shell;
use crate::exec::state::Meters;
use crate::ir::{Pc, TableId};
use crate::tables::call::Call;
use crate::tables::{Reaction, Table};

impl<'a, S: Shell> Run<'a, S> {
    /// Looks up; where to go on: in the action, whose end leads to the table's next.
    #[inline]
    pub(super) fn apply(&mut self, table: TableId) -> Pc {
        let state = &mut *self.state;
        let Some(table) = state.tables.get_mut(usize::from(table)) else { return NOWHERE };
        let found = table.find(&self.context.area, &mut state.keys);
        table.last = found;
        if let Some(found) = found.filter(|_| table.watched) {
            hit(table, found, &state.meters, state.now_us, self.context);
        }
        let reaction = match found {
            Some(found) => table.reactions.get(found as usize),
            None => table.default.as_ref(),
        };
        let profile = state.profiles.get(usize::from(table.profile));
        let call: Option<&Call> = match reaction {
            Some(Reaction::Call(call)) => Some(call),
            Some(Reaction::Member(member)) => profile.and_then(|profile| profile.call(*member, table.place)),
            Some(Reaction::Group(group)) => profile.and_then(|profile| {
                let choice = profile.selector.map_or(0, |hash| {
                    let rest = self.packet.get(self.context.parsed as usize..).unwrap_or(&[]);
                    let input = Input { area: &self.context.area, rest, registers: &state.registers };
                    hash_input::hash(self.code, hash, &input, &mut state.buffer, &mut state.turns)
                });
                profile.choose(*group, choice, table.place)
            }),
            None => None,
        };
        let Some(call) = call else { return table.next(None, found.is_some()) };
        let position = table.position(call.action);
        self.back = table.next(Some(position), found.is_some());
        self.reason = table.drops + position as u32;
        call.arguments.pass(&mut state.arguments);
        call.begin
    }
}

/// What an entry that matched counts, remembers and measures.
#[inline]
fn hit(table: &mut Table, found: u32, meters: &[Meters], now_us: u64, context: &mut Context) {
    let (counted, timed, meter) = (table.counted, table.timed, table.meter);
    let Some(slot) = table.slots.get_mut(found as usize) else { return };
    if counted {
        slot.count.packets = slot.count.packets.wrapping_add(1);
        slot.count.bytes = slot.count.bytes.wrapping_add(u64::from(context.arrived));
    }
    if timed {
        slot.last_hit_us = Some(now_us);
    }
    let Some(meter) = meter.and_then(|meter| meters.get(usize::from(meter))) else { return };
    // Without a result the program asks for it (`ExecuteDirect`).
    if let Some(place) = meter.result {
        let color = slot.meter.as_mut().map_or(0, |one| one.execute(now_us, meter.units(context)));
        place.store(&mut context.area, color);
    }
}
