// SPDX-License-Identifier: Apache-2.0
//! Programs as workload: each is started at its time in its node, what it says goes to two files of its own, and what
//! became of it is in `programs.ndjson`.

use crate::failure::{Failure, Of, Result};
use crate::plan::Launch;
use crate::programs::exec::{self, Kept, Surroundings};
use crate::programs::{program_name, words};
use crate::results::files;
use crate::world::token::{Part, Topic};
use crate::world::World;
use nix::sys::signal::{killpg, Signal};
use nix::unistd::Pid;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;

const FILE: &str = "programs.ndjson";
/// A program that was asked to end is killed after this time (real time).
const PATIENCE_NS: u64 = 1_000_000_000;

/// Times count from the epoch. `status`: None while it runs; 128 and the signal that ended it, as a shell has it.
#[derive(Debug, Clone, Default, Serialize)]
struct Fate {
    start_ns: Option<i64>,
    end_ns: Option<i64>,
    status: Option<i32>,
    /// It was asked to end.
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
    fate: &'a Fate,
}

/// All of them by their index in the plan.
pub struct Launches {
    starts: Topic,
    stops: Topic,
    kills: Topic,
    fates: Vec<Fate>,
    /// By process.
    running: BTreeMap<i32, usize>,
    /// By launch: the group of its processes, which may outlive the first of them.
    groups: BTreeMap<u32, i32>,
}

impl Launches {
    pub fn new(world: &mut World<'_>) -> Self {
        Self {
            starts: world.topic(Part::LaunchStarts),
            stops: world.topic(Part::LaunchStops),
            kills: world.topic(Part::LaunchKills),
            fates: vec![Fate::default(); world.plan.launches.len()],
            running: BTreeMap::new(),
            groups: BTreeMap::new(),
        }
    }

    /// Puts them on the agenda. Their times count from `base_ns` (CLOCK_MONOTONIC).
    pub fn schedule(&self, world: &mut World<'_>, base_ns: u64) {
        let plan = world.plan;
        let here = plan.launches.iter().enumerate().filter(|(_, launch)| world.scope.has(launch.node));
        for (index, launch) in here.collect::<Vec<_>>() {
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
        let around = Surroundings {
            environment: &node.environment,
            view: &world.lab.views[launch.node],
            own_group: true,
        };
        let file = |stream| {
            let name = file_name(index, &node.name, stream);
            std::fs::File::create(files::out(&name)).of(|| format!("out/{name}"))
        };
        let kept = Kept {
            environment: &launch.environment,
            folder: &launch.folder,
            stdout: file("stdout")?,
            stderr: file("stderr")?,
        };
        let fate = &mut self.fates[index];
        fate.start_ns = Some(world.now_since_epoch());
        match exec::spawn_kept(&launch.argv, &around, kept) {
            Ok(pid) => {
                self.running.insert(pid, index);
                self.groups.insert(index as u32, pid);
                Ok(())
            }
            Err(error) => {
                (fate.end_ns, fate.status) = (fate.start_ns, Some(exec::NOT_STARTED));
                Err(Failure::new(format!("node {}: {}: {error}", node.name, launch.label)))
            }
        }
    }

    /// Asks a program to end, and all that it started.
    pub fn stop(&mut self, world: &mut World<'_>, index: u32) {
        let Some(group) = self.group(index) else { return };
        if self.running.contains_key(&group) {
            self.fates[index as usize].stopped = true;
        }
        if killpg(Pid::from_raw(group), Signal::SIGTERM).is_err() {
            return; // nobody is left of it
        }
        let patience_ns = world.scope.real_ns(PATIENCE_NS);
        world.agenda.add(world.now_ns() + patience_ns, self.kills.at(index));
    }

    /// Ends a program that was asked to end and did not.
    pub fn kill(&self, index: u32) {
        if let Some(group) = self.group(index) {
            let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
        }
    }

    /// None: it was not started, or its number is another's by now.
    fn group(&self, index: u32) -> Option<i32> {
        let group = *self.groups.get(&index)?;
        self.running.get(&group).is_none_or(|running| *running == index as usize).then_some(group)
    }

    /// Whether a process that ended was one of these; if so, whether it was to end like that.
    pub fn on_end(&mut self, world: &World<'_>, pid: i32, code: i32) -> Option<Result<()>> {
        let index = self.running.remove(&pid)?;
        let fate = &mut self.fates[index];
        (fate.end_ns, fate.status) = (Some(world.now_since_epoch()), Some(code));
        let launch = &world.plan.launches[index];
        if code == 0 || launch.any_status || fate.stopped {
            return Some(Ok(()));
        }
        Some(Err(self.blame(world, index, launch, code)))
    }

    fn blame(&self, world: &World<'_>, index: usize, launch: &Launch, code: i32) -> Failure {
        let node = &world.plan.nodes[launch.node].name;
        let said = ["stderr", "stdout"].into_iter().map(|stream| words(&file_name(index, node, stream)));
        let words = said.into_iter().find(|words| !words.is_empty()).unwrap_or_default();
        let name = program_name(&launch.argv);
        Failure::new(format!("node {node}: {} ({name}) ended with status {code}{words}", launch.label))
    }

    /// Writes what became of those that are here.
    pub fn finish(&self, world: &World<'_>) -> Result<()> {
        let launches = &world.plan.launches;
        if launches.is_empty() {
            return Ok(());
        }
        let mut file = files::create(FILE)?;
        let here = launches.iter().enumerate().filter(|(_, launch)| world.scope.has(launch.node));
        let written = here.into_iter().try_for_each(|(index, launch)| {
            let row = Row {
                launch: index,
                program: launch.program,
                label: &launch.label,
                node: &world.plan.nodes[launch.node].name,
                argv: &launch.argv,
                fate: &self.fates[index],
            };
            files::line(&mut file, &row)
        });
        written.and_then(|()| file.flush()).of(|| format!("out/{FILE}"))
    }
}

/// Where a program's output goes: a name that no other file of results has.
fn file_name(index: usize, node: &str, stream: &str) -> String {
    format!("program-{index}-{node}.{stream}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_the_contracts_fields() {
        let fate = Fate { start_ns: Some(-1_000_000_000), end_ns: Some(52), status: Some(0), stopped: false };
        let argv = ["iperf3", "-s", "-1"].map(String::from);
        let row = Row { launch: 0, program: 0, label: "server", node: "h2", argv: &argv, fate: &fate };
        let contract = include_str!("../../../../docs/formats.md");
        let example =
            contract.split("Program record:").nth(1).and_then(|rest| rest.split('`').nth(1)).unwrap();
        let example: serde_json::Value = serde_json::from_str(example).unwrap();
        assert_eq!(serde_json::to_value(&row).unwrap(), example);
    }
}
