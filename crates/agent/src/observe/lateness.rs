// SPDX-License-Identifier: Apache-2.0
//! Lateness of deadlines on the wall clock, in real time: measured by a guest's kernel, or on the host's kernel by the
//! agent.

use crate::failure::{Context, Result};
use crate::results::files;
use crate::world::World;
use serde::Serialize;
use std::io::Write;

/// Bin i counts deadlines that were late by less than 2^i ns.
const BINS: usize = 40;
const KERNEL: &str = "/sys/module/wall/parameters";

#[derive(Default)]
pub struct Lateness {
    bins: Vec<u64>,
    max_ns: u64,
}

/// Lateness in real nanoseconds. Percentiles are interpolated linearly within a bin.
#[derive(Debug, Serialize, PartialEq, Eq)]
pub struct Summary {
    max: u64,
    p99: u64,
    p50: u64,
    events: u64,
}

impl Lateness {
    /// Records how late a deadline was, in lab time.
    pub fn record(&mut self, late_ns: u64) {
        self.bins.resize(BINS, 0);
        self.max_ns = self.max_ns.max(late_ns);
        self.bins[(64 - late_ns.leading_zeros() as usize).min(BINS - 1)] += 1;
    }

    /// Discards the lateness of the set-up: a guest starts late and catches up.
    pub fn reset(&mut self) -> Result<()> {
        *self = Self::default();
        if std::path::Path::new(KERNEL).exists() {
            let context = || KERNEL.to_owned();
            std::fs::write(format!("{KERNEL}/late"), vec!["0"; BINS].join(",")).with_context(context)?;
            std::fs::write(format!("{KERNEL}/late_max"), "0").with_context(context)?;
        }
        Ok(())
    }

    /// The lateness since `reset`.
    pub fn read(&self, world: &World<'_>) -> Summary {
        read_kernel().unwrap_or_else(|| {
            let dilation = u64::from(world.clock.scale.dilation);
            let late = summary(&self.bins, self.max_ns);
            Summary { max: late.max * dilation, p99: late.p99 * dilation, p50: late.p50 * dilation, ..late }
        })
    }

    /// Writes `out/late.json` on the wall clock.
    pub fn write(&self, world: &World<'_>) -> Result<()> {
        if !world.placement.on_wall_clock() {
            return Ok(());
        }
        let late = self.read(world);
        let mut file = files::create("late.json")?;
        files::write_line(&mut file, &late)
            .and_then(|()| file.flush())
            .with_context(|| "out/late.json".into())
    }
}

fn read_kernel() -> Option<Summary> {
    let read = |name: &str| std::fs::read_to_string(format!("{KERNEL}/{name}")).ok();
    let bins: Vec<u64> = read("late")?.trim().split(',').filter_map(|bin| bin.parse().ok()).collect();
    Some(summary(&bins, read("late_max")?.trim().parse().ok()?))
}

fn summary(bins: &[u64], max: u64) -> Summary {
    let events: u64 = bins.iter().sum();
    let percentile = |percent: u64| {
        let rank = (events * percent).div_ceil(100);
        let mut before = 0;
        for (bin, &count) in bins.iter().enumerate() {
            if count > 0 && before + count >= rank {
                let (low, high) = ((1u64 << bin) >> 1, (1u64 << bin).min(max));
                return low + high.saturating_sub(low) * (rank - before) / count;
            }
            before += count;
        }
        0
    };
    Summary { max, p99: percentile(99), p50: percentile(50), events }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_interpolated_within_bins() {
        let mut late = Lateness::default();
        (0..98).for_each(|_| late.record(100));
        late.record(5_000);
        late.record(70_000);
        assert_eq!(
            summary(&late.bins, late.max_ns),
            Summary { max: 70_000, p99: 8_192, p50: 96, events: 100 }
        );
        assert_eq!(summary(&[], 0), Summary { max: 0, p99: 0, p50: 0, events: 0 });
    }
}
