// SPDX-License-Identifier: Apache-2.0
//! PID 1 of a lab in virtual time (docs/formats.md §2): builds what `plan.json` describes, drives its workloads or
//! serves its host, writes the results and powers off. Whatever fails, it says so in `done.json` and powers off.
//! In a container (docs/formats.md §5) it is the entry point, which starts such a guest for one node of the plan, or
//! itself again on the host's kernel.
//!
//! The rooms, each of which uses those before it only (a test in `testing` holds that):
//!
//! | room | what |
//! |---|---|
//! | `failure` | the one kind of error: a sentence that names the plan's object |
//! | `socket` `clock` `machine` | system calls on sockets; paper time, deadlines, the timer; programs like `tc` |
//! | `gate` `plan` | what comes from the host: commands, `plan.json` and `place.json`, read and checked |
//! | `scope` | what of the plan is this agent's, on which kernel, by which clock |
//! | `netlink` | what is asked of the kernel: links, addresses, routes, qdiscs, taps |
//! | `pipeline` | switches in P4: programs compiled, loaded, told their entries |
//! | `lab` | the lab is built; what stands in it for other agents' nodes |
//! | `workload` `results` | flows are drawn from the seed; files of results |
//! | `world` | what all parts below share; topics are handed out |
//! | `transport` | flows cross the network: a file or folder and a line in `ALL` each |
//! | `observe` `programs` | taps, captures, counters, routes; programs in the nodes |
//! | `engine` | the loop |
//! | `serve` | mode `lab`: somebody plays with it |
//! | `container` | the entry point of a node's container |

mod clock;
mod container;
mod engine;
mod failure;
#[cfg(test)]
mod fuzz;
mod gate;
mod lab;
mod machine;
mod netlink;
mod observe;
mod pipeline;
mod plan;
mod programs;
mod results;
mod scope;
mod serve;
mod socket;
#[cfg(test)]
mod testing;
mod transport;
mod workload;
mod world;

use crate::clock::paper::Paper;
use crate::engine::Engine;
use crate::failure::{Failure, Of, Result};
use crate::gate::{Event, Gate};
use crate::lab::{boot, names, Lab};
use crate::plan::place::Place;
use crate::plan::Plan;
use crate::results::files::{self, Done};
use crate::scope::Scope;
use crate::world::World;
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::ExitCode;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Cell,
    Lab,
}

const USAGE: &str = "qbed-agent cell|lab      process 1 of a virtual-time kernel; `qbed` starts it there
qbed-agent node          the entry point of a lab node's container
qbed-agent exec -- ARGV  runs a program in the node of this container
qbed-agent --version     the hash of the sources that it was built from (tools/sources)";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["cell" | "lab", ..] if std::process::id() == 1 => guest(words[0]),
        ["--version"] => {
            println!("{}", option_env!("QBED_SOURCES").unwrap_or("built by hand"));
            ExitCode::SUCCESS
        }
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
    files::are_in(files::NODE);
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
    boot::mount_kernel(files::CELL)?;
    let (plan, place) = read_plan()?;
    let scope = Scope::new(&plan, place.as_ref());
    let gate = load_modules(&plan, &scope)?;
    boot::refuse_modules()?;
    let programs: usize = plan.nodes.iter().map(|node| node.programs.len()).sum();
    boot::limit_tasks(programs + plan.launches.len())?;
    let mut lent = boot::toolboxes()?;
    if mode == Mode::Lab {
        lent.extend(boot::seen()?);
    }
    boot::mount_scratch(&lent, mode == Mode::Lab)?;
    if !scope.is_whole() {
        boot::quiet_home()?;
    }
    if mode == Mode::Lab || !plan.launches.is_empty() {
        names::name_nodes(&plan, &scope)?;
    }
    // Never taken down: the kernel ends with it, and closing a thousand namespaces takes a while.
    let lab = Box::leak(Box::new(Lab::build(&plan, &scope)?));
    let mut world = World::new(&plan, &scope, lab, Paper::GUEST)?;
    // A program could change the rate of CLOCK_MONOTONIC (adjtimex(2)), which the page does not follow.
    let alone = mode == Mode::Cell && programs == 0 && plan.launches.is_empty();
    if let Some(gate) = gate.as_ref().filter(|_| alone) {
        world.clock.map(gate);
    }
    drive(mode, world, gate)
}

