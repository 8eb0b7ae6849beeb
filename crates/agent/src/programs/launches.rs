// SPDX-License-Identifier: Apache-2.0
//! Launches: programs that are workload. Each starts in its node at its time and writes to two output files; the
//! outcomes are in `programs.ndjson`.

use crate::failure::{Context, Failure, Result};
use crate::plan::Launch;
use crate::programs::exec::{self, LaunchContext, NodeContext};
use crate::programs::{log_excerpt, program_name};
use crate::results::files;
use crate::world::token::{Part, Topic};
use crate::world::World;
use nix::sys::signal::{killpg, Signal};
use nix::unistd::Pid;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;

const FILE: &str = "programs.ndjson";
/// Time between SIGTERM and SIGKILL (real time).
const KILL_DELAY_NS: u64 = 1_000_000_000;

/// Times are relative to the epoch. `status`: None while the program runs; 128 + N after signal N, as in a shell.
#[derive(Debug, Clone, Default, Serialize)]
struct Outcome {
    start_ns: Option<i64>,
    end_ns: Option<i64>,
    status: Option<i32>,
    /// Whether the agent has sent SIGTERM.
    stopped: bool,
}

#[derive(Serialize)]
struct Row<'a> {
    launch: usize,
    program: u32,
    label: &'a str,
    node: &'a str,
    argv: &'a [String],
    #[serde(flatten)]
    outcome: &'a Outcome,
}

/// The plan's launches. Topics count by their index in the plan.
pub struct Launches {
    starts: Topic,
    stops: Topic,
    kills: Topic,
    outcomes: Vec<Outcome>,
    /// Process id to launch.
    running: BTreeMap<i32, usize>,
    /// By launch: its process group, which may outlive the program.
    groups: BTreeMap<u32, i32>,
}

impl Launches {
    pub fn new(world: &mut World<'_>) -> Self {
        Self {
            starts: world.topic(Part::LaunchStarts),
            stops: world.topic(Part::LaunchStops),
            kills: world.topic(Part::LaunchKills),
            outcomes: vec![Outcome::default(); world.plan.launches.len()],
            running: BTreeMap::new(),
            groups: BTreeMap::new(),
        }
    }

    /// Schedules starts and stops. `base_ns` (CLOCK_MONOTONIC) is time 0 of the workloads.
    pub fn schedule(&self, world: &mut World<'_>, base_ns: u64) {
        let plan = world.plan;
        let local =
            plan.launches.iter().enumerate().filter(|(_, launch)| world.placement.is_local(launch.node));
        for (index, launch) in local.collect::<Vec<_>>() {
            let start_ns = base_ns.saturating_add_signed(launch.start_ns);
            world.agenda.add(start_ns, self.starts.at(index as u32));
            if let Some(stop_ns) = launch.stop_ns {
                world.agenda.add(base_ns.saturating_add(stop_ns), self.stops.at(index as u32));
            }
        }
    }

    pub fn start(&mut self, world: &World<'_>, index: u32) -> Result<()> {
        let index = index as usize;
        let launch = &world.plan.launches[index];
        let node = &world.plan.nodes[launch.node];
        world.lab.namespaces.enter(launch.node)?;
        let context = NodeContext {
            environment: &node.environment,
            view: &world.lab.views[launch.node],
            new_group: true,
        };
        let file = |stream| {
            let name = file_name(index, &node.name, stream);
            std::fs::File::create(files::out_path(&name)).with_context(|| format!("out/{name}"))
        };
        let settings = LaunchContext {
            environment: &launch.environment,
            folder: &launch.folder,
            stdout: file("stdout")?,
            stderr: file("stderr")?,
        };
        let outcome = &mut self.outcomes[index];
        outcome.start_ns = Some(world.now_since_epoch());
        match exec::spawn_launch(&launch.argv, &context, settings) {
            Ok(pid) => {
                self.running.insert(pid, index);
                self.groups.insert(index as u32, pid);
                Ok(())
            }
            Err(error) => {
                (outcome.end_ns, outcome.status) = (outcome.start_ns, Some(exec::EXIT_NOT_STARTED));
                Err(Failure::new(format!("node {}: {}: {error}", node.name, launch.label)))
            }
        }
    }

