// SPDX-License-Identifier: Apache-2.0
//! `counters.json`: a snapshot of the kernel's counters of links, queues and nodes at one instant.

use crate::failure::{Context, Result};
use crate::lab::sysctls::{has_ipv6, read_proc_file};
use crate::netlink::link::{Statistics, IFINFO, INFO_DATA};
use crate::netlink::qdisc::{ROOT, TCA_KIND, TCMSG_LEN};
use crate::netlink::{attribute, u32_at, u64_at, Batch, Netlink};
use crate::pipeline::arrays::Budget;
use crate::pipeline::PipelineCounters;
use crate::plan::{End, Plan};
use crate::results::files;
use crate::world::World;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

/// IFLA_QLINK_SENT and following.
const SENT: u16 = 10;
const DELIVERED: u16 = 11;
const LOST: u16 = 12;
/// linux/rtnetlink.h, linux/gen_stats.h
const TCA_XSTATS: u16 = 4;
const TCA_STATS2: u16 = 7;
const STATS_BASIC: u16 = 1;
const STATS_QUEUE: u16 = 3;
const STATS_APP: u16 = 4;
const STATS_PACKETS: u16 = 8;

#[derive(Serialize)]
struct Counters {
    time_ns: i64,
    links: Vec<LinkCounters>,
    queues: Vec<QueueCounters>,
    nodes: Vec<Mib>,
    /// P4 switches, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    switches: BTreeMap<String, SwitchCounters>,
}

#[derive(Serialize)]
struct SwitchCounters {
    #[serde(flatten)]
    program: PipelineCounters,
    /// Recirculation ports, by port number.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    recirculation: BTreeMap<usize, RecirculationCounters>,
}

/// A recirculation port: packets that reached the wire and were dropped, and its queue.
#[derive(Serialize)]
struct RecirculationCounters {
    sent: u64,
    queue: QueueCounters,
}

#[derive(Serialize)]
struct LinkCounters {
    a: EndCounters,
    b: EndCounters,
}

#[derive(Clone, Default, Serialize)]
struct EndCounters {
    sent: u64,
    delivered: u64,
    lost: u64,
    tx_bytes: u64,
    rx_packets: u64,
    rx_bytes: u64,
    rx_dropped: u64,
    tx_dropped: u64,
}

#[derive(Clone, Default, Serialize)]
pub struct QueueCounters {
    kind: String,
    packets: u64,
    bytes: u64,
    pub drops: u32,
    overlimits: u32,
    requeues: u32,
    backlog_bytes: u32,
    backlog_packets: u32,
    pub xstats: String,
}

/// Groups (`Tcp`, `TcpExt`, …) of counters that are not zero.
type Mib = BTreeMap<String, BTreeMap<String, i64>>;

pub type ByInterface<T> = HashMap<u32, T>;

struct NodeCounters {
    ends: ByInterface<EndCounters>,
    queues: ByInterface<QueueCounters>,
    mib: Mib,
}

pub fn write(world: &World<'_>) -> Result<()> {
    let mut text = vec![0; 64 * 1024];
    let mut stubs = None;
    let nodes = (0..world.plan.nodes.len()).map(|node| {
        if world.placement.is_local(node) {
            read(world, node, &mut text)
        } else {
            read_stubs(world, node, &mut stubs)
        }
    });
    let mut nodes = nodes.collect::<Result<Vec<_>>>()?;
    let mut counters = arrange(world.plan, &world.lab.interfaces, &mut nodes, world.now_since_epoch());
    let mut budget = Budget::default();
    let in_guest = |index: &usize| world.placement.is_local(*index) && !world.placement.on_host_kernel();
    for (index, node) in world.plan.nodes.iter().enumerate().filter(|(index, _)| in_guest(index)) {
        if let Some(pipeline) = &node.pipeline {
            world.lab.namespaces.enter(index)?;
            let program = world
                .lab
                .programs
                .counters(pipeline, &mut budget)
                .with_context(|| format!("node {}", node.name))?;
            let recirculation = pipeline.recirculation.iter().filter_map(|recirculation| {
                let ifindex = world.lab.interfaces[index].get(&recirculation.interface)?;
                let sent = nodes[index].ends.remove(ifindex)?.sent;
                let queue = nodes[index].queues.remove(ifindex)?;
                Some((recirculation.port, RecirculationCounters { sent, queue }))
            });
            let recirculation = recirculation.collect();
            counters.switches.insert(node.name.clone(), SwitchCounters { program, recirculation });
        }
    }
    let mut file = files::create("counters.json")?;
    files::write_line(&mut file, &counters)
        .and_then(|()| file.flush())
        .with_context(|| "out/counters.json".into())
}

