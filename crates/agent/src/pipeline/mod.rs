// SPDX-License-Identifier: Apache-2.0
//! P4 switches: reads the images of the plan's programs, loads them into the switches' kernel, and writes table entries.

pub mod arrays;
mod request;

use self::arrays::{ArrayState, Budget};
use crate::failure::{Context, Failure, Result};
use crate::placement::Placement;
use crate::plan::pipeline::{P4Program, Pipeline};
use crate::plan::Plan;
use qbed_p4device::{image, Command, Device, DEVICE};
use qbed_p4engine::control::{Answer, Count, Request, Totals};
use qbed_p4engine::program::Program;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// The folder of images in that of the plan.
const IMAGES: &str = "guest/p4";

/// Limits on register arrays that are written to the results.
const REGISTER_VALUES_MAX: u32 = 512;
const REGISTER_BITS_MAX: u32 = 64;

/// The plan's programs, by name.
#[derive(Default)]
pub struct Programs(BTreeMap<String, Loaded>);

struct Loaded {
    program: Program,
    /// The program as the kernel's engine reads it.
    encoded: Vec<u8>,
}

impl Programs {
    /// Reads the images of the programs of local nodes. The host writes them before the start, by the positions of the
    /// programs in the plan.
    pub fn read(plan: &Plan, placement: &Placement, folder: &str) -> Result<Self> {
        let pipelines = placement.local_nodes().filter_map(|node| plan.nodes[node].pipeline.as_ref());
        let names: BTreeSet<&str> = pipelines.map(|pipeline| pipeline.program.as_str()).collect();
        let used = plan.p4.iter().enumerate().filter(|(_, program)| names.contains(program.name.as_str()));
        let read = |(number, declared): (usize, &P4Program)| {
            let path = format!("{folder}/{IMAGES}/{number}.image");
            let context = || format!("program {}: {path}", declared.name);
            let bytes = std::fs::read(&path).with_context(context)?;
            let (program, encoded) = image::read(&bytes).with_context(context)?;
            Ok((declared.name.clone(), Loaded { program, encoded: encoded.to_vec() }))
        };
        used.map(read).collect::<Result<_>>().map(Self)
    }

    /// Makes the thread's current namespace a P4 switch. Its interfaces must exist and be up.
    pub fn start(&self, pipeline: &Pipeline) -> Result<()> {
        let context = || format!("program {}", pipeline.program);
        let Loaded { program, encoded } = self.loaded(pipeline)?;
        let mut device = Device::open(DEVICE).with_context(|| DEVICE.into())?;
        device.execute(Command::Load, 0, encoded).with_context(context)?;
        for entry in &pipeline.entries {
            let request = request::entry(program, entry).with_context(context)?;
            write(&mut device, &request).with_context(|| format!("{}: {}", context(), entry.table))?;
        }
        for session in &pipeline.sessions {
            let request = request::session(session);
            write(&mut device, &request)
                .with_context(|| format!("{}: clone session {}", context(), session.session))?;
        }
        for group in &pipeline.groups {
            write(&mut device, &request::group(group))
                .with_context(|| format!("{}: group {}", context(), group.group))?;
        }
        for register in &pipeline.registers {
            let request = request::register(program, register).with_context(context)?;
            write(&mut device, &request)
                .with_context(|| format!("{}: register {}", context(), register.name))?;
        }
        let ports = (0..).zip(&pipeline.ports);
        let recirculation = pipeline
            .recirculation
            .iter()
            .map(|recirculation| (recirculation.port as u32, &recirculation.interface));
        for (port, interface) in ports.chain(recirculation) {
            device
                .execute(Command::Attach, port, interface.as_bytes())
                .with_context(|| format!("port {port}, {interface}"))?;
        }
        Ok(())
    }

