// SPDX-License-Identifier: Apache-2.0
//! Switches in P4: the plan's programs are compiled once, loaded where a node runs them, and told their entries.

mod request;

use crate::failure::{Failure, Of, Result};
use crate::plan::pipeline::{P4Program, Pipeline};
use crate::plan::Plan;
use crate::scope::Scope;
use qbed_p4engine::control::{Answer, Count, Request, Totals};
use qbed_p4engine::program::Program;
use qbed_p4switch::device::{Command, Device, DEVICE};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Of a register array that is told at the end: no longer, and its values no wider.
const MOST_VALUES: u32 = 512;
const MOST_BITS: u32 = 64;

/// The plan's programs, by name.
#[derive(Default)]
pub struct Programs(BTreeMap<String, Compiled>);

struct Compiled {
    program: Program,
    /// As the kernel's engine takes it.
    image: Vec<u8>,
}

impl Programs {
    /// Those that the nodes here run.
    pub fn compile(plan: &Plan, scope: &Scope) -> Result<Self> {
        let here = scope.nodes().filter_map(|node| plan.nodes[node].pipeline.as_ref());
        let names: BTreeSet<&str> = here.map(|pipeline| pipeline.program.as_str()).collect();
        let compile = |given: &P4Program| {
            let here = || format!("program {}", given.name);
            let program = qbed_p4switch::load::load(given.bmv2.as_bytes()).of(here)?;
            let image = postcard::to_allocvec(&program).of(here)?;
            Ok((given.name.clone(), Compiled { program, image }))
        };
        let run = plan.p4.iter().filter(|program| names.contains(program.name.as_str()));
        run.map(compile).collect::<Result<_>>().map(Self)
    }

    /// Makes the namespace in which the thread is a switch; its interfaces are there, and up.
    pub fn start(&self, pipeline: &Pipeline) -> Result<()> {
        let here = || format!("program {}", pipeline.program);
        let Compiled { program, image } = self.of(pipeline)?;
        let mut device = Device::open(DEVICE).of(|| DEVICE.into())?;
        device.ask(Command::Load, 0, image).of(here)?;
        for entry in &pipeline.entries {
            let asked = request::request(program, entry).of(here)?;
            tell(&mut device, &asked).of(|| format!("{}: {}", here(), entry.table))?;
        }
        for session in &pipeline.sessions {
            let asked = request::session(session);
            tell(&mut device, &asked).of(|| format!("{}: clone session {}", here(), session.session))?;
        }
        for group in &pipeline.groups {
            tell(&mut device, &request::group(group)).of(|| format!("{}: group {}", here(), group.group))?;
        }
        for register in &pipeline.registers {
            let asked = request::register(program, register).of(here)?;
            tell(&mut device, &asked).of(|| format!("{}: register {}", here(), register.name))?;
        }
        let ports = (0..).zip(&pipeline.ports);
        let parking = pipeline.parking.iter().map(|parking| (parking.port as u32, &parking.interface));
        for (port, interface) in ports.chain(parking) {
            device
                .ask(Command::Attach, port, interface.as_bytes())
                .of(|| format!("port {port}, {interface}"))?;
        }
        Ok(())
    }

