// SPDX-License-Identifier: Apache-2.0
//! A P4Info and a program that belong together: P4Runtime's ids on one side, the engine's numbers on the other.

use std::collections::{BTreeMap, HashMap};

use qbed_p4engine::program::{self, ActionId, MatchKind, Program, SelectCase, SelectOn, TableId};
use qbed_p4engine::select_width;

use crate::bytestring::Widths;
use crate::controller_header::ControllerHeader;
use crate::data::Type;
use crate::matches::KeyField;
use crate::proto::p4::config::v1::action_ref::Scope;
use crate::proto::p4::config::v1::controller_packet_metadata::Metadata;
use crate::proto::p4::config::v1::match_field::{Match, MatchType};
use crate::proto::p4::config::v1::{self as config, MatchField, P4Info, P4TypeInfo, Preamble};
use crate::proto::p4::v1::ForwardingPipelineConfig;

/// Widest value that P4Info may have where the program does not limit it.
const MOST_BITS: u32 = 0xffff;

/// Why they do not belong together.
type Fit<T> = Result<T, String>;

#[derive(Debug, Clone)]
pub struct Pipeline {
    pub config: ForwardingPipelineConfig,
    pub program: Program,
    pub tables: BTreeMap<u32, Table>,
    pub profiles: BTreeMap<u32, Profile>,
    pub counters: BTreeMap<u32, Indexed>,
    pub meters: BTreeMap<u32, Indexed>,
    pub registers: BTreeMap<u32, Register>,
    pub value_sets: BTreeMap<u32, ValueSet>,
    pub digests: BTreeMap<u32, Digest>,
    pub packet_in: ControllerHeader,
    pub packet_out: ControllerHeader,
}

#[derive(Debug, Clone)]
pub struct Table {
    pub name: String,
    pub number: TableId,
    pub keys: Vec<KeyField>,
    pub actions: Vec<Action>,
    /// The id of its action profile.
    pub profile: Option<u32>,
    pub counted: bool,
    /// Its direct meter's kind.
    pub meter: Option<MeterKind>,
    pub idle_timeout: bool,
    pub constant: bool,
    pub constant_default: bool,
}

impl Table {
    /// Where entries can overlap, priorities say which wins.
    pub fn has_priorities(&self) -> bool {
        self.keys.iter().any(|key| !matches!(key.kind, MatchKind::Exact | MatchKind::Lpm))
    }
}

/// One that a table may call.
#[derive(Debug, Clone)]
pub struct Action {
    pub id: u32,
    pub name: String,
    pub number: ActionId,
    pub parameters: Vec<Parameter>,
    pub in_entries: bool,
    pub as_default: bool,
}

#[derive(Debug, Clone)]
pub struct Parameter {
    pub id: u32,
    pub name: String,
    pub widths: Widths,
}

#[derive(Debug, Clone)]
pub struct Profile {
    pub name: String,
    pub number: u16,
    pub selector: bool,
    pub most_in_group: u32,
    /// Weights say how large a member is, for the largest size of a group; else each member is 1.
    pub by_weight: bool,
    pub weights: bool,
    pub actions: Vec<Action>,
}

/// A counter or a meter.
#[derive(Debug, Clone)]
pub struct Indexed {
    pub name: String,
    pub number: u16,
    pub size: u32,
    pub kind: MeterKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MeterKind {
    /// Not a meter.
    None,
    TwoRates,
    OneRate,
}

#[derive(Debug, Clone)]
pub struct Register {
    pub name: String,
    pub number: u16,
    pub size: u32,
    pub of: Type,
}

#[derive(Debug, Clone)]
pub struct ValueSet {
    pub name: String,
    pub number: u16,
    pub size: u32,
    pub keys: Vec<KeyField>,
}

#[derive(Debug, Clone)]
pub struct Digest {
    pub name: String,
    /// By which the engine tells of it.
    pub engine_id: u32,
    pub of: Type,
}

impl Pipeline {
    /// Or by name what does not fit.
    pub fn new(config: ForwardingPipelineConfig, mut program: Program) -> Fit<Pipeline> {
        let info = config.p4info.as_ref().ok_or("no P4Info")?;
        open_initial_entries(&mut program, info);
        let linker = Linker { info, program: &program, types: info.type_info.clone().unwrap_or_default() };
        linker.unique_ids()?;
        let tables = linker.tables()?;
        let (packet_in, packet_out) = (linker.header("packet_in")?, linker.header("packet_out")?);
        Ok(Pipeline {
            profiles: linker.profiles(&tables)?,
            counters: linker.counters()?,
            meters: linker.meters()?,
            registers: linker.registers()?,
            value_sets: linker.value_sets()?,
            digests: linker.digests()?,
            tables,
            packet_in,
            packet_out,
            program,
            config,
        })
    }

