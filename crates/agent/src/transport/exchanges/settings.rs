// SPDX-License-Identifier: Apache-2.0
//! Settings of exchange workloads.

use crate::plan::workload::{Connect, Pairs, Pattern, Size, Time, Workload};
use crate::plan::Plan;
use crate::transport::exchanges::stream::HEADER_BYTES;
use serde::Deserialize;

/// Limit on connections with `connect: before`, which are opened within half a second.
const EARLY_CONNECTIONS_MAX: usize = 100_000;
/// Limits on the clients of a workload, and on the total length of their server lists.
const CLIENTS_MAX: usize = 1_000_000;
const SERVER_ENTRIES_MAX: usize = 10_000_000;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Number of servers per exchange; None: all.
    pub fanout: Option<usize>,
    /// Size of a request; None: `on_ns` is set.
    pub request: Option<Size>,
    /// How long a client sends.
    pub on_ns: Option<Time>,
    /// Size of the response; None: a report, the time at which the server had all bytes.
    pub response: Option<Size>,
    /// Time from the last response to the next exchange.
    pub think_ns: Time,
    /// Whether connections are reused.
    pub persistent: bool,
    /// Number of independent clients per source or pair.
    pub outstanding: usize,
}

impl Settings {
    pub fn of(workload: &Workload) -> Result<Self, String> {
        workload.settings()
    }
}

pub fn check(_plan: &Plan, workload: &Workload) -> Result<(), String> {
    let settings = Settings::of(workload)?;
    let Pattern::Exchanges { ends, .. } = &workload.pattern else { return Ok(()) };
    let (sources, servers) = match ends {
        Pairs::Listed(pairs) => (pairs.len(), 1),
        Pairs::Product { sources, destinations } => {
            let others = |source: &usize| destinations.iter().filter(|server| *server != source).count();
            (sources.len(), sources.iter().map(others).min().unwrap_or(0))
        }
    };
    let clients = sources.saturating_mul(settings.outstanding);
    let early = workload.connect == Connect::Before;
    let rules = [
        (settings.request.is_some() != settings.on_ns.is_some(), "it needs either request or on_ns"),
        (settings.on_ns.is_none() || settings.response.is_none(), "on_ns excludes response"),
        (
            settings.fanout.is_none_or(|fanout| (1..=servers).contains(&fanout)),
            "fanout is 0 or larger than the number of servers",
        ),
        ((1..=CLIENTS_MAX).contains(&clients), "too many clients, or none"),
        (clients.saturating_mul(servers + 1) <= SERVER_ENTRIES_MAX, "too many servers for so many clients"),
        (!early || settings.persistent, "connect: before needs persistent connections"),
        (
            !early || clients.saturating_mul(servers) <= EARLY_CONNECTIONS_MAX,
            "too many connections before the start",
        ),
    ];
    rules.iter().find(|(holds, _)| !holds).map_or(Ok(()), |(_, problem)| Err(String::from(*problem)))?;
    for size in settings.request.iter().chain(&settings.response) {
        size.check()?;
    }
    for time in settings.on_ns.iter().chain([&settings.think_ns]) {
        time.check()?;
    }
    match settings.request {
        Some(Size::Fixed(bytes) | Size::Uniform(bytes, _)) if bytes < HEADER_BYTES => {
            Err(format!("a request of {bytes} bytes is less than its header of {HEADER_BYTES}"))
        }
        _ => Ok(()),
    }
}
