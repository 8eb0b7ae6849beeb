// SPDX-License-Identifier: Apache-2.0
//! On the wall clock: time passes by itself, and commands do not wait for one another.

use crate::engine::{Engine, GATE};
use crate::failure::{Failure, Result};
use crate::gate::{unbase64, Command, Event};
use crate::serve::{done, start, start_workloads, STARTED_ALREADY};

/// Serves the gate until `stop`.
pub fn serve(engine: &mut Engine<'_>) -> Result<()> {
    let mut started = false;
    engine.watch_gate()?;
    engine.report_devices();
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
                    engine.tell(&Event::Error { error: STARTED_ALREADY.into() })?;
                }
                Ok(Command::Input { id, data }) => engine.children.type_in(id, &unbase64(&data)),
                Ok(Command::Resize { id, size }) => engine.children.resize(id, size),
                Ok(Command::End { id }) => engine.children.end(&mut engine.world, id),
                Ok(Command::Advance { .. }) => {
                    engine.tell(&Event::Error { error: "time passes by itself on the wall clock".into() })?;
                }
                Err(error) => engine.tell(&Event::Error { error })?,
            }
        }
    }
}
