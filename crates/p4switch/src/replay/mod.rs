// SPDX-License-Identifier: Apache-2.0
//! Runs an STF file against a program: `p4switch test`.
//!
//! The comparison follows p4c's runner for BMv2: at each port in the file, the packets sent are compared with the
//! packets expected, in order. Tables, actions and keys may be named by a suffix of their name.

mod values;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use qbed_p4engine::control::{Answer, CloneSession, Count, Entry, Replica, Request, Target};
use qbed_p4engine::program::{Match, MatchKind, Program, Table, TableId};

use crate::stf::{self, Call, Line, Pattern, Statement};
use crate::switch::{Switch, MAX_PACKETS, MAX_PASSES};
use values::{action_call, bytes, find_by_suffix, key_index, meter_rates, number, parse_match, wildcard};

const SEED: u64 = 1;
/// Time from one packet to the next, on the switch's clock.
const INTERVAL_US: u64 = 1000;

/// Result of an STF file.
#[derive(Debug, Default)]
pub struct Report {
    pub packets_in: usize,
    pub packets_out: usize,
    /// Each begins with its line or port.
    pub failures: Vec<String>,
    /// The program's log messages.
    pub messages: Vec<String>,
}

type Result<T> = std::result::Result<T, String>;

/// Run an STF file. The error is the first thing that makes this impossible.
pub fn replay(program: Program, lines: &[Line]) -> Result<Report> {
    replay_every(program, lines, INTERVAL_US)
}

/// Run an STF file with `interval_us` from one packet to the next.
pub fn replay_every(program: Program, lines: &[Line], interval_us: u64) -> Result<Report> {
    let switch = Switch::new(program, SEED).map_err(|unfit| unfit.0)?;
    let mut replay = Replay::new(switch, interval_us);
    for line in lines {
        if let Err(why) = replay.run(line) {
            replay.report.failures.push(format!("line {}: {why}", line.number));
        }
    }
    Ok(replay.report(lines))
}

/// Ingress port and packet.
pub type Arrived = (u16, Vec<u8>);

/// Run an STF file's commands. Returns the switch and the file's packets, for a benchmark.
pub fn prepare(program: Program, lines: &[Line]) -> Result<(Switch, Vec<Arrived>)> {
    let mut replay = Replay::new(Switch::new(program, SEED).map_err(|unfit| unfit.0)?, INTERVAL_US);
    let mut packets = Vec::new();
    for line in lines {
        match &line.statement {
            Statement::Packet { port, bytes } => packets.push((*port, bytes.clone())),
            Statement::CheckCounter { .. } => {}
            _ => replay.run(line).map_err(|why| format!("line {}: {why}", line.number))?,
        }
    }
    Ok((replay.switch, packets))
}

struct Replay {
    switch: Switch,
    interval_us: u64,
    report: Report,
    now_us: u64,
    sent: BTreeMap<u16, Vec<Vec<u8>>>,
    expected: BTreeMap<u16, Vec<(usize, Option<Pattern>)>>,
    /// Replicas of each multicast node, by the node's number.
    nodes: Vec<Vec<Replica>>,
    /// Nodes of each multicast group.
    groups: BTreeMap<u16, Vec<usize>>,
    /// Port and multicast group of each clone session.
    sessions: BTreeMap<u16, (Option<u16>, Option<u16>)>,
    /// Table, key and priority of named entries.
    entries: HashMap<String, (TableId, Vec<Match>, u32)>,
}

impl Replay {
    fn new(switch: Switch, interval_us: u64) -> Self {
        Self {
            switch,
            interval_us,
            report: Report::default(),
            now_us: 0,
            sent: BTreeMap::new(),
            expected: BTreeMap::new(),
            nodes: Vec::new(),
            groups: BTreeMap::new(),
            sessions: BTreeMap::new(),
            entries: HashMap::new(),
        }
    }

    fn run(&mut self, line: &Line) -> Result<()> {
        match &line.statement {
            Statement::Packet { port, bytes } => {
                self.packet(*port, bytes);
                Ok(())
            }
            Statement::Expect { port, pattern } => {
                self.expected.entry(*port).or_default().push((line.number, pattern.clone()));
                Ok(())
            }
            Statement::NoPacket | Statement::Wait | Statement::Nothing => Ok(()),
            Statement::Add { table, priority, keys, call, name } => {
                self.add(table, *priority, keys, call, name.as_deref())
            }
            Statement::SetDefault { table, call } => {
                let (id, table) = self.table(table)?;
                let target = Target::Call(action_call(self.switch.program(), table, call)?);
                self.request(&Request::SetDefault { table: id, target })
            }
            Statement::RemoveAll => Err("`remove all` is not supported (p4c's runner ignores it)".into()),
            Statement::CheckCounter { counter, cell, check } => self.check_counter(counter, cell, *check),
            other => self.extern_or_group(other),
        }
    }