/// The supervisor's end of the gate.
const NATIVE_GATE: &str = "QBED_GATE";

fn run_native(name: &str, origin_ns: &str) -> Result<i64> {
    let mode = mode(name)?;
    let here = || "native".to_owned();
    let origin_ns = origin_ns.parse().of(here)?;
    let (plan, place) = read_plan()?;
    let place = place.ok_or_else(|| Failure::new("there is no place.json"))?;
    let scope = Scope::new(&plan, Some(&place));
    let descriptor: i32 = std::env::var(NATIVE_GATE).of(here)?.parse().of(here)?;
    // SAFETY: the supervisor passes this descriptor for this use, and nothing else here has it.
    let gate = Gate::from_descriptor(unsafe { OwnedFd::from_raw_fd(descriptor) })?;
    if mode == Mode::Lab || !plan.launches.is_empty() {
        names::name_nodes(&plan, &scope)?;
    }
    let lab = Lab::join(&plan, &scope)?;
    let paper = Paper { origin_ns, dilation: place.dilation };
    drive(mode, World::new(&plan, &scope, &lab, paper)?, Some(gate))
}

fn read_plan() -> Result<(Plan, Option<Place>)> {
    std::fs::create_dir_all(files::out("")).of(|| "out".into())?;
    let text = std::fs::read_to_string(format!("{}/plan.json", files::folder())).of(|| "plan.json".into())?;
    let mut plan = Plan::parse(&text)?;
    if !lab::sysctls::has_ipv6() {
        lab::sysctls::forget_ipv6(&mut plan);
    }
    transport::ALL.check(&plan)?;
    let place = Place::read(files::folder(), plan.nodes.len())?;
    Ok((plan, place))
}

fn drive(mode: Mode, world: World<'_>, gate: Option<Gate>) -> Result<i64> {
    let (plan, wall_clock) = (world.plan, world.scope.on_wall_clock());
    let mut engine = Engine::new(world, gate)?;
    if engine.world.now_ns() >= plan.epoch_ns && !(wall_clock && mode == Mode::Lab) {
        return Err(Failure::new(format!("lab {}: the epoch came before the lab was built", plan.lab)));
    }
    let ready = Event::Ready { setup_nodes: plan.nodes.len() };
    match mode {
        Mode::Cell => {
            engine.tell(&ready)?;
            engine.start_workloads(plan.epoch_ns);
            engine.run_until(plan.epoch_ns.saturating_add(plan.duration_ns))?;
        }
        Mode::Lab => {
            engine.interactive = true;
            engine.run_until(plan.epoch_ns)?;
            engine.tell(&ready)?;
            if wall_clock {
                serve::wall_clock::serve(&mut engine)?;
            } else {
                serve::virtual_time::serve(&mut engine)?;
            }
        }
    }
    engine.finish()
}

/// Loads the project's modules and the plan's. Without `qgate=FD` on the kernel's command line there is no gate.
fn load_modules(plan: &Plan, scope: &Scope) -> Result<Option<Gate>> {
    let folder = boot::module_folder()?;
    for name in ["qlink", "qtap"].into_iter().chain(plan.modules.iter().map(String::as_str)) {
        boot::load_module(&folder, name, "")?;
    }
    let Some(descriptor) = std::env::var_os("qgate") else {
        return Ok(None);
    };
    let parameters = format!("fd={} epoch={}", descriptor.to_string_lossy(), plan.epoch_ns);
    boot::load_module(&folder, "qgate", &parameters)?;
    Gate::open(scope.on_wall_clock()).map(Some)
}
