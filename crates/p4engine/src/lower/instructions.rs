// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Instructions as the interpreter runs them: operands are resolved to places in the PHV.

use crate::arith::bits::{byte, Place};
use crate::ir::{ArrayId, Binary, FieldId, HeaderId, Pc, Reg, TableId, Unary};

/// The rest are as the program has them.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step {
    LoadByte {
        to: Reg,
        at: u16,
    },
    LoadShort {
        to: Reg,
        at: u16,
    },
    LoadWord {
        to: Reg,
        at: u16,
    },
    LoadLong {
        to: Reg,
        at: u16,
    },
    LoadBits {
        to: Reg,
        place: Place,
    },
    LoadSigned {
        to: Reg,
        place: Place,
    },
    StoreByte {
        at: u16,
        from: Reg,
    },
    StoreShort {
        at: u16,
        from: Reg,
    },
    StoreWord {
        at: u16,
        from: Reg,
    },
    StoreLong {
        at: u16,
        from: Reg,
    },
    StoreBits {
        place: Place,
        from: Reg,
    },
    Set {
        to: Reg,
        value: i64,
    },
    Move {
        to: Reg,
        from: Reg,
    },
    Argument {
        to: Reg,
        argument: u16,
    },
    Add {
        to: Reg,
        left: Reg,
        right: Reg,
    },
    Subtract {
        to: Reg,
        left: Reg,
        right: Reg,
    },
    Multiply {
        to: Reg,
        left: Reg,
        right: Reg,
    },
    And {
        to: Reg,
        left: Reg,
        right: Reg,
    },
    Or {
        to: Reg,
        left: Reg,
        right: Reg,
    },
    Compare {
        test: Test,
        to: Reg,
        left: Reg,
        right: Reg,
    },
    Binary {
        op: Binary,
        to: Reg,
        left: Reg,
        right: Reg,
    },
    Invert {
        to: Reg,
        from: Reg,
    },
    Unary {
        op: Unary,
        to: Reg,
        from: Reg,
    },
    AddWith {
        to: Reg,
        left: Reg,
        value: i64,
    },
    AndWith {
        to: Reg,
        left: Reg,
        value: i64,
    },
    CompareWith {
        test: Test,
        to: Reg,
        left: Reg,
        value: i64,
    },
    /// By fewer than 128.
    ShiftLeftWith {
        to: Reg,
        left: Reg,
        bits: u8,
    },
    ShiftRightWith {
        to: Reg,
        left: Reg,
        bits: u8,
    },
    BinaryWith {
        op: Binary,
        to: Reg,
        left: Reg,
        value: i64,
    },
    StoreConstant {
        place: Place,
        value: u64,
    },
    Cut {
        to: Reg,
        from: Reg,
        bits: u16,
    },
    /// Between fields of whole bytes.
    CopyByte {
        to: u16,
        from: u16,
    },
    CopyShort {
        to: u16,
        from: u16,
    },
    CopyWord {
        to: u16,
        from: u16,
    },
    CopyLong {
        to: u16,
        from: u16,
    },
    CopyBytes {
        to: u32,
        from: u32,
        bytes: u16,
    },
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
    Select {
        select: u16,
    },
    Apply {
        table: TableId,
    },
    Extract {
        header: HeaderId,
    },
    Lookahead {
        to: Reg,
        at: u32,
        width: u32,
    },
    Verify {
        condition: Reg,
        error: Reg,
    },
    Emit {
        header: HeaderId,
    },
    Checksum {
        to: Reg,
        hash: u16,
    },
    Count {
        counter: u16,
        index: Reg,
    },
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
    End,
    /// Of `Code::rare`: so that a step stays within 16 bytes.
    Rare {
        op: u32,
    },

    // Joined: `to` and the others get what the steps one by one would leave in them.
    /// `Load` of a field within a byte, jump if it is 0 (`when` false) or is not.
    JumpByte {
        when: bool,
        to: Reg,
        piece: Piece,
        jump: Pc,
    },
    /// `Load` of a field within a byte, comparison, jump.
    TestByte {
        test: Test,
        to: Reg,
        piece: Piece,
        value: u8,
        jump: Pc,
    },
    /// `LoadByte`, `AddWith`, `StoreByte`.
    AddByte {
        to: Reg,
        at: u16,
        value: i64,
    },
    /// Comparison, jump.
    TestWith {
        test: Test,
        to: Reg,
        left: Reg,
        value: i32,
        jump: Pc,
    },
    Test {
        test: Test,
        to: Reg,
        left: Reg,
        right: Reg,
        jump: Pc,
    },
    /// Two `LoadLong`s.
    LoadLongs {
        first: (Reg, u16),
        second: (Reg, u16),
    },
    /// `Argument` and `Store`, some times: those of `Runs::arguments` from `first` on.
    StoreArguments {
        count: u16,
        to: Reg,
        first: u32,
    },
    /// `StoreConstant`, more than once: those of `Runs::constants` from `first` on.
    StoreConstants {
        count: u16,
        first: u32,
    },
    /// `Emit`, more than once: those of `Runs::emitted` from `first` on.
    EmitEach {
        count: u16,
        first: u32,
    },
    /// `Load` and `Store`.
    Transfer {
        to: Reg,
        from: Place,
        into: Place,
    },
    /// An operation whose result is stored.
    AddStore {
        to: Reg,
        left: Reg,
        right: Reg,
        into: Place,
    },
    InvertStore {
        to: Reg,
        from: Reg,
        into: Place,
    },
}

const _: () = assert!(size_of::<Step>() == 16);

/// Bits of a byte.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece {
    pub at: u16,
    pub behind: u8,
    pub mask: u8,
}

impl Piece {
    #[inline(always)]
    pub fn load(self, area: &[u8]) -> u64 {
        byte(area, self.at) >> (self.behind & 7) & u64::from(self.mask)
    }
}

/// A comparison, without a jump for which: a bit each for less, equal and greater; and whether a jump is made where it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Test(u8);

const WHEN: u8 = 8;

impl Test {
    pub fn of(op: Binary) -> Option<Test> {
        Some(Test(match op {
            Binary::Less => 0b001,
            Binary::Equal => 0b010,
            Binary::LessOrEqual => 0b011,
            Binary::Greater => 0b100,
            Binary::NotEqual => 0b101,
            Binary::GreaterOrEqual => 0b110,
            _ => return None,
        }))
    }

    pub(super) fn jumps(self, when: bool) -> Test {
        Test(self.0 | if when { WHEN } else { 0 })
    }

    #[inline(always)]
    pub fn holds<T: PartialOrd>(self, left: T, right: T) -> bool {
        let order = u8::from(left > right) + u8::from(left >= right);
        self.0 >> (order & 3) & 1 != 0
    }

    /// Whether to jump, where it holds or not.
    #[inline(always)]
    pub fn taken(self, holds: bool) -> bool {
        holds == (self.0 & WHEN != 0)
    }
}