    pub fn table_of(&self, number: TableId) -> Option<(u32, &Table)> {
        self.tables.iter().find(|(_, table)| table.number == number).map(|(id, table)| (*id, table))
    }
}

/// Lets controllers change entries that are initial only. BMv2's JSON has the same for them and for constant ones, and
/// gives their number as the size of the table: P4Info tells them apart, and has the size.
fn open_initial_entries(program: &mut Program, info: &P4Info) {
    for open in info.tables.iter().filter(|table| !table.is_const_table) {
        let name = open.preamble.as_ref().map_or("", |preamble| preamble.name.as_str());
        let filled = |table: &&mut program::Table| table.constant_entries && table.name == name;
        if let Some(table) = program.tables.iter_mut().find(filled) {
            table.constant_entries = false;
            table.max_size = table.max_size.max(open.size.try_into().unwrap_or(0));
        }
    }
}

/// P4Info against the program, object by object.
struct Linker<'a> {
    info: &'a P4Info,
    program: &'a Program,
    types: P4TypeInfo,
}

fn named(preamble: Option<&Preamble>) -> Fit<(u32, String)> {
    match preamble {
        Some(preamble) if preamble.id != 0 => Ok((preamble.id, preamble.name.clone())),
        Some(preamble) => Err(format!("{} has no id", preamble.name)),
        None => Err("an object has no preamble".into()),
    }
}

/// The place of that name in a list of the program's.
fn place<T>(list: &[T], name_of: impl Fn(&T) -> &str, kind: &str, name: &str) -> Fit<u16> {
    let found = list.iter().position(|one| name_of(one) == name);
    found.and_then(|place| place.try_into().ok()).ok_or_else(|| format!("the program has no {kind} {name}"))
}

fn same_size(kind: &str, name: &str, told: i64, program: u32) -> Fit<u32> {
    if told == i64::from(program) {
        return Ok(program);
    }
    Err(format!("{kind} {name} has {told} elements in P4Info, {program} in the program"))
}

