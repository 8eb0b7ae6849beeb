// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! The P4 engine: runs a `Program` over packets, by the semantics of BMv2's `simple_switch` (v1model).
//!
//! It knows packets, programs and tables; no kernel, no sockets, no clock. A *shell* (the guest's kernel, `p4switch`) brings
//! packets and the time, and owns the queues between ingress and egress.
//!
//! # The way of a packet
//!
//! ```text
//! shell: Engine::ingress(context, packet, arrival) -> Decision            parse, verify, ingress
//!        a clone at ingress: Engine::parse_clone(..) into another context; more than one port: Engine::copy(..)
//!        queue (the shell's)
//!        Engine::egress(context, packet, departure) -> Emission           egress, update, deparse
//! ```
//!
//! Nothing is deparsed between ingress and egress: a `Context` holds the headers and the metadata meanwhile, and travels with
//! the packet through the queue. What the parser did not take stays where it is: the emission says how many bytes of the
//! packet's front are replaced by which. A packet allocates nothing: what it needs was made with the engine and the context.
//!
//! # Where it differs from BMv2
//!
//! BMv2 is followed where it says what happens: a resubmitted or recirculated packet has no ingress port, the last digest
//! and the last clone count, a hash of size 0 is its base. Where it reads what is not there or gives up, this engine goes on:
//!
//! * a select that looks ahead of the packet's end: error PacketTooShort; an empty stack's last element: StackOutOfBounds
//!   in the parser, 0 elsewhere; an index beyond a stack: 0;
//! * a division by 0 is 0; a shift by a negative number shifts all bits out;
//! * an assert that does not hold is counted and told to the shell;
//! * a parser or an action that jumps backwards 65,536 times: error ParserTimeout, or the packet is dropped by that name;
//! * `truncate` holds for what leaves (BMv2 cuts the payload of copies only), and not for egress clones.
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
mod tables;
mod verify;

/// Packets at the boundary between the engine and its shell.
pub mod packet {
    pub use crate::exec::packet::*;
    pub use crate::verify::Unfit;
}

/// Programs as the engine loads them.
pub mod program {
    pub use crate::ir::*;
}

pub use engine::Engine;
pub use exec::context::Context;
pub use ir::select_width;
