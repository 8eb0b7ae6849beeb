// SPDX-License-Identifier: Apache-2.0
//! What a switch in P4 runs and is told.

use crate::plan::Qdisc;
use serde::Deserialize;
use std::collections::BTreeMap;

/// A program: BMv2's JSON, as text.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct P4Program {
    pub name: String,
    pub bmv2: String,
    /// For engines that are told by P4Runtime: no business of the agent.
    #[serde(default, rename = "p4info")]
    _p4info: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pipeline {
    /// One of the plan's `p4`.
    pub program: String,
    /// What runs it in a container, where the lab file says so: who puts the node on a kernel looks at it.
    #[serde(default, rename = "engine")]
    _engine: Option<Engine>,
    /// Interfaces by port number.
    pub ports: Vec<String>,
    /// In the order in which the tables are told.
    pub entries: Vec<Entry>,
    #[serde(default)]
    pub parking: Vec<Parking>,
    #[serde(default)]
    pub sessions: Vec<Session>,
    #[serde(default)]
    pub groups: Vec<Group>,
    #[serde(default)]
    pub registers: Vec<Register>,
}

/// The ports of a multicast group.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    pub group: u16,
    pub ports: Vec<u16>,
}

/// What an element of a register begins with.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Register {
    pub name: String,
    pub index: u32,
    pub value: Value,
}

/// A port without a link: what the program sends there it takes out again, by recirculation.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parking {
    pub port: usize,
    pub interface: String,
    /// For people: the queue has it. None: at once.
    #[serde(default, rename = "rate_bps")]
    pub _rate_bps: Option<u64>,
    pub qdisc: Qdisc,
}

impl Parking {
    /// The other end of what is a link to the kernel: never up, so that it loses, and counts, what is put on the wire.
    pub fn far(&self) -> String {
        format!("far{}", self.port)
    }
}

/// Where the clones of a session go.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Session {
    pub session: u16,
    pub ports: Vec<u16>,
    /// 0: whole.
    #[serde(default)]
    pub truncate_bytes: u32,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Engine {
    /// The module of our kernel.
    P4switch,
    /// BMv2, a container beside the node's.
    SimpleSwitchGrpc,
}

/// An entry of a table, or without a key its default action.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    pub table: String,
    #[serde(default)]
    pub key: Option<Values>,
    pub action: String,
    pub arguments: Values,
    /// Of entries that may overlap: the highest wins.
    #[serde(default)]
    pub priority: u32,
}

/// By the names of a table's keys or an action's parameters.
pub type Values = BTreeMap<String, Value>;

/// A number; or an IP address, an Ethernet address, `0x` and digits. In a key, by its kind: with the length of a prefix
/// (`10.0.0.0/8`), a mask (`0x10&&&0xf0`), or from one value to another (`5..9`).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Value {
    Number(u64),
    Text(String),
}
