// SPDX-License-Identifier: Apache-2.0
//! By how much real time deadlines ran late on the wall clock: of a guest its kernel knows, on the host's kernel the agent.

use crate::failure::{Of, Result};
use crate::results::files;
use crate::world::World;
use serde::Serialize;
use std::io::Write;

/// How many deadlines were late by less than 2^i ns.
const BINS: usize = 40;
const KERNEL: &str = "/sys/module/wall/parameters";

#[derive(Default)]
pub struct Lateness {
    bins: Vec<u64>,
    max_ns: u64,
}

/// Real nanoseconds; within a bin those that were late count as evenly spread.
#[derive(Debug, Serialize, PartialEq, Eq)]
pub struct Late {
    max: u64,
    p99: u64,
    p50: u64,
    events: u64,
}

impl Lateness {
    pub fn count(&mut self, paper_ns: u64) {
        self.bins.resize(BINS, 0);
        self.max_ns = self.max_ns.max(paper_ns);
        self.bins[(64 - paper_ns.leading_zeros() as usize).min(BINS - 1)] += 1;
    }

    /// Forgets what was before the lab was ready: a guest begins late and catches up.
    pub fn reset(&mut self) -> Result<()> {
        *self = Self::default();
        if std::path::Path::new(KERNEL).exists() {
            let here = || KERNEL.to_owned();
            std::fs::write(format!("{KERNEL}/late"), vec!["0"; BINS].join(",")).of(here)?;
            std::fs::write(format!("{KERNEL}/late_max"), "0").of(here)?;
        }
        Ok(())
    }

    /// By how much deadlines ran late since `reset`.
    pub fn read(&self, world: &World<'_>) -> Late {
        read_kernel().unwrap_or_else(|| {
            let dilation = u64::from(world.clock.paper.dilation);
            let late = summary(&self.bins, self.max_ns);
            Late { max: late.max * dilation, p99: late.p99 * dilation, p50: late.p50 * dilation, ..late }
        })
    }

    /// `out/late.json`, where there is a wall clock.
    pub fn write(&self, world: &World<'_>) -> Result<()> {
        if !world.scope.on_wall_clock() {
            return Ok(());
        }
        let late = self.read(world);
        let mut file = files::create("late.json")?;
        files::line(&mut file, &late).and_then(|()| file.flush()).of(|| "out/late.json".into())
    }
}

fn read_kernel() -> Option<Late> {
    let read = |name: &str| std::fs::read_to_string(format!("{KERNEL}/{name}")).ok();
    let bins: Vec<u64> = read("late")?.trim().split(',').filter_map(|bin| bin.parse().ok()).collect();
    Some(summary(&bins, read("late_max")?.trim().parse().ok()?))
}

fn summary(bins: &[u64], max: u64) -> Late {
    let events: u64 = bins.iter().sum();
    let percentile = |percent: u64| {
        let wanted = (events * percent).div_ceil(100);
        let mut before = 0;
        for (bin, &count) in bins.iter().enumerate() {
            if count > 0 && before + count >= wanted {
                let (low, high) = ((1u64 << bin) >> 1, (1u64 << bin).min(max));
                return low + high.saturating_sub(low) * (wanted - before) / count;
            }
            before += count;
        }
        0
    };
    Late { max, p99: percentile(99), p50: percentile(50), events }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_count_into_their_bins() {
        let mut late = Lateness::default();
        (0..98).for_each(|_| late.count(100));
        late.count(5_000);
        late.count(70_000);
        assert_eq!(summary(&late.bins, late.max_ns), Late { max: 70_000, p99: 8_192, p50: 96, events: 100 });
        assert_eq!(summary(&[], 0), Late { max: 0, p99: 0, p50: 0, events: 0 });
    }
}
