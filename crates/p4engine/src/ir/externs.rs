// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Registers, counters, meters, hashes and digests.

use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::ir::ids::{FieldId, HeaderId, Reg, TableId};

/// A register of the program: an array of numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Array {
    pub name: String,
    pub width: u32,
    pub signed: bool,
    pub size: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counter {
    pub name: String,
    /// The table of a direct counter, which has one count per entry.
    pub table: Option<TableId>,
    pub size: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meter {
    pub name: String,
    pub table: Option<TableId>,
    pub size: u32,
    /// Whether the meter counts bytes instead of packets.
    pub bytes: bool,
    /// The field that gets the color of a direct meter.
    pub result: Option<FieldId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum HashKind {
    Crc32,
    Crc32Custom,
    Crc16,
    Crc16Custom,
    Csum16,
    Xor16,
    Identity,
    RoundRobin,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hash {
    pub name: String,
    pub kind: HashKind,
    pub input: Vec<HashInput>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum HashInput {
    Field(FieldId),
    Header(HeaderId),
    /// A number of `width` bits, big endian.
    Constant {
        value: Vec<u8>,
        width: u32,
    },
    /// An expression that was evaluated into a register.
    Register {
        register: Reg,
        width: u32,
    },
    /// The packet after the last parsed header.
    Payload,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digest {
    pub name: String,
    pub id: u32,
    pub fields: Vec<FieldId>,
}
