// SPDX-License-Identifier: Apache-2.0
//! What the plan says of exchanges.

use crate::plan::workload::{Connect, Pairs, Pattern, Size, Time, Workload};
use crate::plan::Plan;
use crate::transport::exchanges::stream::HEADER_BYTES;
use serde::Deserialize;

/// All connections that stand before the epoch are made within half a second.
const EARLY_MAX: usize = 100_000;
/// Clients of one workload, and servers that all of them know: each has a list of its own.
const CLIENTS_MAX: usize = 1_000_000;
const KNOWN_MAX: usize = 10_000_000;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Servers that are asked at once; None: all.
    pub fanout: Option<usize>,
    /// What a client sends, or how long it does.
    pub request: Option<Size>,
    pub on_ns: Option<Time>,
    /// What it is answered; None: the time at which the server had everything.
    pub response: Option<Size>,
    /// From the last answer to the next exchange.
    pub think_ns: Time,
    /// Whether connections stay.
    pub persistent: bool,
    /// Clients of each source or pair, which know nothing of each other.
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
        (settings.request.is_some() != settings.on_ns.is_some(), "it needs a request or a time to send for"),
        (settings.on_ns.is_none() || settings.response.is_none(), "what is sent for a time has no response"),
        (
            settings.fanout.is_none_or(|fanout| (1..=servers).contains(&fanout)),
            "fanout is more than its servers, or 0",
        ),
        ((1..=CLIENTS_MAX).contains(&clients), "too many clients, or none"),
        (clients.saturating_mul(servers + 1) <= KNOWN_MAX, "too many servers that each client knows"),
        (!early || settings.persistent, "only connections that stay are made before the start"),
        (!early || clients.saturating_mul(servers) <= EARLY_MAX, "too many connections before the start"),
    ];
    rules.iter().find(|(holds, _)| !holds).map_or(Ok(()), |(_, what)| Err(String::from(*what)))?;
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
