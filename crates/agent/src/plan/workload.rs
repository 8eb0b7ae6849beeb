// SPDX-License-Identifier: Apache-2.0
//! Workloads of the plan.

use crate::plan::TIME_MAX_NS;
use serde::de::DeserializeOwned;
use serde::Deserialize;
use std::net::IpAddr;

#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "RawWorkload")]
pub struct Workload {
    pub id: u32,
    pub label: String,
    /// Name of the transport that carries the flows (module `transport`).
    pub transport: String,
    /// Fields that only the transport interprets.
    settings: Settings,
    pub start_ns: u64,
    pub stop_ns: Option<u64>,
    pub connect: Connect,
    pub port: u16,
    pub family: Family,
    /// None: the node's sysctl.
    pub congestion_control: Option<String>,
    /// DSCP of the packets of both directions; None: the kernel's default.
    pub dscp: Option<u8>,
    pub pattern: Pattern,
}

type Settings = serde_json::Map<String, serde_json::Value>;

impl Workload {
    /// Deserializes the fields that only the transport interprets.
    pub fn settings<T: DeserializeOwned>(&self) -> Result<T, String> {
        serde_json::from_value(self.settings.clone().into()).map_err(|error| error.to_string())
    }

    /// All listed pairs; for a product, pairs that contain every node.
    pub fn endpoints(&self) -> Box<dyn Iterator<Item = (usize, usize)> + '_> {
        match &self.pattern {
            Pattern::Flows { pairs, .. }
            | Pattern::Arrivals { pairs: Pairs::Listed(pairs), .. }
            | Pattern::Exchanges { ends: Pairs::Listed(pairs), .. } => {
                Box::new(pairs.iter().map(|[src, dst]| (*src, *dst)))
            }
            Pattern::Arrivals { pairs: Pairs::Product { sources, destinations }, .. }
            | Pattern::Exchanges { ends: Pairs::Product { sources, destinations }, .. } => {
                let other = |node: usize, nodes: &[usize]| nodes.iter().copied().find(|n| *n != node);
                let from = sources.iter().filter_map(move |s| other(*s, destinations).map(|d| (*s, d)));
                let to = destinations.iter().filter_map(move |d| other(*d, sources).map(|s| (s, *d)));
                Box::new(from.chain(to))
            }
        }
    }
}

#[derive(Debug, Clone)]
pub enum Pattern {
    Flows {
        pairs: Vec<[usize; 2]>,
        size_bytes: Option<u64>,
        spread_ns: u64,
        /// Flows from a file: start after the workload's start, and size in bytes.
        each: Vec<(u64, u64)>,
    },
    Arrivals {
        pairs: Pairs,
        interarrival: Interarrival,
        size: Size,
        limit: Option<u64>,
        /// Whether every pair has a flow at each arrival.
        together: bool,
    },
    /// Clients that send requests to servers and continue after the responses (closed loop). The transport has the
    /// sizes.
    Exchanges {
        /// One client per listed pair, or one client per source that sends to all destinations.
        ends: Pairs,
        /// The first exchange of a client is delayed by a random time below this.
        spread_ns: u64,
        /// Limit on the exchanges of a client.
        limit: Option<u64>,
    },
}

/// Source and destination pairs of a workload.
#[derive(Debug, Clone)]
pub enum Pairs {
    Listed(Vec<[usize; 2]>),
    /// Uniform over sources and destinations, never a node with itself.
    Product {
        sources: Vec<usize>,
        destinations: Vec<usize>,
    },
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

    fn try_from(number: u8) -> Result<Self, String> {
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

/// Distribution of a duration in nanoseconds.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Time {
    Fixed(u64),
    Exponential(f64),
    Uniform(u64, u64),
    Pareto { mean_ns: f64, shape: f64 },
}

/// Distribution of a size in bytes.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Size {
    Fixed(u64),
    Uniform(u64, u64),
    /// Pareto distribution with this mean before its truncation at `max_bytes`.
    Pareto {
        mean_bytes: f64,
        shape: f64,
        max_bytes: Option<f64>,
    },
    Cdf(Vec<(f64, f64)>),
}

impl Size {
    /// Checks the parameters of the distribution.
    pub fn check(&self) -> Result<(), &'static str> {
        match self {
            Self::Fixed(bytes) => (*bytes > 0).then_some(()).ok_or("the size is 0"),
            Self::Uniform(low, high) => {
                (*low > 0 && low <= high).then_some(()).ok_or("size.uniform is not 0 < a <= b")
            }
            Self::Pareto { mean_bytes, shape, max_bytes } => {
                let finite =
                    mean_bytes.is_finite() && *mean_bytes >= 1.0 && shape.is_finite() && *shape > 1.0;
                finite.then_some(()).ok_or("size.pareto needs mean_bytes >= 1 and shape > 1")?;
                let scale = mean_bytes * (shape - 1.0) / shape;
                let bounded = max_bytes.is_none_or(|max| max.is_finite() && max >= 1.0 && max > scale);
                bounded.then_some(()).ok_or("size.pareto needs max_bytes above its scale")
            }
            Self::Cdf(points) => {
                let rising = points.windows(2).all(|p| p[0].0 <= p[1].0 && p[0].1 <= p[1].1);
                let ends_at_one = points.last().is_some_and(|last| (last.1 - 1.0).abs() < 1e-9);
                let in_range =
                    points.iter().all(|p| p.0 >= 0.0 && p.0.is_finite() && (0.0..=1.0 + 1e-9).contains(&p.1));
                (rising && ends_at_one && in_range)
                    .then_some(())
                    .ok_or("size.cdf does not rise to probability 1")
            }
        }
    }
}

