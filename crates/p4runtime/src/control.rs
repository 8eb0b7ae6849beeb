// SPDX-License-Identifier: Apache-2.0
//! The server's interface to the switch: an engine in this process, or the one in the guest's kernel.

use qbed_p4engine::control::{Answer, Request};
use qbed_p4engine::program::Program;

pub trait Control: Send {
    fn request(&mut self, request: Request) -> Answer;

    /// Compile a device config (BMv2's JSON). The error says why it cannot run.
    fn compile(&self, config: &[u8]) -> Result<Program, String>;

    /// Replace the running program and its entries. After an error, the old program continues.
    fn load(&mut self, program: &Program) -> Result<(), String>;

    /// Make a packet arrive at the CPU port.
    fn inject(&mut self, packet: &[u8]) -> Result<(), String>;

    /// The clock of `Arrival::now_us`.
    fn now_us(&self) -> u64;
}

/// A message of the switch for its controllers. The sender drops it if the server's queue is full.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A packet that was sent to the CPU port.
    PacketIn(Vec<u8>),
    /// The arguments of `Shell::digest`.
    Digest { id: u32, values: Vec<u8> },
}
