// SPDX-License-Identifier: Apache-2.0
//! Types of `plan.json`, version 1 (docs/formats.md §1). `check` has the rules that the types cannot express.

mod check;
pub mod controller;
#[cfg(test)]
mod examples;
pub mod pipeline;
pub mod place;
pub mod text;
pub mod workload;

use crate::failure::{Context, Failure, Result};
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
    /// For the runner's `mem=`; the agent ignores it.
    #[serde(rename = "memory_bytes")]
    pub _memory_bytes: u64,
    /// For the runner, which boots it; the agent ignores it.
    #[serde(default, rename = "kernel")]
    pub _kernel: Option<String>,
    pub modules: Vec<String>,
    /// Sysctls that are global to the kernel.
    pub sysctls: Sysctls,
    /// Module parameters, by MODULE/PARAMETER.
    #[serde(default)]
    pub parameters: BTreeMap<String, String>,
    pub nodes: Vec<Node>,
    pub links: Vec<Link>,
    pub queues: Vec<Queue>,
    pub workloads: Vec<Workload>,
    /// Programs that are workload.
    #[serde(default)]
    pub launches: Vec<Launch>,
    pub captures: Vec<Capture>,
    pub events: Vec<LinkEvent>,
    pub flow_interval_ns: u64,
    /// Changes of settings while the lab runs.
    #[serde(default)]
    pub changes: Vec<Change>,
    /// Congestion controls of which each flow's statistics are read.
    #[serde(default)]
    pub flow_statistics: Vec<String>,
    /// Interval of qdisc statistics; 0: none.
    #[serde(default)]
    pub statistics_interval_ns: u64,
    /// Whether taps measure sojourn times.
    #[serde(default)]
    pub sojourn: bool,
    #[serde(default)]
    pub windows: Vec<Window>,
    /// The programs of the nodes' pipelines.
    #[serde(default)]
    pub p4: Vec<P4Program>,
    /// The part of the lab that each node belongs to. Empty: the lab is not divided.
    #[serde(default)]
    pub parts: Vec<u32>,
}

/// Limit on all times of a plan, about two years: sums of a few of them do not overflow.
pub const TIME_MAX_NS: u64 = 1 << 56;

/// Sysctl with the default congestion control of a node's sockets.
pub const CONGESTION_CONTROL: &str = "net/ipv4/tcp_congestion_control";

/// Values by path under /proc/sys.
pub type Sysctls = BTreeMap<String, String>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    pub name: String,
    pub kind: NodeKind,
    /// For the container substrate, which writes the result to `place.json`; the agent ignores it.
    #[serde(default, rename = "kernel")]
    pub _kernel: Option<String>,
    /// As `kernel`.
    #[serde(default, rename = "image")]
    pub _image: Option<String>,
    pub addresses: Vec<IpAddr>,
    pub sysctls: Sysctls,
    pub routes: Vec<Route>,
    /// Offload features of the node's interfaces.
    #[serde(default)]
    pub offload: Option<Offload>,
    /// Controller of flows of the transport `rate`.
    #[serde(default)]
    pub controller: Option<Controller>,
    /// Probability that the host reflects a received data packet of that transport to its sender.
    #[serde(default)]
    pub reflect: f64,
    /// Set for a P4 switch.
    #[serde(default)]
    pub pipeline: Option<Pipeline>,
    /// Environment variables of every program that runs in the node.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// Folders that are private to the node's programs, and initially empty.
    #[serde(default)]
    pub folders: Vec<String>,
    /// Contents by path of files in these folders, or of files that replace the machine's for the node's programs.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// Started in sequence once the links are up.
    #[serde(default)]
    pub programs: Vec<Daemon>,
    /// Routes that the forwarding table must have before the workloads begin.
    #[serde(default)]
    pub expects: Vec<Expectation>,
}

/// `Tso`: TCP builds packets of up to 64 KB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Offload {
    Tso,
}

/// A program that runs for the whole duration of the lab.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Daemon {
    pub argv: Vec<String>,
    /// The daemon is ready when this file exists.
    #[serde(default)]
    pub ready: Option<String>,
    /// Skipped if the program is not installed.
    pub optional: bool,
}

/// A program that starts in a node at a time of the lab.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Launch {
    /// Index of its entry in the lab file.
    pub program: u32,
    pub label: String,
    pub node: usize,
    pub argv: Vec<String>,
    pub environment: BTreeMap<String, String>,
    /// Working directory, in the node's view of the file system.
    pub folder: String,
    /// Relative to the start of the workloads; may be negative.
    pub start_ns: i64,
    /// When it is sent SIGTERM.
    pub stop_ns: Option<u64>,
    /// Whether any exit status is accepted.
    pub any_status: bool,
    /// Format of its output, for result tables; the agent ignores it.
    #[serde(rename = "output")]
    pub _output: String,
}

/// Every host address within the prefix must have `hops` next hops, over interfaces of `via`.
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
    pub metrics: Metrics,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hop {
    pub interface: String,
    /// None: the destination is on-link.
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
    /// Loss probability of a frame, below 1.
    pub loss: f64,
    pub queue: usize,
    /// Limit on the delay of a frame beyond `delay_ns`.
    #[serde(default)]
    pub jitter_ns: u64,
    /// Whether frames may overtake each other.
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
    /// The payload of TCA_OPTIONS. A classful qdisc may have a child in its class `:1`.
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

/// A change of a setting at an instant.
#[derive(Debug, Deserialize)]
#[serde(try_from = "RawChange")]
pub struct Change {
    pub at_ns: u64,
    pub kind: ChangeKind,
}

#[derive(Debug)]
pub enum ChangeKind {
    Link(LinkChange),
    Queue(QueueChange),
    Node(NodeChange),
}

/// New settings of the transmitter at one end of a link. None: unchanged.
#[derive(Debug, PartialEq, Deserialize)]
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

/// New parameters of a queue's qdisc.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueChange {
    pub queue: usize,
    pub qdisc: Qdisc,
}

/// New congestion control of a host.
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
        let kind = match (raw.link, raw.queue, raw.node) {
            (Some(link), None, None) => ChangeKind::Link(link),
            (None, Some(queue), None) => ChangeKind::Queue(queue),
            (None, None, Some(node)) => ChangeKind::Node(node),
            _ => return Err("a change is of a link, a queue or a node"),
        };
        Ok(Self { at_ns: raw.at_ns, kind })
    }
}

/// A time span with separate totals in the results.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Window {
    pub name: String,
    pub from_ns: u64,
    pub until_ns: u64,
}

/// Takes both ends of a link down or up.
#[derive(Debug, PartialEq, Eq, Deserialize)]
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
        let plan: Self = serde_json::from_str(text).with_context(|| "plan.json".into())?;
        if plan.version != 1 {
            return Err(Failure::new(format!("plan.json: version {} is not known, only 1 is", plan.version)));
        }
        check::check(&plan)?;
        Ok(plan)
    }

    /// Sorted, distinct bounds of all windows, relative to the epoch.
    pub fn bounds_ns(&self) -> BTreeSet<u64> {
        self.windows.iter().flat_map(|window| [window.from_ns, window.until_ns]).collect()
    }

    /// The first address of a node in a family.
    pub fn address(&self, node: usize, family: Family) -> IpAddr {
        let found = self.nodes[node].addresses.iter().find(|address| Family::of(**address) == family);
        *found.expect("`check` requires an address of the workload's family")
    }
}