    fn extern_or_group(&mut self, statement: &Statement) -> Result<()> {
        match statement {
            Statement::CounterRead { counter, index } => {
                let counter = self.counter(counter)?;
                self.request(&Request::ReadCounter { counter, from: *index, count: 1 })
            }
            Statement::CounterWrite { counter, index, packets, bytes } => {
                let counter = self.counter(counter)?;
                let value = Count { packets: *packets, bytes: *bytes };
                self.request(&Request::WriteCounter { counter, index: *index, value })
            }
            Statement::RegisterRead { register, index } => {
                let (array, ..) = self.register(register)?;
                self.request(&Request::ReadRegister { array, from: *index, count: 1 })
            }
            Statement::RegisterWrite { register, index, value } => {
                let (array, width, _) = self.register(register)?;
                let value = bytes(&number(value)?, width)?;
                self.request(&Request::WriteRegister { array, index: *index, value })
            }
            Statement::RegisterReset { register } => {
                let (array, width, size) = self.register(register)?;
                let value = vec![0; width.div_ceil(8) as usize];
                (0..size).try_for_each(|index| {
                    self.request(&Request::WriteRegister { array, index, value: value.clone() })
                })
            }
            Statement::MeterRead { meter, index } => {
                let (meter, _) = self.meter(meter)?;
                self.request(&Request::ReadMeter { meter, index: *index })
            }
            Statement::MeterWrite { meter, index, rates } => {
                let (meter, size) = self.meter(meter)?;
                let rates = Some(meter_rates(rates)?);
                let cells = index.map_or(0..size, |index| index..index.saturating_add(1));
                cells
                    .into_iter()
                    .try_for_each(|index| self.request(&Request::SetMeter { meter, index, rates }))
            }
            other => self.group(other),
        }
    }

    fn group(&mut self, statement: &Statement) -> Result<()> {
        match statement {
            Statement::MirroringAdd { session, port } => {
                self.sessions.entry(*session).or_default().0 = Some(*port);
            }
            Statement::MirroringAddGroup { session, group } => {
                self.sessions.entry(*session).or_default().1 = Some(*group);
            }
            Statement::MirroringDelete { session } => {
                self.sessions.remove(session);
                return self.request(&Request::SetCloneSession { session: *session, clone: None });
            }
            Statement::CreateGroup { group } => {
                self.groups.entry(*group).or_default();
            }
            Statement::CreateNode { instance, ports } => {
                self.nodes
                    .push(ports.iter().map(|port| Replica { port: *port, instance: *instance }).collect());
            }
            Statement::UpdateNode { node, ports } => {
                let replicas = self.nodes.get_mut(*node).ok_or_else(|| format!("no node {node}"))?;
                let instance = replicas.first().map_or(0, |replica| replica.instance);
                *replicas = ports.iter().map(|port| Replica { port: *port, instance }).collect();
            }
            Statement::AssociateNode { group, node } => {
                if *node >= self.nodes.len() {
                    return Err(format!("no node {node}"));
                }
                self.groups.get_mut(group).ok_or_else(|| format!("no group {group}"))?.push(*node);
            }
            other => return Err(format!("{other:?} is not supported")),
        }
        self.update_groups()
    }

    /// Set the replicas of all groups and sessions in the engine, which has no multicast nodes.
    fn update_groups(&mut self) -> Result<()> {
        let replicas_of = |group: &u16| -> Vec<Replica> {
            let nodes = self.groups.get(group).into_iter().flatten();
            nodes.flat_map(|node| self.nodes[*node].clone()).collect()
        };
        let groups: Vec<_> = self.groups.keys().map(|group| (*group, replicas_of(group))).collect();
        let session = |(port, group): &(Option<u16>, Option<u16>)| {
            let mut replicas = group.as_ref().map(&replicas_of).unwrap_or_default();
            replicas.extend(port.map(|port| Replica { port, instance: 0 }));
            CloneSession { replicas, truncate_bytes: 0 }
        };
        let sessions: Vec<_> = self.sessions.iter().map(|(id, targets)| (*id, session(targets))).collect();
        for (group, replicas) in groups {
            self.request(&Request::SetMulticastGroup { group, replicas: Some(replicas) })?;
        }
        for (session, clone) in sessions {
            self.request(&Request::SetCloneSession { session, clone: Some(clone) })?;
        }
        Ok(())
    }

    fn packet(&mut self, port: u16, bytes: &[u8]) {
        self.now_us += self.interval_us;
        self.report.packets_in += 1;
        for sent in self.switch.receive(port, bytes.to_vec(), self.now_us) {
            self.report.packets_out += 1;
            self.sent.entry(sent.port).or_default().push(sent.bytes);
        }
    }

    fn request(&mut self, request: &Request) -> Result<()> {
        match self.switch.control(request) {
            Answer::Refused(code, why) => Err(format!("{why} ({code:?})")),
            _ => Ok(()),
        }
    }

    fn table(&self, name: &str) -> Result<(TableId, &Table)> {
        let tables = &self.switch.program().tables;
        let index = find_by_suffix("table", name, tables.iter().map(|table| table.name.as_str()))?;
        Ok((index as TableId, &tables[index]))
    }

