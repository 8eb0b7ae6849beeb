// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! The two rate three color marker of RFC 2698, color-blind, with time in us.

use crate::control::Rates;

const US_PER_S: u64 = 1_000_000;

/// A meter. A token is a millionth of a unit (a byte or a packet): a rate of one unit per second adds one per
/// microsecond.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Meter {
    rates: Rates,
    committed: u64,
    peak: u64,
    filled_us: Option<u64>,
}

pub(crate) const GREEN: u64 = 0;
pub(crate) const YELLOW: u64 = 1;
pub(crate) const RED: u64 = 2;

impl Meter {
    /// A meter with full buckets (RFC 2698 section 3).
    pub fn new(rates: Rates) -> Meter {
        let (committed, peak) = (tokens(rates.committed_burst), tokens(rates.peak_burst));
        Meter { rates, committed, peak, filled_us: None }
    }

    pub fn rates(&self) -> Rates {
        self.rates
    }

    pub fn execute(&mut self, now_us: u64, units: u64) -> u64 {
        let elapsed_us = now_us.saturating_sub(self.filled_us.unwrap_or(now_us));
        self.filled_us = Some(self.filled_us.map_or(now_us, |filled_us| filled_us.max(now_us)));
        let fill = |bucket: u64, rate: u64, burst: u64| {
            bucket.saturating_add(elapsed_us.saturating_mul(rate)).min(tokens(burst))
        };
        self.committed = fill(self.committed, self.rates.committed, self.rates.committed_burst);
        self.peak = fill(self.peak, self.rates.peak, self.rates.peak_burst);
        let needed = tokens(units);
        if self.peak < needed {
            return RED;
        }
        self.peak -= needed;
        if self.committed < needed {
            return YELLOW;
        }
        self.committed -= needed;
        GREEN
    }
}

fn tokens(units: u64) -> u64 {
    units.saturating_mul(US_PER_S)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meter() -> Meter {
        Meter::new(Rates { committed: 1000, committed_burst: 2, peak: 2000, peak_burst: 4 })
    }

    #[test]
    fn a_burst_is_green_then_yellow_then_red() {
        let mut meter = meter();
        let colors = [0; 6].map(|now_us| meter.execute(now_us, 1));
        assert_eq!(colors, [GREEN, GREEN, YELLOW, YELLOW, RED, RED]);
    }

    #[test]
    fn tokens_refill_by_rate_up_to_the_burst() {
        let mut meter = meter();
        let _ = [0; 6].map(|now_us| meter.execute(now_us, 1));
        assert_eq!(meter.execute(499, 1), RED);
        assert_eq!(meter.execute(500, 1), YELLOW); // One peak token, half a committed token.
        assert_eq!(meter.execute(1000, 1), GREEN);
        let colors = [1_000_000; 5].map(|now_us| meter.execute(now_us, 1));
        assert_eq!(colors, [GREEN, GREEN, YELLOW, YELLOW, RED]);
    }

    #[test]
    fn time_that_decreases_adds_no_tokens() {
        let mut meter = meter();
        let _ = [10_000; 4].map(|now_us| meter.execute(now_us, 1));
        assert_eq!(meter.execute(0, 1), RED);
        assert_eq!(meter.execute(10_000, 1), RED);
    }

    #[test]
    fn the_largest_numbers_do_not_overflow() {
        let rates =
            Rates { committed: u64::MAX, committed_burst: u64::MAX, peak: u64::MAX, peak_burst: u64::MAX };
        let mut meter = Meter::new(rates);
        assert_eq!(meter.execute(u64::MAX, 1500), GREEN);
        assert_eq!(meter.execute(0, u64::MAX), YELLOW + 1);
    }
}
