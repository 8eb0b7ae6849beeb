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
    /// Of the program, over the field's bytes.
    pub mask: Option<Vec<u8>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    pub name: String,
    pub keys: Vec<Key>,
    pub max_size: u32,
    /// By number in `actions`; entries may name these only.
    pub actions: Vec<ActionId>,
    /// Entries name members or groups of it.
    pub profile: Option<u16>,
    pub default: Option<ActionCall>,
    pub constant_default: bool,
    /// The control plane may not change `entries`.
    pub constant_entries: bool,
    pub entries: Vec<ConstEntry>,
    pub next: Next,
    /// In `counters` and `meters`, of this table's entries.
    pub counter: Option<u16>,
    pub meter: Option<u16>,
    pub idle_timeout: bool,
}

/// Where a control goes on after a table: by action (those of `Table::actions`, in that order), or by hit and miss.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Next {
    /// `none`: where no action ran (a miss in a table without a default action, as those with profiles are).
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
    /// The lowest wins, as in BMv2's JSON.
    pub priority: u32,
    pub call: ActionCall,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionCall {
    pub action: ActionId,
    /// Each in the parameter's bytes, big endian.
    pub arguments: Vec<Vec<u8>>,
}

/// One field of an entry's key; values have the field's bytes, big endian.
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
    /// Both included.
    Range {
        low: Vec<u8>,
        high: Vec<u8>,
    },
    /// None fits all.
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
    /// In `hashes`: what chooses a member of a group.
    pub selector: Option<u16>,
}
