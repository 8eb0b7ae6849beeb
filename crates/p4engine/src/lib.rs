// SPDX-License-Identifier: Apache-2.0
//! The P4 engine: runs a `Program` over packets, by the semantics of BMv2's `simple_switch` (v1model).
//!
//! It knows packets, programs and tables; no kernel, no sockets, no clock. A *shell* (the guest's kernel, `p4switch`) brings
//! packets and the time, and owns the queues between ingress and egress.
//!
//! # The way of a packet
//!
//!     shell: Engine::ingress(context, packet, arrival) -> Decision            parse, verify, ingress
//!            a copy each: Engine::replicate(..) for clones and multicast
//!            queue (the shell's)
//!            Engine::egress(context, packet, departure) -> Emission           egress, update, deparse
//!
//! Nothing is deparsed between ingress and egress: a `Context` holds the headers and the metadata meanwhile, and travels with
//! the packet through the queue. What the parser did not take stays where it is: the emission says how many bytes of the
//! packet's front are replaced by which.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod control;
pub mod packet;
pub mod program;

// The engine's owner writes these (src/engine.rs and below):
//
//     impl Engine {
//         pub fn load(program: Program) -> Result<Engine, Unfit>;                 // Program::check, then tables and arrays
//         pub fn from_bytes(image: &[u8]) -> Result<Engine, Unfit>;
//         pub fn context(&self) -> Context;                                       // allocates; the shell pools them
//         pub fn ingress(&mut self, context: &mut Context, packet: &[u8], arrival: &Arrival, shell: &mut impl Shell) -> Decision;
//         /// For a clone: the packet is parsed anew, egress follows.
//         pub fn parse_clone(&mut self, context: &mut Context, packet: &[u8], arrival: &Arrival, shell: &mut impl Shell);
//         pub fn copy(&self, from: &Context, to: &mut Context, instance: Instance, rid: u16);
//         pub fn egress(&mut self, context: &mut Context, packet: &[u8], departure: &Departure, shell: &mut impl Shell) -> Emission;
//         pub fn group(&self, group: u16) -> Option<&[Replica]>;
//         pub fn session(&self, session: u16) -> Option<&CloneSession>;
//         pub fn control(&mut self, request: &Request) -> Answer;
//     }
//     impl Context { pub fn headers(&self) -> &[u8]; }
