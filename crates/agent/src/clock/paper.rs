// SPDX-License-Identifier: Apache-2.0
//! The lab's clock: paper time, as a function of the machine's.

use crate::clock::page::Page;
use nix::time::{clock_gettime, ClockId};
use std::cell::Cell;
use std::os::fd::AsFd;

/// Paper time as a function of CLOCK_MONOTONIC (docs/formats.md §5): the same in a guest, whose kernel sees to it.
#[derive(Debug, Clone, Copy)]
pub struct Paper {
    pub origin_ns: i64,
    pub dilation: u32,
}

impl Paper {
    pub const GUEST: Self = Self { origin_ns: 0, dilation: 1 };

    pub fn at_monotonic(self, monotonic_ns: u64) -> u64 {
        u64::try_from(monotonic_ns as i64 - self.origin_ns).unwrap_or(0) / u64::from(self.dilation)
    }

    pub fn to_monotonic(self, paper_ns: u64) -> u64 {
        let real_ns = i128::from(paper_ns) * i128::from(self.dilation) + i128::from(self.origin_ns);
        u64::try_from(real_ns.max(0)).unwrap_or(u64::MAX)
    }
}

const READINGS: usize = 8;

/// CLOCK_MONOTONIC, read at most once between two waits: PID 1's own work takes no virtual time.
pub struct Clock {
    pub paper: Paper,
    cached_ns: Cell<Option<u64>>,
    realtime_offset_ns: u64,
    /// The same without a system call, where virtual time is all there is.
    page: Option<Page>,
}

impl Clock {
    pub fn new(paper: Paper) -> nix::Result<Self> {
        Ok(Self { paper, cached_ns: Cell::new(None), realtime_offset_ns: realtime_offset_ns()?, page: None })
    }

    /// From now on it is read from the guest's page, if the gate has one.
    pub fn map(&mut self, gate: impl AsFd) {
        self.page = Page::map(gate).ok();
    }

    /// Whether the page says what the kernel does.
    pub fn is_true(&self) -> bool {
        self.page.as_ref().is_none_or(|page| page.read_ns() == monotonic_ns())
    }

    pub fn now_ns(&self) -> u64 {
        self.cached_ns.get().unwrap_or_else(|| {
            let now_ns = self.paper.at_monotonic(self.page.as_ref().map_or_else(monotonic_ns, Page::read_ns));
            self.cached_ns.set(Some(now_ns));
            now_ns
        })
    }

    /// To be called when the thread has waited, so that the clock is read again.
    pub fn time_has_passed(&self) {
        self.cached_ns.set(None);
    }

    /// Of a packet's time stamp (CLOCK_REALTIME).
    pub fn at_stamp(&self, realtime_ns: u64) -> u64 {
        self.paper.at_monotonic(realtime_ns.wrapping_sub(self.realtime_offset_ns))
    }
}

/// On a busy machine the thread may wait between two readings: of some, those that are closest together. In virtual
/// time the first are.
fn realtime_offset_ns() -> nix::Result<u64> {
    let reading = || -> nix::Result<(u64, u64)> {
        let before_ns = read_ns(ClockId::CLOCK_MONOTONIC)?;
        let realtime_ns = read_ns(ClockId::CLOCK_REALTIME)?;
        let apart_ns = read_ns(ClockId::CLOCK_MONOTONIC)? - before_ns;
        Ok((apart_ns, realtime_ns.wrapping_sub(before_ns + apart_ns / 2)))
    };
    let mut closest = reading()?;
    for _ in 1..READINGS {
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
    use super::Paper;

    #[test]
    fn paper_time_is_slower_by_its_dilation_and_begins_at_its_origin() {
        let paper = Paper { origin_ns: 1_000, dilation: 50 };
        assert_eq!(
            (paper.at_monotonic(999), paper.at_monotonic(1_000), paper.at_monotonic(1_250)),
            (0, 0, 5)
        );
        assert_eq!(paper.to_monotonic(5), 1_250);
        assert_eq!(Paper { origin_ns: -300, dilation: 2 }.to_monotonic(5), 0);
        assert_eq!((Paper::GUEST.at_monotonic(7), Paper::GUEST.to_monotonic(7)), (7, 7));
    }
}
