// SPDX-License-Identifier: Apache-2.0
//! A TCP flow: its two sockets and the state of its sender.

use crate::results::flows::{FlowRecord, SenderCounters, Status};
use crate::socket::{self, PATTERN_MAX};
use crate::transport::tcp::watermark::Watermark;
use crate::workload::ports::LocalFlow;
use crate::world::World;
use std::io;
use std::os::fd::OwnedFd;

pub struct Flow {
    pub local: LocalFlow,
    pub sender: Option<OwnedFd>,
    pub receiver: Option<Receiver>,
    pub phase: Phase,
    sent_bytes: u64,
    received_bytes: u64,
    pub start_ns: i64,
    pub connected_ns: Option<i64>,
    pub end_ns: Option<i64>,
    pub counters: SenderCounters,
    pub error: Option<Box<str>>,
}

pub struct Receiver {
    pub socket: OwnedFd,
    pub watermark: Watermark,
}

/// State of the sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Before the flow's start; may be connected already.
    Waiting,
    Sending,
    /// All bytes are in the send buffer, or the flow was stopped.
    Finished,
}

impl Flow {
    pub fn new(local: LocalFlow) -> Self {
        Self {
            local,
            sender: None,
            receiver: None,
            phase: Phase::Waiting,
            sent_bytes: 0,
            received_bytes: 0,
            start_ns: 0,
            connected_ns: None,
            end_ns: None,
            counters: SenderCounters::default(),
            error: None,
        }
    }

    /// Bytes that the receiver has not read yet; None for a flow without a size.
    pub fn remaining(&self) -> Option<u64> {
        self.local.spec.size_bytes.map(|size| size - self.received_bytes)
    }

    pub fn status(&self) -> Status {
        match (&self.error, self.end_ns) {
            (Some(_), _) => Status::Failed,
            (None, Some(_)) => Status::Complete,
            (None, None) => Status::Running,
        }
    }

    /// Reads the receiver's pending bytes.
    pub fn receive(&mut self, world: &World<'_>) -> io::Result<()> {
        let Some(receiver) = &mut self.receiver else { return Ok(()) };
        let Some(length) = socket::discard(&receiver.socket)? else { return Ok(()) };
        self.received_bytes += length as u64;
        let remaining = self.local.spec.size_bytes.map(|size| size - self.received_bytes);
        let ended = length == 0;
        if remaining == Some(0) || (ended && remaining.is_none()) {
            self.end_ns = Some(world.now_since_epoch());
        }
        // If the stream of a flow with a size ends early, the flow was stopped: its end time stays None.
        if ended || remaining == Some(0) {
            self.receiver = None;
            return Ok(());
        }
        receiver.watermark.adapt(&receiver.socket, remaining)
    }

    /// Bytes that have arrived in order, read or not.
    pub fn received_bytes(&self) -> io::Result<u64> {
        let unread =
            self.receiver.as_ref().map_or(Ok(0), |receiver| socket::unread_bytes(&receiver.socket))?;
        Ok(self.received_bytes + unread)
    }

    /// Fills the send buffer.
    pub fn send(&mut self) -> io::Result<()> {
        let Some(sender) = &self.sender else { return Ok(()) };
        loop {
            let left = self.local.spec.size_bytes.map_or(u64::MAX, |size| size - self.sent_bytes);
            if left == 0 {
                self.phase = Phase::Finished;
                return Ok(());
            }
            let length = left.min(PATTERN_MAX as u64) as usize;
            let Some(accepted) = socket::send_pattern(sender, length, left > length as u64)? else {
                return Ok(());
            };
            self.sent_bytes += accepted as u64;
            if accepted < length {
                return Ok(());
            }
        }
    }

    pub fn record<'a>(&'a self, world: &World<'a>, control: Option<&'a str>) -> FlowRecord<'a> {
        FlowRecord {
            congestion_control: control,
            connected_ns: self.connected_ns,
            end_ns: self.end_ns,
            received_bytes: self.received_bytes,
            sent_bytes: self.sent_bytes,
            status: self.status(),
            error: self.error.as_deref().map(str::to_owned),
            counters: self.counters,
            ..FlowRecord::new(world.plan, &self.local, self.start_ns)
        }
    }
}
