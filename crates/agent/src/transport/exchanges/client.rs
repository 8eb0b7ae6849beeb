// SPDX-License-Identifier: Apache-2.0
//! Clients of exchanges. Each client draws its servers and sizes from a separate random stream, so that they depend
//! only on the seed. Only the times of exchanges depend on the network.

use crate::placement::Placement;
use crate::plan::workload::{Pairs, Pattern};
use crate::plan::Plan;
use crate::transport::exchanges::settings::Settings;
use crate::transport::exchanges::stream::HEADER_BYTES;
use crate::workload::draws::Draws;
use std::collections::BTreeMap;

pub struct Client {
    pub workload: usize,
    /// Number among the workload's clients.
    pub number: u32,
    pub node: usize,
    /// All servers; those of the next exchange are at the front.
    pub servers: Vec<u32>,
    pub draws: Draws,
    /// Start of the first exchange after the workload's start.
    pub offset_ns: u64,
    /// Number of started exchanges.
    pub started: u32,
    /// Number of servers that have not responded to the current exchange.
    pub pending: u32,
    pub failed: bool,
    /// Number of opened connections.
    pub opened: u32,
    /// Slots of persistent connections, by server.
    pub connections: BTreeMap<u32, u32>,
}

/// A request to one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    pub server: u32,
    /// 0 if `on_ns` is set.
    pub request_bytes: u64,
    /// How long the client sends.
    pub on_ns: Option<u64>,
    /// None: a report.
    pub response_bytes: Option<u64>,
}

impl Client {
    fn new(plan: &Plan, workload: usize, number: u32, node: usize, servers: Vec<u32>) -> Self {
        let mut draws = Draws::for_client(plan.seed, plan.workloads[workload].id, number);
        let offset_ns = match plan.workloads[workload].pattern {
            Pattern::Exchanges { spread_ns, .. } if spread_ns > 0 => draws.below(spread_ns),
            _ => 0,
        };
        Self {
            workload,
            number,
            node,
            servers,
            draws,
            offset_ns,
            started: 0,
            pending: 0,
            failed: false,
            opened: 0,
            connections: BTreeMap::new(),
        }
    }

    /// Draws the requests of the next exchange.
    pub fn draw_requests(&mut self, settings: &Settings) -> Vec<Request> {
        let fanout = settings.fanout.unwrap_or(self.servers.len());
        self.draws.partial_shuffle(fanout, &mut self.servers);
        let draws = &mut self.draws;
        let request = |server: &u32| Request {
            server: *server,
            request_bytes: settings
                .request
                .as_ref()
                .map_or(0, |size| draws.size_bytes(size).max(HEADER_BYTES)),
            on_ns: settings.on_ns.as_ref().map(|time| draws.time_ns(time)),
            response_bytes: settings.response.as_ref().map(|size| draws.size_bytes(size)),
        };
        self.servers[..fanout].iter().map(request).collect()
    }
}

/// The local clients of a workload.
pub fn clients(plan: &Plan, placement: &Placement, workload: usize, settings: &Settings) -> Vec<Client> {
    let Pattern::Exchanges { ends, .. } = &plan.workloads[workload].pattern else { return Vec::new() };
    let entry = |node: usize, servers: &[usize]| -> (usize, Vec<u32>) {
        (node, servers.iter().filter(|server| **server != node).map(|server| *server as u32).collect())
    };
    let all: Vec<_> = match ends {
        Pairs::Listed(pairs) => pairs.iter().map(|[client, server]| entry(*client, &[*server])).collect(),
        Pairs::Product { sources, destinations } => {
            sources.iter().map(|node| entry(*node, destinations)).collect()
        }
    };
    let each = all.into_iter().flat_map(|client| std::iter::repeat_n(client, settings.outstanding));
    let local = (0..).zip(each).filter(|(_, (node, _))| placement.is_local(*node));
    local.map(|(number, (node, servers))| Client::new(plan, workload, number, node, servers)).collect()
}
