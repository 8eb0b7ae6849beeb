// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! A program as the engine runs it: no names to look up, every place and every jump resolved.
//!
//! The loader (`crates/p4switch`) makes it of BMv2's JSON; it travels to the guest's kernel as bytes (postcard). Whatever made
//! it, `check` looks at every index and every bound before it runs, so that what follows need not be trusted.
//!
//! All headers and metadata of a packet lie in one *area* of bytes: a header as on the wire (a varbit field at its full width,
//! what follows it behind that), metadata with each field in bytes of its own. Fields are bits of the area, big endian.
//! Numbers on the way are registers of 128 bits, signed: wide enough that no operation on fields of up to 64 bits overflows
//! before it is cut (BMv2 computes with unlimited integers). Fields of more than 64 bits go through *wide* registers.

use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// An index into `Program::fields`, `headers`, `code`, and so on: what it indexes is its name.
pub type FieldId = u16;
pub type HeaderId = u16;
pub type StackId = u16;
pub type TableId = u16;
pub type ActionId = u16;
pub type ArrayId = u16;
pub type ListId = u16;
pub type Pc = u32;
/// A register of 128 bits.
pub type Reg = u16;
/// A wide register, of `Program::wide_limbs` words of 64 bits, two's complement.
pub type WideReg = u16;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    pub name: String,
    pub area_bytes: u32,
    /// At most 1024.
    pub registers: u16,
    pub wide_registers: u16,
    /// At most 40.
    pub wide_limbs: u16,
    pub headers: Vec<Header>,
    pub fields: Vec<Field>,
    pub stacks: Vec<Stack>,
    pub unions: Vec<Union>,
    pub code: Vec<Op>,
    pub entry: Entry,
    pub constants: Vec<Vec<u8>>,
    pub selects: Vec<Select>,
    pub value_sets: Vec<ValueSet>,
    pub tables: Vec<Table>,
    pub actions: Vec<Action>,
    pub profiles: Vec<Profile>,
    pub arrays: Vec<Array>,
    pub counters: Vec<Counter>,
    pub meters: Vec<Meter>,
    pub hashes: Vec<Hash>,
    pub digests: Vec<Digest>,
    /// What resubmit, recirculate and clone keep: the fields of list N.
    pub field_lists: Vec<Vec<FieldId>>,
    pub errors: Vec<(String, u32)>,
    pub standard: Standard,
    /// Of asserts and log_msg, named by `Op::Assert` and `Op::Log`.
    pub messages: Vec<String>,
}

