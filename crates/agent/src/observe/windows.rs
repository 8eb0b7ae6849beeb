// SPDX-License-Identifier: Apache-2.0
//! `windows.ndjson`: received bytes of active flows at each window bound of the plan.

use crate::failure::{Context, Result};
use crate::results::files;
use crate::world::token::{Part, Topic};
use crate::world::World;
use serde::Serialize;
use std::fs::File;
use std::io::{BufWriter, Write};

const FILE: &str = "windows.ndjson";

pub struct Windows {
    /// By index of the bound.
    bounds: Topic,
    /// None: the plan has no windows.
    file: Option<BufWriter<File>>,
}

#[derive(Serialize)]
struct Row {
    time_ns: i64,
    flow: u32,
    received_bytes: u64,
}

impl Windows {
    pub fn open(world: &mut World<'_>) -> Result<Self> {
        let needed = !world.plan.windows.is_empty();
        let file = needed.then(|| files::create(FILE)).transpose()?;
        Ok(Self { bounds: world.topic(Part::Windows), file })
    }

    /// Schedules all bounds. `base_ns` (CLOCK_MONOTONIC) is their time 0.
    pub fn schedule(&self, world: &mut World<'_>, base_ns: u64) {
        for (index, bound_ns) in (0..).zip(world.plan.bounds_ns()) {
            world.agenda.add(base_ns + bound_ns, self.bounds.at(index));
        }
    }

    /// Writes one row per flow. `received`: flow ids and received bytes.
    pub fn write(&mut self, time_ns: i64, mut received: Vec<(u32, u64)>) -> Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        received.sort_unstable();
        let row = |(flow, received_bytes)| Row { time_ns, flow, received_bytes };
        let written = received.into_iter().try_for_each(|flow| files::write_line(file, &row(flow)));
        written.with_context(|| format!("out/{FILE}"))
    }

    pub fn finish(self) -> Result<()> {
        self.file.map_or(Ok(()), |mut file| file.flush()).with_context(|| format!("out/{FILE}"))
    }
}