    /// Sends SIGTERM to a launch's process group.
    pub fn stop(&mut self, world: &mut World<'_>, index: u32) {
        let Some(group) = self.group(index) else { return };
        if self.running.contains_key(&group) {
            self.outcomes[index as usize].stopped = true;
        }
        if killpg(Pid::from_raw(group), Signal::SIGTERM).is_err() {
            return; // the group is empty
        }
        let delay_ns = world.placement.to_lab_ns(KILL_DELAY_NS);
        world.agenda.add(world.now_ns() + delay_ns, self.kills.at(index));
    }

    /// Sends SIGKILL to a launch's process group.
    pub fn kill(&self, index: u32) {
        if let Some(group) = self.group(index) {
            let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
        }
    }

    /// The process group of a launch. None if it was not started, or if its id belongs to another launch now.
    fn group(&self, index: u32) -> Option<i32> {
        let group = *self.groups.get(&index)?;
        self.running.get(&group).is_none_or(|running| *running == index as usize).then_some(group)
    }

    /// Records the exit of a launch. None if the process is not a launch; an error if the exit was not allowed.
    pub fn on_exit(&mut self, world: &World<'_>, pid: i32, code: i32) -> Option<Result<()>> {
        let index = self.running.remove(&pid)?;
        let outcome = &mut self.outcomes[index];
        (outcome.end_ns, outcome.status) = (Some(world.now_since_epoch()), Some(code));
        let launch = &world.plan.launches[index];
        if code == 0 || launch.any_status || outcome.stopped {
            return Some(Ok(()));
        }
        Some(Err(exit_failure(world, index, launch, code)))
    }

    /// Writes the outcomes of local launches.
    pub fn finish(&self, world: &World<'_>) -> Result<()> {
        let launches = &world.plan.launches;
        if launches.is_empty() {
            return Ok(());
        }
        let mut file = files::create(FILE)?;
        let local = launches.iter().enumerate().filter(|(_, launch)| world.placement.is_local(launch.node));
        let written = local.into_iter().try_for_each(|(index, launch)| {
            let row = Row {
                launch: index,
                program: launch.program,
                label: &launch.label,
                node: &world.plan.nodes[launch.node].name,
                argv: &launch.argv,
                outcome: &self.outcomes[index],
            };
            files::write_line(&mut file, &row)
        });
        written.and_then(|()| file.flush()).with_context(|| format!("out/{FILE}"))
    }
}

/// The error for an exit with a status that the plan does not allow, with an excerpt of the program's output.
fn exit_failure(world: &World<'_>, index: usize, launch: &Launch, code: i32) -> Failure {
    let node = &world.plan.nodes[launch.node].name;
    let streams = ["stderr", "stdout"].into_iter();
    let excerpts = streams.map(|stream| log_excerpt(&file_name(index, node, stream)));
    let excerpt = excerpts.into_iter().find(|excerpt| !excerpt.is_empty()).unwrap_or_default();
    let name = program_name(&launch.argv);
    Failure::new(format!("node {node}: {} ({name}) ended with status {code}{excerpt}", launch.label))
}

/// Name of an output file, unique among the result files.
fn file_name(index: usize, node: &str, stream: &str) -> String {
    format!("program-{index}-{node}.{stream}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_the_documented_fields() {
        let outcome =
            Outcome { start_ns: Some(-1_000_000_000), end_ns: Some(52), status: Some(0), stopped: false };
        let argv = ["iperf3", "-s", "-1"].map(String::from);
        let row = Row { launch: 0, program: 0, label: "server", node: "h2", argv: &argv, outcome: &outcome };
        let formats = include_str!("../../../../docs/formats.md");
        let example =
            formats.split("**Program record.**").nth(1).and_then(|rest| rest.split('`').nth(1)).unwrap();
        let example: serde_json::Value = serde_json::from_str(example).unwrap();
        assert_eq!(serde_json::to_value(&row).unwrap(), example);
    }
}
