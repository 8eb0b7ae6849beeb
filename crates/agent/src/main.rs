// SPDX-License-Identifier: Apache-2.0
//! PID 1 of a lab in virtual time (docs/formats.md §2): builds what `plan.json` describes, drives its workloads or
//! serves its host, writes the results and powers off. Whatever fails, it says so in `done.json` and powers off.
//! In a container (docs/formats.md §5) it is the entry point, which starts such a guest for one node of the plan, or
//! itself again on the host's kernel.

mod clock;
mod container;
mod engine;
mod failure;
mod gate;
mod lab;
mod netlink;
mod observe;
mod plan;
mod programs;
mod results;
mod serve;
mod socket;
#[cfg(test)]
mod testing;
mod transport;
mod workload;
mod world;

use crate::engine::Engine;
use crate::failure::{Failure, Of, Result};
use crate::gate::{Event, Gate};
use crate::lab::{boot, Lab};
use crate::plan::place::Place;
use crate::plan::Plan;
use crate::results::Done;
use crate::world::{Paper, World};
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::ExitCode;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Cell,
    Lab,
}

const USAGE: &str = "qbed-agent cell|lab      process 1 of a virtual-time kernel; `qbed` starts it there
qbed-agent node          the entry point of a lab node's container
qbed-agent exec -- ARGV  runs a program in the node of this container";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["cell" | "lab", ..] if std::process::id() == 1 => guest(words[0]),
        ["node"] => container::supervisor::main(),
        ["native", mode, origin_ns] => native(mode, origin_ns),
        ["exec", "--", ref argv @ ..] if !argv.is_empty() => container::exec::main(argv),
        _ => {
            eprintln!("{USAGE}");
            ExitCode::FAILURE
        }
    }
}

/// Process 1 of a kernel of our own.
fn guest(mode: &str) -> ExitCode {
    std::panic::set_hook(Box::new(|panic| conclude(&Done::Failed { error: format!("the agent: {panic}") })));
    let done = done(run_guest(mode));
    conclude(&done);
    ExitCode::FAILURE
}

fn done(result: Result<i64>) -> Done {
    match result {
        Ok(end_ns) => Done::Complete { end_ns },
        Err(failure) => Done::Failed { error: failure.to_string() },
    }
}

/// Says how the lab ended and powers off.
fn conclude(done: &Done) {
    say(done);
    let Err(error) = boot::power_off();
    eprintln!("qbed-agent: powering off: {error}");
}

fn say(done: &Done) {
    if let Done::Failed { error } = done {
        eprintln!("qbed-agent: {error}");
    }
    if let Err(error) = done.write() {
        eprintln!("qbed-agent: out/done.json: {error}");
    }
}

/// A node on the host's kernel: the container's own namespace, interfaces and clock.
fn native(mode: &str, origin_ns: &str) -> ExitCode {
    boot::is_on_host_kernel();
    let done = done(run_native(mode, origin_ns));
    say(&done);
    match done {
        Done::Complete { .. } => ExitCode::SUCCESS,
        Done::Failed { .. } => ExitCode::FAILURE,
    }
}

fn mode(name: &str) -> Result<Mode> {
    match name {
        "cell" => Ok(Mode::Cell),
        "lab" => Ok(Mode::Lab),
        other => Err(Failure::new(format!("the mode is cell or lab, not {other:?}"))),
    }
}

fn run_guest(name: &str) -> Result<i64> {
    let mode = mode(name)?;
    boot::mount_kernel()?;
    let plan = read_plan()?;
    let gate = load_modules(&plan)?;
    let mut lent = boot::toolboxes()?;
    if mode == Mode::Lab {
        lent.extend(boot::seen()?);
    }
    boot::mount_scratch(&lent, mode == Mode::Lab)?;
    if plan.place.is_some() {
        boot::quiet_home()?;
    }
    if mode == Mode::Lab {
        boot::name_nodes(&plan)?;
    }
    let lab = Lab::build(&plan)?;
    drive(mode, &plan, &lab, gate, Paper::GUEST)
}

/// The supervisor's end of the gate.
const NATIVE_GATE: &str = "QBED_GATE";

fn run_native(name: &str, origin_ns: &str) -> Result<i64> {
    let mode = mode(name)?;
    let here = || "native".to_owned();
    let origin_ns = origin_ns.parse().of(here)?;
    let plan = read_plan()?;
    let place = plan.place.as_ref().ok_or_else(|| Failure::new("there is no place.json"))?;
    let paper = Paper { origin_ns, dilation: place.dilation };
    let descriptor: i32 = std::env::var(NATIVE_GATE).of(here)?.parse().of(here)?;
    // SAFETY: the supervisor passes this descriptor for this use, and nothing else here has it.
    let gate = Gate::from_descriptor(unsafe { OwnedFd::from_raw_fd(descriptor) })?;
    if mode == Mode::Lab {
        boot::name_nodes(&plan)?;
    }
    let lab = Lab::join(&plan)?;
    drive(mode, &plan, &lab, Some(gate), paper)
}

fn read_plan() -> Result<Plan> {
    std::fs::create_dir_all(results::out("")).of(|| "out".into())?;
    let text = std::fs::read_to_string(format!("{}/plan.json", boot::cell())).of(|| "plan.json".into())?;
    let mut plan = Plan::parse(&text)?;
    plan.place = Place::read(boot::cell(), plan.nodes.len())?;
    Ok(plan)
}

fn drive(mode: Mode, plan: &Plan, lab: &Lab, gate: Option<Gate>, paper: Paper) -> Result<i64> {
    let end_ns = plan.epoch_ns.saturating_add(plan.duration_ns);
    let mut engine = Engine::new(World::new(plan, lab, paper)?, gate)?;
    let wall_clock = plan.place.is_some();
    if engine.world.now_ns() >= plan.epoch_ns && !(wall_clock && mode == Mode::Lab) {
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
            engine.interactive = true;
            engine.run_until(plan.epoch_ns)?;
            engine.tell(&ready)?;
            if wall_clock {
                serve::serve_on_the_wall_clock(&mut engine)?;
            } else {
                serve::serve(&mut engine)?;
            }
        }
    }
    engine.finish()
}

/// Loads the project's modules and the plan's. Without `qgate=FD` on the kernel's command line there is no gate.
fn load_modules(plan: &Plan) -> Result<Option<Gate>> {
    let folder = boot::module_folder()?;
    for name in ["qlink", "qtap"].into_iter().chain(plan.modules.iter().map(String::as_str)) {
        boot::load_module(&folder, name, "")?;
    }
    let Some(descriptor) = std::env::var_os("qgate") else {
        return Ok(None);
    };
    boot::load_module(&folder, "qgate", &format!("fd={}", descriptor.to_string_lossy()))?;
    Gate::open(plan.place.is_some()).map(Some)
}