    /// Counters and registers of the switch in the thread's current namespace. `budget`: that of the cell.
    pub fn counters(&self, pipeline: &Pipeline, budget: &mut Budget) -> Result<PipelineCounters> {
        let context = || format!("program {}", pipeline.program);
        let program = &self.loaded(pipeline)?.program;
        let mut device = Device::open(DEVICE).with_context(|| DEVICE.into())?;
        let shell = device.execute(Command::Counters, 0, &[]).with_context(context)?;
        let totals = match query(&mut device, &Request::Totals).with_context(context)? {
            Answer::Totals(totals) => totals,
            reply => return Err(Failure::new(format!("{}: totals: {reply:?}", context()))),
        };
        let mut counters = Sparse::new();
        for (number, counter) in (0..).zip(&program.counters).filter(|(_, counter)| counter.table.is_none()) {
            let request = Request::ReadCounter { counter: number, from: 0, count: counter.size };
            if let Answer::Counts(counts) = query(&mut device, &request).with_context(context)? {
                let packets = |count: &Count| count.packets;
                counters.insert(counter.name.clone(), sparse(counts.iter().map(packets)));
            }
        }
        let mut registers = Sparse::new();
        let fits = |width: u32, size: u32| width <= REGISTER_BITS_MAX && size <= REGISTER_VALUES_MAX;
        for (number, array) in (0..).zip(&program.arrays).filter(|(_, array)| fits(array.width, array.size)) {
            let request = Request::ReadRegister { array: number, from: 0, count: array.size };
            if let Answer::Values(values) = query(&mut device, &request).with_context(context)? {
                registers.insert(array.name.clone(), sparse(values.iter().map(|value| number_of(value))));
            }
        }
        let arrays =
            arrays::read(program, budget, |request| query(&mut device, request)).with_context(context)?;
        Ok(PipelineCounters {
            shell: by_name(&shell),
            totals: totals_by_name(&totals),
            drops: totals.drops,
            counters,
            registers,
            arrays,
        })
    }

    fn loaded(&self, pipeline: &Pipeline) -> Result<&Loaded> {
        let found = self.0.get(&pipeline.program);
        found.ok_or_else(|| Failure::new(format!("the plan has no program {}", pipeline.program)))
    }
}

/// Nonzero values by name and index.
type Sparse = BTreeMap<String, BTreeMap<usize, u64>>;

/// Counters of a switch: packet counters of the module qp4 (`shell`), packet totals of the engine, drops by reason,
/// and the program's counters and registers: those of the schemes' statistics, and all of them (`arrays`).
#[derive(Debug, Serialize)]
pub struct PipelineCounters {
    shell: BTreeMap<&'static str, u64>,
    totals: BTreeMap<&'static str, u64>,
    #[serde(serialize_with = "as_map")]
    drops: Vec<(String, u64)>,
    counters: Sparse,
    registers: Sparse,
    arrays: Vec<ArrayState>,
}

fn as_map<S: serde::Serializer>(pairs: &[(String, u64)], to: S) -> std::result::Result<S::Ok, S::Error> {
    to.collect_map(pairs.iter().map(|(name, count)| (name, count)))
}

/// Sends a request that changes state.
fn write(device: &mut Device, request: &Request) -> std::result::Result<(), String> {
    match query(device, request)? {
        Answer::Done => Ok(()),
        reply => Err(format!("{reply:?}")),
    }
}

/// Sends a request and returns the reply.
fn query(device: &mut Device, request: &Request) -> std::result::Result<Answer, String> {
    let bytes = postcard::to_allocvec(request).map_err(|error| error.to_string())?;
    let reply = device.execute(Command::Control, 0, &bytes).map_err(|error| error.to_string())?;
    match postcard::from_bytes(&reply) {
        Ok(Answer::Refused(_, reason)) => Err(reason),
        Ok(reply) => Ok(reply),
        Err(error) => Err(error.to_string()),
    }
}

fn sparse(values: impl Iterator<Item = u64>) -> BTreeMap<usize, u64> {
    values.enumerate().filter(|(_, value)| *value != 0).collect()
}

fn number_of(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Fields of `struct qp4_counters`.
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
