// SPDX-License-Identifier: Apache-2.0
//! Compares P4Info with the program, object by object.

use std::collections::{BTreeMap, HashMap};

use qbed_p4engine::program::{ActionId, MatchKind, Program, SelectCase, SelectOn};
use qbed_p4engine::select_width;

use super::{Action, Digest, Indexed, MeterKind, Parameter, Profile, Register, Table, ValueSet};
use crate::bytestring::Widths;
use crate::controller_header::{ControllerHeader, LinkResult};
use crate::data::Type;
use crate::matches::KeyField;
use crate::proto::p4::config::v1::action_ref::Scope;
use crate::proto::p4::config::v1::controller_packet_metadata::Metadata;
use crate::proto::p4::config::v1::match_field::{Match, MatchType};
use crate::proto::p4::config::v1::{self as config, MatchField, P4Info, P4TypeInfo, Preamble};

/// Widest value that P4Info may have where the program does not limit it.
const MAX_BITS: u32 = 0xffff;

/// Links the objects of P4Info with those of the program.
pub struct Linker<'a> {
    info: &'a P4Info,
    program: &'a Program,
    types: P4TypeInfo,
}

fn id_and_name(preamble: Option<&Preamble>) -> LinkResult<(u32, String)> {
    match preamble {
        Some(preamble) if preamble.id != 0 => Ok((preamble.id, preamble.name.clone())),
        Some(preamble) => Err(format!("{} has no id", preamble.name)),
        None => Err("an object has no preamble".into()),
    }
}

/// The index of a name in a list of the program's objects.
fn index_of<T>(list: &[T], name_of: impl Fn(&T) -> &str, kind: &str, name: &str) -> LinkResult<u16> {
    let found = list.iter().position(|element| name_of(element) == name);
    found.and_then(|index| index.try_into().ok()).ok_or_else(|| format!("the program has no {kind} {name}"))
}

fn same_size(kind: &str, name: &str, info: i64, program: u32) -> LinkResult<u32> {
    if info == i64::from(program) {
        return Ok(program);
    }
    Err(format!("{kind} {name} has {info} elements in P4Info, {program} in the program"))
}

impl<'a> Linker<'a> {
    pub fn new(info: &'a P4Info, program: &'a Program) -> Self {
        Self { info, program, types: info.type_info.clone().unwrap_or_default() }
    }

    pub fn unique_ids(&self) -> LinkResult<()> {
        let info = self.info;
        if let Some(other) = info.externs.first() {
            return Err(format!("unknown extern type {}", other.extern_type_name));
        }
        let mut seen = HashMap::new();
        let preambles = (info.tables.iter().map(|table| &table.preamble))
            .chain(info.actions.iter().map(|action| &action.preamble))
            .chain(info.action_profiles.iter().map(|profile| &profile.preamble))
            .chain(info.counters.iter().map(|counter| &counter.preamble))
            .chain(info.direct_counters.iter().map(|counter| &counter.preamble))
            .chain(info.meters.iter().map(|meter| &meter.preamble))
            .chain(info.direct_meters.iter().map(|meter| &meter.preamble))
            .chain(info.value_sets.iter().map(|set| &set.preamble))
            .chain(info.registers.iter().map(|register| &register.preamble))
            .chain(info.digests.iter().map(|digest| &digest.preamble))
            .chain(info.controller_packet_metadata.iter().map(|header| &header.preamble));
        for preamble in preambles {
            let (id, name) = id_and_name(preamble.as_ref())?;
            if let Some(other) = seen.insert(id, name.clone()) {
                return Err(format!("{other} and {name} have the same id {id:#x}"));
            }
        }
        Ok(())
    }

    pub fn tables(&self) -> LinkResult<BTreeMap<u32, Table>> {
        self.info.tables.iter().map(|table| self.table(table)).collect()
    }

