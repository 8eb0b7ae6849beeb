// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! The instructions of parsers, controls, actions and deparsers.

use serde::{Deserialize, Serialize};

use crate::ir::ids::{ArrayId, FieldId, HeaderId, ListId, Pc, Reg, StackId, TableId, WideReg};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unary {
    /// Inverts every bit: -x - 1.
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
    /// A shift by the width or more gives 0, or -1 for a right shift of a negative number.
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
    /// The low `right` bits of the left operand as a signed number (`two_comp_mod`).
    Signed,
    /// The left operand saturated to a signed number of `right` bits (`sat_cast`).
    SaturateSigned,
    /// The left operand saturated to an unsigned number of `right` bits (`usat_cast`).
    SaturateUnsigned,
}

/// One instruction. If the packet is too short, an instruction of the parser stops the parser.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Op {
    // Numbers.
    Set {
        to: Reg,
        value: i64,
    },
    /// Sets a register to `constants[constant]`, unsigned, big endian.
    SetLong {
        to: Reg,
        constant: u16,
    },
    Load {
        to: Reg,
        field: FieldId,
    },
    /// Stores a register truncated to the field's width. As in BMv2, the field may be of an invalid header; it becomes
    /// 0 when the header becomes valid.
    Store {
        field: FieldId,
        from: Reg,
    },
    /// Loads an argument of the running action.
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
    /// `Binary` with a constant as the right operand.
    BinaryWith {
        op: Binary,
        to: Reg,
        left: Reg,
        value: i64,
    },
    /// `Store` of a constant.
    StoreConstant {
        field: FieldId,
        value: i64,
    },
    /// Keeps the lowest 1 to 127 bits, unsigned.
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
    WideBinary {
        op: Binary,
        to: WideReg,
        left: WideReg,
        right: WideReg,
    },
    /// Compares, with the result 0 or 1 in a register.
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
    /// Copies a field to another of the same width.
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
    /// Copies contents and validity.
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
    /// Loads a field of the stack element at `index`. `field` counts from the header's first field; `member` selects
    /// the header if the elements are unions.
    LoadIndexed {
        to: Reg,
        stack: StackId,
        member: u16,
        index: Reg,
        field: u16,
    },
    /// Loads the validity of the stack element at `index`.
    ValidIndexed {
        to: Reg,
        stack: StackId,
        member: u16,
        index: Reg,
    },
    /// Loads a field of the last valid element (`stack_field`).
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

    // Control flow.
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
    /// Jumps by `selects[select]`. If no case matches, the parser ends with error NoMatch.
    Select {
        select: u16,
    },
    /// Looks up a table, runs the action, and continues at `Table::next`.
    Apply {
        table: TableId,
    },
    /// Ends an action, the parser (accept), a control, the deparser.
    End,
    /// Ends the control, also from an action.
    Exit,
    /// Ends the parser with an error.
    Reject {
        error: u32,
    },
    /// Ends the parser with the error in `error` unless the condition is true (`verify`).
    Verify {
        condition: Reg,
        error: Reg,
    },

    // Parser.
    Extract {
        header: HeaderId,
    },
    /// Extracts into the stack's next element. If the stack is full, the error is StackOutOfBounds.
    ExtractNext {
        stack: StackId,
        member: u16,
    },
    /// Extracts a header with a varbit field of `width` bits.
    ExtractVarbit {
        header: HeaderId,
        width: Reg,
    },
    ExtractNextVarbit {
        stack: StackId,
        member: u16,
        width: Reg,
    },
    /// Loads bits of the packet relative to the parser's position.
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
    /// Skips as many bits as the register contains.
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
    /// Computes `hashes[hash]` into a register.
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
    /// Executes a meter and stores the color (0 green, 1 yellow, 2 red).
    Execute {
        meter: u16,
        index: Reg,
        to: FieldId,
    },
    /// Executes the direct meter of the entry that its table matched last.
    ExecuteDirect {
        meter: u16,
        to: FieldId,
    },
    /// Stores base + hash mod size. As in BMv2, a size of 0 counts as 1.
    HashTo {
        field: FieldId,
        hash: u16,
        base: Reg,
        size: Reg,
    },
    /// Stores a random number from `low` to `high`, both included.
    Random {
        field: FieldId,
        low: Reg,
        high: Reg,
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
    /// Sets egress_spec to 511 and mcast_grp to 0.
    MarkToDrop,
    /// `MarkToDrop` on a copy of the standard metadata. The packet is dropped if the program copies the fields back.
    MarkCopyToDrop {
        egress_spec: FieldId,
        mcast_grp: Option<FieldId>,
    },
    Assert {
        condition: Reg,
        message: u16,
    },
    /// Logs a message with `arguments` registers from `first` on.
    Log {
        message: u16,
        first: Reg,
        arguments: u16,
    },
    None,
}
