// SPDX-License-Identifier: Apache-2.0
//! What a node's container writes beside the node's results: what it cost (`out/host.json`), and what went wrong.

use crate::container::frames::{self, Frames};
use crate::container::interfaces;
use crate::failure::Result;
use crate::results::files::{folder, out};
use nix::sys::resource::{getrusage, UsageWho};
use nix::sys::time::TimeValLike;
use serde_json::{json, Value};
use std::fs;
use std::path::Path;
use std::time::Instant;

const CONSOLE_LINES: usize = 4;
/// /proc/stat counts in these.
const TICK_NS: u64 = 10_000_000;

/// Where a node's costs are counted from.
pub struct Start {
    begun: Instant,
    used: Used,
}

/// Since the machine or the process began, in ns.
#[derive(Clone, Copy)]
struct Used {
    cpu_ns: u64,
    steal_ns: u64,
}

impl Start {
    pub fn now() -> Self {
        Self { begun: Instant::now(), used: Used::now() }
    }

    /// Writes `out/host.json`, for what ran since. Of a node that `has_ended` it is the last word: with the offloads of
    /// its interfaces, and its own record of how late it ran.
    pub fn write(&self, frames: &Frames, interfaces: &[String], has_ended: bool) -> Result<()> {
        let used = Used::now();
        let mut late = frames.late_ns().clone();
        let mut counters = frames.counters(interfaces)?;
        if has_ended {
            let last = fs::read_to_string(out("late.json")).ok();
            late = last.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or(late);
            for (name, counted) in &mut counters {
                counted["offloads"] = json!(interfaces::offloads(name));
            }
        }
        let evidence = json!({
            "wall_ns": self.begun.elapsed().as_nanos() as u64,
            "cpu_ns": used.cpu_ns - self.used.cpu_ns,
            "steal_ns": used.steal_ns - self.used.steal_ns,
            "late_ns": late,
            "interfaces": counters,
        });
        frames::replace("host.json", &evidence)
    }
}

impl Used {
    /// Of all children that were waited for, and of the whole machine.
    fn now() -> Self {
        let cpu_ns = getrusage(UsageWho::RUSAGE_CHILDREN).map_or(0, |usage| {
            (usage.user_time().num_microseconds() + usage.system_time().num_microseconds()) as u64 * 1000
        });
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        Self { cpu_ns, steal_ns: steal_ns(&stat) }
    }
}

/// The eighth number of the first line of /proc/stat.
fn steal_ns(stat: &str) -> u64 {
    let first = stat.lines().next().unwrap_or_default();
    let ticks = first.split_whitespace().nth(8).and_then(|word| word.parse().ok());
    ticks.unwrap_or(0u64) * TICK_NS
}

/// What went wrong with the node that has ended.
pub fn failure() -> Option<String> {
    let done = fs::read_to_string(out("done.json")).ok();
    let done: Option<Value> = done.and_then(|text| serde_json::from_str(&text).ok());
    match done {
        Some(done) if done["status"] == "complete" => None,
        Some(done) => Some(done["error"].as_str().unwrap_or("failed").to_owned()),
        None => {
            let console = fs::read(Path::new(folder()).join("console.log")).unwrap_or_default();
            let said = last_lines(&String::from_utf8_lossy(&console));
            Some(format!("the node ended without a result; its console said last: {said}"))
        }
    }
}

fn last_lines(console: &str) -> String {
    let lines = console.lines().map(str::trim).filter(|line| !line.is_empty());
    let lines: Vec<&str> = lines.collect();
    lines[lines.len().saturating_sub(CONSOLE_LINES)..].join(" | ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_is_the_eighth_number() {
        assert_eq!(steal_ns("cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 0 0 0 0 0 0 0 77 0 0\n"), 80_000_000);
        assert_eq!(steal_ns(""), 0);
    }

    #[test]
    fn a_console_is_told_from_its_end() {
        assert_eq!(last_lines("a\nb \n\nc\nd\n  e\n\n"), "b | c | d | e");
        assert_eq!(last_lines("only\n"), "only");
    }
}