    fn table(&self, info: &config::Table) -> LinkResult<(u32, Table)> {
        let (id, name) = id_and_name(info.preamble.as_ref())?;
        let number = index_of(&self.program.tables, |table| &table.name, "table", &name)?;
        let table = &self.program.tables[usize::from(number)];
        if info.match_fields.len() != table.keys.len() {
            let counts = (info.match_fields.len(), table.keys.len());
            return Err(format!(
                "table {name} has {} match fields in P4Info, {} in the program",
                counts.0, counts.1
            ));
        }
        let widths = table
            .keys
            .iter()
            .map(|key| self.program.fields.get(usize::from(key.field)).map(|field| field.width));
        let keys = info.match_fields.iter().zip(&table.keys).zip(widths).map(|((field, key), width)| {
            self.key(field, key.kind, width.unwrap_or(0)).map_err(|why| format!("table {name}: {why}"))
        });
        let keys = keys.collect::<LinkResult<_>>()?;
        if info.is_const_table && !table.constant_entries {
            return Err(format!("table {name} is constant in P4Info, and has no entries in the program"));
        }
        let expects_entries = info.is_const_table || info.has_initial_entries;
        if !expects_entries && !table.entries.is_empty()
            || info.has_initial_entries && table.entries.is_empty()
        {
            return Err(format!("table {name} has entries in one of P4Info and program only"));
        }
        let profile = match info.implementation_id {
            0 => None,
            id => Some(id),
        };
        if profile.is_some() != table.profile.is_some() {
            return Err(format!("table {name} has an action profile in one of P4Info and program only"));
        }
        let actions =
            info.action_refs.iter().map(|reference| self.action_of(reference, &name, &table.actions));
        let table = Table {
            number,
            keys,
            actions: actions.collect::<LinkResult<_>>()?,
            profile,
            has_counter: self.direct_counter(id, &name, table.counter)?,
            meter: self.direct_meter(id, &name, table.meter)?,
            idle_timeout: info.idle_timeout_behavior
                == config::table::IdleTimeoutBehavior::NotifyControl as i32,
            constant: info.is_const_table,
            constant_default: table.constant_default || info.const_default_action_id != 0,
            name,
        };
        Ok((id, table))
    }

