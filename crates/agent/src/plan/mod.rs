// SPDX-License-Identifier: Apache-2.0
//! `plan.json`, version 1, as types (docs/formats.md §1). What the types cannot say is checked in `check`.

mod check;
pub mod controller;
pub mod pipeline;
pub mod place;
pub mod text;
pub mod workload;

use crate::failure::{Failure, Of, Result};
use crate::plan::controller::Controller;
use crate::plan::pipeline::{P4Program, Pipeline};
use crate::plan::text::{Hex, Mac, Prefix};
use crate::plan::workload::{Family, Workload};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    pub version: u32,
    pub lab: String,
    pub seed: u64,
    pub epoch_ns: u64,
    pub duration_ns: u64,
    /// For the runner's `mem=`; the agent has no use for it.
    #[serde(rename = "memory_bytes")]
    pub _memory_bytes: u64,
    pub modules: Vec<String>,
    /// Those that the kernel has only once.
    pub sysctls: Sysctls,
    /// Of the kernel's parts: PART/PARAMETER.
    #[serde(default)]
    pub parameters: BTreeMap<String, String>,
    pub nodes: Vec<Node>,
    pub links: Vec<Link>,
    pub queues: Vec<Queue>,
    pub workloads: Vec<Workload>,
    /// Programs that are part of what the hosts do.
    #[serde(default)]
    pub launches: Vec<Launch>,
    pub captures: Vec<Capture>,
    #[serde(default)]
    pub events: Vec<LinkEvent>,
    pub flow_interval_ns: u64,
    /// What else changes while the lab runs.
    #[serde(default)]
    pub changes: Vec<Change>,
    /// Of the series of what qdiscs say of themselves; 0: none.
    #[serde(default)]
    pub statistics_interval_ns: u64,
    /// Whether taps count how long packets waited.
    #[serde(default)]
    pub sojourn: bool,
    #[serde(default)]
    pub windows: Vec<Window>,
    /// The programs of the nodes' pipelines.
    #[serde(default)]
    pub p4: Vec<P4Program>,
}

/// Two years: no time of a lab is longer, and no sum of a few times ends beyond the numbers.
pub const TIME_MAX_NS: u64 = 1 << 56;

/// The default congestion control of a node's sockets.
pub const CONGESTION_CONTROL: &str = "net/ipv4/tcp_congestion_control";

/// Paths under /proc/sys, and their values.
pub type Sysctls = BTreeMap<String, String>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    pub name: String,
    pub kind: NodeKind,
    /// For whoever puts nodes into containers; `place.json` has what came of it.
    #[serde(default, rename = "kernel")]
    pub _kernel: Option<String>,
    pub addresses: Vec<IpAddr>,
    pub sysctls: Sysctls,
    pub routes: Vec<Route>,
    /// What its network cards do of TCP's work.
    #[serde(default)]
    pub offload: Option<Offload>,
    /// Of what it sends by the transport `rate`.
    #[serde(default)]
    pub controller: Option<Controller>,
    /// Probability that it reflects a data packet of that transport to its sender.
    #[serde(default)]
    pub reflect: f64,
    /// Of a switch in P4.
    #[serde(default)]
    pub pipeline: Option<Pipeline>,
    /// Environment variables of every program that runs in the node.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// Of each of these folders, the node's programs see one of their own, empty at first.
    #[serde(default)]
    pub folders: Vec<String>,
    /// What the node's programs read at these paths, in its folders or in place of the machine's files.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// Started one after the other once the links are up.
    #[serde(default)]
    pub programs: Vec<Resident>,
    /// What the node's forwarding table must hold before the workloads begin.
    #[serde(default)]
    pub expects: Vec<Expectation>,
}

/// `Tso`: TCP hands them up to 64 KB at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Offload {
    Tso,
}

/// A program that runs as long as the lab.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resident {
    pub argv: Vec<String>,
    /// The next program is started when this file exists.
    #[serde(default)]
    pub ready: Option<String>,
    /// A node that has no such program does without.
    #[serde(default)]
    pub optional: bool,
}

/// A program that is started in a node at a time of the lab's.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Launch {
    /// Which entry of the lab file it is of.
    pub program: u32,
    pub label: String,
    pub node: usize,
    pub argv: Vec<String>,
    pub environment: BTreeMap<String, String>,
    /// Where it runs, as the node's programs see it.
    pub folder: String,
    /// Before the workloads begin if it is negative.
    pub start_ns: i64,
    /// When it is asked to end.
    pub stop_ns: Option<u64>,
    /// Whether it may end by itself with another exit status than 0.
    pub any_status: bool,
    /// For whoever makes tables of what it printed; the agent has no use for it.
    #[serde(rename = "output")]
    pub _output: String,
}

