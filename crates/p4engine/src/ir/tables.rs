// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Tables, actions and action profiles.

use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::ir::ids::{ActionId, FieldId, Pc};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MatchKind {
    Exact,
    Lpm,
    Ternary,
    Range,
    Optional,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    pub name: String,
    pub field: FieldId,
    pub kind: MatchKind,
    /// A mask that the program applies to the field's bytes.
    pub mask: Option<Vec<u8>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    pub name: String,
    pub keys: Vec<Key>,
    pub max_size: u32,
    /// The actions that entries may call.
    pub actions: Vec<ActionId>,
    /// The action profile with the members and groups that the entries refer to.
    pub profile: Option<u16>,
    pub default: Option<ActionCall>,
    pub constant_default: bool,
    /// Whether the control plane may not change the entries.
    pub constant_entries: bool,
    pub entries: Vec<ConstEntry>,
    pub next: Next,
    /// The direct counter and the direct meter.
    pub counter: Option<u16>,
    pub meter: Option<u16>,
    pub idle_timeout: bool,
}

/// The instruction at which a control continues after a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Next {
    /// One target per action of `Table::actions`, in that order. `none` is the target if no action ran: after a miss in
    /// a table without a default action, such as a table with a profile.
    ByAction {
        to: Vec<Pc>,
        none: Pc,
    },
    ByHit {
        hit: Pc,
        miss: Pc,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConstEntry {
    pub matches: Vec<Match>,
    /// The lowest number has precedence, as in BMv2's JSON.
    pub priority: u32,
    pub call: ActionCall,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionCall {
    pub action: ActionId,
    /// One value per parameter, in whole bytes, big endian.
    pub arguments: Vec<Vec<u8>>,
}

/// The match of one key field. Values have the field's size in bytes, big endian.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Match {
    Exact(Vec<u8>),
    Lpm {
        value: Vec<u8>,
        length: u16,
    },
    Ternary {
        value: Vec<u8>,
        mask: Vec<u8>,
    },
    /// Both bounds are included.
    Range {
        low: Vec<u8>,
        high: Vec<u8>,
    },
    /// None matches every value.
    Optional(Option<Vec<u8>>),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Action {
    pub name: String,
    pub parameters: Vec<Parameter>,
    pub begin: Pc,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parameter {
    pub name: String,
    pub width: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    pub name: String,
    pub max_size: u32,
    /// The hash that selects a member of a group.
    pub selector: Option<u16>,
}
