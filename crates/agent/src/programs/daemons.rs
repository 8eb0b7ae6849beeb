// SPDX-License-Identifier: Apache-2.0
//! Daemons of the plan (`programs`; routing daemons, for example). They are started before the epoch, in sequence
//! within a node and in parallel across nodes.

use crate::failure::{Context, Failure, Result};
use crate::lab::view::View;
use crate::plan::Daemon;
use crate::programs::exec::{self, NodeContext};
use crate::programs::{log_tail, program_name};
use crate::results::files;
use crate::subprocess;
use crate::world::token::{Part, Topic};
use crate::world::World;
use std::collections::BTreeMap;
use std::fs::File;

/// Interval of readiness checks.
const POLL_INTERVAL_NS: u64 = 5_000_000;

pub struct Daemons {
    /// By node: start of its next daemon, or the next readiness check.
    starts: Topic,
    /// By node: number of started daemons, and whether the last of them is not ready yet.
    nodes: Vec<(usize, bool)>,
    /// Process id, node, index in the node's `programs`.
    running: Vec<(i32, usize, usize)>,
}

impl Daemons {
    pub fn schedule(world: &mut World<'_>) -> Self {
        let now_ns = world.now_ns();
        let starts = world.topic(Part::Daemons);
        for node in world.placement.local_nodes().filter(|node| !world.plan.nodes[*node].programs.is_empty())
        {
            world.agenda.add(now_ns, starts.at(node as u32));
        }
        Self { starts, nodes: vec![(0, false); world.plan.nodes.len()], running: Vec::new() }
    }

    /// Starts a node's next daemon, or schedules another check if the one before it is not ready.
    pub fn start_next(&mut self, world: &mut World<'_>, node: u32) -> Result<()> {
        let index = node as usize;
        let plan = &world.plan.nodes[index];
        loop {
            let (started, waiting) = self.nodes[index];
            if waiting {
                let ready = plan.programs[started - 1].ready.as_deref().unwrap_or_default();
                if !world.lab.views[index].resolve(ready).exists() {
                    world.agenda.add(world.now_ns() + POLL_INTERVAL_NS, self.starts.at(node));
                    return Ok(());
                }
            }
            let Some(program) = plan.programs.get(started) else {
                self.nodes[index].1 = false;
                return Ok(());
            };
            if program.optional && !is_installed(&program.argv[0], &plan.environment, &world.lab.views[index])
            {
                self.nodes[index] = (started + 1, false);
                continue;
            }
            let pid = start(world, index, program)?;
            self.running.push((pid, index, started));
            self.nodes[index] = (started + 1, program.ready.is_some());
        }
    }

    /// Fails if a daemon is not ready.
    pub fn check(&self, world: &World<'_>) -> Result<()> {
        for (node, (started, waiting)) in world.plan.nodes.iter().zip(&self.nodes) {
            if *waiting {
                let program = &node.programs[started - 1];
                let ready = program.ready.as_deref().unwrap_or_default();
                let tail = log_tail(&log_name(&node.name, program));
                let problem =
                    format!("node {}: {} is not ready: there is no {ready}", node.name, name(program));
                return Err(Failure::new(problem + &tail));
            }
        }
        Ok(())
    }

    /// Returns an error if the process that has ended was a daemon.
    pub fn on_exit(&mut self, world: &World<'_>, pid: i32, code: i32) -> Option<Failure> {
        let position = self.running.iter().position(|(running, _, _)| *running == pid)?;
        let (_, node, index) = self.running.swap_remove(position);
        let node = &world.plan.nodes[node];
        let program = &node.programs[index];
        let tail = log_tail(&log_name(&node.name, program));
        Some(Failure::new(format!("node {}: {} ended with status {code}{tail}", node.name, name(program))))
    }
}

/// Whether the node's `PATH` contains a program.
fn is_installed(name: &str, environment: &BTreeMap<String, String>, view: &View) -> bool {
    let path = environment.get("PATH").map_or(subprocess::PATH, String::as_str);
    path.split(':').any(|folder| view.resolve(&format!("{folder}/{name}")).exists())
}

fn start(world: &World<'_>, node: usize, program: &Daemon) -> Result<i32> {
    let plan = &world.plan.nodes[node];
    world.lab.namespaces.enter(node)?;
    let log = log_name(&plan.name, program);
    let file = File::options()
        .append(true)
        .create(true)
        .open(files::out_path(&log))
        .with_context(|| format!("out/{log}"))?;
    let context =
        NodeContext { environment: &plan.environment, view: &world.lab.views[node], new_group: false };
    exec::spawn_daemon(&program.argv, &context, file).with_context(|| format!("node {}", plan.name))
}

fn name(program: &Daemon) -> &str {
    program_name(&program.argv)
}

fn log_name(node: &str, program: &Daemon) -> String {
    format!("{node}-{}.log", name(program))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_searched_in_the_nodes_path() {
        let installed = |name: &str, environment| is_installed(name, &environment, &View::default());
        let path = |folders: &str| BTreeMap::from([("PATH".to_owned(), folders.to_owned())]);
        assert!(installed("sh", BTreeMap::new()) && installed("sh", path("/nowhere:/bin")));
        assert!(!installed("sh", path("/nowhere")) && !installed("no-such-program", BTreeMap::new()));
    }
}
