// SPDX-License-Identifier: Apache-2.0
//! Mode `lab`: executes the host's commands.

pub mod virtual_time;
pub mod wall_clock;

use crate::control::message::{Event, ExecRequest};
use crate::engine::Engine;
use crate::failure::Result;
use crate::plan::{LinkChange, LinkEvent};
use crate::programs::exec::EXIT_NOT_STARTED;
use crate::transport::LEAD_TIME_NS;

const ALREADY_STARTED: &str = "the workloads are already started";

fn start_workloads(engine: &mut Engine<'_>, base_ns: Option<u64>) {
    let base_ns = base_ns.unwrap_or_else(|| engine.world.now_ns() + LEAD_TIME_NS);
    engine.start_workloads(base_ns);
}

fn acknowledge(engine: &mut Engine<'_>, id: u64) -> Result<()> {
    let time_ns = engine.world.now_since_epoch();
    engine.send(&Event::Exit { id, code: 0, time_ns })
}

/// Changes links. If that fails, sends the error as output and exit.
fn change(engine: &mut Engine<'_>, id: u64, links: Vec<LinkChange>, states: &[LinkEvent]) -> Result<()> {
    match engine.change_links(links, states) {
        Ok(()) => acknowledge(engine, id),
        Err(error) => engine.send(&Event::Error { error: error.to_string() }),
    }
}

/// Starts a program. If that fails, sends the error as its output and exit. Returns whether it runs.
fn start(engine: &mut Engine<'_>, request: &ExecRequest) -> Result<bool> {
    match engine.children.start(&engine.world, request)? {
        Ok(()) => Ok(true),
        Err(error) => {
            let (id, time_ns) = (request.id, engine.world.now_since_epoch());
            engine.send(&Event::Stderr { id, data: format!("{error}\n").into() })?;
            engine.send(&Event::Exit { id, code: EXIT_NOT_STARTED, time_ns })?;
            Ok(false)
        }
    }
}
