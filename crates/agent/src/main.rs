// SPDX-License-Identifier: Apache-2.0
//! PID 1 of a lab in virtual time (docs/formats.md §2): builds the network of `plan.json`, runs its workloads or serves
//! the host's commands, writes the results and powers off. If anything fails, it writes the error to `done.json` and
//! powers off.
//! In a container (docs/formats.md §5) it is the entry point, which starts such a guest for one node of the plan, or
//! a second process of the agent on the host's kernel.
//!
//! Modules, bottom up; each uses only those above it (tested in `testing`):
//!
//! | module | content |
//! |---|---|
//! | `failure` | the error type: a sentence that names the object of the plan |
//! | `socket` `clock` `subprocess` | system calls on sockets; lab time, deadlines, the timer; programs such as `tc` |
//! | `control` `plan` | input from the host: commands; `plan.json` and `place.json`, parsed and checked |
//! | `placement` | which nodes this agent runs, on which kernel and clock |
//! | `netlink` | requests to the kernel: links, addresses, routes, qdiscs, taps |
//! | `pipeline` | P4 switches: loads programs, writes table entries |
//! | `lab` | builds the network, with stubs for the nodes of other agents |
//! | `workload` `results` | draws flows from the seed; result files |
//! | `world` | state that all modules below share; allocates event topics |
//! | `transport` | carries flows: one file or folder and one line in `ALL` per transport |
//! | `observe` `programs` | taps, captures, counters, routes; programs in the nodes |
//! | `engine` | the event loop |
//! | `serve` | mode `lab`: executes the host's commands |
//! | `container` | the entry point of a node's container |

mod clock;
mod container;
mod control;
mod engine;
mod failure;
#[cfg(test)]
mod fuzz;
mod lab;
mod netlink;
mod observe;
mod pipeline;
mod placement;
mod plan;
mod programs;
mod results;
mod serve;
mod socket;
mod subprocess;
#[cfg(test)]
mod testing;
mod transport;
mod workload;
mod world;

use crate::clock::lab_clock::TimeScale;
use crate::control::gate::Gate;
use crate::control::message::Event;
use crate::engine::Engine;
use crate::failure::{Context, Failure, Result};
use crate::lab::{boot, hosts_file, Lab};
use crate::placement::Placement;
use crate::plan::place::Place;
use crate::plan::Plan;
use crate::results::files::{self, Done};
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

/// Runs as process 1 of a guest.
fn guest(mode: &str) -> ExitCode {
    std::panic::set_hook(Box::new(|panic| shut_down(&Done::Failed { error: format!("the agent: {panic}") })));
    let done = done(run_guest(mode));
    shut_down(&done);
    ExitCode::FAILURE
}

fn done(result: Result<i64>) -> Done {
    match result {
        Ok(end_ns) => Done::Complete { end_ns },
        Err(failure) => Done::Failed { error: failure.to_string() },
    }
}

/// Reports the result and powers off.
fn shut_down(done: &Done) {
    report(done);
    let Err(error) = boot::power_off();
    eprintln!("qbed-agent: powering off: {error}");
}

fn report(done: &Done) {
    if let Done::Failed { error } = done {
        eprintln!("qbed-agent: {error}");
    }
    if let Err(error) = done.write() {
        eprintln!("qbed-agent: out/done.json: {error}");
    }
}

