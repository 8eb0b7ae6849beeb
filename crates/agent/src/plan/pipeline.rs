// SPDX-License-Identifier: Apache-2.0
//! The program, ports and table entries of a P4 switch.

use crate::plan::Qdisc;
use serde::Deserialize;
use std::collections::BTreeMap;

/// A P4 program as BMv2 JSON text.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct P4Program {
    pub name: String,
    pub bmv2: String,
    /// For engines that use P4Runtime; the agent ignores it.
    #[serde(default, rename = "p4info")]
    _p4info: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pipeline {
    /// Name in the plan's `p4`.
    pub program: String,
    /// The engine in containers, if the lab file sets it; the agent ignores it.
    #[serde(default, rename = "engine")]
    _engine: Option<Engine>,
    /// Interfaces by port number.
    pub ports: Vec<String>,
    /// In the order of insertion.
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

/// Initial value of one register element.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Register {
    pub name: String,
    pub index: u32,
    pub value: Value,
}

/// A recirculation port: it has a queue but no link, and recirculates packets.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parking {
    pub port: usize,
    pub interface: String,
    /// Rate of the queue, for readers of the plan. None: unlimited.
    #[serde(default, rename = "rate_bps")]
    pub _rate_bps: Option<u64>,
    pub qdisc: Qdisc,
}

impl Parking {
    /// Interface of the peer end, which is never up, so that packets that reach the wire are dropped and counted.
    pub fn peer(&self) -> String {
        format!("far{}", self.port)
    }
}

/// A clone session.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Session {
    pub session: u16,
    pub ports: Vec<u16>,
    /// 0: no truncation.
    pub truncate_bytes: u32,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Engine {
    /// The kernel module qp4.
    P4switch,
    /// BMv2 in a sidecar container.
    SimpleSwitchGrpc,
}

/// A table entry, or without a key the table's default action.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    pub table: String,
    #[serde(default)]
    pub key: Option<Values>,
    pub action: String,
    pub arguments: Values,
    /// The highest priority wins if entries overlap.
    #[serde(default)]
    pub priority: u32,
}

/// Values by key name of a table or by parameter name of an action.
pub type Values = BTreeMap<String, Value>;

/// A number, or text: an IP address, an Ethernet address or hexadecimal digits with `0x`. Match kinds of keys add a
/// prefix length (`10.0.0.0/8`), a mask (`0x10&&&0xf0`) or a range (`5..9`).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Value {
    Number(u64),
    Text(String),
}
