// SPDX-License-Identifier: Apache-2.0
//! `statistics.ndjson`: time series of qdisc-specific statistics (xstats). A queue has a row when they have changed.

use crate::failure::{Context, Result};
use crate::netlink::Netlink;
use crate::observe::counters;
use crate::results::files;
use crate::world::token::{Part, Token};
use crate::world::World;
use serde::Serialize;
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Write};

const FILE: &str = "statistics.ndjson";

pub struct Statistics {
    samples: Token,
    file: Option<BufWriter<File>>,
    nodes: Vec<SampledNode>,
}

/// A node that may have queues with statistics.
struct SampledNode {
    netlink: Netlink,
    /// By interface: the queue and its last xstats.
    queues: HashMap<u32, (usize, String)>,
}

#[derive(Serialize)]
struct Row<'a> {
    time_ns: i64,
    queue: usize,
    xstats: &'a str,
}

impl Statistics {
    pub fn open(world: &mut World<'_>) -> Result<Self> {
        let samples = world.topic(Part::Statistics).only();
        if world.plan.statistics_interval_ns == 0 {
            return Ok(Self { samples, file: None, nodes: Vec::new() });
        }
        let mut nodes = Vec::new();
        let has_interfaces = |node: &usize| !world.lab.interfaces[*node].is_empty();
        for node in (0..world.plan.nodes.len()).filter(has_interfaces) {
            let node_queues = world.plan.queues.iter().enumerate().filter(|(_, queue)| queue.node == node);
            let queues = node_queues.filter_map(|(index, queue)| {
                let interface = world.lab.interfaces[node].get(&queue.interface)?;
                Some((*interface, (index, String::new())))
            });
            world.lab.namespaces.enter(node)?;
            let netlink = Netlink::open(libc::NETLINK_ROUTE);
            let netlink = netlink.with_context(|| format!("node {}", world.lab.namespaces.name(node)))?;
            nodes.push(SampledNode { netlink, queues: queues.collect() });
        }
        Ok(Self { samples, file: Some(files::create(FILE)?), nodes })
    }

    /// Schedules the first sample at `base_ns` (CLOCK_MONOTONIC).
    pub fn schedule(&self, world: &mut World<'_>, base_ns: u64) {
        if self.file.is_some() {
            world.agenda.add(base_ns, self.samples);
        }
    }

    pub fn on_timer(&mut self, world: &mut World<'_>, due_ns: u64) -> Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let mut rows = Vec::new();
        // A node without xstats is not sampled again.
        let mut without_xstats = Vec::new();
        for (position, node) in self.nodes.iter_mut().enumerate() {
            let found = counters::root_qdiscs(&node.netlink).with_context(|| "qdiscs".into())?;
            if found.values().all(|queue| queue.xstats.is_empty()) {
                without_xstats.push(position);
            }
            for (interface, queue) in found {
                let Some((index, last)) = node.queues.get_mut(&interface) else { continue };
                if !queue.xstats.is_empty() && queue.xstats != *last {
                    rows.push((*index, queue.xstats.clone()));
                    *last = queue.xstats;
                }
            }
        }
        for position in without_xstats.into_iter().rev() {
            self.nodes.remove(position);
        }
        rows.sort_unstable();
        let time_ns = world.since_epoch(due_ns);
        for (queue, xstats) in &rows {
            files::write_line(file, &Row { time_ns, queue: *queue, xstats })
                .with_context(|| format!("out/{FILE}"))?;
        }
        world.agenda.add(due_ns + world.plan.statistics_interval_ns, self.samples);
        Ok(())
    }

    pub fn finish(self) -> Result<()> {
        self.file.map_or(Ok(()), |mut file| file.flush()).with_context(|| format!("out/{FILE}"))
    }
}
