// SPDX-License-Identifier: Apache-2.0
//! The lab clock: lab time as a linear function of the machine's CLOCK_MONOTONIC.

use crate::clock::page::ClockPage;
use nix::time::{clock_gettime, ClockId};
use std::cell::Cell;
use std::os::fd::AsFd;

/// Maps CLOCK_MONOTONIC to lab time (docs/formats.md §5): `(monotonic - origin) / dilation`. In a guest the mapping is
/// the identity, because the guest's kernel scales its clocks.
#[derive(Debug, Clone, Copy)]
pub struct TimeScale {
    pub origin_ns: i64,
    pub dilation: u32,
}

impl TimeScale {
    pub const IDENTITY: Self = Self { origin_ns: 0, dilation: 1 };

    pub fn to_lab_ns(self, monotonic_ns: u64) -> u64 {
        u64::try_from(monotonic_ns as i64 - self.origin_ns).unwrap_or(0) / u64::from(self.dilation)
    }

    pub fn to_monotonic_ns(self, lab_ns: u64) -> u64 {
        let real_ns = i128::from(lab_ns) * i128::from(self.dilation) + i128::from(self.origin_ns);
        u64::try_from(real_ns.max(0)).unwrap_or(u64::MAX)
    }
}

const READINGS_MAX: usize = 8;

/// Lab time, read at most once between two waits: the work of PID 1 takes no virtual time.
pub struct Clock {
    pub scale: TimeScale,
    cached_ns: Cell<Option<u64>>,
    realtime_offset_ns: u64,
    /// Replaces the system call in virtual time.
    page: Option<ClockPage>,
}

impl Clock {
    pub fn new(scale: TimeScale) -> nix::Result<Self> {
        Ok(Self { scale, cached_ns: Cell::new(None), realtime_offset_ns: realtime_offset_ns()?, page: None })
    }

    /// Reads the clock from the guest's page from now on, if the gate has one.
    pub fn map_page(&mut self, gate: impl AsFd) {
        self.page = ClockPage::map(gate).ok();
    }

    /// Whether the page and the kernel have the same time.
    pub fn page_is_consistent(&self) -> bool {
        self.page.as_ref().is_none_or(|page| page.read_ns() == monotonic_ns())
    }

    pub fn now_ns(&self) -> u64 {
        self.cached_ns.get().unwrap_or_else(|| {
            let now_ns =
                self.scale.to_lab_ns(self.page.as_ref().map_or_else(monotonic_ns, ClockPage::read_ns));
            self.cached_ns.set(Some(now_ns));
            now_ns
        })
    }

    /// Discards the cached time. To be called after each wait.
    pub fn invalidate(&self) {
        self.cached_ns.set(None);
    }

    /// Converts a packet's timestamp (CLOCK_REALTIME) to lab time.
    pub fn timestamp_to_lab_ns(&self, realtime_ns: u64) -> u64 {
        self.scale.to_lab_ns(realtime_ns.wrapping_sub(self.realtime_offset_ns))
    }
}

/// Offset of CLOCK_REALTIME from CLOCK_MONOTONIC. The thread may be preempted between the two readings, so the closest
/// of several pairs is used. In virtual time the first pair is exact.
fn realtime_offset_ns() -> nix::Result<u64> {
    let reading = || -> nix::Result<(u64, u64)> {
        let before_ns = read_ns(ClockId::CLOCK_MONOTONIC)?;
        let realtime_ns = read_ns(ClockId::CLOCK_REALTIME)?;
        let distance_ns = read_ns(ClockId::CLOCK_MONOTONIC)? - before_ns;
        Ok((distance_ns, realtime_ns.wrapping_sub(before_ns + distance_ns / 2)))
    };
    let mut closest = reading()?;
    for _ in 1..READINGS_MAX {
        if closest.0 == 0 {
            break;
        }
        closest = closest.min(reading()?);
    }
    Ok(closest.1)
}

fn monotonic_ns() -> u64 {
    read_ns(ClockId::CLOCK_MONOTONIC).expect("Linux has CLOCK_MONOTONIC")
}

fn read_ns(clock: ClockId) -> nix::Result<u64> {
    let time = clock_gettime(clock)?;
    Ok(time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
}

#[cfg(test)]
mod tests {
    use super::TimeScale;

    #[test]
    fn lab_time_starts_at_the_origin_and_is_scaled_by_the_dilation() {
        let scale = TimeScale { origin_ns: 1_000, dilation: 50 };
        assert_eq!((scale.to_lab_ns(999), scale.to_lab_ns(1_000), scale.to_lab_ns(1_250)), (0, 0, 5));
        assert_eq!(scale.to_monotonic_ns(5), 1_250);
        assert_eq!(TimeScale { origin_ns: -300, dilation: 2 }.to_monotonic_ns(5), 0);
        assert_eq!((TimeScale::IDENTITY.to_lab_ns(7), TimeScale::IDENTITY.to_monotonic_ns(7)), (7, 7));
    }
}
