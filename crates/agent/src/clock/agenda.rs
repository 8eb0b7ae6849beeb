// SPDX-License-Identifier: Apache-2.0
//! What has to happen when: a heap of deadlines behind one timer.

use crate::world::Paper;
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Numbers are indexes of flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    TcpConnect(u32),
    TcpBegin(u32),
    TcpStop(u32),
    UdpSend(u32),
    UdpDrain,
    DrainTaps,
    SampleFlows,
    DrainCaptures,
    Progress(u32),
    /// Of a node: its next program is started, or waited for.
    StartPrograms(u32),
    CheckForwarding,
    /// Number: of the plan's events.
    Link(u32),
    /// Number: of a process that was asked to end.
    Kill(u32),
    /// Ends `Engine::run`.
    Alarm,
}

/// Times are nanoseconds of CLOCK_MONOTONIC. At one instant, actions keep the order in which they were added.
#[derive(Default)]
pub struct Agenda {
    heap: BinaryHeap<Reverse<(u64, u64, Action)>>,
    added: u64,
}

impl Agenda {
    pub fn add(&mut self, time_ns: u64, action: Action) {
        self.added += 1;
        self.heap.push(Reverse((time_ns, self.added, action)));
    }

    pub fn next_ns(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse(first)| first.0)
    }

    /// The next action that is due at `now_ns`, with its own time.
    pub fn take_due(&mut self, now_ns: u64) -> Option<(u64, Action)> {
        if self.next_ns()? > now_ns {
            return None;
        }
        self.heap.pop().map(|Reverse((time_ns, _, action))| (time_ns, action))
    }
}

/// An absolute timer, exact to the nanosecond. Watched edge-triggered, it never has to be read.
pub struct Timer {
    pub descriptor: TimerFd,
    paper: Paper,
    armed_ns: Option<u64>,
    fired: bool,
}

impl Timer {
    pub fn new(paper: Paper) -> nix::Result<Self> {
        let descriptor =
            TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK)?;
        Ok(Self { descriptor, paper, armed_ns: None, fired: false })
    }

    pub fn arm(&mut self, time_ns: Option<u64>) -> nix::Result<()> {
        if time_ns == self.armed_ns {
            return Ok(());
        }
        self.armed_ns = time_ns;
        let Some(time_ns) = time_ns else {
            return self.descriptor.unset();
        };
        // Zero would disarm the timer.
        let time = std::time::Duration::from_nanos(self.paper.to_monotonic(time_ns).max(1));
        let at = Expiration::OneShot(TimeSpec::from_duration(time));
        self.descriptor.set(at, TimerSetTimeFlags::TFD_TIMER_ABSTIME)
    }

    /// To be called when the timer has fired.
    pub fn on_fired(&mut self) {
        self.armed_ns = None;
        self.fired = true;
    }

    /// Whether it has fired since the last call.
    pub fn take_fired(&mut self) -> bool {
        std::mem::take(&mut self.fired)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn actions_of_one_instant_keep_their_order() {
        let mut agenda = Agenda::default();
        agenda.add(5, Action::TcpConnect(2));
        agenda.add(5, Action::TcpConnect(1));
        agenda.add(4, Action::Alarm);
        let due: Vec<_> = std::iter::from_fn(|| agenda.take_due(5)).collect();
        assert_eq!(due, [(4, Action::Alarm), (5, Action::TcpConnect(2)), (5, Action::TcpConnect(1))]);
    }

    proptest! {
        #[test]
        fn nothing_happens_before_its_time(times in prop::collection::vec(0u64..100, 0..50), now in 0u64..100) {
            let mut agenda = Agenda::default();
            times.iter().for_each(|time| agenda.add(*time, Action::SampleFlows));
            let due: Vec<u64> = std::iter::from_fn(|| agenda.take_due(now)).map(|(time, _)| time).collect();
            prop_assert!(due.windows(2).all(|pair| pair[0] <= pair[1]));
            prop_assert_eq!(due.len(), times.iter().filter(|time| **time <= now).count());
        }
    }
}
