// SPDX-License-Identifier: Apache-2.0
//! What a switch in P4 runs and is told.

use serde::Deserialize;
use std::collections::BTreeMap;

/// A program: BMv2's JSON, as text.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct P4Program {
    pub name: String,
    pub bmv2: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pipeline {
    /// One of the plan's `p4`.
    pub program: String,
    /// Interfaces by port number.
    pub ports: Vec<String>,
    /// In the order in which the tables are told.
    pub entries: Vec<Entry>,
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
}

/// By the names of a table's keys or an action's parameters.
pub type Values = BTreeMap<String, Value>;

/// A number; or an IP address, with the length of its prefix where the key is one; or an Ethernet address.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Value {
    Number(u64),
    Text(String),
}