    fn key(&self, info: &MatchField, kind: MatchKind, width: u32) -> LinkResult<KeyField> {
        let name = info.name.clone();
        let info_kind = match info.r#match {
            Some(Match::MatchType(kind)) => MatchType::try_from(kind).unwrap_or(MatchType::Unspecified),
            _ => MatchType::Unspecified,
        };
        let optional_as_ternary = info_kind == MatchType::Optional && kind == MatchKind::Ternary;
        let kind = if optional_as_ternary { MatchKind::Optional } else { kind };
        let expected = match kind {
            MatchKind::Exact => MatchType::Exact,
            MatchKind::Lpm => MatchType::Lpm,
            MatchKind::Ternary => MatchType::Ternary,
            MatchKind::Range => MatchType::Range,
            MatchKind::Optional => MatchType::Optional,
        };
        if info_kind != expected {
            return Err(format!("{name} is matched as {info_kind:?} in P4Info, as {kind:?} in the program"));
        }
        let widths = self.widths(&name, info.bitwidth, info.type_name.as_ref(), width)?;
        if kind == MatchKind::Lpm && widths.controller < widths.program {
            let bits = (widths.program, widths.controller);
            return Err(format!(
                "{name} is matched by prefixes of {} bits, which {} bits in P4Info cannot express",
                bits.0, bits.1
            ));
        }
        Ok(KeyField { id: info.id, name, kind, widths, optional_as_ternary })
    }

    /// Widths of a value. They differ for translated types (`@p4runtime_translation`) only.
    fn widths(
        &self,
        name: &str,
        bitwidth: i32,
        of: Option<&config::P4NamedType>,
        program: u32,
    ) -> LinkResult<Widths> {
        match (u32::try_from(bitwidth), self.is_translated(of)) {
            (Ok(0), true) => Err(format!("{name} is translated to a string, which is not supported")),
            (Ok(controller @ 1..=MAX_BITS), true) => Ok(Widths { program, controller }),
            // P4Info has no width for an `error`.
            (Ok(bits), false) if bits == 0 || bits == program => Ok(Widths::untranslated(program)),
            _ => Err(format!("{name} has {bitwidth} bits in P4Info, {program} in the program")),
        }
    }

    fn is_translated(&self, of: Option<&config::P4NamedType>) -> bool {
        use config::p4_new_type_spec::Representation::TranslatedType;
        let found = of.and_then(|of| self.types.new_types.get(&of.name));
        found.is_some_and(|of| matches!(of.representation, Some(TranslatedType(_))))
    }

    /// The action of a table: the program can have a copy of an action for each table.
    fn action_of(
        &self,
        reference: &config::ActionRef,
        table: &str,
        numbers: &[ActionId],
    ) -> LinkResult<Action> {
        let has_id = |action: &&config::Action| {
            action.preamble.as_ref().is_some_and(|preamble| preamble.id == reference.id)
        };
        let info = self.info.actions.iter().find(has_id);
        let info = info.ok_or_else(|| format!("table {table}: there is no action {:#x}", reference.id))?;
        let (id, name) = id_and_name(info.preamble.as_ref())?;
        let found = numbers.iter().find_map(|number| {
            let action = self.program.actions.get(usize::from(*number))?;
            (action.name == name).then_some((*number, action))
        });
        let (number, action) =
            found.ok_or_else(|| format!("table {table} has no action {name} in the program"))?;
        if info.params.len() != action.parameters.len() {
            let counts = (info.params.len(), action.parameters.len());
            return Err(format!(
                "action {name} has {} parameters in P4Info, {} in the program",
                counts.0, counts.1
            ));
        }
        let parameters = info.params.iter().zip(&action.parameters).map(|(info, parameter)| {
            let widths = self
                .widths(&info.name, info.bitwidth, info.type_name.as_ref(), parameter.width)
                .map_err(|why| format!("action {name}: {why}"))?;
            Ok(Parameter { id: info.id, name: info.name.clone(), widths })
        });
        Ok(Action {
            parameters: parameters.collect::<LinkResult<_>>()?,
            id,
            name: name.clone(),
            number,
            in_entries: reference.scope != Scope::DefaultOnly as i32,
            as_default: reference.scope != Scope::TableOnly as i32,
        })
    }

    fn direct_counter(&self, table: u32, name: &str, number: Option<u16>) -> LinkResult<bool> {
        let info = self.info.direct_counters.iter().any(|counter| counter.direct_table_id == table);
        if info && number.is_none() {
            return Err(format!("table {name} has a direct counter in P4Info, none in the program"));
        }
        Ok(info)
    }

    fn direct_meter(&self, table: u32, name: &str, number: Option<u16>) -> LinkResult<Option<MeterKind>> {
        let info = self.info.direct_meters.iter().find(|meter| meter.direct_table_id == table);
        if info.is_some() && number.is_none() {
            return Err(format!("table {name} has a direct meter in P4Info, none in the program"));
        }
        Ok(info.map(|meter| meter_kind(meter.spec.as_ref())))
    }

    /// Action profiles, with the actions of their tables.
    pub fn profiles(&self, tables: &BTreeMap<u32, Table>) -> LinkResult<BTreeMap<u32, Profile>> {
        let profile = |info: &config::ActionProfile| {
            let (id, name) = id_and_name(info.preamble.as_ref())?;
            let number = index_of(&self.program.profiles, |profile| &profile.name, "action profile", &name)?;
            let selector = self.program.profiles[usize::from(number)].selector.is_some();
            if info.with_selector != selector {
                return Err(format!(
                    "action profile {name} has a selector in one of P4Info and program only"
                ));
            }
            let user = tables.values().find(|table| table.profile == Some(id));
            use config::action_profile::SelectorSizeSemantics::SumOfMembers;
            let profile = Profile {
                number,
                selector,
                max_group_size: info.max_group_size.try_into().unwrap_or(0),
                by_weight: !matches!(info.selector_size_semantics, Some(SumOfMembers(_))),
                weights: !info.weights_disallowed,
                actions: user.map(|table| table.actions.clone()).unwrap_or_default(),
                name,
            };
            Ok((id, profile))
        };
        let profiles =
            self.info.action_profiles.iter().map(profile).collect::<LinkResult<BTreeMap<_, _>>>()?;
        for table in tables.values() {
            let number = self.program.tables[usize::from(table.number)].profile;
            let info = table.profile.map(|id| profiles.get(&id).map(|profile| profile.number));
            if info.is_some_and(|info| info != number) {
                return Err(format!(
                    "table {} has another action profile in P4Info than in the program",
                    table.name
                ));
            }
        }
        Ok(profiles)
    }

    pub fn counters(&self) -> LinkResult<BTreeMap<u32, Indexed>> {
        let counter = |info: &config::Counter| {
            let (id, name) = id_and_name(info.preamble.as_ref())?;
            let number = index_of(&self.program.counters, |counter| &counter.name, "counter", &name)?;
            let size =
                same_size("counter", &name, info.size, self.program.counters[usize::from(number)].size)?;
            Ok((id, Indexed { name, number, size, kind: MeterKind::None }))
        };
        self.info.counters.iter().map(counter).collect()
    }

    pub fn meters(&self) -> LinkResult<BTreeMap<u32, Indexed>> {
        let meter = |info: &config::Meter| {
            let (id, name) = id_and_name(info.preamble.as_ref())?;
            let number = index_of(&self.program.meters, |meter| &meter.name, "meter", &name)?;
            let size = same_size("meter", &name, info.size, self.program.meters[usize::from(number)].size)?;
            Ok((id, Indexed { name, number, size, kind: meter_kind(info.spec.as_ref()) }))
        };
        self.info.meters.iter().map(meter).collect()
    }

    pub fn registers(&self) -> LinkResult<BTreeMap<u32, Register>> {
        let register = |info: &config::Register| {
            let (id, name) = id_and_name(info.preamble.as_ref())?;
            let number = index_of(&self.program.arrays, |array| &array.name, "register", &name)?;
            let array = &self.program.arrays[usize::from(number)];
            let mut data_type = Type::new(info.type_spec.as_ref(), &self.types)
                .map_err(|why| format!("register {name}: {why}"))?;
            if !data_type.match_widths(&[array.width]) {
                let widths = data_type.widths();
                return Err(format!(
                    "register {name} has {widths:?} bits in P4Info, {} in the program",
                    array.width
                ));
            }
            let size = same_size("register", &name, info.size.into(), array.size)?;
            Ok((id, Register { name, number, size, data_type }))
        };
        self.info.registers.iter().map(register).collect()
    }

    pub fn value_sets(&self) -> LinkResult<BTreeMap<u32, ValueSet>> {
        let value_set = |info: &config::ValueSet| {
            let (id, name) = id_and_name(info.preamble.as_ref())?;
            let number = index_of(&self.program.value_sets, |set| &set.name, "value set", &name)?;
            let set = &self.program.value_sets[usize::from(number)];
            let program = self.select_widths(number);
            if program.as_ref().is_some_and(|widths| widths.len() != info.r#match.len()) {
                return Err(format!(
                    "value set {name} has {} fields in P4Info, {} in the program",
                    info.r#match.len(),
                    program.map_or(0, |widths| widths.len())
                ));
            }
            let keys = info.r#match.iter().enumerate().map(|(index, field)| {
                let kind = match field.r#match {
                    Some(Match::MatchType(kind)) if kind == MatchType::Ternary as i32 => MatchKind::Ternary,
                    Some(Match::MatchType(kind)) if kind == MatchType::Exact as i32 => MatchKind::Exact,
                    _ => {
                        return Err(format!("value set {name}: {} is neither exact nor ternary", field.name))
                    }
                };
                let width = match &program {
                    Some(widths) => widths[index],
                    None => u32::try_from(field.bitwidth).unwrap_or(0),
                };
                self.key(field, kind, width).map_err(|why| format!("value set {name}: {why}"))
            });
            let keys = keys.collect::<LinkResult<Vec<_>>>()?;
            let bytes: u32 = keys.iter().map(|key| key.widths.program.div_ceil(8)).sum();
            if bytes != u32::from(set.bytes) {
                return Err(format!(
                    "value set {name} has {bytes} bytes in P4Info, {} in the program",
                    set.bytes
                ));
            }
            let size = same_size("value set", &name, info.size.into(), set.max_size)?;
            Ok((id, ValueSet { number, size, keys, name: name.clone() }))
        };
        self.info.value_sets.iter().map(value_set).collect()
    }

    pub fn digests(&self) -> LinkResult<BTreeMap<u32, Digest>> {
        let digest = |info: &config::Digest| {
            let (id, name) = id_and_name(info.preamble.as_ref())?;
            let number = index_of(&self.program.digests, |digest| &digest.name, "digest", &name)?;
            let digest = &self.program.digests[usize::from(number)];
            let mut data_type = Type::new(info.type_spec.as_ref(), &self.types)
                .map_err(|why| format!("digest {name}: {why}"))?;
            let width =
                |field: &u16| self.program.fields.get(usize::from(*field)).map_or(0, |field| field.width);
            let widths: Vec<u32> = digest.fields.iter().map(width).collect();
            if !data_type.match_widths(&widths) {
                let info_widths = data_type.widths();
                return Err(format!(
                    "digest {name} has fields of {info_widths:?} bits in P4Info, {widths:?} in the program"
                ));
            }
            Ok((id, Digest { engine_id: digest.id, data_type, name }))
        };
        self.info.digests.iter().map(digest).collect()
    }

    /// Widths of the select key that is compared with a value set. None if the value set is not used.
    fn select_widths(&self, set: u16) -> Option<Vec<u32>> {
        let uses = |case: &SelectCase| matches!(case.on, SelectOn::Set { set: used, .. } if used == set);
        let select = self.program.selects.iter().find(|select| select.cases.iter().any(uses))?;
        Some(select.keys.iter().map(|key| select_width(self.program, key)).collect())
    }

    /// The header in front of packets from or to controllers.
    pub fn header(&self, name: &str) -> LinkResult<ControllerHeader> {
        let has_name = |header: &&config::ControllerPacketMetadata| {
            header.preamble.as_ref().is_some_and(|preamble| preamble.name == name)
        };
        let Some(info) = self.info.controller_packet_metadata.iter().find(has_name) else {
            return Ok(ControllerHeader::default());
        };
        let widths = |field: &Metadata, program: Option<u32>| {
            let of = field.type_name.as_ref();
            let bits = u32::try_from(field.bitwidth).ok().filter(|width| *width <= MAX_BITS);
            let bits = bits.ok_or_else(|| format!("{} has {} bits", field.name, field.bitwidth))?;
            if program.is_none() && bits > 0 && self.is_translated(of) {
                return Err(format!(
                    "{} is translated, and no header of the program has its width",
                    field.name
                ));
            }
            self.widths(&field.name, field.bitwidth, of, program.unwrap_or(bits))
        };
        ControllerHeader::new(info, self.program, widths).map_err(|why| format!("{name}: {why}"))
    }
}

fn meter_kind(spec: Option<&config::MeterSpec>) -> MeterKind {
    use config::meter_spec::Type;
    match spec.map(|spec| spec.r#type()) {
        Some(Type::TwoRateThreeColor) | None => MeterKind::TwoRates,
        Some(Type::SingleRateThreeColor | Type::SingleRateTwoColor) => MeterKind::OneRate,
    }
}
