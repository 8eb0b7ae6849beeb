// SPDX-License-Identifier: Apache-2.0
//! PID 1 of a lab in virtual time (docs/formats.md §2): builds what `plan.json` describes, drives its workloads or
//! serves its host, writes the results and powers off. Whatever fails, it says so in `done.json` and powers off.

mod agenda;
mod capture;
mod children;
mod counters;
mod engine;
mod exec;
mod failure;
mod gate;
mod init;
mod lab;
mod links;
mod listeners;
mod namespaces;
mod netlink;
mod plan;
mod queues;
mod records;
mod routes;
mod sample;
mod schedule;
mod socket;
mod tap;
mod tcp;
mod tcpinfo;
#[cfg(test)]
mod testing;
mod topology;
mod udp;
mod validate;
mod watermark;
mod world;

use crate::engine::Engine;
use crate::failure::{Failure, Of, Result};
use crate::gate::{Event, Gate};
use crate::plan::Plan;
use crate::records::Done;
use crate::topology::Lab;
use crate::world::World;
use std::process::ExitCode;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Cell,
    Lab,
}

fn main() -> ExitCode {
    if std::process::id() != 1 {
        eprintln!("qbed-agent is the first process of a virtual-time kernel; `qbed` starts it there");
        return ExitCode::FAILURE;
    }
    std::panic::set_hook(Box::new(|panic| conclude(&Done::Failed { error: format!("the agent: {panic}") })));
    let done = match run() {
        Ok(end_ns) => Done::Complete { end_ns },
        Err(failure) => Done::Failed { error: failure.to_string() },
    };
    conclude(&done);
    ExitCode::FAILURE
}

/// Says how the lab ended and powers off.
fn conclude(done: &Done) {
    if let Done::Failed { error } = done {
        eprintln!("qbed-agent: {error}");
    }
    if let Err(error) = done.write() {
        eprintln!("qbed-agent: out/done.json: {error}");
    }
    let Err(error) = init::power_off();
    eprintln!("qbed-agent: powering off: {error}");
}

fn run() -> Result<i64> {
    let mode = match std::env::args().nth(1).as_deref() {
        Some("cell") => Mode::Cell,
        Some("lab") => Mode::Lab,
        other => return Err(Failure::new(format!("the mode is cell or lab, not {other:?}"))),
    };
    init::mount_kernel()?;
    std::fs::create_dir_all(records::out("")).of(|| "out".into())?;
    let text = std::fs::read_to_string(format!("{}/plan.json", init::CELL)).of(|| "plan.json".into())?;
    let plan = Plan::parse(&text)?;
    let gate = load_modules(&plan)?;
    init::mount_scratch()?;
    let end_ns = plan.epoch_ns.saturating_add(plan.duration_ns);
    let lab = Lab::build(&plan)?;
    let mut engine = Engine::new(World::new(&plan, &lab)?, gate)?;
    if engine.world.now_ns() >= plan.epoch_ns {
        return Err(Failure::new(format!("lab {}: the epoch came before the lab was built", plan.lab)));
    }
    let ready = Event::Ready { setup_nodes: plan.nodes.len() };
    match mode {
        Mode::Cell => {
            engine.tell(&ready)?;
            engine.start_workloads(plan.epoch_ns);
            engine.run_until(end_ns)?;
        }
        Mode::Lab => {
            engine.run_until(plan.epoch_ns)?;
            engine.tell(&ready)?;
            lab::serve(&mut engine)?;
        }
    }
    engine.finish()
}

/// Loads the project's modules and the plan's. Without `qgate=FD` on the kernel's command line there is no gate.
fn load_modules(plan: &Plan) -> Result<Option<Gate>> {
    let folder = init::module_folder()?;
    for name in ["qlink", "qtap"].into_iter().chain(plan.modules.iter().map(String::as_str)) {
        init::load_module(&folder, name, "")?;
    }
    let Some(descriptor) = std::env::var_os("qgate") else {
        return Ok(None);
    };
    init::load_module(&folder, "qgate", &format!("fd={}", descriptor.to_string_lossy()))?;
    Gate::open().map(Some)
}