/// Every host's address within the prefix is reached by so many next hops of those by these interfaces.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    pub to: Prefix,
    pub hops: usize,
    pub via: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeKind {
    Host,
    Switch,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Route {
    pub to: Prefix,
    pub via: Vec<Hop>,
    #[serde(default)]
    pub metrics: Metrics,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hop {
    pub interface: String,
    /// None: the destination is on the link itself.
    #[serde(default)]
    pub gateway: Option<IpAddr>,
}

/// RTAX_* metrics of a route.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Metrics {
    pub rto_min_ms: Option<u32>,
    pub initcwnd: Option<u32>,
    pub initrwnd: Option<u32>,
    pub quickack: Option<u32>,
    /// 1 = RTAX_FEATURE_ECN.
    pub features: Option<u32>,
    pub congctl: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    pub name: String,
    pub mtu: u32,
    pub a: End,
    pub b: End,
}

impl Link {
    pub fn ends(&self) -> [&End; 2] {
        [&self.a, &self.b]
    }

    pub fn end(&self, side: Side) -> &End {
        match side {
            Side::A => &self.a,
            Side::B => &self.b,
        }
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct End {
    pub node: usize,
    pub interface: String,
    pub mac: Mac,
    pub addresses: Vec<Prefix>,
    pub rate_bps: u64,
    pub delay_ns: u64,
    pub overhead_bytes: u32,
    /// Probability that a frame is lost, below 1.
    pub loss: f64,
    pub queue: usize,
    /// The most that a frame takes longer than `delay_ns`.
    #[serde(default)]
    pub jitter_ns: u64,
    /// Whether frames overtake others on the way.
    #[serde(default)]
    pub reordering: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Queue {
    pub name: String,
    pub node: usize,
    pub interface: String,
    #[serde(rename = "scheme")]
    pub _scheme: String,
    #[serde(rename = "role")]
    pub _role: Role,
    pub qdisc: Qdisc,
    pub observe: Observe,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    Host,
    Switch,
}

#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "RawQdisc")]
pub enum Qdisc {
    /// The payload of TCA_OPTIONS. A classful one may have another qdisc in its class `:1`.
    Raw { kind: String, options: Hex, child: Option<Child> },
    /// Arguments of `tc qdisc replace dev X root`.
    Tc(Vec<String>),
}

#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Child {
    pub kind: String,
    pub options: Hex,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawQdisc {
    kind: Option<String>,
    options: Option<Hex>,
    child: Option<Child>,
    tc: Option<Vec<String>>,
}

impl TryFrom<RawQdisc> for Qdisc {
    type Error = &'static str;

    fn try_from(raw: RawQdisc) -> std::result::Result<Self, Self::Error> {
        match (raw.kind, raw.options, raw.child, raw.tc) {
            (Some(kind), Some(options), child, None) => Ok(Self::Raw { kind, options, child }),
            (None, None, None, Some(tc)) => Ok(Self::Tc(tc)),
            _ => Err("a qdisc is either kind and options (with or without a child), or tc"),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Observe {
    /// 0: no series.
    pub interval_ns: u64,
    pub bin_bytes: u32,
    pub events: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capture {
    pub name: String,
    pub node: usize,
    pub interface: String,
    pub snaplen: u32,
}

/// What is one thing until an instant, and another from then on.
#[derive(Debug, Deserialize)]
#[serde(try_from = "RawChange")]
pub struct Change {
    pub at_ns: u64,
    pub what: Changed,
}

#[derive(Debug)]
pub enum Changed {
    Link(LinkChange),
    Queue(QueueChange),
    Node(NodeChange),
}

/// Of the transmitter of a link's end, what is said.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkChange {
    pub link: usize,
    pub end: Side,
    #[serde(default)]
    pub rate_bps: Option<u64>,
    #[serde(default)]
    pub delay_ns: Option<u64>,
    #[serde(default)]
    pub loss: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    A,
    B,
}

/// Parameters of a queue.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueChange {
    pub queue: usize,
    pub qdisc: Qdisc,
}

/// Of a host.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeChange {
    pub node: usize,
    pub congestion_control: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawChange {
    at_ns: u64,
    link: Option<LinkChange>,
    queue: Option<QueueChange>,
    node: Option<NodeChange>,
}

impl TryFrom<RawChange> for Change {
    type Error = &'static str;

    fn try_from(raw: RawChange) -> std::result::Result<Self, Self::Error> {
        let what = match (raw.link, raw.queue, raw.node) {
            (Some(link), None, None) => Changed::Link(link),
            (None, Some(queue), None) => Changed::Queue(queue),
            (None, None, Some(node)) => Changed::Node(node),
            _ => return Err("a change is of a link, a queue or a node"),
        };
        Ok(Self { at_ns: raw.at_ns, what })
    }
}

/// A span of the lab's time that has sums of its own.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Window {
    pub name: String,
    pub from_ns: u64,
    pub until_ns: u64,
}

/// A link's both ends go down or come up.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkEvent {
    pub at_ns: u64,
    pub link: usize,
    pub state: LinkState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkState {
    Up,
    Down,
}

impl Plan {
    /// Reads and checks a plan.
    pub fn parse(text: &str) -> Result<Self> {
        let plan: Self = serde_json::from_str(text).of(|| "plan.json".into())?;
        if plan.version != 1 {
            return Err(Failure::new(format!("plan.json: version {} is not known, only 1 is", plan.version)));
        }
        check::check(&plan)?;
        Ok(plan)
    }

    /// The instants at which windows begin and end, since the epoch, each once and in their order.
    pub fn bounds_ns(&self) -> BTreeSet<u64> {
        self.windows.iter().flat_map(|window| [window.from_ns, window.until_ns]).collect()
    }

    /// A flow's address at one end.
    pub fn address(&self, node: usize, family: Family) -> IpAddr {
        let found = self.nodes[node].addresses.iter().find(|address| Family::of(**address) == family);
        *found.expect("the check found an address of the workload's family")
    }
}
