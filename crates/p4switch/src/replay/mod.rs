// SPDX-License-Identifier: Apache-2.0
//! An STF file against a program: `p4switch test`.
//!
//! Judged as p4c's own runner judges BMv2: for each port that the file names, the packets that came out in their order against
//! the packets expected. Names of tables, actions and keys may be their ends, as there.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use num_bigint::BigInt;
use qbed_p4engine::control::{Answer, CloneSession, Count, Entry, Rates, Replica, Request, Target};
use qbed_p4engine::program::{ActionCall, Key, Match, MatchKind, Program, Table, TableId};

use crate::stf::{self, Call, Line, Pattern, Statement};
use crate::switch::Switch;

const SEED: u64 = 1;
/// Time from one packet to the next, on the switch's clock.
const INTERVAL_US: u64 = 1000;

/// What came of it.
#[derive(Debug, Default)]
pub struct Report {
    pub packets_in: usize,
    pub packets_out: usize,
    /// Each with its line, or its port.
    pub failures: Vec<String>,
    /// What the program logged.
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
        if let Err(why) = replay.step(line) {
            replay.report.failures.push(format!("line {}: {why}", line.number));
        }
    }
    Ok(replay.judge(lines))
}

/// A packet and the port by which it comes.
pub type Arrived = (u16, Vec<u8>);

