// SPDX-License-Identifier: Apache-2.0
//! The plan's own programs (routing daemons, for example): started in their nodes before the epoch, one after the other
//! in a node and all nodes at once. Whatever they are, the agent knows of them only what the plan says.

use crate::failure::{Failure, Of, Result};
use crate::lab::view::View;
use crate::machine;
use crate::plan::Resident;
use crate::programs::exec::{self, Surroundings};
use crate::programs::{last_words, program_name};
use crate::results::files;
use crate::world::token::{Part, Topic};
use crate::world::World;
use std::collections::BTreeMap;
use std::fs::File;

/// Between two looks whether a program is ready.
const LOOK_NS: u64 = 5_000_000;

pub struct Programs {
    /// By node: its next program is started, or waited for.
    starts: Topic,
    /// Of each node: how many of its programs were started, and whether the last of them is being waited for.
    nodes: Vec<(usize, bool)>,
    /// Process id, node, index.
    running: Vec<(i32, usize, usize)>,
}

impl Programs {
    pub fn schedule(world: &mut World<'_>) -> Self {
        let now_ns = world.now_ns();
        let starts = world.topic(Part::Programs);
        for node in world.scope.nodes().filter(|node| !world.plan.nodes[*node].programs.is_empty()) {
            world.agenda.add(now_ns, starts.at(node as u32));
        }
        Self { starts, nodes: vec![(0, false); world.plan.nodes.len()], running: Vec::new() }
    }

    /// Starts a node's next program, unless the one before it is not ready yet.
    pub fn go_on(&mut self, world: &mut World<'_>, node: u32) -> Result<()> {
        let index = node as usize;
        let plan = &world.plan.nodes[index];
        loop {
            let (started, waiting) = self.nodes[index];
            if waiting {
                let ready = plan.programs[started - 1].ready.as_deref().unwrap_or_default();
                if !world.lab.views[index].backing_of(ready).exists() {
                    world.agenda.add(world.now_ns() + LOOK_NS, self.starts.at(node));
                    return Ok(());
                }
            }
            let Some(program) = plan.programs.get(started) else {
                self.nodes[index].1 = false;
                return Ok(());
            };
            if program.optional && !is_there(&program.argv[0], &plan.environment, &world.lab.views[index]) {
                self.nodes[index] = (started + 1, false);
                continue;
            }
            let pid = start(world, index, program)?;
            self.running.push((pid, index, started));
            self.nodes[index] = (started + 1, program.ready.is_some());
        }
    }

    /// Fails for the first program that did not come up in time.
    pub fn check(&self, world: &World<'_>) -> Result<()> {
        for (node, (started, waiting)) in world.plan.nodes.iter().zip(&self.nodes) {
            if *waiting {
                let program = &node.programs[started - 1];
                let ready = program.ready.as_deref().unwrap_or_default();
                let words = last_words(&log_name(&node.name, program));
                let what = format!("node {}: {} is not ready: there is no {ready}", node.name, name(program));
                return Err(Failure::new(what + &words));
            }
        }
        Ok(())
    }

    /// Whether a process that ended was one of these; if so, which.
    pub fn on_end(&mut self, world: &World<'_>, pid: i32, code: i32) -> Option<Failure> {
        let position = self.running.iter().position(|(running, _, _)| *running == pid)?;
        let (_, node, index) = self.running.swap_remove(position);
        let node = &world.plan.nodes[node];
        let program = &node.programs[index];
        let words = last_words(&log_name(&node.name, program));
        Some(Failure::new(format!("node {}: {} ended with status {code}{words}", node.name, name(program))))
    }
}

/// Whether a node has a program in one of the folders of its `PATH`.
fn is_there(name: &str, environment: &BTreeMap<String, String>, view: &View) -> bool {
    let path = environment.get("PATH").map_or(machine::PATH, String::as_str);
    path.split(':').any(|folder| view.backing_of(&format!("{folder}/{name}")).exists())
}

fn start(world: &World<'_>, node: usize, program: &Resident) -> Result<i32> {
    let plan = &world.plan.nodes[node];
    world.lab.namespaces.enter(node)?;
    let log = log_name(&plan.name, program);
    let file =
        File::options().append(true).create(true).open(files::out(&log)).of(|| format!("out/{log}"))?;
    let around =
        Surroundings { environment: &plan.environment, view: &world.lab.views[node], own_group: false };
    exec::spawn_resident(&program.argv, &around, file).of(|| format!("node {}", plan.name))
}

fn name(program: &Resident) -> &str {
    program_name(&program.argv)
}

fn log_name(node: &str, program: &Resident) -> String {
    format!("{node}-{}.log", name(program))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_looked_for_where_the_nodes_path_says() {
        let there = |name: &str, environment| is_there(name, &environment, &View::default());
        let path = |folders: &str| BTreeMap::from([("PATH".to_owned(), folders.to_owned())]);
        assert!(there("sh", BTreeMap::new()) && there("sh", path("/nowhere:/bin")));
        assert!(!there("sh", path("/nowhere")) && !there("no-such-program", BTreeMap::new()));
    }
}
