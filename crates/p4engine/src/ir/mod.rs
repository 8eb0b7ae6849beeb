// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! The intermediate representation of a program: names are resolved to indices, and jumps to instructions.
//!
//! The loader (`crates/p4switch`) creates it from BMv2's JSON, and it is sent to the guest's kernel as bytes
//! (postcard). `Program::check` checks every index and bound before the program runs, so the source need not be
//! trusted.
//!
//! All headers and metadata of a packet are in one array of bytes, the *PHV* (packet header vector). A header has its
//! layout on the wire, with a varbit field at its maximum width. A metadata field has its own bytes. Fields are bits of
//! the PHV, big endian. Registers are signed numbers of 128 bits: no operation on fields of up to 64 bits overflows
//! before its result is truncated (BMv2 computes with unlimited integers). Wider fields use *wide* registers.

mod externs;
mod headers;
mod ids;
mod instructions;
pub mod liveness;
mod parser;
mod program;
mod tables;

pub use externs::*;
pub use headers::*;
pub use ids::*;
pub use instructions::*;
pub use parser::*;
pub use program::*;
pub use tables::*;

/// Limit on the bytes of a PHV.
pub(crate) const MAX_PHV_BYTES: u32 = 1 << 16;

/// Limit on the registers of a program.
pub(crate) const MAX_REGISTERS: usize = 1024;
