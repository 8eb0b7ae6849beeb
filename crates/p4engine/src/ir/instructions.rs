// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! The instructions of parsers, controls, actions and deparsers.

use serde::{Deserialize, Serialize};

use crate::ir::ids::{ArrayId, FieldId, HeaderId, ListId, Pc, Reg, StackId, TableId, WideReg};

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