/// A switch as the file's commands leave it, and the file's packets with their ports: what a measurement sends again and again.
pub fn prepare(program: Program, lines: &[Line]) -> Result<(Switch, Vec<Arrived>)> {
    let mut replay = Replay::new(Switch::new(program, SEED).map_err(|unfit| unfit.0)?, INTERVAL_US);
    let mut packets = Vec::new();
    for line in lines {
        match &line.statement {
            Statement::Packet { port, bytes } => packets.push((*port, bytes.clone())),
            Statement::CheckCounter { .. } => {}
            _ => replay.step(line).map_err(|why| format!("line {}: {why}", line.number))?,
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
    /// Multicast nodes by their number, groups with their nodes, sessions that clone to a group.
    nodes: Vec<Vec<Replica>>,
    groups: BTreeMap<u16, Vec<usize>>,
    sessions: BTreeMap<u16, (Option<u16>, Option<u16>)>,
    /// Entries that have a name.
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

    fn step(&mut self, line: &Line) -> Result<()> {
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
                self.ask(&Request::SetDefault { table: id, target })
            }
            Statement::RemoveAll => Err("remove all is not possible: p4c's runner ignores it".into()),
            Statement::CheckCounter { counter, cell, check } => self.check_counter(counter, cell, *check),
            other => self.extern_or_group(other),
        }
    }

    fn extern_or_group(&mut self, statement: &Statement) -> Result<()> {
        match statement {
            Statement::CounterRead { counter, index } => {
                let counter = self.counter(counter)?;
                self.ask(&Request::ReadCounter { counter, from: *index, count: 1 })
            }
            Statement::CounterWrite { counter, index, packets, bytes } => {
                let counter = self.counter(counter)?;
                let value = Count { packets: *packets, bytes: *bytes };
                self.ask(&Request::WriteCounter { counter, index: *index, value })
            }
            Statement::RegisterRead { register, index } => {
                let (array, ..) = self.register(register)?;
                self.ask(&Request::ReadRegister { array, from: *index, count: 1 })
            }
            Statement::RegisterWrite { register, index, value } => {
                let (array, width, _) = self.register(register)?;
                let value = bytes(&number(value)?, width)?;
                self.ask(&Request::WriteRegister { array, index: *index, value })
            }
            Statement::RegisterReset { register } => {
                let (array, width, size) = self.register(register)?;
                let value = vec![0; width.div_ceil(8) as usize];
                (0..size).try_for_each(|index| {
                    self.ask(&Request::WriteRegister { array, index, value: value.clone() })
                })
            }
            Statement::MeterRead { meter, index } => {
                let (meter, _) = self.meter(meter)?;
                self.ask(&Request::ReadMeter { meter, index: *index })
            }
            Statement::MeterWrite { meter, index, rates } => {
                let (meter, size) = self.meter(meter)?;
                let rates = Some(meter_rates(rates)?);
                let cells = index.map_or(0..size, |index| index..index.saturating_add(1));
                cells.into_iter().try_for_each(|index| self.ask(&Request::SetMeter { meter, index, rates }))
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
                return self.ask(&Request::SetCloneSession { session: *session, clone: None });
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
            other => return Err(format!("{other:?} is not possible here")),
        }
        self.tell_groups()
    }

    /// The engine knows groups and sessions by their replicas only.
    fn tell_groups(&mut self) -> Result<()> {
        let of = |group: &u16| -> Vec<Replica> {
            let nodes = self.groups.get(group).into_iter().flatten();
            nodes.flat_map(|node| self.nodes[*node].clone()).collect()
        };
        let groups: Vec<_> = self.groups.keys().map(|group| (*group, of(group))).collect();
        let session = |(port, group): &(Option<u16>, Option<u16>)| {
            let mut replicas = group.as_ref().map(&of).unwrap_or_default();
            replicas.extend(port.map(|port| Replica { port, instance: 0 }));
            CloneSession { replicas, truncate_bytes: 0 }
        };
        let sessions: Vec<_> = self.sessions.iter().map(|(id, targets)| (*id, session(targets))).collect();
        for (group, replicas) in groups {
            self.ask(&Request::SetMulticastGroup { group, replicas: Some(replicas) })?;
        }
        for (session, clone) in sessions {
            self.ask(&Request::SetCloneSession { session, clone: Some(clone) })?;
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

    fn ask(&mut self, request: &Request) -> Result<()> {
        match self.switch.control(request) {
            Answer::Refused(code, why) => Err(format!("{why} ({code:?})")),
            _ => Ok(()),
        }
    }

    fn table(&self, name: &str) -> Result<(TableId, &Table)> {
        let tables = &self.switch.program().tables;
        let index = by_end("table", name, tables.iter().map(|table| table.name.as_str()))?;
        Ok((index as TableId, &tables[index]))
    }

    fn counter(&self, name: &str) -> Result<u16> {
        let counters = &self.switch.program().counters;
        by_end("counter", name, counters.iter().map(|counter| counter.name.as_str()))
            .map(|index| index as u16)
    }

    fn meter(&self, name: &str) -> Result<(u16, u32)> {
        let meters = &self.switch.program().meters;
        let index = by_end("meter", name, meters.iter().map(|meter| meter.name.as_str()))?;
        Ok((index as u16, meters[index].size))
    }

    fn register(&self, name: &str) -> Result<(u16, u32, u32)> {
        let arrays = &self.switch.program().arrays;
        let index = by_end("register", name, arrays.iter().map(|array| array.name.as_str()))?;
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
        let mut matches = table.keys.iter().map(|key| anything(program, key)).collect::<Vec<_>>();
        for (name, value) in keys {
            let index = key_index(&table.keys, name)?;
            let key = &table.keys[index];
            matches[index] = one_match(program, key, value).map_err(|why| format!("key {name}: {why}"))?;
        }
        let needs_priority =
            table.keys.iter().any(|key| !matches!(key.kind, MatchKind::Exact | MatchKind::Lpm));
        // The highest wins in STF files and in the engine, where 0 is none.
        let priority = if needs_priority { priority.unwrap_or(0).saturating_add(1) } else { 0 };
        let target = Target::Call(action_call(program, table, call)?);
        if let Some(name) = name {
            self.entries.insert(name.into(), (id, matches.clone(), priority));
        }
        self.ask(&Request::Insert { table: id, entry: Entry { matches, priority, target, idle_us: 0 } })
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
        let count = count.ok_or_else(|| format!("{counter} has no such cell"))?;
        let (unit, value) = if check.bytes { ("bytes", count.bytes) } else { ("packets", count.packets) };
        match check.comparison.holds(value, check.value) {
            true => Ok(()),
            false => Err(format!(
                "{counter}({cell}) has {value} {unit}: not {:?} {}",
                check.comparison, check.value
            )),
        }
    }

    fn judge(mut self, lines: &[Line]) -> Report {
        let named = lines.iter().filter_map(|line| match line.statement {
            Statement::Packet { port, .. } | Statement::Expect { port, .. } => Some(port),
            _ => None,
        });
        // What leaves by a port that the file does not name leaves by no port: there is none.
        for port in named.collect::<BTreeSet<_>>() {
            let sent = self.sent.remove(&port).unwrap_or_default();
            let expected = self.expected.remove(&port).unwrap_or_default();
            self.report.failures.extend(compare(port, &sent, &expected));
        }
        if self.switch.endless > 0 {
            let given_up = format!("{} packets went round for ever and were given up", self.switch.endless);
            self.report.failures.push(given_up);
        }
        let failed = self.switch.notes.failed.drain(..);
        self.report.failures.extend(failed.map(|message| format!("{message} does not hold")));
        self.report.messages.append(&mut self.switch.notes.messages);
        self.report
    }
}

fn compare(port: u16, sent: &[Vec<u8>], expected: &[(usize, Option<Pattern>)]) -> Vec<String> {
    let mut failures = Vec::new();
    if sent.len() != expected.len() {
        failures.push(format!(
            "port {port}: {} packets came out, {} are expected",
            sent.len(),
            expected.len()
        ));
    }
    for (bytes, (line, pattern)) in sent.iter().zip(expected) {
        let Some(pattern) = pattern else { continue };
        if let Some(why) = pattern.mismatch(bytes) {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            failures.push(format!(
                "line {line}: port {port}: {why}\n    came      {hex}\n    expected  {pattern}"
            ));
        }
    }
    failures
}

/// The one whose name it is; else the only one whose name ends so.
fn by_end<'a>(what: &str, name: &str, names: impl Iterator<Item = &'a str>) -> Result<usize> {
    let names: Vec<&str> = names.collect();
    if let Some(index) = names.iter().position(|known| *known == name) {
        return Ok(index);
    }
    let ends: Vec<usize> = (0..names.len()).filter(|index| names[*index].ends_with(name)).collect();
    match ends.as_slice() {
        [one] => Ok(*one),
        [] => Err(format!("no {what} {name}")),
        [one, other, ..] => Err(format!("{what} {name}: {} or {}?", names[*one], names[*other])),
    }
}

fn action_call(program: &Program, table: &Table, call: &Call) -> Result<ActionCall> {
    let names = table.actions.iter().map(|action| program.actions[*action as usize].name.as_str());
    let action = table.actions[by_end("action", &call.action, names)?];
    let parameters = &program.actions[action as usize].parameters;
    for (name, _) in &call.arguments {
        if !parameters.iter().any(|parameter| parameter.name == *name) {
            return Err(format!("{} has no parameter {name}", call.action));
        }
    }
    let value = |parameter: &qbed_p4engine::program::Parameter| {
        let given = call.arguments.iter().rev().find(|(name, _)| *name == parameter.name);
        let (name, text) =
            given.ok_or_else(|| format!("{}: no argument for {}", call.action, parameter.name))?;
        bytes(&number(text)?, parameter.width).map_err(|why| format!("{name}: {why}"))
    };
    Ok(ActionCall { action, arguments: parameters.iter().map(value).collect::<Result<_>>()? })
}

/// By its name, or in the ways in which p4c's files write a stack's element and a header's validity.
fn key_index(keys: &[Key], name: &str) -> Result<usize> {
    let name = match name.split_once('$') {
        Some((before, behind)) if behind.starts_with(|letter: char| letter.is_ascii_digit()) => {
            let end = behind.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(behind.len());
            format!("{before}[{}]{}", &behind[..end], &behind[end..])
        }
        _ => name.to_owned(),
    };
    let exactly = |wanted: &str| keys.iter().position(|key| key.name == wanted);
    let valid =
        name.strip_suffix("valid").filter(|rest| rest.ends_with('.')).map(|rest| format!("{rest}$valid$"));
    let ends = |key: &Key| {
        key.name.ends_with(&format!(".{name}"))
            || key.name.ends_with(&format!(".{name}$"))
            || (name == "valid" && key.name.ends_with(".$valid$"))
    };
    exactly(&name)
        .or_else(|| exactly(&format!("{name}$")))
        .or_else(|| exactly(&format!("{name}.$valid$")))
        .or_else(|| exactly(&valid?))
        .or_else(|| keys.iter().rposition(ends))
        .or_else(|| if name == "valid" { exactly("$valid$") } else { None })
        .ok_or_else(|| format!("no key {name}"))
}

fn anything(program: &Program, key: &Key) -> Match {
    let width = program.fields[key.field as usize].width;
    let zero = vec![0; width.div_ceil(8) as usize];
    match key.kind {
        MatchKind::Exact => Match::Exact(zero),
        MatchKind::Lpm => Match::Lpm { value: zero, length: 0 },
        MatchKind::Ternary => Match::Ternary { mask: zero.clone(), value: zero },
        MatchKind::Range => Match::Range { low: zero, high: bytes(&ones(width), width).unwrap_or_default() },
        MatchKind::Optional => Match::Optional(None),
    }
}

fn one_match(program: &Program, key: &Key, text: &str) -> Result<Match> {
    let width = program.fields[key.field as usize].width;
    let value = |text: &str| bytes(&number(text)?, width);
    Ok(match key.kind {
        MatchKind::Exact => Match::Exact(value(text)?),
        MatchKind::Optional => Match::Optional(Some(value(text)?)),
        MatchKind::Lpm => {
            let (prefix, length) = match text.split_once('/') {
                Some((prefix, length)) => (prefix.to_owned(), number(length)?),
                None => (text.replace('*', "0"), BigInt::from(prefix_length(text, width))),
            };
            let length = u16::try_from(length).ok().filter(|length| u32::from(*length) <= width);
            Match::Lpm { value: value(&prefix)?, length: length.ok_or("longer than the field")? }
        }
        MatchKind::Ternary => {
            // As p4c's runner: only the digits that are written are compared.
            let (prefix, digits) = text.split_at(text.len().min(2));
            let digit = match prefix {
                "0x" | "0X" => "f",
                "0b" | "0B" => "1",
                "0o" | "0O" => "7",
                _ => return Ok(Match::Ternary { value: value(text)?, mask: bytes(&ones(width), width)? }),
            };
            let mask: String = digits.chars().map(|letter| if letter == '*' { "0" } else { digit }).collect();
            let (text, mask) = (format!("{prefix}{}", digits.replace('*', "0")), format!("{prefix}{mask}"));
            let mask = number(&mask)? & ones(width);
            Match::Ternary { value: value(&text)?, mask: bytes(&mask, width)? }
        }
        MatchKind::Range => match text.split_once("..") {
            Some((low, high)) => Match::Range { low: value(low)?, high: value(high)? },
            None => Match::Range { low: value(text)?, high: value(text)? },
        },
    })
}

/// Of a prefix that is written as its digits.
fn prefix_length(text: &str, width: u32) -> u32 {
    let bits = match text.get(..2) {
        Some("0x" | "0X") => 4,
        Some("0b" | "0B") => 1,
        Some("0o" | "0O") => 3,
        _ => return width,
    };
    let digits = text[2..].chars().filter(|letter| *letter != '*').count() as u32;
    digits.saturating_mul(bits).min(width)
}

fn number(text: &str) -> Result<BigInt> {
    stf::number(text).ok_or_else(|| format!("{text:?} is no number"))
}

fn ones(width: u32) -> BigInt {
    (BigInt::from(1) << width) - 1
}

/// In the bytes of something so many bits wide.
fn bytes(value: &BigInt, width: u32) -> Result<Vec<u8>> {
    if value > &ones(width) {
        return Err(format!("{value:#x} does not fit into {width} bits"));
    }
    let (_, digits) = value.to_bytes_be();
    let mut padded = vec![0; (width.div_ceil(8) as usize).saturating_sub(digits.len())];
    padded.extend(digits);
    padded.truncate(width.div_ceil(8) as usize);
    Ok(padded)
}

/// Rates of units in a microsecond, bursts of units: the committed pair, then the peak one.
fn meter_rates(rates: &[(String, String)]) -> Result<Rates> {
    let pair = |index: usize| -> Result<(u64, u64)> {
        let (rate, burst) = rates.get(index).ok_or("two rates are needed")?;
        let units: f64 = rate.parse().map_err(|_| format!("{rate:?} is no rate"))?;
        let burst = u64::try_from(number(burst)?).map_err(|_| format!("{burst:?} is no burst"))?;
        Ok(((units * 1e6).round() as u64, burst))
    };
    let ((committed, committed_burst), (peak, peak_burst)) = (pair(0)?, pair(1)?);
    Ok(Rates { committed, committed_burst, peak, peak_burst })
}
