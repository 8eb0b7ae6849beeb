// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Checks selects, tables, externs and the standard metadata.

use alloc::vec::Vec;

use crate::arith::wide::LIMBS;
use crate::ir::{
    select_width, Hash, HashInput, MatchKind, Next, Program, Select, SelectKey, SelectOn, Standard, Table,
    MAX_PHV_BYTES,
};
use crate::tables::key::{Layout, KEY_WORDS};
use crate::verify::error::{must, Checked};

impl Program {
    pub(super) fn select_fits(&self, select: &Select) -> Checked {
        let mut bytes = 0;
        for key in &select.keys {
            match *key {
                SelectKey::Field(field) => self.any(field)?,
                SelectKey::Lookahead { at, width } => self.look_fits(at, width, MAX_PHV_BYTES)?,
                SelectKey::StackLast { stack, member, field } => {
                    self.element_fits(stack, member, Some(field))?
                }
            }
            bytes += select_width(self, key).div_ceil(8) as usize;
        }
        must(bytes == usize::from(select.bytes), "a select whose key has other bytes", bytes)?;
        let masked = |mask: &Option<Vec<u8>>| mask.as_ref().is_none_or(|mask| mask.len() == bytes);
        for case in &select.cases {
            let fits = match &case.on {
                SelectOn::Value { value, mask } => value.len() == bytes && masked(mask),
                SelectOn::Set { set, mask } => {
                    let set = self.value_sets.get(usize::from(*set));
                    masked(mask) && set.is_some_and(|set| usize::from(set.bytes) == bytes)
                }
            };
            must(fits, "a select's case of other bytes than its key", bytes)?;
        }
        Ok(())
    }

    pub(super) fn look_fits(&self, at: u32, width: u32, most: u32) -> Checked {
        must(at <= MAX_PHV_BYTES * 8 && width > 0 && width <= most, "a lookahead of too many bits", width)
    }

    pub(super) fn hash_fits(&self, hash: &Hash) -> Checked {
        for input in &hash.input {
            match input {
                HashInput::Field(field) => self.any(*field)?,
                HashInput::Header(header) => self.has_header(*header)?,
                HashInput::Constant { value, width } => {
                    must(
                        value.len() == width.div_ceil(8) as usize,
                        "a hash's constant of other bytes",
                        &hash.name,
                    )?;
                }
                HashInput::Register { register, width } => {
                    self.registers_fit([*register])?;
                    must(*width <= 128, "a hash over a number too wide", &hash.name)?;
                }
                HashInput::Payload => {}
            }
        }
        Ok(())
    }

    pub(super) fn objects_fit(&self) -> Checked {
        self.field_lists.iter().flatten().try_for_each(|field| self.any(*field))?;
        self.digests.iter().flat_map(|digest| &digest.fields).try_for_each(|field| self.any(*field))?;
        for action in &self.actions {
            let mut widths = action.parameters.iter().map(|parameter| parameter.width);
            must(widths.all(|width| width <= MAX_PHV_BYTES), "a parameter's width", &action.name)?;
        }
        for profile in &self.profiles {
            let fits = profile.selector.is_none_or(|hash| usize::from(hash) < self.hashes.len());
            must(fits, "a selector without a hash", &profile.name)?;
        }
        for array in &self.arrays {
            must((1..=LIMBS as u32 * 64).contains(&array.width), "a register's width", &array.name)?;
        }
        for counter in &self.counters {
            let fits = counter.table.is_none_or(|table| usize::from(table) < self.tables.len());
            must(fits, "a counter of no table", &counter.name)?;
        }
        for meter in &self.meters {
            let fits = meter.table.is_none_or(|table| usize::from(table) < self.tables.len());
            must(fits, "a meter of no table", &meter.name)?;
            meter.result.map_or(Ok(()), |field| self.narrow(field))?;
        }
        Ok(())
    }

    pub(super) fn table_fits(&self, table: &Table) -> Checked {
        let name = &table.name;
        for key in &table.keys {
            self.any(key.field)?;
            let bytes = self.width(key.field).div_ceil(8) as usize;
            must(bytes <= KEY_WORDS * 8, "a key's field is too wide", &key.name)?;
            must(
                key.mask.as_ref().is_none_or(|mask| mask.len() == bytes),
                "a key's mask of other bytes",
                &key.name,
            )?;
        }
        let count = |kind| table.keys.iter().filter(|key| key.kind == kind).count();
        let ternary = [MatchKind::Ternary, MatchKind::Range, MatchKind::Optional]
            .into_iter()
            .any(|kind| count(kind) > 0);
        must(ternary || count(MatchKind::Lpm) <= 1, "two longest prefix matches in one table", name)?;
        must(table.keys.len() <= KEY_WORDS, "too many keys in table", name)?;
        must(Layout::new(self, table).words <= KEY_WORDS, "too long a key of table", name)?;
        let known = |action: &u16| usize::from(*action) < self.actions.len();
        must(table.actions.iter().all(known), "an action that is not there, in table", name)?;
        if let Next::ByAction { to, .. } = &table.next {
            must(to.len() == table.actions.len(), "not one step to go on by an action, in table", name)?;
        }
        let fits = |number: Option<u16>, all: usize| number.is_none_or(|number| usize::from(number) < all);
        must(fits(table.profile, self.profiles.len()), "no such action profile, of table", name)?;
        must(fits(table.counter, self.counters.len()), "no such counter, of table", name)?;
        must(fits(table.meter, self.meters.len()), "no such meter, of table", name)?;
        must(
            table.profile.is_none() || table.entries.is_empty(),
            "entries of the program beside a profile, in table",
            name,
        )
    }

    pub(super) fn standard_fits(&self, standard: &Standard) -> Checked {
        let all = [
            standard.ingress_port,
            standard.egress_spec,
            standard.egress_port,
            standard.instance_type,
            standard.packet_length,
            standard.enq_timestamp,
            standard.enq_qdepth,
            standard.deq_timedelta,
            standard.deq_qdepth,
            standard.ingress_global_timestamp,
            standard.egress_global_timestamp,
            standard.mcast_grp,
            standard.egress_rid,
            standard.priority,
            standard.qid,
            standard.parser_error,
            standard.checksum_error,
        ];
        all.into_iter().flatten().try_for_each(|field| self.narrow(field))
    }
}
