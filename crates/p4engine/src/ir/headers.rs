// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Headers, metadata and their fields in the PHV.

use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::ir::ids::{FieldId, HeaderId};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    pub name: String,
    /// In the area.
    pub at: u32,
    /// With a varbit field at its full width.
    pub bytes: u32,
    pub metadata: bool,
    /// Of one bit: whether it is valid (metadata always is).
    pub valid: FieldId,
    pub first_field: FieldId,
    pub fields: u16,
    /// Its varbit field: where its current width in bits is kept (a field of 32 bits in the area).
    pub varbit: Option<Varbit>,
    pub union_of: Option<u16>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Varbit {
    pub field: FieldId,
    pub width: FieldId,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Field {
    /// As the control plane and messages say it: `ipv4.ttl`.
    pub name: String,
    /// In bits from the area's start, most significant bit first.
    pub at: u32,
    pub width: u32,
    pub signed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stack {
    pub name: String,
    pub headers: Vec<HeaderId>,
    /// A field of 32 bits in the area: how many elements are in use (`next`).
    pub next: FieldId,
    /// Elements that are unions: their number in `unions`, element by element; `headers` is empty then.
    pub unions: Vec<u16>,
}

/// At most one of them is valid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Union {
    pub name: String,
    pub headers: Vec<HeaderId>,
}

/// v1model's metadata that the switch reads or writes; absent where the program has no such field.
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