impl Linker<'_> {
    fn unique_ids(&self) -> Fit<()> {
        let info = self.info;
        if let Some(other) = info.externs.first() {
            return Err(format!("externs of type {} are unknown here", other.extern_type_name));
        }
        let mut seen = HashMap::new();
        let preambles = (info.tables.iter().map(|one| &one.preamble))
            .chain(info.actions.iter().map(|one| &one.preamble))
            .chain(info.action_profiles.iter().map(|one| &one.preamble))
            .chain(info.counters.iter().map(|one| &one.preamble))
            .chain(info.direct_counters.iter().map(|one| &one.preamble))
            .chain(info.meters.iter().map(|one| &one.preamble))
            .chain(info.direct_meters.iter().map(|one| &one.preamble))
            .chain(info.value_sets.iter().map(|one| &one.preamble))
            .chain(info.registers.iter().map(|one| &one.preamble))
            .chain(info.digests.iter().map(|one| &one.preamble))
            .chain(info.controller_packet_metadata.iter().map(|one| &one.preamble));
        for preamble in preambles {
            let (id, name) = named(preamble.as_ref())?;
            if let Some(other) = seen.insert(id, name.clone()) {
                return Err(format!("{other} and {name} have the same id {id:#x}"));
            }
        }
        Ok(())
    }

    fn tables(&self) -> Fit<BTreeMap<u32, Table>> {
        self.info.tables.iter().map(|table| self.table(table)).collect()
    }

    fn table(&self, told: &config::Table) -> Fit<(u32, Table)> {
        let (id, name) = named(told.preamble.as_ref())?;
        let number = place(&self.program.tables, |one| &one.name, "table", &name)?;
        let table = &self.program.tables[usize::from(number)];
        if told.match_fields.len() != table.keys.len() {
            let counts = (told.match_fields.len(), table.keys.len());
            return Err(format!(
                "table {name} has {} match fields in P4Info, {} in the program",
                counts.0, counts.1
            ));
        }
        let widths =
            table.keys.iter().map(|key| self.program.fields.get(usize::from(key.field)).map(|one| one.width));
        let keys = told.match_fields.iter().zip(&table.keys).zip(widths).map(|((field, key), width)| {
            self.key(field, key.kind, width.unwrap_or(0)).map_err(|why| format!("table {name}: {why}"))
        });
        let keys = keys.collect::<Fit<_>>()?;
        if told.is_const_table && !table.constant_entries {
            return Err(format!("table {name} is constant in P4Info, and has no entries in the program"));
        }
        let expects_entries = told.is_const_table || told.has_initial_entries;
        if !expects_entries && !table.entries.is_empty()
            || told.has_initial_entries && table.entries.is_empty()
        {
            return Err(format!("table {name} has entries in one of P4Info and program only"));
        }
        let profile = match told.implementation_id {
            0 => None,
            id => Some(id),
        };
        if profile.is_some() != table.profile.is_some() {
            return Err(format!("table {name} has an action profile in one of P4Info and program only"));
        }
        let actions = told.action_refs.iter().map(|one| self.action_of(one, &name, &table.actions));
        let table = Table {
            number,
            keys,
            actions: actions.collect::<Fit<_>>()?,
            profile,
            counted: self.direct_counter(id, &name, table.counter)?,
            meter: self.direct_meter(id, &name, table.meter)?,
            idle_timeout: told.idle_timeout_behavior
                == config::table::IdleTimeoutBehavior::NotifyControl as i32,
            constant: told.is_const_table,
            constant_default: table.constant_default || told.const_default_action_id != 0,
            name,
        };
        Ok((id, table))
    }

    fn key(&self, told: &MatchField, kind: MatchKind, width: u32) -> Fit<KeyField> {
        let name = told.name.clone();
        let told_kind = match told.r#match {
            Some(Match::MatchType(kind)) => MatchType::try_from(kind).unwrap_or(MatchType::Unspecified),
            _ => MatchType::Unspecified,
        };
        let optional_as_ternary = told_kind == MatchType::Optional && kind == MatchKind::Ternary;
        let kind = if optional_as_ternary { MatchKind::Optional } else { kind };
        let expected = match kind {
            MatchKind::Exact => MatchType::Exact,
            MatchKind::Lpm => MatchType::Lpm,
            MatchKind::Ternary => MatchType::Ternary,
            MatchKind::Range => MatchType::Range,
            MatchKind::Optional => MatchType::Optional,
        };
        if told_kind != expected {
            return Err(format!("{name} is matched as {told_kind:?} in P4Info, as {kind:?} in the program"));
        }
        let widths = self.widths(&name, told.bitwidth, told.type_name.as_ref(), width)?;
        if kind == MatchKind::Lpm && widths.controller < widths.program {
            let bits = (widths.program, widths.controller);
            return Err(format!(
                "{name} is matched by prefixes of {} bits, which {} bits in P4Info cannot express",
                bits.0, bits.1
            ));
        }
        Ok(KeyField { id: told.id, name, kind, widths, optional_as_ternary })
    }

    /// Widths of a value with a program's field; they differ for translated types (`@p4runtime_translation`) only.
    fn widths(
        &self,
        name: &str,
        bitwidth: i32,
        of: Option<&config::P4NamedType>,
        program: u32,
    ) -> Fit<Widths> {
        match (u32::try_from(bitwidth), self.is_translated(of)) {
            (Ok(0), true) => Err(format!("{name} is translated to a string, which is not supported")),
            (Ok(controller @ 1..=MOST_BITS), true) => Ok(Widths { program, controller }),
            // P4Info has no width of an `error`.
            (Ok(bits), false) if bits == 0 || bits == program => Ok(Widths::same(program)),
            _ => Err(format!("{name} has {bitwidth} bits in P4Info, {program} in the program")),
        }
    }

    fn is_translated(&self, of: Option<&config::P4NamedType>) -> bool {
        use config::p4_new_type_spec::Representation::TranslatedType;
        let found = of.and_then(|of| self.types.new_types.get(&of.name));
        found.is_some_and(|of| matches!(of.representation, Some(TranslatedType(_))))
    }

    /// An action may be in the program once for each table that has it.
    fn action_of(&self, reference: &config::ActionRef, table: &str, numbers: &[ActionId]) -> Fit<Action> {
        let is_it = |one: &&config::Action| one.preamble.as_ref().is_some_and(|one| one.id == reference.id);
        let told = self.info.actions.iter().find(is_it);
        let told =
            told.ok_or_else(|| format!("table {table} names action {:#x}, which is none", reference.id))?;
        let (id, name) = named(told.preamble.as_ref())?;
        let found = numbers.iter().find_map(|number| {
            let action = self.program.actions.get(usize::from(*number))?;
            (action.name == name).then_some((*number, action))
        });
        let (number, action) =
            found.ok_or_else(|| format!("table {table} has no action {name} in the program"))?;
        if told.params.len() != action.parameters.len() {
            let counts = (told.params.len(), action.parameters.len());
            return Err(format!(
                "action {name} has {} parameters in P4Info, {} in the program",
                counts.0, counts.1
            ));
        }
        let parameters = told.params.iter().zip(&action.parameters).map(|(told, parameter)| {
            let widths = self
                .widths(&told.name, told.bitwidth, told.type_name.as_ref(), parameter.width)
                .map_err(|why| format!("action {name}: {why}"))?;
            Ok(Parameter { id: told.id, name: told.name.clone(), widths })
        });
        Ok(Action {
            parameters: parameters.collect::<Fit<_>>()?,
            id,
            name: name.clone(),
            number,
            in_entries: reference.scope != Scope::DefaultOnly as i32,
            as_default: reference.scope != Scope::TableOnly as i32,
        })
    }

    fn direct_counter(&self, table: u32, name: &str, number: Option<u16>) -> Fit<bool> {
        let told = self.info.direct_counters.iter().any(|one| one.direct_table_id == table);
        if told && number.is_none() {
            return Err(format!("table {name} has a direct counter in P4Info, none in the program"));
        }
        Ok(told)
    }

    fn direct_meter(&self, table: u32, name: &str, number: Option<u16>) -> Fit<Option<MeterKind>> {
        let told = self.info.direct_meters.iter().find(|one| one.direct_table_id == table);
        if told.is_some() && number.is_none() {
            return Err(format!("table {name} has a direct meter in P4Info, none in the program"));
        }
        Ok(told.map(|one| meter_kind(one.spec.as_ref())))
    }

    /// The actions of a profile are those of its tables.
    fn profiles(&self, tables: &BTreeMap<u32, Table>) -> Fit<BTreeMap<u32, Profile>> {
        let profile = |told: &config::ActionProfile| {
            let (id, name) = named(told.preamble.as_ref())?;
            let number = place(&self.program.profiles, |one| &one.name, "action profile", &name)?;
            let selector = self.program.profiles[usize::from(number)].selector.is_some();
            if told.with_selector != selector {
                return Err(format!(
                    "action profile {name} has a selector in one of P4Info and program only"
                ));
            }
            let user = tables.values().find(|table| table.profile == Some(id));
            use config::action_profile::SelectorSizeSemantics::SumOfMembers;
            let profile = Profile {
                number,
                selector,
                most_in_group: told.max_group_size.try_into().unwrap_or(0),
                by_weight: !matches!(told.selector_size_semantics, Some(SumOfMembers(_))),
                weights: !told.weights_disallowed,
                actions: user.map(|table| table.actions.clone()).unwrap_or_default(),
                name,
            };
            Ok((id, profile))
        };
        let profiles = self.info.action_profiles.iter().map(profile).collect::<Fit<BTreeMap<_, _>>>()?;
        for table in tables.values() {
            let number = self.program.tables[usize::from(table.number)].profile;
            let told = table.profile.map(|id| profiles.get(&id).map(|one| one.number));
            if told.is_some_and(|told| told != number) {
                return Err(format!(
                    "table {} has another action profile in P4Info than in the program",
                    table.name
                ));
            }
        }
        Ok(profiles)
    }

    fn counters(&self) -> Fit<BTreeMap<u32, Indexed>> {
        let counter = |told: &config::Counter| {
            let (id, name) = named(told.preamble.as_ref())?;
            let number = place(&self.program.counters, |one| &one.name, "counter", &name)?;
            let size =
                same_size("counter", &name, told.size, self.program.counters[usize::from(number)].size)?;
            Ok((id, Indexed { name, number, size, kind: MeterKind::None }))
        };
        self.info.counters.iter().map(counter).collect()
    }

    fn meters(&self) -> Fit<BTreeMap<u32, Indexed>> {
        let meter = |told: &config::Meter| {
            let (id, name) = named(told.preamble.as_ref())?;
            let number = place(&self.program.meters, |one| &one.name, "meter", &name)?;
            let size = same_size("meter", &name, told.size, self.program.meters[usize::from(number)].size)?;
            Ok((id, Indexed { name, number, size, kind: meter_kind(told.spec.as_ref()) }))
        };
        self.info.meters.iter().map(meter).collect()
    }

    fn registers(&self) -> Fit<BTreeMap<u32, Register>> {
        let register = |told: &config::Register| {
            let (id, name) = named(told.preamble.as_ref())?;
            let number = place(&self.program.arrays, |one| &one.name, "register", &name)?;
            let array = &self.program.arrays[usize::from(number)];
            let mut of = Type::of(told.type_spec.as_ref(), &self.types)
                .map_err(|why| format!("register {name}: {why}"))?;
            if !of.fit(&[array.width]) {
                let widths = of.widths();
                return Err(format!(
                    "register {name} has {widths:?} bits in P4Info, {} in the program",
                    array.width
                ));
            }
            let size = same_size("register", &name, told.size.into(), array.size)?;
            Ok((id, Register { name, number, size, of }))
        };
        self.info.registers.iter().map(register).collect()
    }

    fn value_sets(&self) -> Fit<BTreeMap<u32, ValueSet>> {
        let value_set = |told: &config::ValueSet| {
            let (id, name) = named(told.preamble.as_ref())?;
            let number = place(&self.program.value_sets, |one| &one.name, "value set", &name)?;
            let set = &self.program.value_sets[usize::from(number)];
            let program = self.select_widths(number);
            if program.as_ref().is_some_and(|widths| widths.len() != told.r#match.len()) {
                return Err(format!(
                    "value set {name} has {} fields in P4Info, {} in the program",
                    told.r#match.len(),
                    program.map_or(0, |widths| widths.len())
                ));
            }
            let keys = told.r#match.iter().enumerate().map(|(index, field)| {
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
            let keys = keys.collect::<Fit<Vec<_>>>()?;
            let bytes: u32 = keys.iter().map(|key| key.widths.program.div_ceil(8)).sum();
            if bytes != u32::from(set.bytes) {
                return Err(format!(
                    "value set {name} has {bytes} bytes in P4Info, {} in the program",
                    set.bytes
                ));
            }
            let size = same_size("value set", &name, told.size.into(), set.max_size)?;
            Ok((id, ValueSet { number, size, keys, name: name.clone() }))
        };
        self.info.value_sets.iter().map(value_set).collect()
    }

    fn digests(&self) -> Fit<BTreeMap<u32, Digest>> {
        let digest = |told: &config::Digest| {
            let (id, name) = named(told.preamble.as_ref())?;
            let number = place(&self.program.digests, |one| &one.name, "digest", &name)?;
            let digest = &self.program.digests[usize::from(number)];
            let mut of = Type::of(told.type_spec.as_ref(), &self.types)
                .map_err(|why| format!("digest {name}: {why}"))?;
            let width =
                |field: &u16| self.program.fields.get(usize::from(*field)).map_or(0, |field| field.width);
            let widths: Vec<u32> = digest.fields.iter().map(width).collect();
            if !of.fit(&widths) {
                let told = of.widths();
                return Err(format!(
                    "digest {name} has fields of {told:?} bits in P4Info, {widths:?} in the program"
                ));
            }
            Ok((id, Digest { engine_id: digest.id, of, name }))
        };
        self.info.digests.iter().map(digest).collect()
    }

    /// Widths of the fields that a transition compares with a value set; None: no transition does.
    fn select_widths(&self, set: u16) -> Option<Vec<u32>> {
        let uses = |case: &SelectCase| matches!(case.on, SelectOn::Set { set: used, .. } if used == set);
        let select = self.program.selects.iter().find(|select| select.cases.iter().any(uses))?;
        Some(select.keys.iter().map(|key| select_width(self.program, key)).collect())
    }

    /// The header in front of packets from or to controllers.
    fn header(&self, name: &str) -> Fit<ControllerHeader> {
        let is_it = |one: &&config::ControllerPacketMetadata| {
            one.preamble.as_ref().is_some_and(|one| one.name == name)
        };
        let Some(info) = self.info.controller_packet_metadata.iter().find(is_it) else {
            return Ok(ControllerHeader::default());
        };
        let widths = |field: &Metadata, program: Option<u32>| {
            let of = field.type_name.as_ref();
            let bits = u32::try_from(field.bitwidth).ok().filter(|width| *width <= MOST_BITS);
            let bits = bits.ok_or_else(|| format!("{} has {} bits", field.name, field.bitwidth))?;
            if program.is_none() && bits > 0 && self.is_translated(of) {
                return Err(format!(
                    "{} is translated, and no header of the program has its width",
                    field.name
                ));
            }
            self.widths(&field.name, field.bitwidth, of, program.unwrap_or(bits))
        };
        ControllerHeader::of(info, self.program, widths).map_err(|why| format!("{name}: {why}"))
    }
}