impl Time {
    /// Checks the parameters of the distribution. All bounds and means are at most `TIME_MAX_NS`.
    pub fn check(&self) -> Result<(), &'static str> {
        let bounded = |mean: f64| mean.is_finite() && (0.0..=TIME_MAX_NS as f64).contains(&mean);
        let holds = match self {
            Self::Fixed(ns) => *ns <= TIME_MAX_NS,
            Self::Exponential(mean) => bounded(*mean),
            Self::Uniform(low, high) => low <= high && *high <= TIME_MAX_NS,
            Self::Pareto { mean_ns, shape } => bounded(*mean_ns) && shape.is_finite() && *shape > 1.0,
        };
        holds.then_some(()).ok_or("a time is longer than a lab, or not a valid distribution")
    }
}

impl Pairs {
    /// Number of pairs; an upper bound for a product with common nodes.
    pub fn count(&self) -> usize {
        match self {
            Self::Listed(pairs) => pairs.len(),
            Self::Product { sources, destinations } => sources.len().saturating_mul(destinations.len()),
        }
    }

    /// All pairs, in the order of the sources.
    pub fn all(&self) -> Vec<[usize; 2]> {
        match self {
            Self::Listed(pairs) => pairs.clone(),
            Self::Product { sources, destinations } => {
                let from = |src: usize| {
                    destinations.iter().filter(move |dst| **dst != src).map(move |dst| [src, *dst])
                };
                sources.iter().flat_map(|src| from(*src)).collect()
            }
        }
    }
}

/// A workload in JSON: the fields of all kinds, and the transport's settings.
#[derive(Deserialize)]
struct RawWorkload {
    id: u32,
    kind: Kind,
    label: String,
    transport: String,
    pairs: Option<Vec<[usize; 2]>>,
    sources: Option<Vec<usize>>,
    destinations: Option<Vec<usize>>,
    size_bytes: Option<u64>,
    interarrival_ns: Option<Interarrival>,
    size: Option<Size>,
    limit: Option<u64>,
    #[serde(default)]
    together: bool,
    start_ns: u64,
    spread_ns: Option<u64>,
    #[serde(default)]
    each: Vec<(u64, u64)>,
    stop_ns: Option<u64>,
    connect: Connect,
    port: u16,
    family: Family,
    congestion_control: Option<String>,
    dscp: Option<u8>,
    #[serde(flatten)]
    settings: Settings,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Flows,
    Arrivals,
    Exchanges,
}

impl TryFrom<RawWorkload> for Workload {
    type Error = String;

    fn try_from(raw: RawWorkload) -> Result<Self, String> {
        let id = raw.id;
        let missing = |field: &str| format!("workload {id}: {field} is missing");
        let ends = |pairs: Option<_>, sources: Option<_>, destinations: Option<_>| match pairs {
            Some(pairs) => Ok::<_, String>(Pairs::Listed(pairs)),
            None => Ok(Pairs::Product {
                sources: sources.ok_or_else(|| missing("sources (or pairs)"))?,
                destinations: destinations.ok_or_else(|| missing("destinations (or pairs)"))?,
            }),
        };
        let pattern = match raw.kind {
            Kind::Flows => Pattern::Flows {
                pairs: raw.pairs.ok_or_else(|| missing("pairs"))?,
                size_bytes: raw.size_bytes,
                spread_ns: raw.spread_ns.ok_or_else(|| missing("spread_ns"))?,
                each: raw.each,
            },
            Kind::Exchanges => Pattern::Exchanges {
                ends: ends(raw.pairs, raw.sources, raw.destinations)?,
                spread_ns: raw.spread_ns.ok_or_else(|| missing("spread_ns"))?,
                limit: raw.limit,
            },
            Kind::Arrivals => Pattern::Arrivals {
                pairs: ends(raw.pairs, raw.sources, raw.destinations)?,
                interarrival: raw.interarrival_ns.ok_or_else(|| missing("interarrival_ns"))?,
                size: raw.size.ok_or_else(|| missing("size"))?,
                limit: raw.limit,
                together: raw.together,
            },
        };
        Ok(Self {
            id,
            label: raw.label,
            transport: raw.transport,
            // A null field counts as absent.
            settings: raw.settings.into_iter().filter(|(_, value)| !value.is_null()).collect(),
            start_ns: raw.start_ns,
            stop_ns: raw.stop_ns,
            connect: raw.connect,
            port: raw.port,
            family: raw.family,
            congestion_control: raw.congestion_control,
            dscp: raw.dscp,
            pattern,
        })
    }
}