/// Arranges the counters of nodes in the plan's order of links and queues.
fn arrange(
    plan: &Plan,
    interfaces: &[HashMap<String, u32>],
    nodes: &mut [NodeCounters],
    time_ns: i64,
) -> Counters {
    // Counters of ends that are not local are zero.
    let index = |node: usize, interface: &str| interfaces[node].get(interface).copied().unwrap_or(0);
    let mut end =
        |end: &End| nodes[end.node].ends.remove(&index(end.node, &end.interface)).unwrap_or_default();
    let links = plan.links.iter().map(|link| LinkCounters { a: end(&link.a), b: end(&link.b) }).collect();
    let queues = plan.queues.iter();
    let queues = queues
        .map(|q| nodes[q.node].queues.remove(&index(q.node, &q.interface)).unwrap_or_default())
        .collect();
    let nodes = nodes.iter_mut().map(|node| std::mem::take(&mut node.mib)).collect();
    Counters { time_ns, links, queues, nodes, switches: BTreeMap::new() }
}

/// Link ends and queues of a namespace, by interface.
type Devices = (ByInterface<EndCounters>, ByInterface<QueueCounters>);

/// Reads the link ends and queues of the thread's namespace.
fn read_devices() -> io::Result<Devices> {
    let netlink = Netlink::open(libc::NETLINK_ROUTE)?;
    let mut ends = HashMap::new();
    let mut query = Batch::default();
    query.request(libc::RTM_GETLINK, libc::NLM_F_DUMP, &IFINFO, "links");
    netlink.dump(query, |_, message| {
        if let (Some(index), Some(attributes)) = (u32_at(message, 4), message.get(IFINFO.len()..)) {
            ends.insert(index, end_counters(attributes));
        }
    })?;
    Ok((ends, root_qdiscs(&netlink)?))
}

/// Counters of a remote node's stubs. `stubs`: those of all nodes, read once.
fn read_stubs(world: &World<'_>, node: usize, stubs: &mut Option<Devices>) -> Result<NodeCounters> {
    let mut counters = NodeCounters { ends: HashMap::new(), queues: HashMap::new(), mib: Mib::new() };
    if world.lab.interfaces[node].is_empty() {
        return Ok(counters);
    }
    if stubs.is_none() {
        world.lab.namespaces.enter_root()?;
        *stubs = Some(read_devices().with_context(|| "the counters of stubs".into())?);
    }
    let (ends, queues) = stubs.as_mut().expect("they have been read");
    for index in world.lab.interfaces[node].values() {
        counters.ends.extend(ends.remove(index).map(|end| (*index, end)));
        counters.queues.extend(queues.remove(index).map(|queue| (*index, queue)));
    }
    Ok(counters)
}

fn read(world: &World<'_>, node: usize, text: &mut [u8]) -> Result<NodeCounters> {
    world.lab.namespaces.enter(node)?;
    let context = || format!("node {}: its counters", world.lab.namespaces.name(node));
    let (ends, queues) = read_devices().with_context(context)?;
    let mut mib = Mib::new();
    let mut file = |name: &str, parse: fn(&str, &mut Mib)| {
        let length = read_proc_file(&format!("/proc/thread-self/net/{name}"), text).with_context(context)?;
        parse(&String::from_utf8_lossy(&text[..length]), &mut mib);
        Ok(())
    };
    file("snmp", parse_pairs)?;
    file("netstat", parse_pairs)?;
    if has_ipv6() {
        file("snmp6", parse_columns)?;
    }
    Ok(NodeCounters { ends, queues, mib })
}

/// Counters of the root qdiscs in a socket's namespace, by interface.
pub fn root_qdiscs(netlink: &Netlink) -> io::Result<ByInterface<QueueCounters>> {
    let mut queues = HashMap::new();
    let mut query = Batch::default();
    query.request(libc::RTM_GETQDISC, libc::NLM_F_DUMP, &[0; TCMSG_LEN], "qdiscs");
    netlink.dump(query, |_, message| {
        let root = u32_at(message, 12) == Some(ROOT);
        if let (true, Some(index), Some(attributes)) = (root, u32_at(message, 4), message.get(TCMSG_LEN..)) {
            queues.insert(index, queue_counters(attributes));
        }
    })?;
    Ok(queues)
}

fn end_counters(attributes: &[u8]) -> EndCounters {
    let info = attribute(attributes, libc::IFLA_LINKINFO).and_then(|info| attribute(info, INFO_DATA));
    let qlink = |kind| info.and_then(|data| attribute(data, kind)).and_then(|v| u64_at(v, 0)).unwrap_or(0);
    let link = Statistics::read(0, attributes);
    EndCounters {
        sent: qlink(SENT),
        delivered: qlink(DELIVERED),
        lost: qlink(LOST),
        rx_packets: link.rx_packets,
        rx_bytes: link.rx_bytes,
        tx_bytes: link.tx_bytes,
        rx_dropped: link.rx_dropped,
        tx_dropped: link.tx_dropped,
    }
}