    fn counter(&self, name: &str) -> Result<u16> {
        let counters = &self.switch.program().counters;
        find_by_suffix("counter", name, counters.iter().map(|counter| counter.name.as_str()))
            .map(|index| index as u16)
    }

    fn meter(&self, name: &str) -> Result<(u16, u32)> {
        let meters = &self.switch.program().meters;
        let index = find_by_suffix("meter", name, meters.iter().map(|meter| meter.name.as_str()))?;
        Ok((index as u16, meters[index].size))
    }

    fn register(&self, name: &str) -> Result<(u16, u32, u32)> {
        let arrays = &self.switch.program().arrays;
        let index = find_by_suffix("register", name, arrays.iter().map(|array| array.name.as_str()))?;
        Ok((index as u16, arrays[index].width, arrays[index].size))
    }

    fn add(
        &mut self,
        table: &str,
        priority: Option<u32>,
        keys: &[(String, String)],
        call: &Call,
        name: Option<&str>,
    ) -> Result<()> {
        let (id, table) = self.table(table)?;
        let program = self.switch.program();
        let mut matches = table.keys.iter().map(|key| wildcard(program, key)).collect::<Vec<_>>();
        for (name, value) in keys {
            let index = key_index(&table.keys, name)?;
            let key = &table.keys[index];
            matches[index] = parse_match(program, key, value).map_err(|why| format!("key {name}: {why}"))?;
        }
        let needs_priority =
            table.keys.iter().any(|key| !matches!(key.kind, MatchKind::Exact | MatchKind::Lpm));
        // The highest priority wins in STF files and in the engine, where 0 means none.
        let priority = if needs_priority { priority.unwrap_or(0).saturating_add(1) } else { 0 };
        let target = Target::Call(action_call(program, table, call)?);
        if let Some(name) = name {
            self.entries.insert(name.into(), (id, matches.clone(), priority));
        }
        self.request(&Request::Insert { table: id, entry: Entry { matches, priority, target, idle_us: 0 } })
    }

    fn check_counter(&mut self, counter: &str, cell: &str, check: stf::Check) -> Result<()> {
        let id = self.counter(counter)?;
        let request = match cell.strip_prefix('$') {
            Some(name) => {
                let (table, matches, priority) =
                    self.entries.get(name).cloned().ok_or_else(|| format!("no entry {name}"))?;
                Request::Entry { table, matches, priority }
            }
            None => {
                let index = number(cell)?;
                let from = index.try_into().map_err(|_| format!("no cell {cell}"))?;
                Request::ReadCounter { counter: id, from, count: 1 }
            }
        };
        let count = match self.switch.control(&request) {
            Answer::Entries(entries) => entries.first().and_then(|entry| entry.count),
            Answer::Counts(counts) => counts.first().copied(),
            Answer::Refused(code, why) => return Err(format!("{why} ({code:?})")),
            _ => None,
        };
        let count = count.ok_or_else(|| format!("{counter} has no cell {cell}"))?;
        let (unit, value) = if check.bytes { ("bytes", count.bytes) } else { ("packets", count.packets) };
        match check.comparison.holds(value, check.value) {
            true => Ok(()),
            false => Err(format!(
                "{counter}({cell}): expected {unit} {} {}, found {value}",
                check.comparison, check.value
            )),
        }
    }

    fn report(mut self, lines: &[Line]) -> Report {
        let named = lines.iter().filter_map(|line| match line.statement {
            Statement::Packet { port, .. } | Statement::Expect { port, .. } => Some(port),
            _ => None,
        });
        // Packets at ports that the file does not name are ignored.
        for port in named.collect::<BTreeSet<_>>() {
            let sent = self.sent.remove(&port).unwrap_or_default();
            let expected = self.expected.remove(&port).unwrap_or_default();
            self.report.failures.extend(compare(port, &sent, &expected));
        }
        if self.switch.over_limit > 0 {
            self.report.failures.push(format!(
                "{} packets dropped after {MAX_PASSES} passes or {MAX_PACKETS} copies",
                self.switch.over_limit
            ));
        }
        let failed = self.switch.log.failed_asserts.drain(..);
        self.report.failures.extend(failed.map(|message| format!("{message} failed")));
        self.report.messages.append(&mut self.switch.log.messages);
        self.report
    }
}

fn compare(port: u16, sent: &[Vec<u8>], expected: &[(usize, Option<Pattern>)]) -> Vec<String> {
    let mut failures = Vec::new();
    if sent.len() != expected.len() {
        failures.push(format!("port {port}: expected {} packets, found {}", expected.len(), sent.len()));
    }
    for (bytes, (line, pattern)) in sent.iter().zip(expected) {
        let Some(pattern) = pattern else { continue };
        if let Some(why) = pattern.mismatch(bytes) {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            failures.push(format!(
                "line {line}: port {port}: {why}\n    found     {hex}\n    expected  {pattern}"
            ));
        }
    }
    failures
}
