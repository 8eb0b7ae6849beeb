// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Headers, metadata and their fields in the PHV.

use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;
use serde::{Deserialize, Serialize};

use crate::ir::ids::{FieldId, HeaderId};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    pub name: String,
    /// Offset in the PHV.
    pub at: u32,
    /// Size with a varbit field at its maximum width.
    pub bytes: u32,
    pub metadata: bool,
    /// A field of one bit: whether the header is valid. Metadata is always valid.
    pub valid: FieldId,
    pub first_field: FieldId,
    pub fields: u16,
    pub varbit: Option<Varbit>,
    /// The union that the header is a member of.
    pub union_of: Option<u16>,
}

impl Header {
    pub fn field_ids(&self) -> Range<FieldId> {
        self.first_field..self.first_field.saturating_add(self.fields)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Varbit {
    pub field: FieldId,
    /// A field of 32 bits: the current width in bits.
    pub width: FieldId,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Field {
    /// The name in the control plane and in messages: `ipv4.ttl`.
    pub name: String,
    /// Offset in bits from the start of the PHV, most significant bit first.
    pub at: u32,
    pub width: u32,
    pub signed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stack {
    pub name: String,
    pub headers: Vec<HeaderId>,
    /// A field of 32 bits: how many elements are in use (`next`).
    pub next: FieldId,
    /// Indices of the elements in `Program::unions` if they are unions. Then `headers` is empty.
    pub unions: Vec<u16>,
}

/// A header union. At most one of its headers is valid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Union {
    pub name: String,
    pub headers: Vec<HeaderId>,
}

/// The fields of v1model's standard metadata. None: the program does not have the field.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standard {
    pub ingress_port: Option<FieldId>,
    pub egress_spec: Option<FieldId>,
    pub egress_port: Option<FieldId>,
    pub instance_type: Option<FieldId>,
    pub packet_length: Option<FieldId>,
    pub enq_timestamp: Option<FieldId>,
    pub enq_qdepth: Option<FieldId>,
    pub deq_timedelta: Option<FieldId>,
    pub deq_qdepth: Option<FieldId>,
    pub ingress_global_timestamp: Option<FieldId>,
    pub egress_global_timestamp: Option<FieldId>,
    pub mcast_grp: Option<FieldId>,
    pub egress_rid: Option<FieldId>,
    pub priority: Option<FieldId>,
    pub qid: Option<FieldId>,
    pub parser_error: Option<FieldId>,
    pub checksum_error: Option<FieldId>,
}
