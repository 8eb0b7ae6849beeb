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

mod externs;
mod headers;
mod ids;
mod instructions;
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
