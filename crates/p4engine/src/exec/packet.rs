// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! The interface between a shell and the engine for one packet.

use alloc::vec::Vec;

use crate::ir::ListId;

/// The origin of a packet: v1model's `instance_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Instance {
    Normal = 0,
    IngressClone = 1,
    EgressClone = 2,
    Recirculated = 4,
    Replicated = 5,
    Resubmitted = 6,
}

/// Metadata of a packet at ingress.
#[derive(Debug, Clone, Copy)]
pub struct Arrival<'a> {
    pub port: u16,
    /// Length of the whole packet. The engine may get only the first bytes.
    pub length: u32,
    pub now_us: u64,
    pub instance: Instance,
    /// Preserved fields of a resubmitted, recirculated or cloned packet.
    pub preserved: Option<&'a PreservedFields>,
    /// Position of a checksum of TCP or UDP that the sender left to its device: the packet does not have it yet. Only
    /// if `Engine::defers_checksums`.
    pub checksum: Option<u32>,
}

/// The preserved values of a field list, in its order, each in whole bytes, big endian.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PreservedFields {
    pub list: ListId,
    pub values: Vec<u8>,
}

/// The result of ingress. The shell first clones, then either resubmits or forwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    /// The clone session, which exists. The clone is the packet as it arrived; it is parsed again with
    /// `Context::clone_fields` and enters egress.
    pub clone: Option<u16>,
    /// Whether the packet as it arrived enters ingress again, with `Context::resubmit_fields`.
    pub resubmit: bool,
    pub forward: Forward,
    /// Limit on the packet's length at egress and on the wire (`truncate`).
    pub truncate_bytes: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forward {
    /// The packet is dropped. The engine has counted it with the reason.
    Drop,
    Unicast {
        port: u16,
        priority: u8,
    },
    /// A copy goes to each replica of the group, in the group's order.
    Multicast {
        group: u16,
    },
}

/// Metadata of a packet that leaves its queue.
#[derive(Debug, Clone, Copy)]
pub struct Departure {
    pub port: u16,
    pub now_us: u64,
    pub enqueued_us: u64,
    /// Other packets in the queue when the packet was enqueued.
    pub enqueued_depth: u32,
    /// Other packets in the queue when the packet was dequeued.
    pub dequeued_depth: u32,
}

/// The result of egress. The shell first clones, then drops, recirculates or sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Emission {
    /// The clone session. The clone (`Engine::copy` with `EgressClone`) enters egress.
    pub clone: Option<u16>,
    /// Whether the deparsed packet enters ingress again, with `Context::resubmit_fields`.
    pub recirculate: bool,
    /// Whether the packet is dropped. The engine has counted it with the reason.
    pub drop: bool,
    /// `Context::headers()` replace the first `replaced` bytes of the packet.
    pub replaced: u32,
    /// Limit on the length of headers and payload.
    pub truncate_bytes: Option<u32>,
}

/// The functions of the environment that a program uses.
pub trait Shell {
    /// A uniformly distributed number of 64 bits.
    fn random(&mut self) -> u64;
    /// A uniformly distributed number of 32 bits.
    fn random_u32(&mut self) -> u32 {
        (self.random() >> 32) as u32
    }
    /// Sends a digest: the values of its fields, each in whole bytes, big endian.
    fn digest(&mut self, id: u32, values: &[u8]);
    /// Logs a message.
    fn log(&mut self, message: &str, values: &[i128]);
    /// Reports a failed assert or assume.
    fn failed(&mut self, message: &str);
    /// More of a packet of which the engine got only the first bytes: all, or at least `Engine::lookahead_bytes`. They
    /// begin with the bytes that the engine got, with the checksum completed. The engine calls it at most once for a
    /// packet, if the parser needs it.
    fn extend<'a>(&mut self, packet: &'a [u8]) -> &'a [u8] {
        packet
    }
    /// The completed checksum of a packet with `Arrival::checksum`.
    fn checksum(&mut self) -> u16 {
        0
    }
}
