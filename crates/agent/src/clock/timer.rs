// SPDX-License-Identifier: Apache-2.0
//! The timer for the first deadline of the agenda.

use crate::clock::lab_clock::TimeScale;
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

/// An absolute timerfd with nanosecond resolution. It is watched edge-triggered, so it is never read.
pub struct Timer {
    pub descriptor: TimerFd,
    scale: TimeScale,
    armed_ns: Option<u64>,
    fired: bool,
}

impl Timer {
    pub fn new(scale: TimeScale) -> nix::Result<Self> {
        let descriptor =
            TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK)?;
        Ok(Self { descriptor, scale, armed_ns: None, fired: false })
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
        let time = std::time::Duration::from_nanos(self.scale.to_monotonic_ns(time_ns).max(1));
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
