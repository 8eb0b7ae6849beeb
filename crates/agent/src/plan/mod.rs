// SPDX-License-Identifier: Apache-2.0
//! `plan.json`, version 1, as types (docs/formats.md §1). What the types cannot say is checked in `validate`.

mod check;
pub mod place;

use crate::failure::{Failure, Of, Result};
use crate::plan::place::Place;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

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
    pub nodes: Vec<Node>,
    pub links: Vec<Link>,
    pub queues: Vec<Queue>,
    pub workloads: Vec<Workload>,
    pub captures: Vec<Capture>,
    #[serde(default)]
    pub events: Vec<LinkEvent>,
    pub flow_interval_ns: u64,
    /// Which part of it is this agent's; None: all of it.
    #[serde(skip)]
    pub place: Option<Place>,
}

/// The default congestion control of a node's sockets.
pub const CONGESTION_CONTROL: &str = "net/ipv4/tcp_congestion_control";

impl Plan {
    /// What a workload's sockets at a node have to be told; None: the kernel's default is right. In a container the
    /// host's kernel may not let a default be chosen (`tcp_allowed_congestion_control`), but each socket may.
    pub fn congestion_control<'a>(&'a self, workload: &'a Workload, node: usize) -> Option<&'a str> {
        let native = self.place.as_ref().is_some_and(|place| place.on_host_kernel(place.node));
        let own = || self.nodes[node].sysctls.get(CONGESTION_CONTROL).filter(|_| native);
        workload.congestion_control.as_ref().or_else(own).map(String::as_str)
    }

    /// Whether a node is this agent's.
    pub fn carries(&self, node: usize) -> bool {
        self.place.as_ref().is_none_or(|place| place.node == node)
    }
}

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

/// Every host's address within the prefix is reached by so many next hops.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    pub to: Prefix,
    pub hops: usize,
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

#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "RawWorkload")]
pub struct Workload {
    pub id: u32,
    pub label: String,
    pub transport: Transport,
    pub start_ns: u64,
    pub stop_ns: Option<u64>,
    pub connect: Connect,
    pub port: u16,
    pub family: Family,
    /// None: the sending node's sysctl.
    pub congestion_control: Option<String>,
    pub pattern: Pattern,
}

#[derive(Debug, Clone)]
pub enum Pattern {
    Flows { pairs: Vec<[usize; 2]>, size_bytes: Option<u64>, spread_ns: u64 },
    Arrivals { pairs: Pairs, interarrival: Interarrival, size: Size, limit: Option<u64> },
}

/// Who talks to whom in a workload of arrivals.
#[derive(Debug, Clone)]
pub enum Pairs {
    Listed(Vec<[usize; 2]>),
    /// Uniform over sources and destinations, never a node with itself.
    Product {
        sources: Vec<usize>,
        destinations: Vec<usize>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    Tcp,
    /// Constant bit rate: `rate_bps` of payload in datagrams of `packet_bytes` of payload.
    Udp {
        rate_bps: u64,
        packet_bytes: u32,
    },
}

impl Transport {
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp { .. } => "udp",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum Connect {
    #[serde(rename = "at start")]
    AtStart,
    #[serde(rename = "before")]
    Before,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(try_from = "u8")]
pub enum Family {
    V4,
    V6,
}

impl Family {
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() {
            Self::V4
        } else {
            Self::V6
        }
    }
}

impl TryFrom<u8> for Family {
    type Error = String;

