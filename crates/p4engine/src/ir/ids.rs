// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Indices into the lists of a program.

/// An index into `Program::fields`. The types below are indices into the lists that they are named after.
pub type FieldId = u16;
pub type HeaderId = u16;
pub type StackId = u16;
pub type TableId = u16;
pub type ActionId = u16;
pub type ArrayId = u16;
pub type ListId = u16;
/// An index into `Program::code`.
pub type Pc = u32;
/// A register of 128 bits.
pub type Reg = u16;
/// A wide register: `Program::wide_limbs` words of 64 bits, two's complement.
pub type WideReg = u16;
