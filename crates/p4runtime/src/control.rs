// SPDX-License-Identifier: Apache-2.0
//! What the server needs of the switch beneath it: an engine in this process, or the one in the guest's kernel.

use qbed_p4engine::control::{Answer, Request};
use qbed_p4engine::program::Program;

pub trait Control: Send {
    fn request(&mut self, request: Request) -> Answer;

    /// The program that a device configuration (BMv2's JSON) holds, or why it cannot run here. Changes nothing.
    fn compile(&self, config: &[u8]) -> Result<Program, String>;

    /// From now on packets go through this program, whose tables are as it says; after an error the old one goes on.
    fn load(&mut self, program: &Program) -> Result<(), String>;

    /// A packet of the controller's, which arrives on the CPU port.
    fn inject(&mut self, packet: &[u8]) -> Result<(), String>;

    /// The clock by which packets arrive (`Arrival::now_us`).
    fn now_us(&self) -> u64;
}

/// What the switch has for its controllers. Whoever sends it drops what the server has no room for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A packet that was sent to the CPU port.
    PacketIn(Vec<u8>),
    /// As `Shell::digest` has it.
    Digest { id: u32, values: Vec<u8> },
}
