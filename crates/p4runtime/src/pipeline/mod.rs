// SPDX-License-Identifier: Apache-2.0
//! A P4Info and a program that belong together: P4Runtime's ids on one side, the engine's numbers on the other.

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
    /// The id of its action profile.
    pub profile: Option<u32>,
    pub has_counter: bool,
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
    pub max_group_size: u32,
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
