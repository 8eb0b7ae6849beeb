// SPDX-License-Identifier: Apache-2.0
//! Virtual time: executes the host's commands in sequence. Time stands still between commands.

use crate::control::message::{Command, Event};
use crate::engine::Engine;
use crate::failure::{Failure, Result};
use crate::serve::{acknowledge, change, start, start_workloads, ALREADY_STARTED};

/// Executes commands until `stop`.
pub fn serve(engine: &mut Engine<'_>) -> Result<()> {
    let mut started = false;
    loop {
        let gate = engine.gate.as_mut().ok_or_else(|| Failure::new("mode lab: no gate (qgate=FD)"))?;
        match gate.receive()? {
            Err(error) => engine.send(&Event::Error { error })?,
            Ok(Command::Stop) => return Ok(()),
            Ok(Command::Exec(program)) => {
                if start(engine, &program)? {
                    engine.run_until_exit(program.id)?;
                }
            }
            Ok(Command::Background(program)) => {
                start(engine, &program)?;
            }
            Ok(Command::Change { id, links, states }) => change(engine, id, links, &states)?,
            Ok(Command::Input { id, data }) => engine.children.write_input(id, &data),
            Ok(Command::Resize { id, size }) => engine.children.resize(id, size),
            Ok(Command::End { .. }) => {
                engine
                    .send(&Event::Error { error: "in virtual time, run `kill` to end a program".into() })?;
            }
            Ok(Command::Advance { id, ns, until }) => {
                engine.run_until_or_exit(engine.world.now_ns() + ns, &until)?;
                engine.push()?;
                engine.send_terminal_states()?;
                acknowledge(engine, id)?;
            }
            Ok(Command::Workloads { .. }) if started => {
                engine.send(&Event::Error { error: ALREADY_STARTED.into() })?;
            }
            Ok(Command::Workloads { id, base_ns }) => {
                started = true;
                start_workloads(engine, base_ns);
                acknowledge(engine, id)?;
            }
        }
    }
}
