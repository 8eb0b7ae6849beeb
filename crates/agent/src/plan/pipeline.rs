// SPDX-License-Identifier: Apache-2.0
//! The program, ports and table entries of a P4 switch.

use crate::plan::text::Hex;
use crate::plan::Qdisc;
use serde::de::IgnoredAny;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;

/// A P4 program. Its code is an image beside the plan.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct P4Program {
    pub name: String,
    /// BMv2's JSON: the agent ignores it, without a copy.
    #[serde(rename = "bmv2")]
    _bmv2: IgnoredAny,
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
    pub recirculation: Vec<RecirculationPort>,
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
    pub value: Number,
}

/// A recirculation port: it has a queue but no link, and recirculates packets.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecirculationPort {
    pub port: usize,
    pub interface: String,
    /// Rate of the queue, for readers of the plan. None: unlimited.
    #[serde(default, rename = "rate_bps")]
    pub _rate_bps: Option<u64>,
    pub qdisc: Qdisc,
}

impl RecirculationPort {
    /// Interface of the peer end, which is never up, so that packets that reach the wire are dropped and counted.
    pub fn peer(&self) -> String {
        format!("peer{}", self.port)
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
    /// Matches by the name of the key field. A field that is left out matches any value.
    #[serde(default)]
    pub key: Option<BTreeMap<String, Match>>,
    pub action: String,
    /// By the name of the action's parameter.
    pub arguments: BTreeMap<String, Number>,
    /// The highest priority wins if entries overlap.
    #[serde(default)]
    pub priority: u32,
}

/// The match of one key field.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum Match {
    /// Kinds exact and optional.
    Value(Number),
    /// Kind lpm: `prefix` is the number of leading bits that are compared.
    Prefix { value: Number, prefix: u16 },
    /// Kind ternary.
    Masked { value: Number, mask: Number },
    /// Kind range, with both bounds.
    Range { low: Number, high: Number },
}

/// An unsigned integer of any width, as big-endian bytes without leading zeros. In JSON a number, or above 64 bits
/// hexadecimal digits with `0x`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "JsonNumber")]
pub struct Number(Vec<u8>);

#[derive(Deserialize)]
#[serde(untagged)]
enum JsonNumber {
    Number(u64),
    Text(String),
}

impl Number {
    /// The bytes of a field with `width` bits, or an error if the number is larger.
    pub fn to_field(&self, width: u32) -> Result<Vec<u8>, String> {
        let Self(used) = self;
        let bits = used.first().map_or(0, |top| 8 * used.len() as u32 - top.leading_zeros());
        if bits > width {
            return Err(format!("{self} does not fit into {width} bits"));
        }
        let mut bytes = vec![0; width.div_ceil(8) as usize - used.len()];
        bytes.extend(used);
        Ok(bytes)
    }
}

impl From<u64> for Number {
    fn from(number: u64) -> Self {
        let bytes = number.to_be_bytes();
        Self(bytes[number.leading_zeros() as usize / 8..].to_vec())
    }
}

impl TryFrom<JsonNumber> for Number {
    type Error = String;

    fn try_from(number: JsonNumber) -> Result<Self, String> {
        let text = match number {
            JsonNumber::Number(number) => return Ok(number.into()),
            JsonNumber::Text(text) => text,
        };
        let digits = text.strip_prefix("0x").filter(|digits| !digits.is_empty());
        let digits = digits.ok_or_else(|| format!("{text:?} is not a number"))?;
        let even = if digits.len() % 2 == 0 { digits.to_owned() } else { format!("0{digits}") };
        let Hex(bytes) = even.parse().map_err(|_| format!("{text:?} is not a number"))?;
        let first = bytes.iter().position(|byte| *byte != 0).unwrap_or(bytes.len());
        Ok(Self(bytes[first..].to_vec()))
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("0x")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
