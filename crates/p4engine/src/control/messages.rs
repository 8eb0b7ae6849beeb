// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Requests, answers and what they contain.

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
    /// Found by its matches and priority.
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
    /// Back to what the program says.
    ResetDefault {
        table: TableId,
    },
    /// At most `most` entries from the `from`th on, in the order in which they were inserted.
    Entries {
        table: TableId,
        from: u32,
        most: u32,
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
    /// Inserts or replaces; members by number, as often as they weigh.
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

    /// Values big endian, in the register's bytes.
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
    /// Of an entry of its table.
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
    /// None: deletes.
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

    /// Entries whose time-out has passed since they matched or were told last; if there are more, they are told next.
    Idle {
        now_us: u64,
        most: u32,
    },
    /// How many packets went which way.
    Totals,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    Done,
    Entries(Vec<EntryState>),
    Profile { members: Vec<(u32, ActionCall)>, groups: Vec<(u32, Vec<u32>)> },
    Values(Vec<Vec<u8>>),
    Counts(Vec<Count>),
    Meter(Option<Rates>),
    ValueSet(Vec<SetMember>),
    MulticastGroups(Vec<(u16, Vec<Replica>)>),
    CloneSessions(Vec<(u16, CloneSession)>),
    Idle(Vec<(TableId, Vec<Match>, u32)>),
    Totals(Totals),
    Refused(Refusal, String),
}

/// By the codes of gRPC that P4Runtime asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    InvalidArgument,
    NotFound,
    AlreadyExists,
    /// The table, profile or set is full.
    ResourceExhausted,
    /// Constant entries or default action.
    PermissionDenied,
    FailedPrecondition,
    OutOfRange,
    Unimplemented,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub matches: Vec<Match>,
    /// Of ternary, range and optional keys: the highest wins, as in P4Runtime; 0 elsewhere.
    pub priority: u32,
    pub target: Target,
    /// 0: never.
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
pub struct Count {
    pub packets: u64,
    pub bytes: u64,
}

/// Two rates, three colours (RFC 2698): units a second and units.
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
    /// 0: whole.
    pub truncate_bytes: u32,
}

/// Of packets since the program was loaded; drops by reason.
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
    /// Which and how many: marked in a table or an action (by name), no such port, too many rounds, ...
    pub drops: Vec<(String, u64)>,
}
