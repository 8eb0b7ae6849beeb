// SPDX-License-Identifier: Apache-2.0
//! In virtual time: the host's commands, one after the other. Between commands time stands still.

use crate::engine::Engine;
use crate::failure::{Failure, Result};
use crate::gate::{unbase64, Command, Event};
use crate::serve::{done, start, start_workloads, STARTED_ALREADY};

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
            Ok(Command::Input { id, data }) => engine.children.type_in(id, &unbase64(&data)),
            Ok(Command::Resize { id, size }) => engine.children.resize(id, size),
            Ok(Command::End { .. }) => {
                engine.tell(&Event::Error { error: "programs are ended by a program: kill".into() })?;
            }
            Ok(Command::Advance { id, ns, until }) => {
                engine.run_until_or_exit(engine.world.now_ns() + ns, &until)?;
                engine.push()?;
                engine.tell_moods()?;
                done(engine, id)?;
            }
            Ok(Command::Workloads { .. }) if started => {
                engine.tell(&Event::Error { error: STARTED_ALREADY.into() })?;
            }
            Ok(Command::Workloads { id, base_ns }) => {
                started = true;
                start_workloads(engine, base_ns);
                done(engine, id)?;
            }
        }
    }
}
