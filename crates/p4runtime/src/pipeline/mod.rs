// SPDX-License-Identifier: Apache-2.0
//! A P4Info with its program: P4Runtime's ids and the engine's numbers of each object.

mod linker;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use qbed_p4engine::program::{self, ActionId, MatchKind, Program, TableId};

use crate::bytestring::Widths;
use crate::controller_header::{ControllerHeader, LinkResult};
use crate::data::Type;
use crate::matches::KeyField;
use crate::proto::p4::config::v1::P4Info;
use crate::proto::p4::v1::ForwardingPipelineConfig;
use linker::Linker;

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
    /// Id of the action profile.
    pub profile: Option<u32>,
    pub has_counter: bool,
    /// Kind of the direct meter.
    pub meter: Option<MeterKind>,
    pub idle_timeout: bool,
    pub constant: bool,
    pub constant_default: bool,
}

impl Table {
    /// Whether entries can overlap, so that they need priorities.
    pub fn has_priorities(&self) -> bool {
        self.keys.iter().any(|key| !matches!(key.kind, MatchKind::Exact | MatchKind::Lpm))
    }
}

/// An action of a table.
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
    pub max_group_size: u32,
    /// The size of a group is the sum of weights, else the number of members.
    pub by_weight: bool,
    /// Whether members may have weights.
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
    /// A counter.
    None,
    TwoRates,
    OneRate,
}

#[derive(Debug, Clone)]
pub struct Register {
    pub name: String,
    pub number: u16,
    pub size: u32,
    pub data_type: Type,
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
    /// Id in the engine's digests.
    pub engine_id: u32,
    pub data_type: Type,
}

impl Pipeline {
    /// Link P4Info with the program. The error names the object that does not fit.
    pub fn new(config: ForwardingPipelineConfig, mut program: Program) -> LinkResult<Pipeline> {
        let info = config.p4info.as_ref().ok_or("no P4Info")?;
        open_initial_entries(&mut program, info);
        let linker = Linker::new(info, &program);
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

/// Make entries that are only initial in P4Info mutable. BMv2's JSON does not distinguish them from constant entries
/// and has their number as the table's size; P4Info has the size.
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
