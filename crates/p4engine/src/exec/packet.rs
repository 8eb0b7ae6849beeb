// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! What a shell gives the engine with a packet, and what it is told to do with it.

use alloc::vec::Vec;

use crate::ir::ListId;

/// Where a packet comes from: v1model's `instance_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Instance {
    Normal = 0,
    IngressClone = 1,
    EgressClone = 2,
    Recirculated = 4,
    Replicated = 5,
    Resubmitted = 6,
}

/// A packet at ingress. Resubmitted, recirculated and cloned ones bring what their field list kept.
#[derive(Debug, Clone, Copy)]
pub struct Arrival<'a> {
    pub port: u16,
    /// Of the whole packet, of which the engine may be shown the front only.
    pub length: u32,
    pub now_us: u64,
    pub instance: Instance,
    pub kept: Option<&'a Kept>,
}

/// The values of a field list's fields, in its order, each in whole bytes, big endian.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kept {
    pub list: ListId,
    pub values: Vec<u8>,
}

/// What ingress wants, in the order in which the shell does it: clone, resubmit (and then nothing else), forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    /// The packet as it came in, to this clone session's ports, at egress; its egress parses it anew, with
    /// `Context::clone_kept`. Only sessions that there are.
    pub clone: Option<u16>,
    /// To ingress again, as it came in, with `Context::again_kept`.
    pub resubmit: bool,
    pub forward: Forward,
    /// At egress and on the wire the packet has at most so many bytes (`truncate`).
    pub truncate_bytes: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forward {
    /// Counted by the engine already, with where.
    Drop,
    Unicast {
        port: u16,
        priority: u8,
    },
    /// A copy to each replica of the group, in the group's order.
    Multicast {
        group: u16,
    },
}

/// A packet that leaves its queue.
#[derive(Debug, Clone, Copy)]
pub struct Departure {
    pub port: u16,
    pub now_us: u64,
    pub enqueued_us: u64,
    /// Packets in the queue when it came (without it) and when it left (without it).
    pub enqueued_depth: u32,
    pub dequeued_depth: u32,
}

/// What egress wants: clone first, then drop, recirculate, or send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Emission {
    /// A copy to this clone session's ports, at their egress (`Engine::copy` with `EgressClone`).
    pub clone: Option<u16>,
    /// What would be sent goes to ingress again, with `Context::again_kept`.
    pub recirculate: bool,
    /// Counted by the engine already, with where.
    pub drop: bool,
    /// The first `replaced` bytes of the packet give way to `Context::headers()`.
    pub replaced: u32,
    /// What is sent has at most so many bytes: headers first.
    pub truncate_bytes: Option<u32>,
}

/// What a program needs of its surroundings.
pub trait Shell {
    /// Of 64 bits, evenly.
    fn random(&mut self) -> u64;
    /// Of 32 bits: what is enough for most programs.
    fn random_u32(&mut self) -> u32 {
        (self.random() >> 32) as u32
    }
    /// The fields' values, each in whole bytes, big endian.
    fn digest(&mut self, id: u32, values: &[u8]);
    fn log(&mut self, message: &str, values: &[i128]);
    /// An assert (or an assume) did not hold.
    fn failed(&mut self, message: &str);
}