fn meter_kind(spec: Option<&config::MeterSpec>) -> MeterKind {
    use config::meter_spec::Type;
    match spec.map(|spec| spec.r#type()) {
        Some(Type::TwoRateThreeColor) | None => MeterKind::TwoRates,
        Some(Type::SingleRateThreeColor | Type::SingleRateTwoColor) => MeterKind::OneRate,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    use crate::testing;

    fn link(config: ForwardingPipelineConfig) -> Fit<Pipeline> {
        let program =
            qbed_p4switch::load::load(&config.p4_device_config).map_err(|refused| refused.to_string())?;
        Pipeline::new(config, program)
    }

    #[test]
    fn everything_fits() {
        let pipeline = link(testing::everything()).unwrap();
        let table = |name: &str| pipeline.tables.values().find(|table| table.name == name).unwrap();
        let hosts = table("ProbeIngress.hosts");
        assert!(hosts.counted && hosts.meter == Some(MeterKind::TwoRates) && hosts.idle_timeout);
        let scopes = hosts.actions.iter().map(|one| (one.name.as_str(), one.in_entries, one.as_default));
        assert_eq!(
            scopes.collect::<Vec<_>>(),
            [
                ("ProbeIngress.host_forward", true, true),
                ("ProbeIngress.learn", false, true),
                ("ProbeIngress.drop", true, false)
            ]
        );
        let rules = table("ProbeIngress.rules").keys.iter().map(|key| (key.kind, key.widths.program));
        assert_eq!(
            rules.collect::<Vec<_>>(),
            [(MatchKind::Ternary, 4), (MatchKind::Range, 12), (MatchKind::Optional, 16)]
        );
        assert!(table("ProbeIngress.fixed").constant && table("ProbeIngress.rules").constant_default);
        assert_eq!(
            pipeline.registers.values().find(|one| one.name == "ProbeIngress.balance").unwrap().of,
            Type::Signed(12)
        );
        assert_eq!(
            pipeline.digests.values().next().unwrap().of,
            Type::Struct(vec![Type::Bits(32), Type::Bits(9)])
        );
        assert_eq!(
            pipeline.packet_in.fields.iter().map(|field| field.widths.program).collect::<Vec<_>>(),
            [9, 7]
        );
    }

    #[test]
    fn the_schemes_fit() {
        let schemes = Path::new(&std::env::var("CARGO_MANIFEST_DIR").unwrap()).join("../../schemes");
        let mut fitting = 0;
        for scheme in std::fs::read_dir(schemes).unwrap() {
            let folder = scheme.unwrap().path();
            let name = folder.file_name().unwrap().to_str().unwrap();
            if folder.join("p4").is_dir() {
                link(testing::config(&folder.join("p4"), name)).unwrap_or_else(|why| panic!("{name}: {why}"));
                fitting += 1;
            }
        }
        assert!(fitting >= 7, "{fitting}");
    }

    /// What is wrong with P4Info after a change of its text.
    fn misfit(from: &str, to: &str) -> String {
        let mut config = testing::everything();
        let text = testing::read(
            &Path::new(&std::env::var("CARGO_MANIFEST_DIR").unwrap())
                .join("tests/programs/everything.p4info.txtpb"),
        );
        assert!(text.contains(from), "{from}");
        config.p4info = Some(testing::message("p4.config.v1.P4Info", &text.replacen(from, to, 1)));
        link(config).err().unwrap_or_default()
    }

    #[test]
    fn what_does_not_fit_is_named() {
        for (from, to, why) in [
            (
                "name: \"ProbeIngress.routes\"",
                "name: \"Other.routes\"",
                "the program has no table Other.routes",
            ),
            (
                "id: 40107066",
                "id: 38360261",
                "ProbeIngress.hosts and ProbeIngress.routes have the same id 0x24954c5",
            ),
            ("bitwidth: 32", "bitwidth: 31", "hdr.probe.address has 31 bits in P4Info, 32 in the program"),
            (
                "match_type: LPM",
                "match_type: EXACT",
                "hdr.probe.address is matched as Exact in P4Info, as Lpm in the program",
            ),
            (
                "is_const_table: true\n  has_initial_entries: true",
                "",
                "table ProbeIngress.fixed has entries in one of P4Info and program only",
            ),
            ("with_selector: true", "", "action profile ProbeIngress.paths has a selector in one of"),
            ("implementation_id: 293973874", "", "table ProbeIngress.by_hop has an action profile in one of"),
            (
                "implementation_id: 293973874",
                "implementation_id: 292499394",
                "ProbeIngress.by_hop has another action profile",
            ),
            (
                "bitwidth: 48",
                "bitwidth: 47",
                "register ProbeIngress.last_seen has [47] bits in P4Info, 48 in the program",
            ),
            (
                "  size: 4\n",
                "  size: 5\n",
                "value set ProbeParser.probes has 5 elements in P4Info, 4 in the program",
            ),
            ("id: 31721190\n", "id: 5\n", "table ProbeIngress.hosts names action 0x5, which is none"),
            (
                "name: \"ProbeIngress.learn\"",
                "name: \"learn\"",
                "table ProbeIngress.hosts has no action learn in the program",
            ),
        ] {
            let found = misfit(from, to);
            assert!(found.contains(why), "{from} -> {to}: {found}");
        }
    }
}
