// SPDX-License-Identifier: Apache-2.0
//! Mode `lab`: somebody plays with the lab, and says what is to happen.

pub mod virtual_time;
pub mod wall_clock;

use crate::engine::Engine;
use crate::failure::Result;
use crate::gate::{base64, Event, Program};
use crate::programs::exec::NOT_STARTED;
use crate::transport::AHEAD_NS;

const STARTED_ALREADY: &str = "the workloads were started already";

fn start_workloads(engine: &mut Engine<'_>, base_ns: Option<u64>) {
    let base_ns = base_ns.unwrap_or_else(|| engine.world.now_ns() + AHEAD_NS);
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
            engine.tell(&Event::Stderr { id, data: base64(format!("{error}\n").as_bytes()) })?;
            engine.tell(&Event::Exit { id, code: NOT_STARTED, time_ns })?;
            Ok(false)
        }
    }
}