fn queue_counters(attributes: &[u8]) -> QueueCounters {
    let kind = attribute(attributes, TCA_KIND).unwrap_or(&[]);
    let stats = attribute(attributes, TCA_STATS2).unwrap_or(&[]);
    let basic = attribute(stats, STATS_BASIC).unwrap_or(&[]);
    let queue = attribute(stats, STATS_QUEUE).unwrap_or(&[]);
    let packets = attribute(stats, STATS_PACKETS).and_then(|v| u64_at(v, 0));
    // Qdiscs with nested attributes (cake) have TCA_STATS_APP only.
    let xstats = attribute(attributes, TCA_XSTATS).or(attribute(stats, STATS_APP)).unwrap_or(&[]);
    let field = |index: usize| u32_at(queue, 4 * index).unwrap_or(0);
    QueueCounters {
        kind: String::from_utf8_lossy(kind).trim_end_matches('\0').to_owned(),
        bytes: u64_at(basic, 0).unwrap_or(0),
        packets: packets.or(u32_at(basic, 8).map(u64::from)).unwrap_or(0),
        backlog_packets: field(0),
        backlog_bytes: field(1),
        drops: field(2),
        requeues: field(3),
        overlimits: field(4),
        xstats: xstats.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}

fn count(mib: &mut Mib, group: &str, name: &str, value: &str) {
    match value.parse() {
        Ok(0) | Err(_) => {}
        Ok(value) => {
            mib.entry(group.to_owned()).or_default().insert(name.to_owned(), value);
        }
    }
}

/// Parses /proc/net/snmp and netstat: pairs of a line of names and a line of values.
fn parse_pairs(text: &str, mib: &mut Mib) {
    let lines: Vec<&str> = text.lines().collect();
    for pair in lines.chunks_exact(2) {
        if let (Some((group, names)), Some((_, values))) = (pair[0].split_once(':'), pair[1].split_once(':'))
        {
            let columns = names.split_whitespace().zip(values.split_whitespace());
            columns.for_each(|(name, value)| count(mib, group, name, value));
        }
    }
}

/// Parses /proc/net/snmp6: one counter per line, its name prefixed by its group.
fn parse_columns(text: &str, mib: &mut Mib) {
    const GROUPS: [&str; 4] = ["Icmp6", "UdpLite6", "Udp6", "Ip6"];
    for line in text.lines() {
        let mut words = line.split_whitespace();
        if let (Some(full), Some(value)) = (words.next(), words.next()) {
            if let Some((group, name)) =
                GROUPS.iter().find_map(|g| full.strip_prefix(g).map(|name| (g, name)))
            {
                count(mib, group, name, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snmp_is_parsed_and_zeros_are_omitted() {
        let mut mib = Mib::new();
        parse_pairs("Tcp: MaxConn InSegs OutRsts\nTcp: -1 7 0\nUdp: InDatagrams\nUdp: 3\n", &mut mib);
        parse_columns("Ip6InReceives  \t 5\nUdp6InDatagrams\t 0\nIcmp6OutMsgs 2\n", &mut mib);
        let json = serde_json::to_value(&mib).unwrap();
        let expected = serde_json::json!({
            "Tcp": {"MaxConn": -1, "InSegs": 7}, "Udp": {"InDatagrams": 3}, "Ip6": {"InReceives": 5}, "Icmp6": {"OutMsgs": 2},
        });
        assert_eq!(json, expected);
    }

    #[test]
    fn xstats_are_read_from_either_attribute() {
        let mut message = Batch::default();
        message.request(0, 0, &[], "").text(TCA_KIND, "red").attribute(TCA_XSTATS, &[0xab, 1]);
        let stats = message.begin(TCA_STATS2);
        message.attribute(STATS_BASIC, &[1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0]);
        message.attribute(STATS_QUEUE, &[3, 0, 0, 0, 4, 0, 0, 0, 5, 0, 0, 0, 6, 0, 0, 0, 7, 0, 0, 0]);
        message.end(stats);
        let queue = queue_counters(message.body());
        assert_eq!((queue.kind.as_str(), queue.xstats.as_str()), ("red", "ab01"));
        assert_eq!((queue.bytes, queue.packets, queue.backlog_packets, queue.backlog_bytes), (1, 2, 3, 4));
        assert_eq!((queue.drops, queue.requeues, queue.overlimits), (5, 6, 7));
        let mut message = Batch::default();
        let stats = message.request(0, 0, &[], "").text(TCA_KIND, "cake").begin(TCA_STATS2);
        message.attribute(STATS_APP, &[8, 0, 2, 0, 1, 0, 0, 0]).end(stats);
        assert_eq!(queue_counters(message.body()).xstats, "0800020001000000");
    }
}