/// Runs a node on the host's kernel, with the container's namespace, interfaces and clock.
fn native(mode: &str, origin_ns: &str) -> ExitCode {
    files::set_folder(files::NODE);
    let done = done(run_native(mode, origin_ns));
    report(&done);
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

/// Kernel parameter with the part of the lab that this guest runs. Without it, it runs all of the lab, or the node of
/// `place.json`.
const PART_VARIABLE: &str = "QBED_PART";

fn run_guest(name: &str) -> Result<i64> {
    let mode = mode(name)?;
    boot::map_pages_at_once()?;
    boot::mount_filesystems(files::CELL)?;
    let (plan, place) = read_plan()?;
    let placement = match std::env::var(PART_VARIABLE) {
        Ok(part) => {
            Placement::of_part(&plan, part.parse().with_context(|| format!("{PART_VARIABLE}={part}"))?)?
        }
        Err(_) => Placement::new(&plan, place.as_ref()),
    };
    let gate = load_modules(&plan, &placement)?;
    boot::disable_module_loading()?;
    let programs: usize = plan.nodes.iter().map(|node| node.programs.len()).sum();
    boot::limit_tasks(programs + plan.launches.len())?;
    let mut mounts = boot::toolboxes()?;
    if mode == Mode::Lab {
        mounts.extend(boot::visible_folders()?);
    }
    boot::mount_scratch(&mounts, mode == Mode::Lab)?;
    if !placement.is_complete() && lab::sysctls::has_ipv6() {
        boot::disable_root_ipv6()?;
    }
    if mode == Mode::Lab || !plan.launches.is_empty() {
        hosts_file::write(&plan, &placement)?;
    }
    // Leaked: the kernel ends with this process, and closing a thousand namespaces takes time.
    let lab = Box::leak(Box::new(Lab::build(&plan, &placement, files::folder())?));
    let mut world = World::new(&plan, &placement, lab, TimeScale::IDENTITY)?;
    // Other processes may change the rate of CLOCK_MONOTONIC (adjtimex(2)), which the page does not follow.
    let no_programs = mode == Mode::Cell && programs == 0 && plan.launches.is_empty();
    if let Some(gate) = gate.as_ref().filter(|_| no_programs) {
        world.clock.map_page(gate);
    }
    drive(mode, world, gate)
}

/// Environment variable with the descriptor of the gate, set by the supervisor.
const GATE_VARIABLE: &str = "QBED_GATE";

fn run_native(name: &str, origin_ns: &str) -> Result<i64> {
    let mode = mode(name)?;
    let context = || "native".to_owned();
    let origin_ns = origin_ns.parse().with_context(context)?;
    let (plan, place) = read_plan()?;
    let place = place.ok_or_else(|| Failure::new("there is no place.json"))?;
    let placement = Placement::new(&plan, Some(&place));
    let descriptor: i32 =
        std::env::var(GATE_VARIABLE).with_context(context)?.parse().with_context(context)?;
    // SAFETY: the supervisor passes this descriptor for this use, and nothing else in this process owns it.
    let gate = Gate::from_descriptor(unsafe { OwnedFd::from_raw_fd(descriptor) })?;
    if mode == Mode::Lab || !plan.launches.is_empty() {
        hosts_file::write(&plan, &placement)?;
    }
    let lab = Lab::join(&plan, &placement)?;
    let scale = TimeScale { origin_ns, dilation: place.dilation };
    drive(mode, World::new(&plan, &placement, &lab, scale)?, Some(gate))
}

fn read_plan() -> Result<(Plan, Option<Place>)> {
    std::fs::create_dir_all(files::out_path("")).with_context(|| "out".into())?;
    let text = std::fs::read_to_string(format!("{}/plan.json", files::folder()))
        .with_context(|| "plan.json".into())?;
    let mut plan = Plan::parse(&text)?;
    if !lab::sysctls::has_ipv6() {
        lab::sysctls::drop_ipv6_switches(&mut plan);
    }
    transport::ALL.check(&plan)?;
    let place = Place::read(files::folder(), plan.nodes.len())?;
    Ok((plan, place))
}

fn drive(mode: Mode, world: World<'_>, gate: Option<Gate>) -> Result<i64> {
    let (plan, wall_clock) = (world.plan, world.placement.on_wall_clock());
    let mut engine = Engine::new(world, gate)?;
    if engine.world.now_ns() >= plan.epoch_ns && !(wall_clock && mode == Mode::Lab) {
        return Err(Failure::new(format!("lab {}: the epoch passed before the lab was built", plan.lab)));
    }
    let ready = Event::Ready { setup_nodes: plan.nodes.len() };
    match mode {
        Mode::Cell => {
            engine.send(&ready)?;
            engine.start_workloads(plan.epoch_ns);
            engine.run_until(plan.epoch_ns.saturating_add(plan.duration_ns))?;
        }
        Mode::Lab => {
            engine.interactive = true;
            if wall_clock {
                engine.wait_for_routing()?;
                engine.send(&ready)?;
                serve::wall_clock::serve(&mut engine)?;
            } else {
                engine.run_until(plan.epoch_ns)?;
                engine.send(&ready)?;
                serve::virtual_time::serve(&mut engine)?;
            }
        }
    }
    engine.finish()
}

/// Loads the project's modules and the plan's. Returns the gate if the kernel's command line has `qgate=FD`.
fn load_modules(plan: &Plan, placement: &Placement) -> Result<Option<Gate>> {
    let folder = boot::module_folder()?;
    for name in ["qlink", "qtap"].into_iter().chain(plan.modules.iter().map(String::as_str)) {
        boot::load_module(&folder, name, "")?;
    }
    let Some(descriptor) = std::env::var_os("qgate") else {
        return Ok(None);
    };
    let parameters = format!("fd={} epoch={}", descriptor.to_string_lossy(), plan.epoch_ns);
    boot::load_module(&folder, "qgate", &parameters)?;
    Gate::open(placement.on_wall_clock()).map(Some)
}
