// SPDX-License-Identifier: Apache-2.0
//! One flow: its two sockets, and what they may do.

use crate::results::flows::{FlowRecord, Status, Tally};
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
    pub tally: Tally,
    pub error: Option<Box<str>>,
}

pub struct Receiver {
    pub socket: OwnedFd,
    pub watermark: Watermark,
}

/// What the sender may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Connecting or connected ahead of its start.
    Early,
    Sending,
    /// Everything is offered, or its time is over.
    Quiet,
}

impl Flow {
    pub fn new(local: LocalFlow) -> Self {
        Self {
            local,
            sender: None,
            receiver: None,
            phase: Phase::Early,
            sent_bytes: 0,
            received_bytes: 0,
            start_ns: 0,
            connected_ns: None,
            end_ns: None,
            tally: Tally::default(),
            error: None,
        }
    }

    /// Bytes that the receiver still lacks; None: nobody knows.
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

    /// Takes what the receiver holds.
    pub fn take(&mut self, world: &World<'_>) -> io::Result<()> {
        let Some(receiver) = &mut self.receiver else { return Ok(()) };
        let Some(length) = socket::discard(&receiver.socket)? else { return Ok(()) };
        self.received_bytes += length as u64;
        let remaining = self.local.spec.size_bytes.map(|size| size - self.received_bytes);
        let ended = length == 0;
        if remaining == Some(0) || (ended && remaining.is_none()) {
            self.end_ns = Some(world.now_since_epoch());
        }
        // A flow with a size whose stream ends early was stopped: it stays without an end.
        if ended || remaining == Some(0) {
            self.receiver = None;
            return Ok(());
        }
        receiver.watermark.adapt(&receiver.socket, remaining)
    }

    /// Bytes that have arrived in order, whether they were taken or not.
    pub fn received(&self) -> io::Result<u64> {
        let waiting = self.receiver.as_ref().map_or(Ok(0), |receiver| socket::waiting(&receiver.socket))?;
        Ok(self.received_bytes + waiting)
    }

    /// Fills the send buffer.
    pub fn offer(&mut self) -> io::Result<()> {
        let Some(sender) = &self.sender else { return Ok(()) };
        loop {
            let left = self.local.spec.size_bytes.map_or(u64::MAX, |size| size - self.sent_bytes);
            if left == 0 {
                self.phase = Phase::Quiet;
                return Ok(());
            }
            let length = left.min(PATTERN_MAX as u64) as usize;
            let Some(taken) = socket::send_pattern(sender, length, left > length as u64)? else {
                return Ok(());
            };
            self.sent_bytes += taken as u64;
            if taken < length {
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
            tally: self.tally,
            ..FlowRecord::new(world.plan, &self.local, self.start_ns)
        }
    }
}