/// Where each part begins; it ends with `Op::End`. Only the parser and actions may loop.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub parser: Pc,
    pub verify: Pc,
    pub ingress: Pc,
    pub egress: Pc,
    pub update: Pc,
    pub deparser: Pc,
}

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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unary {
    /// Of every bit: -x - 1.
    Invert,
    Negate,
    Not,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Binary {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    /// A shift by more than there is gives 0 (or -1).
    ShiftLeft,
    ShiftRight,
    And,
    Or,
    Xor,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    /// The left cut to `right` bits, as a signed number (`two_comp_mod`).
    Signed,
    /// The left within what `right` bits hold, signed and unsigned (`sat_cast`, `usat_cast`).
    SaturateSigned,
    SaturateUnsigned,
}

/// One step. Steps of the parser stop the parser when the packet is too short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Op {
    // Numbers.
    Set {
        to: Reg,
        value: i64,
    },
    /// `constants[constant]`, unsigned, big endian.
    SetLong {
        to: Reg,
        constant: u16,
    },
    Load {
        to: Reg,
        field: FieldId,
    },
    /// Cut to the field's width. Of an invalid header too, as in BMv2: it becomes 0 when the header becomes valid.
    Store {
        field: FieldId,
        from: Reg,
    },
    /// Of the action that runs.
    Argument {
        to: Reg,
        argument: u16,
    },
    Unary {
        op: Unary,
        to: Reg,
        from: Reg,
    },
    Binary {
        op: Binary,
        to: Reg,
        left: Reg,
        right: Reg,
    },
    Move {
        to: Reg,
        from: Reg,
    },
    /// `Binary` and `Store` with a number that is known: a step instead of two.
    BinaryWith {
        op: Binary,
        to: Reg,
        left: Reg,
        value: i64,
    },
    StoreConstant {
        field: FieldId,
        value: i64,
    },
    /// The lowest 1 to 127 bits, unsigned.
    Cut {
        to: Reg,
        from: Reg,
        bits: u16,
    },

    // Wide numbers.
    WideSet {
        to: WideReg,
        constant: u16,
    },
    WideLoad {
        to: WideReg,
        field: FieldId,
    },
    WideStore {
        field: FieldId,
        from: WideReg,
    },
    WideArgument {
        to: WideReg,
        argument: u16,
    },
    WideUnary {
        op: Unary,
        to: WideReg,
        from: WideReg,
    },
    /// Of `right`'s shifts and widths the value counts.
    WideBinary {
        op: Binary,
        to: WideReg,
        left: WideReg,
        right: WideReg,
    },
    /// Comparisons end in a register: 0 or 1.
    WideCompare {
        op: Binary,
        to: Reg,
        left: WideReg,
        right: WideReg,
    },
    Widen {
        to: WideReg,
        from: Reg,
    },
    Narrow {
        to: Reg,
        from: WideReg,
    },
    /// Fields of one width, any width.
    Copy {
        to: FieldId,
        from: FieldId,
    },

    // Headers.
    AddHeader {
        header: HeaderId,
    },
    RemoveHeader {
        header: HeaderId,
    },
    /// Contents and validity.
    CopyHeader {
        to: HeaderId,
        from: HeaderId,
    },
    CopyStack {
        to: StackId,
        from: StackId,
    },
    CopyUnion {
        to: u16,
        from: u16,
    },
    CopyVarbit {
        to: HeaderId,
        from: HeaderId,
    },
    Push {
        stack: StackId,
        count: u16,
    },
    Pop {
        stack: StackId,
        count: u16,
    },
    /// Of the element of a stack (of unions: its member) that a register names: its field, counted from the header's first.
    LoadIndexed {
        to: Reg,
        stack: StackId,
        member: u16,
        index: Reg,
        field: u16,
    },
    /// Its validity.
    ValidIndexed {
        to: Reg,
        stack: StackId,
        member: u16,
        index: Reg,
    },
    /// The last valid element's field (`stack_field`).
    LoadLast {
        to: Reg,
        stack: StackId,
        member: u16,
        field: u16,
    },
    StackLastIndex {
        to: Reg,
        stack: StackId,
    },

    // Flow.
    Jump {
        to: Pc,
    },
    JumpIf {
        condition: Reg,
        to: Pc,
    },
    JumpUnless {
        condition: Reg,
        to: Pc,
    },
    /// By `selects`: the parser's transitions; no case: the parser ends, error NoMatch.
    Select {
        select: u16,
    },
    /// Looks up, runs the action, goes on by `Table::next`.
    Apply {
        table: TableId,
    },
    /// Ends an action, the parser (accept), a control, the deparser.
    End,
    /// Ends the control, from within an action too.
    Exit,
    /// Ends the parser with an error.
    Reject {
        error: u32,
    },
    /// `verify`: ends the parser with the error that `error` holds, unless.
    Verify {
        condition: Reg,
        error: Reg,
    },

    // Parser.
    Extract {
        header: HeaderId,
    },
    /// Into the stack's next element; too many: error StackOutOfBounds.
    ExtractNext {
        stack: StackId,
        member: u16,
    },
    /// `width` has the varbit field's bits.
    ExtractVarbit {
        header: HeaderId,
        width: Reg,
    },
    ExtractNextVarbit {
        stack: StackId,
        member: u16,
        width: Reg,
    },
    /// Bits from where the parser stands.
    Lookahead {
        to: Reg,
        at: u32,
        width: u32,
    },
    WideLookahead {
        to: WideReg,
        at: u32,
        width: u32,
    },
    /// By the bits of a register.
    Advance {
        bits: Reg,
    },

    // Deparser, checksums.
    Emit {
        header: HeaderId,
    },
    EmitStack {
        stack: StackId,
    },
    EmitUnion {
        of: u16,
    },
    /// Of `hashes[hash]` into a register.
    Checksum {
        to: Reg,
        hash: u16,
    },

    // Externs.
    RegisterRead {
        to: FieldId,
        array: ArrayId,
        index: Reg,
    },
    RegisterWrite {
        array: ArrayId,
        index: Reg,
        from: Reg,
    },
    WideRegisterWrite {
        array: ArrayId,
        index: Reg,
        from: WideReg,
    },
    Count {
        counter: u16,
        index: Reg,
    },
    /// Its colour (0 green, 1 yellow, 2 red) into a field.
    Execute {
        meter: u16,
        index: Reg,
        to: FieldId,
    },
    /// A direct meter, of the entry that matched last in its table.
    ExecuteDirect {
        meter: u16,
        to: FieldId,
    },
    /// base + hash mod size (a size of 0 counts as 1, as in BMv2).
    HashTo {
        field: FieldId,
        hash: u16,
        base: Reg,
        size: Reg,
    },
    /// Between both, both included.
    Random {
        field: FieldId,
        least: Reg,
        most: Reg,
    },
    Digest {
        digest: u16,
    },
    CloneIngress {
        session: Reg,
        list: ListId,
    },
    CloneEgress {
        session: Reg,
        list: ListId,
    },
    Resubmit {
        list: ListId,
    },
    Recirculate {
        list: ListId,
    },
    Truncate {
        bytes: Reg,
    },
    /// egress_spec becomes 511, mcast_grp 0.
    MarkToDrop,
    /// `MarkToDrop` of a copy of the standard metadata, given by these fields: the packet is dropped if the program copies
    /// them back.
    MarkCopyToDrop {
        egress_spec: FieldId,
        mcast_grp: Option<FieldId>,
    },
    Assert {
        condition: Reg,
        message: u16,
    },
    /// The values are `arguments` registers from `first` on.
    Log {
        message: u16,
        first: Reg,
        arguments: u16,
    },
    None,
}

/// The parser's transitions of one state: the first case that fits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Select {
    /// Their values, concatenated as bytes (each padded to whole bytes), are compared.
    pub keys: Vec<SelectKey>,
    pub bytes: u16,
    pub cases: Vec<SelectCase>,
    /// None: the parser ends with error NoMatch.
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

/// A register of the program.
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
    /// One for each entry of this table.
    pub table: Option<TableId>,
    pub size: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meter {
    pub name: String,
    pub table: Option<TableId>,
    pub size: u32,
    /// Of bytes; else of packets.
    pub bytes: bool,
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
    /// Big endian, of `width` bits.
    Constant {
        value: Vec<u8>,
        width: u32,
    },
    /// An expression that was computed before.
    Register {
        register: Reg,
        width: u32,
    },
    /// All that follows the last header named, and the packet's payload.
    Payload,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digest {
    pub name: String,
    pub id: u32,
    pub fields: Vec<FieldId>,
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
