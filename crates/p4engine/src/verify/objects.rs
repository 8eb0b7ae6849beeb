// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Checks selects, tables, externs and the standard metadata.

use alloc::vec::Vec;

use crate::arith::wide::LIMBS;
use crate::ir::{
    select_width, Hash, HashInput, MatchKind, Next, Program, Select, SelectKey, SelectOn, Standard, Table,
    MAX_PHV_BYTES,
};
use crate::tables::key::{Layout, KEY_WORDS};
use crate::verify::error::{require, CheckResult};

impl Program {
    pub(super) fn check_select(&self, select: &Select) -> CheckResult {
        let mut bytes = 0;
        for key in &select.keys {
            match *key {
                SelectKey::Field(field) => self.check_any_field(field)?,
                SelectKey::Lookahead { at, width } => self.check_lookahead(at, width, MAX_PHV_BYTES)?,
                SelectKey::StackLast { stack, member, field } => {
                    self.check_stack_element(stack, member, Some(field))?
                }
            }
            bytes += select_width(self, key).div_ceil(8) as usize;
        }
        require(bytes == usize::from(select.bytes), "a select's key has a different size", bytes)?;
        let masked = |mask: &Option<Vec<u8>>| mask.as_ref().is_none_or(|mask| mask.len() == bytes);
        for case in &select.cases {
            let fits = match &case.on {
                SelectOn::Value { value, mask } => value.len() == bytes && masked(mask),
                SelectOn::Set { set, mask } => {
                    let set = self.value_sets.get(usize::from(*set));
                    masked(mask) && set.is_some_and(|set| usize::from(set.bytes) == bytes)
                }
            };
            require(fits, "a select's case and key have different sizes", bytes)?;
        }
        Ok(())
    }

    pub(super) fn check_lookahead(&self, at: u32, width: u32, max: u32) -> CheckResult {
        require(at <= MAX_PHV_BYTES * 8 && width > 0 && width <= max, "invalid width of a lookahead", width)
    }

    pub(super) fn check_hash(&self, hash: &Hash) -> CheckResult {
        for input in &hash.input {
            match input {
                HashInput::Field(field) => self.check_any_field(*field)?,
                HashInput::Header(header) => self.check_header_id(*header)?,
                HashInput::Constant { value, width } => {
                    require(
                        value.len() == width.div_ceil(8) as usize,
                        "a hash's constant has a different size",
                        &hash.name,
                    )?;
                }
                HashInput::Register { register, width } => {
                    self.check_registers([*register])?;
                    require(*width <= 128, "a hash's number is too wide", &hash.name)?;
                }
                HashInput::Payload => {}
            }
        }
        Ok(())
    }

    pub(super) fn check_externs(&self) -> CheckResult {
        self.field_lists.iter().flatten().try_for_each(|field| self.check_any_field(*field))?;
        self.digests
            .iter()
            .flat_map(|digest| &digest.fields)
            .try_for_each(|field| self.check_any_field(*field))?;
        for action in &self.actions {
            let mut widths = action.parameters.iter().map(|parameter| parameter.width);
            require(widths.all(|width| width <= MAX_PHV_BYTES), "a parameter is too wide", &action.name)?;
        }
        for profile in &self.profiles {
            let fits = profile.selector.is_none_or(|hash| usize::from(hash) < self.hashes.len());
            require(fits, "a selector's hash does not exist", &profile.name)?;
        }
        for array in &self.arrays {
            require(
                (1..=LIMBS as u32 * 64).contains(&array.width),
                "invalid width of a register",
                &array.name,
            )?;
        }
        for counter in &self.counters {
            let fits = counter.table.is_none_or(|table| usize::from(table) < self.tables.len());
            require(fits, "a direct counter's table does not exist", &counter.name)?;
        }
        for meter in &self.meters {
            let fits = meter.table.is_none_or(|table| usize::from(table) < self.tables.len());
            require(fits, "a direct meter's table does not exist", &meter.name)?;
            meter.result.map_or(Ok(()), |field| self.check_narrow_field(field))?;
        }
        Ok(())
    }

    pub(super) fn check_table(&self, table: &Table) -> CheckResult {
        let name = &table.name;
        for key in &table.keys {
            self.check_any_field(key.field)?;
            let bytes = self.width(key.field).div_ceil(8) as usize;
            require(bytes <= KEY_WORDS * 8, "a key's field is too wide", &key.name)?;
            require(
                key.mask.as_ref().is_none_or(|mask| mask.len() == bytes),
                "a key's mask has a different size",
                &key.name,
            )?;
        }
        let count = |kind| table.keys.iter().filter(|key| key.kind == kind).count();
        let ternary = [MatchKind::Ternary, MatchKind::Range, MatchKind::Optional]
            .into_iter()
            .any(|kind| count(kind) > 0);
        require(ternary || count(MatchKind::Lpm) <= 1, "a table has two longest prefix matches", name)?;
        require(table.keys.len() <= KEY_WORDS, "a table has too many keys", name)?;
        require(Layout::new(self, table).words <= KEY_WORDS, "a table's key is too long", name)?;
        let known = |action: &u16| usize::from(*action) < self.actions.len();
        require(table.actions.iter().all(known), "a table's action does not exist", name)?;
        if let Next::ByAction { to, .. } = &table.next {
            require(to.len() == table.actions.len(), "a table does not have one target per action", name)?;
        }
        let fits = |index: Option<u16>, count: usize| index.is_none_or(|index| usize::from(index) < count);
        require(fits(table.profile, self.profiles.len()), "a table's action profile does not exist", name)?;
        require(fits(table.counter, self.counters.len()), "a table's counter does not exist", name)?;
        require(fits(table.meter, self.meters.len()), "a table's meter does not exist", name)?;
        require(
            table.profile.is_none() || table.entries.is_empty(),
            "a table has both constant entries and an action profile",
            name,
        )
    }

    pub(super) fn check_standard(&self, standard: &Standard) -> CheckResult {
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
        all.into_iter().flatten().try_for_each(|field| self.check_narrow_field(field))
    }
}
