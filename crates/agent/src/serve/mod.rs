// SPDX-License-Identifier: Apache-2.0
//! Mode `lab`: the host's commands, one after the other. Between commands virtual time stands still.

use crate::engine::{Engine, GATE};
use crate::failure::{Failure, Result};
use crate::gate::{Command, Event, Program};

/// A shell's code for a program that could not be started.
const NOT_STARTED: i32 = 127;
/// `connect: before` flows need this time ahead of the workloads.
const BEFORE_WORKLOADS_NS: u64 = 1_000_000_000;

/// Serves the gate until `stop`.
pub fn serve(engine: &mut Engine<'_>) -> Result<()> {
    let mut started = false;
    loop {
        let gate = engine.gate.as_mut().ok_or_else(|| Failure::new("mode lab: no gate (qgate=FD)"))?;
        match gate.receive()? {
            Err(error) => engine.tell(&Event::Error { error })?,
            Ok(Command::Stop) => return Ok(()),
            Ok(Command::Exec(program)) => {
                if start(engine, &program)? {
                    engine.run_until_exit(program.id)?;
                }
            }
            Ok(Command::Background(program)) => {
                start(engine, &program)?;
            }
            Ok(Command::End { .. }) => {
                engine.tell(&Event::Error { error: "programs are ended by a program: kill".into() })?;
            }
            Ok(Command::Advance { id, ns }) => {
                engine.run_until(engine.world.now_ns() + ns)?;
                done(engine, id)?;
            }
            Ok(Command::Workloads { .. }) if started => {
                engine.tell(&Event::Error { error: "the workloads were started already".into() })?;
            }
            Ok(Command::Workloads { id, base_ns }) => {
                started = true;
                start_workloads(engine, base_ns);
                done(engine, id)?;
            }
        }
    }
}

/// On the wall clock: time passes by itself, and commands do not wait for one another. Serves until `stop`.
pub fn serve_on_the_wall_clock(engine: &mut Engine<'_>) -> Result<()> {
    let mut started = false;
    engine.watch_gate()?;
    loop {
        engine.run_until_exit(GATE)?;
        let gate = engine.gate.as_mut().ok_or_else(|| Failure::new("mode lab: no gate (qgate=FD)"))?;
        for command in gate.receive_waiting()? {
            match command {
                Ok(Command::Stop) => return Ok(()),
                Ok(Command::Exec(program) | Command::Background(program)) => {
                    if start(engine, &program)? {
                        engine.tell(&Event::Running { id: program.id })?;
                    }
                }
                Ok(Command::Workloads { id, base_ns }) if !started => {
                    started = true;
                    start_workloads(engine, base_ns);
                    done(engine, id)?;
                }
                Ok(Command::Workloads { .. }) => {
                    engine.tell(&Event::Error { error: "the workloads were started already".into() })?;
                }
                Ok(Command::End { id }) => engine.children.end(&mut engine.world, id),
                Ok(Command::Advance { .. }) => {
                    engine.tell(&Event::Error { error: "time passes by itself on the wall clock".into() })?;
                }
                Err(error) => engine.tell(&Event::Error { error })?,
            }
        }
    }
}

fn start_workloads(engine: &mut Engine<'_>, base_ns: Option<u64>) {
    let base_ns = base_ns.unwrap_or_else(|| engine.world.now_ns() + BEFORE_WORKLOADS_NS);
    engine.start_workloads(base_ns);
}

fn done(engine: &mut Engine<'_>, id: u64) -> Result<()> {
    let time_ns = engine.world.now_since_epoch();
    engine.tell(&Event::Exit { id, code: 0, time_ns })
}

/// Starts a program; tells the host if that fails.
fn start(engine: &mut Engine<'_>, program: &Program) -> Result<bool> {
    match engine.children.start(&engine.world, program)? {
        Ok(()) => Ok(true),
        Err(error) => {
            let (id, time_ns) = (program.id, engine.world.now_since_epoch());
            engine.tell(&Event::Stderr { id, data: crate::gate::base64(format!("{error}\n").as_bytes()) })?;
            engine.tell(&Event::Exit { id, code: NOT_STARTED, time_ns })?;
            Ok(false)
        }
    }
}
