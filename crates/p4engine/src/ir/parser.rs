// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! The transitions of parser states.

use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::ir::ids::{FieldId, Pc, StackId};

/// The transitions of one parser state. The first matching case is taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Select {
    /// Parts of the key. Each is padded to whole bytes.
    pub keys: Vec<SelectKey>,
    pub bytes: u16,
    pub cases: Vec<SelectCase>,
    /// The transition if no case matches. None: the parser ends with error NoMatch.
    pub default: Option<Pc>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SelectKey {
    Field(FieldId),
    Lookahead { at: u32, width: u32 },
    StackLast { stack: StackId, member: u16, field: u16 },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SelectCase {
    pub on: SelectOn,
    pub next: Pc,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SelectOn {
    Value { value: Vec<u8>, mask: Option<Vec<u8>> },
    Set { set: u16, mask: Option<Vec<u8>> },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValueSet {
    pub name: String,
    pub bytes: u16,
    pub max_size: u32,
}
