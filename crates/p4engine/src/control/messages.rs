// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Requests and answers.

use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::ir::{ActionCall, Match, TableId};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    Insert {
        table: TableId,
        entry: Entry,
    },
    /// Modifies the entry with these matches and this priority.
    Modify {
        table: TableId,
        entry: Entry,
    },
    Delete {
        table: TableId,
        matches: Vec<Match>,
        priority: u32,
    },
    SetDefault {
        table: TableId,
        target: Target,
    },
    /// Restores the program's default action.
    ResetDefault {
        table: TableId,
    },
    /// Reads up to `most` entries from index `from` on, in the order of insertion.
    Entries {
        table: TableId,
        from: u32,
        limit: u32,
    },
    Entry {
        table: TableId,
        matches: Vec<Match>,
        priority: u32,
    },

    InsertMember {
        profile: u16,
        member: u32,
        call: ActionCall,
    },
    ModifyMember {
        profile: u16,
        member: u32,
        call: ActionCall,
    },
    DeleteMember {
        profile: u16,
        member: u32,
    },
    /// Inserts or replaces a group. Each member is repeated by its weight.
    SetGroup {
        profile: u16,
        group: u32,
        members: Vec<u32>,
    },
    DeleteGroup {
        profile: u16,
        group: u32,
    },
    Profile {
        profile: u16,
    },

    /// Reads values in the register's size in bytes, big endian.
    ReadRegister {
        array: u16,
        from: u32,
        count: u32,
    },
    WriteRegister {
        array: u16,
        index: u32,
        value: Vec<u8>,
    },
    ReadCounter {
        counter: u16,
        from: u32,
        count: u32,
    },
    WriteCounter {
        counter: u16,
        index: u32,
        value: Count,
    },
    SetMeter {
        meter: u16,
        index: u32,
        rates: Option<Rates>,
    },
    ReadMeter {
        meter: u16,
        index: u32,
    },
    /// Reads a meter's packets by color.
    ReadColors {
        meter: u16,
        from: u32,
        count: u32,
    },
    /// Sets the direct meter of an entry.
    SetDirectMeter {
        table: TableId,
        matches: Vec<Match>,
        priority: u32,
        rates: Option<Rates>,
    },
    WriteDirectCounter {
        table: TableId,
        matches: Vec<Match>,
        priority: u32,
        value: Count,
    },

    SetValueSet {
        set: u16,
        members: Vec<SetMember>,
    },
    ValueSet {
        set: u16,
    },
    /// Sets a group's replicas. None: deletes the group.
    SetMulticastGroup {
        group: u16,
        replicas: Option<Vec<Replica>>,
    },
    MulticastGroups,
    SetCloneSession {
        session: u16,
        clone: Option<CloneSession>,
    },
    CloneSessions,

    /// Reads up to `most` entries that had no hit and no report during their time-out. The next request continues
    /// with the others.
    Idle {
        now_us: u64,
        limit: u32,
    },
    /// Reads the counters of packets.
    Totals,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    Done,
    Entries(Vec<EntryState>),
    Profile {
        members: Vec<(u32, ActionCall)>,
        groups: Vec<(u32, Vec<u32>)>,
    },
    Values(Vec<Vec<u8>>),
    Counts(Vec<Count>),
    Meter(Option<Rates>),
    /// Packets of each element of a meter: green, yellow, red.
    Colors(Vec<[u64; 3]>),
    ValueSet(Vec<SetMember>),
    MulticastGroups(Vec<(u16, Vec<Replica>)>),
    CloneSessions(Vec<(u16, CloneSession)>),
    Idle(Vec<(TableId, Vec<Match>, u32)>),
    Totals(Totals),
    Refused(Refusal, String),
}

/// The gRPC status codes of P4Runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    InvalidArgument,
    NotFound,
    AlreadyExists,
    /// A table, profile or set is full.
    ResourceExhausted,
    /// The entries or the default action are constant.
    PermissionDenied,
    FailedPrecondition,
    OutOfRange,
    Unimplemented,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub matches: Vec<Match>,
    /// Precedence in tables with ternary, range or optional keys, the highest first as in P4Runtime. 0 in other tables.
    pub priority: u32,
    pub target: Target,
    /// Idle time-out. 0: none.
    pub idle_us: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Target {
    Call(ActionCall),
    Member(u32),
    Group(u32),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryState {
    pub entry: Entry,
    pub count: Option<Count>,
    pub rates: Option<Rates>,
    pub last_hit_us: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[repr(C)]
pub struct Count {
    pub packets: u64,
    pub bytes: u64,
}

/// Parameters of a two rate three color marker (RFC 2698): rates in units per second, bursts in units.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rates {
    pub committed: u64,
    pub committed_burst: u64,
    pub peak: u64,
    pub peak_burst: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetMember {
    pub value: Vec<u8>,
    pub mask: Option<Vec<u8>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replica {
    pub port: u16,
    pub instance: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CloneSession {
    pub replicas: Vec<Replica>,
    /// Length to which clones are truncated. 0: no truncation.
    pub truncate_bytes: u32,
}

/// Counters of packets since the program was loaded.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    pub ingress: u64,
    pub egress: u64,
    pub sent: u64,
    pub cloned: u64,
    pub replicated: u64,
    pub resubmitted: u64,
    pub recirculated: u64,
    pub parser_errors: u64,
    pub checksum_errors: u64,
    pub digests: u64,
    pub asserts_failed: u64,
    /// Dropped packets by reason, such as the table and the action that marked them.
    pub drops: Vec<(String, u64)>,
}
