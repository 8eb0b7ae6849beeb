// SPDX-License-Identifier: Apache-2.0
//! Wall clock: time passes by itself, and a command does not wait for the one before it.

use crate::control::message::{Command, Event};
use crate::engine::{Engine, GATE_ID};
use crate::failure::{Failure, Result};
use crate::serve::{acknowledge, change, start, start_workloads, ALREADY_STARTED};

/// Executes commands until `stop`.
pub fn serve(engine: &mut Engine<'_>) -> Result<()> {
    let mut started = false;
    engine.watch_gate()?;
    engine.report_devices();
    loop {
        engine.run_until_exit(GATE_ID)?;
        let gate = engine.gate.as_mut().ok_or_else(|| Failure::new("mode lab: no gate (qgate=FD)"))?;
        for command in gate.try_receive()? {
            match command {
                Ok(Command::Stop) => return Ok(()),
                Ok(Command::Exec(program) | Command::Background(program)) => {
                    if start(engine, &program)? {
                        engine.send(&Event::Running { id: program.id })?;
                    }
                }
                Ok(Command::Workloads { id, base_ns }) if !started => {
                    started = true;
                    start_workloads(engine, base_ns);
                    acknowledge(engine, id)?;
                }
                Ok(Command::Workloads { .. }) => {
                    engine.send(&Event::Error { error: ALREADY_STARTED.into() })?;
                }
                Ok(Command::Change { id, links, states }) => change(engine, id, links, &states)?,
                Ok(Command::Input { id, data }) => engine.children.write_input(id, &data),
                Ok(Command::Resize { id, size }) => engine.children.resize(id, size),
                Ok(Command::End { id }) => engine.children.terminate(&mut engine.world, id),
                Ok(Command::Advance { .. }) => {
                    engine.send(&Event::Error { error: "time passes by itself on the wall clock".into() })?;
                }
                Err(error) => engine.send(&Event::Error { error })?,
            }
        }
    }
}
