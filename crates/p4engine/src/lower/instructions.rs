// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Instructions as the interpreter runs them: operands are resolved to places in the PHV.

use crate::arith::bits::{byte, Place};
use crate::ir::{ArrayId, Binary, FieldId, HeaderId, Pc, Reg, TableId, Unary};

/// An instruction. The operations of the program that have no variant here are run as `Rare`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Instruction {
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
        comparison: Comparison,
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
        comparison: Comparison,
        to: Reg,
        left: Reg,
        value: i64,
    },
    /// Shifts by fewer than 128 bits.
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
    /// Copies between fields that are aligned to bytes.
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
    /// Completes the checksum that the packet's sender left to its device, and runs `Code::guarded[instruction]`.
    Guarded {
        instruction: u32,
    },
    /// Runs an operation of `Code::rare`. So an instruction has at most 16 bytes.
    Rare {
        op: u32,
    },

    // Fused instructions. `to` and other registers get the values that the separate instructions would give them.
    /// `Load` of a field inside a byte, and a jump if the field is 0 (`when` is false) or is not 0.
    JumpByte {
        when: bool,
        to: Reg,
        field: ByteField,
        jump: Pc,
    },
    /// `Load` of a field inside a byte, comparison, jump.
    JumpCompareByte {
        comparison: Comparison,
        to: Reg,
        field: ByteField,
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
    JumpCompareWith {
        comparison: Comparison,
        to: Reg,
        left: Reg,
        value: i32,
        jump: Pc,
    },
    JumpCompare {
        comparison: Comparison,
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
    /// `count` pairs of `Argument` and `Store`: `Sequences::arguments` from `first` on.
    StoreArguments {
        count: u16,
        to: Reg,
        first: u32,
    },
    /// `count` times `StoreConstant`: `Sequences::constants` from `first` on.
    StoreConstants {
        count: u16,
        first: u32,
    },
    /// `count` times `Emit`: `Sequences::emitted` from `first` on.
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
    /// `Add` and `Store` of the result.
    AddStore {
        to: Reg,
        left: Reg,
        right: Reg,
        into: Place,
    },
    /// `Invert` and `Store` of the result.
    InvertStore {
        to: Reg,
        from: Reg,
        into: Place,
    },
}

const _: () = assert!(size_of::<Instruction>() == 16);

impl Instruction {
    /// The number of the program's operations that an instruction runs.
    pub fn operations(&self) -> usize {
        use Instruction::*;
        match self {
            Transfer { .. }
            | AddStore { .. }
            | InvertStore { .. }
            | LoadLongs { .. }
            | JumpByte { .. }
            | JumpCompareWith { .. }
            | JumpCompare { .. } => 2,
            AddByte { .. } | JumpCompareByte { .. } => 3,
            StoreArguments { count, .. } => 2 * usize::from(*count),
            StoreConstants { count, .. } | EmitEach { count, .. } => usize::from(*count),
            _ => 1,
        }
    }
}

/// A field inside one byte.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ByteField {
    pub at: u16,
    pub trailing: u8,
    pub mask: u8,
}

impl ByteField {
    #[inline(always)]
    pub fn load(self, phv: &[u8]) -> u64 {
        byte(phv, self.at) >> (self.trailing & 7) & u64::from(self.mask)
    }
}

/// A comparison as a bit mask: bits 0 to 2 are set if less, equal and greater satisfy it. Bit 3 is set if a fused jump
/// is taken when the comparison is true.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Comparison(u8);

const JUMP_IF_TRUE: u8 = 8;

impl Comparison {
    pub fn from_binary(op: Binary) -> Option<Comparison> {
        Some(Comparison(match op {
            Binary::Less => 0b001,
            Binary::Equal => 0b010,
            Binary::LessOrEqual => 0b011,
            Binary::Greater => 0b100,
            Binary::NotEqual => 0b101,
            Binary::GreaterOrEqual => 0b110,
            _ => return None,
        }))
    }

    pub(super) fn with_jump(self, when: bool) -> Comparison {
        Comparison(self.0 | if when { JUMP_IF_TRUE } else { 0 })
    }

    /// The bits of less, equal and greater.
    pub fn mask(self) -> u8 {
        self.0 & 7
    }

    #[inline(always)]
    pub fn is_true<T: PartialOrd>(self, left: T, right: T) -> bool {
        let order = u8::from(left > right) + u8::from(left >= right);
        self.0 >> (order & 3) & 1 != 0
    }

    /// Whether the fused jump is taken.
    #[inline(always)]
    pub fn jump_taken(self, result: bool) -> bool {
        result == (self.0 & JUMP_IF_TRUE != 0)
    }
}