    /// What the switch of the namespace in which the thread is has counted since it was started.
    pub fn counted(&self, pipeline: &Pipeline) -> Result<Counted> {
        let here = || format!("program {}", pipeline.program);
        let program = &self.of(pipeline)?.program;
        let mut device = Device::open(DEVICE).of(|| DEVICE.into())?;
        let shell = device.ask(Command::Counters, 0, &[]).of(here)?;
        let totals = match ask(&mut device, &Request::Totals).of(here)? {
            Answer::Totals(totals) => totals,
            answer => return Err(Failure::new(format!("{}: its totals: {answer:?}", here()))),
        };
        let mut counters = Sparse::new();
        for (number, counter) in (0..).zip(&program.counters).filter(|(_, one)| one.table.is_none()) {
            let asked = Request::ReadCounter { counter: number, from: 0, count: counter.size };
            if let Answer::Counts(counts) = ask(&mut device, &asked).of(here)? {
                let packets = |count: &Count| count.packets;
                counters.insert(counter.name.clone(), sparse(counts.iter().map(packets)));
            }
        }
        let mut registers = Sparse::new();
        let told = |width: u32, size: u32| width <= MOST_BITS && size <= MOST_VALUES;
        for (number, array) in (0..).zip(&program.arrays).filter(|(_, one)| told(one.width, one.size)) {
            let asked = Request::ReadRegister { array: number, from: 0, count: array.size };
            if let Answer::Values(values) = ask(&mut device, &asked).of(here)? {
                registers.insert(array.name.clone(), sparse(values.iter().map(|value| number_of(value))));
            }
        }
        Ok(Counted {
            shell: by_name(&shell),
            totals: totals_by_name(&totals),
            drops: totals.drops,
            counters,
            registers,
        })
    }

    fn of(&self, pipeline: &Pipeline) -> Result<&Compiled> {
        let known = self.0.get(&pipeline.program);
        known.ok_or_else(|| Failure::new(format!("the plan has no program {}", pipeline.program)))
    }
}

/// What is not zero, by index, by name.
type Sparse = BTreeMap<String, BTreeMap<usize, u64>>;

/// What a switch counted: packets by what its shell did with them, by what its program did, drops by reason, and the
/// program's own counters and registers.
#[derive(Debug, Serialize)]
pub struct Counted {
    shell: BTreeMap<&'static str, u64>,
    totals: BTreeMap<&'static str, u64>,
    #[serde(serialize_with = "as_map")]
    drops: Vec<(String, u64)>,
    counters: Sparse,
    registers: Sparse,
}

fn as_map<S: serde::Serializer>(pairs: &[(String, u64)], to: S) -> std::result::Result<S::Ok, S::Error> {
    to.collect_map(pairs.iter().map(|(name, count)| (name, count)))
}

fn tell(device: &mut Device, request: &Request) -> std::result::Result<(), String> {
    match ask(device, request)? {
        Answer::Done => Ok(()),
        answer => Err(format!("{answer:?}")),
    }
}

fn ask(device: &mut Device, request: &Request) -> std::result::Result<Answer, String> {
    let asked = postcard::to_allocvec(request).map_err(|error| error.to_string())?;
    let answer = device.ask(Command::Control, 0, &asked).map_err(|error| error.to_string())?;
    match postcard::from_bytes(&answer) {
        Ok(Answer::Refused(_, why)) => Err(why),
        Ok(answer) => Ok(answer),
        Err(error) => Err(error.to_string()),
    }
}

fn sparse(values: impl Iterator<Item = u64>) -> BTreeMap<usize, u64> {
    values.enumerate().filter(|(_, value)| *value != 0).collect()
}

fn number_of(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// `struct qp4_counters`
const SHELL: [&str; 14] = [
    "received",
    "sent",
    "no_program",
    "no_port",
    "refused",
    "too_many_rounds",
    "foreign",
    "runt",
    "no_memory",
    "no_group",
    "events_lost",
    "packets_in",
    "packets_in_lost",
    "packets_out",
];

fn by_name(counters: &[u8]) -> BTreeMap<&'static str, u64> {
    let numbers = counters.chunks_exact(8).map(|bytes| bytes.try_into().map_or(0, u64::from_ne_bytes));
    SHELL.into_iter().zip(numbers).collect()
}

fn totals_by_name(totals: &Totals) -> BTreeMap<&'static str, u64> {
    BTreeMap::from([
        ("ingress", totals.ingress),
        ("egress", totals.egress),
        ("sent", totals.sent),
        ("cloned", totals.cloned),
        ("replicated", totals.replicated),
        ("resubmitted", totals.resubmitted),
        ("recirculated", totals.recirculated),
        ("parser_errors", totals.parser_errors),
        ("checksum_errors", totals.checksum_errors),
        ("digests", totals.digests),
        ("asserts_failed", totals.asserts_failed),
    ])
}
