// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! The P4 engine: runs a `Program` over packets, by the semantics of BMv2's `simple_switch` (v1model).
//!
//! The engine depends on no kernel, sockets or clock. A *shell* (the guest's kernel, `p4switch`) passes packets and the
//! time to it, and has the queues between ingress and egress.
//!
//! # The path of a packet
//!
//! ```text
//! Engine::ingress(context, packet, arrival) -> Decision            parse, verify, ingress
//! Engine::parse_clone(..) for an ingress clone, Engine::copy(..) for each replica
//! the shell's queue
//! Engine::egress(context, packet, departure) -> Emission           egress, update, deparse
//! ```
//!
//! A packet is not deparsed between ingress and egress: a `Context` contains its headers and metadata and stays with it
//! in the queue. The unparsed rest of a packet is not copied: an emission contains headers and the number of bytes that
//! they replace. A packet allocates nothing, since engine and context allocate all buffers in advance.
//!
//! # Modules
//!
//! `verify` checks a program (`ir`), `lower` translates it, and the interpreter (`exec`) runs the result with `tables`
//! and `arith`. `engine` combines them and executes the requests of `control`.
//!
//! # Differences from BMv2
//!
//! The engine follows BMv2 where BMv2 defines a result: a resubmitted or recirculated packet has no ingress port, the
//! last digest and the last clone count, a hash of size 0 is its base. Where BMv2 crashes or reads undefined values,
//! the engine defines the result:
//!
//! * A select that looks ahead past the packet's end ends the parser with PacketTooShort.
//! * The last element of an empty stack ends the parser with StackOutOfBounds, and is 0 elsewhere.
//! * An element with an index past the stack's end is 0.
//! * A division by 0 is 0. A shift by a negative number shifts all bits out.
//! * A failed assert is counted and reported to the shell.
//! * After 65,536 backward jumps, a parser ends with ParserTimeout, and an action drops the packet with a drop reason.
//! * `truncate` applies to the sent packet (BMv2 truncates only the payload of copies), and not to egress clones.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod arith;
pub mod control;
mod engine;
mod exec;
mod ir;
mod lower;
mod native;
mod tables;
mod verify;

/// Packets at the boundary between the engine and its shell.
pub mod packet {
    pub use crate::exec::packet::*;
    pub use crate::verify::InvalidProgram;
}

/// Programs as the engine loads them.
pub mod program {
    pub use crate::ir::*;
}

pub use engine::Engine;
pub use exec::context::Context;
pub use ir::select_width;
pub use native::{Enter, Executable, Frame};
pub use verify::InvalidProgram;