    fn try_from(number: u8) -> std::result::Result<Self, String> {
        match number {
            4 => Ok(Self::V4),
            6 => Ok(Self::V6),
            other => Err(format!("the family is 4 or 6, not {other}")),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Interarrival {
    Exponential(f64),
    Fixed(u64),
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Size {
    Fixed(u64),
    Uniform(u64, u64),
    Pareto { mean_bytes: f64, shape: f64 },
    Cdf(Vec<(f64, f64)>),
}

/// A workload as it is written: the fields of both kinds.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawWorkload {
    id: u32,
    kind: Kind,
    label: String,
    transport: TransportName,
    pairs: Option<Vec<[usize; 2]>>,
    sources: Option<Vec<usize>>,
    destinations: Option<Vec<usize>>,
    size_bytes: Option<u64>,
    interarrival_ns: Option<Interarrival>,
    size: Option<Size>,
    limit: Option<u64>,
    start_ns: u64,
    spread_ns: Option<u64>,
    stop_ns: Option<u64>,
    connect: Connect,
    port: u16,
    family: Family,
    congestion_control: Option<String>,
    rate_bps: Option<u64>,
    packet_bytes: Option<u32>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Flows,
    Arrivals,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum TransportName {
    Tcp,
    Udp,
}

impl TryFrom<RawWorkload> for Workload {
    type Error = String;

    fn try_from(raw: RawWorkload) -> std::result::Result<Self, String> {
        let id = raw.id;
        let need = |field: &str| format!("workload {id}: {field} is missing");
        let transport = match raw.transport {
            TransportName::Tcp => Transport::Tcp,
            TransportName::Udp => Transport::Udp {
                rate_bps: raw.rate_bps.ok_or_else(|| need("rate_bps"))?,
                packet_bytes: raw.packet_bytes.ok_or_else(|| need("packet_bytes"))?,
            },
        };
        let pattern = match raw.kind {
            Kind::Flows => Pattern::Flows {
                pairs: raw.pairs.ok_or_else(|| need("pairs"))?,
                size_bytes: raw.size_bytes,
                spread_ns: raw.spread_ns.unwrap_or(0),
            },
            Kind::Arrivals => Pattern::Arrivals {
                pairs: match raw.pairs {
                    Some(pairs) => Pairs::Listed(pairs),
                    None => Pairs::Product {
                        sources: raw.sources.ok_or_else(|| need("sources (or pairs)"))?,
                        destinations: raw.destinations.ok_or_else(|| need("destinations (or pairs)"))?,
                    },
                },
                interarrival: raw.interarrival_ns.ok_or_else(|| need("interarrival_ns"))?,
                size: raw.size.ok_or_else(|| need("size"))?,
                limit: raw.limit,
            },
        };
        Ok(Self {
            id,
            label: raw.label,
            transport,
            start_ns: raw.start_ns,
            stop_ns: raw.stop_ns,
            connect: raw.connect,
            port: raw.port,
            family: raw.family,
            congestion_control: raw.congestion_control,
            pattern,
        })
    }
}

/// An address with the length of its prefix, `10.0.0.1/31`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefix {
    pub address: IpAddr,
    pub length: u8,
}

impl Prefix {
    pub fn contains(&self, address: IpAddr) -> bool {
        let length = u32::from(self.length);
        match (self.address, address) {
            (IpAddr::V4(prefix), IpAddr::V4(other)) => {
                let mask = u32::MAX.checked_shl(32 - length).unwrap_or(0);
                (prefix.to_bits() ^ other.to_bits()) & mask == 0
            }
            (IpAddr::V6(prefix), IpAddr::V6(other)) => {
                let mask = u128::MAX.checked_shl(128 - length).unwrap_or(0);
                (prefix.to_bits() ^ other.to_bits()) & mask == 0
            }
            _ => false,
        }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

impl FromStr for Prefix {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let wrong = || format!("{text:?} is not an address with a prefix length");
        let (address, length) = text.split_once('/').ok_or_else(wrong)?;
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let length: u8 = length.parse().map_err(|_| wrong())?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        if length > longest {
            return Err(wrong());
        }
        Ok(Self { address, length })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mac(pub [u8; 6]);

impl FromStr for Mac {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let bytes: Option<Vec<u8>> = text.split(':').map(|byte| u8::from_str_radix(byte, 16).ok()).collect();
        bytes
            .and_then(|bytes| bytes.try_into().ok())
            .map(Self)
            .ok_or_else(|| format!("{text:?} is not a MAC address"))
    }
}

/// Bytes, written as hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hex(pub Vec<u8>);

impl FromStr for Hex {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let wrong = || format!("{text:?} is not a row of bytes in hexadecimal");
        if text.len() % 2 != 0 || !text.is_ascii() {
            return Err(wrong());
        }
        let byte = |i| u8::from_str_radix(&text[i..i + 2], 16).map_err(|_| wrong());
        (0..text.len()).step_by(2).map(byte).collect::<std::result::Result<_, _>>().map(Self)
    }
}

macro_rules! deserialize_from_text {
    ($($type:ty),*) => {$(
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    )*};
}
deserialize_from_text!(Prefix, Mac, Hex);

impl Plan {
    /// Reads and checks a plan.
    pub fn parse(text: &str) -> Result<Self> {
        let plan: Self = serde_json::from_str(text).of(|| "plan.json".into())?;
        if plan.version != 1 {
            return Err(Failure::new(format!("plan.json: version {} is not known, only 1 is", plan.version)));
        }
        crate::plan::check::check(&plan)?;
        Ok(plan)
    }
}

#[cfg(test)]
mod tests {
    use super::Prefix;

    #[test]
    fn a_prefix_contains_its_addresses() {
        let prefix = |text: &str| text.parse::<Prefix>().unwrap();
        let address = |text: &str| text.parse().unwrap();
        assert!(prefix("10.0.0.4/30").contains(address("10.0.0.7")));
        assert!(!prefix("10.0.0.4/30").contains(address("10.0.0.8")));
        assert!(prefix("0.0.0.0/0").contains(address("192.0.2.1")));
        assert!(!prefix("0.0.0.0/0").contains(address("::1")));
        assert!(
            prefix("fd00::4/126").contains(address("fd00::5")) && prefix("::/0").contains(address("fd00::5"))
        );
        assert!(
            prefix("10.0.0.1/32").contains(address("10.0.0.1"))
                && !prefix("10.0.0.1/32").contains(address("10.0.0.0"))
        );
    }
}
