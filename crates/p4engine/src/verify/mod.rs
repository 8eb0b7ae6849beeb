// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Checks of a program before it runs.

mod buffers;
mod control_flow;
mod error;
mod headers;
mod instructions;
mod lookahead;
mod objects;
mod program;

pub use error::InvalidProgram;
