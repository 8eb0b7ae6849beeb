// SPDX-License-Identifier: Apache-2.0
//! A flow of the module `qrate`: the state of its local ends, and its record.

use crate::netlink::rate::FlowState;
use crate::results::flow_samples::Values;
use crate::results::flows::{FlowRecord, SenderCounters, Status};
use crate::workload::ports::LocalFlow;
use crate::world::World;

pub struct Flow {
    pub local: LocalFlow,
    pub payload_bytes: u32,
    pub start_ns: i64,
    /// State of the local ends, read at window bounds and at the end of the lab.
    pub sender: Option<FlowState>,
    pub receiver: Option<FlowState>,
    pub error: Option<Box<str>>,
}

impl Flow {
    pub fn new(local: LocalFlow, payload_bytes: u32) -> Self {
        Self { local, payload_bytes, start_ns: 0, sender: None, receiver: None, error: None }
    }

    /// A flow with a size is complete when its receiver has all bytes, a flow without when its sender has stopped. If
    /// an end is remote, the other agent's record has its state.
    fn status(&self) -> Status {
        let size = self.local.spec.size_bytes;
        let received = || self.receiver.is_some_and(|end| Some(end.received_bytes) == size);
        let stopped = || self.sender.is_some_and(|end| end.ended);
        match (&self.error, size) {
            (Some(_), _) => Status::Failed,
            (None, Some(_)) if received() => Status::Complete,
            (None, None) if stopped() => Status::Complete,
            _ => Status::Running,
        }
    }

    pub fn record<'a>(&'a self, world: &World<'a>) -> FlowRecord<'a> {
        let plan = world.plan;
        let (status, sender) = (self.status(), self.sender.unwrap_or_default());
        // The end of a flow without a size is known at its sender only.
        let ended = status == Status::Complete || !self.local.sends && self.local.spec.size_bytes.is_none();
        let end_ns = self.receiver.and_then(|end| end.end_ns).filter(|_| ended);
        let controller = plan.nodes[self.local.spec.src].controller.as_ref();
        FlowRecord {
            congestion_control: controller.map(|controller| controller.name.as_str()),
            end_ns: end_ns.map(|end_ns| world.since_epoch(end_ns)),
            received_bytes: self.receiver.map_or(0, |end| end.received_bytes),
            sent_bytes: sender.sent_bytes,
            status,
            error: self.error.as_deref().map(str::to_owned),
            counters: sender.into(),
            segments_received: self.receiver.map(|end| end.received_packets),
            ..FlowRecord::new(plan, &self.local, self.start_ns)
        }
    }
}

impl From<FlowState> for SenderCounters {
    fn from(sender: FlowState) -> Self {
        Self {
            retransmits: sender.lost_packets.try_into().unwrap_or(u32::MAX),
            timeouts: sender.timeouts.try_into().unwrap_or(u16::MAX),
            segments_sent: sender.sent_packets,
            min_rtt_ns: sender.min_rtt_ns,
            rtt_ns: sender.rtt_ns,
            ..Self::default()
        }
    }
}

/// The values of a flow sample. `has_signal`: whether the flow's controller uses a signal of switches.
pub fn sample_values(sender: &FlowState, has_signal: bool) -> Values {
    [
        Some(sender.rate_bps),
        sender.rtt_ns,
        sender.min_rtt_ns,
        sender.signal.filter(|_| has_signal),
        Some(sender.feedbacks),
        Some(sender.sent_bytes),
        Some(sender.acked_bytes),
        Some(sender.inflight_bytes),
        Some(sender.lost_packets),
        Some(sender.timeouts.into()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::schedule::FlowSpec;

    fn flow(size_bytes: Option<u64>, received_bytes: u64, ended: bool) -> Flow {
        let spec = FlowSpec { workload: 0, src: 0, dst: 2, size_bytes, start_ns: 0, stop_ns: None };
        Flow {
            sender: Some(FlowState { ended, ..FlowState::default() }),
            receiver: Some(FlowState { received_bytes, ..FlowState::default() }),
            ..Flow::new(LocalFlow { id: 0, spec, sends: true, receives: true, src_port: 21_000 }, 1384)
        }
    }

    #[test]
    fn a_flow_is_complete_when_its_bytes_have_arrived_or_its_sender_has_stopped() {
        for (size, received, ended, status) in [
            (Some(10), 9, false, Status::Running),
            // The last acknowledgement may be in flight.
            (Some(10), 10, false, Status::Complete),
            // Ended early by the workload's stop.
            (Some(10), 9, true, Status::Running),
            (None, 9, false, Status::Running),
            (None, 9, true, Status::Complete),
        ] {
            assert_eq!(flow(size, received, ended).status(), status, "{size:?} {received} {ended}");
        }
    }

    #[test]
    fn a_flow_that_could_not_start_has_failed() {
        let failed = Flow { error: Some("no route".into()), ..flow(Some(10), 10, true) };
        assert_eq!(failed.status(), Status::Failed);
    }
}
