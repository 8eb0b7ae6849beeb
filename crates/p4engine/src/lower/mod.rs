// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Lowering: translates a verified program into the code that the interpreter runs.

pub(crate) mod checksums;
mod code;
pub(crate) mod fused;
mod hashes;
pub(crate) mod instructions;
pub(crate) mod metadata;
pub(crate) mod operands;
mod selects;
mod translate;

pub(crate) use code::Code;
