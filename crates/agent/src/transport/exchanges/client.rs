// SPDX-License-Identifier: Apache-2.0
//! Who asks: each client draws whom and how much from a stream of its own, so that what it does is the seed's, and only
//! when it does it is the network's.

use crate::plan::workload::{Pairs, Pattern};
use crate::plan::Plan;
use crate::scope::Scope;
use crate::transport::exchanges::settings::Settings;
use crate::transport::exchanges::stream::HEADER_BYTES;
use crate::workload::draws::Draws;
use std::collections::BTreeMap;

pub struct Client {
    pub workload: usize,
    /// Among its workload's.
    pub number: u32,
    pub node: usize,
    /// Those that it asks next come first.
    pub servers: Vec<u32>,
    pub draws: Draws,
    /// When it begins, after the workload does.
    pub offset_ns: u64,
    /// Exchanges that it has begun.
    pub begun: u32,
    /// Servers that have not answered.
    pub waiting: u32,
    pub failed: bool,
    /// Connections that it has opened.
    pub opened: u32,
    /// Those that stay, by their server.
    pub connections: BTreeMap<u32, u32>,
}

/// What a client asks of one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Question {
    pub server: u32,
    /// 0 where it sends for a time.
    pub request_bytes: u64,
    pub on_ns: Option<u64>,
    /// None: a report.
    pub response_bytes: Option<u64>,
}

impl Client {
    fn new(plan: &Plan, workload: usize, number: u32, node: usize, servers: Vec<u32>) -> Self {
        let mut draws = Draws::of_client(plan.seed, plan.workloads[workload].id, number);
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
            begun: 0,
            waiting: 0,
            failed: false,
            opened: 0,
            connections: BTreeMap::new(),
        }
    }

    /// What it asks next.
    pub fn questions(&mut self, settings: &Settings) -> Vec<Question> {
        let fanout = settings.fanout.unwrap_or(self.servers.len());
        self.draws.choose(fanout, &mut self.servers);
        let draws = &mut self.draws;
        let question = |server: &u32| Question {
            server: *server,
            request_bytes: settings
                .request
                .as_ref()
                .map_or(0, |size| draws.size_bytes(size).max(HEADER_BYTES)),
            on_ns: settings.on_ns.as_ref().map(|time| draws.time_ns(time)),
            response_bytes: settings.response.as_ref().map(|size| draws.size_bytes(size)),
        };
        self.servers[..fanout].iter().map(question).collect()
    }
}

/// A workload's clients that are here.
pub fn clients(plan: &Plan, scope: &Scope, workload: usize, settings: &Settings) -> Vec<Client> {
    let Pattern::Exchanges { ends, .. } = &plan.workloads[workload].pattern else { return Vec::new() };
    let of = |node: usize, servers: &[usize]| -> (usize, Vec<u32>) {
        (node, servers.iter().filter(|server| **server != node).map(|server| *server as u32).collect())
    };
    let all: Vec<_> = match ends {
        Pairs::Listed(pairs) => pairs.iter().map(|[client, server]| of(*client, &[*server])).collect(),
        Pairs::Product { sources, destinations } => {
            sources.iter().map(|node| of(*node, destinations)).collect()
        }
    };
    let each = all.into_iter().flat_map(|client| std::iter::repeat_n(client, settings.outstanding));
    let here = (0..).zip(each).filter(|(_, (node, _))| scope.has(*node));
    here.map(|(number, (node, servers))| Client::new(plan, workload, number, node, servers)).collect()
}
