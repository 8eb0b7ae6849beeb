// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Execution: the interpreter with the state of a program and of a packet.

mod apply;
pub(crate) mod context;
mod deparser;
pub(crate) mod externs;
mod fused;
mod hash_input;
mod headers;
pub(crate) mod interpreter;
pub(crate) mod packet;
mod parser;
mod registers;
pub(crate) mod state;
