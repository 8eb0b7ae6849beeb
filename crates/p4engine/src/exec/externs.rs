// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Externs of v1model: registers, counters, meters, hashes, random numbers, clones.

use crate::arith::bits::{self, ones, Place};
use crate::arith::wide::Wide;
use crate::exec::hash_input::{hash, Input};
use crate::exec::interpreter::Interpreter;
use crate::exec::packet::Shell;
use crate::ir::{ArrayId, FieldId, Op, Reg, MAX_REGISTERS};

pub(crate) const DROP_PORT: u64 = 511;

/// Bits of a clone session's number, as in BMv2.
const SESSION_MASK: u16 = 0x7fff;

impl<S: Shell> Interpreter<'_, S> {
    #[inline]
    pub fn register_read(&mut self, to: FieldId, array: ArrayId, index: Reg) {
        let Some(array) = self.state.arrays.get(usize::from(array)) else { return };
        let Some(value) = array.value(self.state.registers[usize::from(index) % MAX_REGISTERS]) else {
            return;
        };
        let field = self.code.field(to);
        match value {
            [value] if field.width <= 64 => {
                let value = if array.signed { bits::signed(*value, array.width) as u64 } else { *value };
                Place::new(field.at, field.width).store(&mut self.context.phv, value);
            }
            _ => {
                let limbs = self.code.limbs.max(array.limbs).max(field.width.div_ceil(64) as usize);
                let mut wide = Wide::zero(limbs);
                wide.as_mut().iter_mut().zip(value).for_each(|(limb, value)| *limb = *value);
                let wide = if array.signed { wide.signed(array.width as usize) } else { wide };
                bits::store_limbs(&mut self.context.phv, field.at, field.width, wide.as_ref());
            }
        }
    }

    #[inline]
    pub fn register_write(&mut self, array: ArrayId, index: Reg, from: Reg) {
        let (index, value) = (self.number(index), self.number(from));
        let Some(array) = self.state.arrays.get_mut(usize::from(array)) else { return };
        let width = array.width;
        match array.value_mut(index) {
            Some([limb]) => *limb = value as u64 & ones(width),
            Some(limbs) => {
                let wide = Wide::from_number(value, limbs.len()).cut(width as usize);
                limbs.copy_from_slice(wide.as_ref());
            }
            None => {}
        }
    }

    fn wide_register_write(&mut self, array: ArrayId, index: Reg, from: u16) {
        let (index, value) = (self.number(index), self.wide(from));
        let Some(array) = self.state.arrays.get_mut(usize::from(array)) else { return };
        let width = array.width as usize;
        let fill = value.signed(value.as_ref().len() * 64).cut(width);
        for (index, limb) in array.value_mut(index).unwrap_or_default().iter_mut().enumerate() {
            *limb = fill.as_ref().get(index).copied().unwrap_or(0);
        }
    }

    pub fn run_extern_op(&mut self, op: Op) {
        match op {
            Op::WideRegisterWrite { array, index, from } => self.wide_register_write(array, index, from),
            Op::Execute { meter, index, to } => self.execute(meter, index, to),
            Op::ExecuteDirect { meter, to } => self.execute_direct(meter, to),
            Op::HashTo { field, hash, base, size } => {
                let (value, size) = (self.hash(hash), self.number(size) as u64);
                // As in BMv2, a size of 0 counts as 1.
                let value = value.checked_rem(size).unwrap_or(0).wrapping_add(self.number(base) as u64);
                self.store(field, value);
            }
            Op::Random { field, low, high } => self.random(field, low, high),
            Op::Digest { digest } => self.context.pending.digest = Some(digest),
            Op::CloneIngress { session, list } | Op::CloneEgress { session, list } => {
                self.context.pending.clone = Some((self.number(session) as u16 & SESSION_MASK, list));
            }
            Op::Resubmit { list } => self.context.pending.resubmit = Some(list),
            Op::Recirculate { list } => self.context.pending.recirculate = Some(list),
            Op::Truncate { bytes } => {
                let bytes = u32::try_from(self.number(bytes)).unwrap_or(u32::MAX);
                self.context.truncate = Some(self.context.truncate.map_or(bytes, |before| before.min(bytes)));
            }
            Op::MarkToDrop => self.mark_to_drop(self.frame.returning.reason),
            Op::MarkCopyToDrop { egress_spec, mcast_grp } => {
                self.store(egress_spec, DROP_PORT);
                if let Some(mcast_grp) = mcast_grp {
                    self.store(mcast_grp, 0);
                }
                self.context.drop_reason = Some(self.frame.returning.reason);
            }
            Op::Assert { condition, message } if self.number(condition) == 0 => {
                self.state.totals.asserts_failed = self.state.totals.asserts_failed.wrapping_add(1);
                self.shell.failed(self.code.messages.get(usize::from(message)).map_or("", |text| text));
            }
            Op::Log { message, first, arguments } => {
                let first = usize::from(first);
                let values = self.state.registers.get(first..first + usize::from(arguments)).unwrap_or(&[]);
                self.shell.log(self.code.messages.get(usize::from(message)).map_or("", |text| text), values);
            }
            _ => {}
        }
    }

    pub fn mark_to_drop(&mut self, reason: u32) {
        self.context.put(self.code.standard.egress_spec, DROP_PORT);
        self.context.put(self.code.standard.mcast_grp, 0);
        self.context.drop_reason = Some(reason);
    }

    fn store(&mut self, field: FieldId, value: u64) {
        let field = self.code.field(field);
        bits::store_limbs(&mut self.context.phv, field.at, field.width, &[value]);
    }

    #[inline]
    pub fn count(&mut self, counter: u16, index: Reg) {
        let Ok(index) = usize::try_from(self.number(index)) else { return };
        let counters = self.state.counters.get_mut(usize::from(counter));
        if let Some(count) = counters.and_then(|counts| counts.get_mut(index)) {
            count.packets = count.packets.wrapping_add(1);
            count.bytes = count.bytes.wrapping_add(u64::from(self.context.arrived));
        }
    }

    fn execute(&mut self, meter: u16, index: Reg, to: FieldId) {
        let (Ok(index), now_us) = (usize::try_from(self.number(index)), self.state.now_us) else { return };
        let Some(meters) = self.state.meters.get_mut(usize::from(meter)) else { return };
        let units = meters.units(self.context);
        if let Some(meter) = meters.meters.get_mut(index) {
            let color = meter.as_mut().map_or(0, |meter| meter.execute(now_us, units));
            let counts = meters.colors.get_mut(index);
            if let Some(count) = counts.and_then(|counts| counts.get_mut(color as usize)) {
                *count = count.wrapping_add(1);
            }
            self.store(to, color);
        }
    }

    fn execute_direct(&mut self, meter: u16, to: FieldId) {
        let (state, context) = (&mut *self.state, &*self.context);
        let Some(meters) = state.meters.get(usize::from(meter)) else { return };
        let table = meters.table.and_then(|table| state.tables.get_mut(usize::from(table)));
        let slot = table.and_then(|table| table.last.and_then(|last| table.slots.get_mut(last as usize)));
        if let Some(slot) = slot {
            let color =
                slot.meter.as_mut().map_or(0, |meter| meter.execute(state.now_us, meters.units(context)));
            self.store(to, color);
        }
    }

    fn random(&mut self, field: FieldId, low: Reg, high: Reg) {
        let (low, high) = (self.number(low) as u64, self.number(high) as u64);
        // As in BMv2, an empty range leaves the field unchanged.
        let Some(span) = high.checked_sub(low) else { return };
        let value = match span.checked_add(1) {
            Some(count) if count <= 1 << 32 => low + ((u64::from(self.shell.random_u32()) * count) >> 32),
            Some(count) => {
                low + (u128::from(self.shell.random()).wrapping_mul(u128::from(count)) >> 64) as u64
            }
            None => self.shell.random(),
        };
        self.store(field, value);
    }

    pub fn hash(&mut self, number: u16) -> u64 {
        let rest = self.packet.get(self.context.parsed as usize..).unwrap_or(&[]);
        let input = Input { phv: &self.context.phv, rest, registers: &self.state.registers };
        hash(self.code, number, &input, &mut self.state.buffer, &mut self.state.round_robin)
    }
}
