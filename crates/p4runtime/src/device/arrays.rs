// SPDX-License-Identifier: Apache-2.0
//! Counters, meters and registers by index (sections "CounterEntry", "MeterEntry", "RegisterEntry").

use std::collections::BTreeMap;

use qbed_p4engine::control::{Answer, Count, Rates, Request};

use super::{Entities, Session, PAGE};
use crate::error::{accepted, internal, invalid, not_found, out_of_range, unexpected, unimplemented, Result};
use crate::pipeline::{Indexed, MeterKind, Register};
use crate::proto::p4::v1::entity::Entity as Kind;
use crate::proto::p4::v1::update::Type;
use crate::proto::p4::v1::{CounterData, CounterEntry, Index, MeterConfig, MeterEntry, RegisterEntry};

pub fn count_of(data: &CounterData) -> Result<Count> {
    match (data.packet_count.try_into(), data.byte_count.try_into()) {
        (Ok(packets), Ok(bytes)) => Ok(Count { packets, bytes }),
        _ => Err(invalid("a negative count")),
    }
}

pub fn counter_data(count: Count) -> CounterData {
    let clamp = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    CounterData { byte_count: clamp(count.bytes), packet_count: clamp(count.packets) }
}

pub fn rates_of(kind: MeterKind, config: &MeterConfig) -> Result<Rates> {
    let of = |value: i64, name: &str| value.try_into().map_err(|_| invalid(format!("{name} is {value}")));
    let rates = Rates {
        committed: of(config.cir, "cir")?,
        committed_burst: of(config.cburst, "cburst")?,
        peak: of(config.pir, "pir")?,
        peak_burst: of(config.pburst, "pburst")?,
    };
    let one_rate = rates.committed == rates.peak && rates.committed_burst == rates.peak_burst;
    match kind {
        MeterKind::OneRate if !one_rate => {
            Err(invalid("a meter of one rate: expected pir = cir and pburst = cburst"))
        }
        MeterKind::OneRate if config.eburst != 0 => Err(unimplemented("eburst is not supported")),
        _ if config.eburst != 0 => Err(invalid("a meter of two rates has no eburst")),
        _ => Ok(rates),
    }
}

pub fn meter_config(rates: Rates) -> MeterConfig {
    let clamp = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    MeterConfig {
        cir: clamp(rates.committed),
        cburst: clamp(rates.committed_burst),
        pir: clamp(rates.peak),
        pburst: clamp(rates.peak_burst),
        eburst: 0,
    }
}

/// First element and number of elements: one element, or all.
fn range(index: Option<&Index>, size: u32, name: &str) -> Result<(u32, u32)> {
    let Some(Index { index }) = index else { return Ok((0, size)) };
    match u32::try_from(*index) {
        Ok(index) if index < size => Ok((index, 1)),
        Err(_) if *index < 0 => Err(invalid(format!("{name} at {index}"))),
        _ => Err(out_of_range(format!("{name} at {index}: only {size} elements"))),
    }
}

/// The object with this id, or all objects if the id is 0.
fn select<'a, T>(all: &'a BTreeMap<u32, T>, id: u32, kind: &str) -> Result<Vec<(u32, &'a T)>> {
    if id != 0 {
        return Ok(vec![(id, lookup(all, id, kind)?)]);
    }
    Ok(all.iter().map(|(id, array)| (*id, array)).collect())
}

/// Look up an object of the pipeline by its id.
pub fn lookup<'a, T>(all: &'a BTreeMap<u32, T>, id: u32, kind: &str) -> Result<&'a T> {
    all.get(&id).ok_or_else(|| match id {
        0 => invalid(format!("expected the id of a {kind}")),
        id => not_found(format!("there is no {kind} {id:#x}")),
    })
}

fn modify_only(kind: Type, objects: &str) -> Result<()> {
    match kind {
        Type::Modify => Ok(()),
        _ => Err(invalid(format!("{objects} can only be modified"))),
    }
}

fn at(index: u32) -> Option<Index> {
    Some(Index { index: index.into() })
}

/// Visit the elements of an array in pages.
fn pages(from: u32, count: u32, mut page: impl FnMut(u32, u32) -> Result<usize>) -> Result<()> {
    let mut at = from;
    while at < from + count {
        let size = PAGE.min(from + count - at);
        if page(at, size)? != size as usize {
            return Err(internal(format!("the engine has fewer than {size} elements from {at} on")));
        }
        at += size;
    }
    Ok(())
}

pub fn write_counter(session: &mut Session, kind: Type, entry: &CounterEntry) -> Result<()> {
    modify_only(kind, "counters")?;
    let Indexed { name, number, size, .. } = lookup(&session.pipeline.counters, entry.counter_id, "counter")?;
    let (from, count) = range(entry.index.as_ref(), *size, name)?;
    let Some(data) = &entry.data else { return Ok(()) };
    let value = count_of(data)?;
    (from..from + count)
        .try_for_each(|index| session.execute(Request::WriteCounter { counter: *number, index, value }))
}

pub fn read_counters(session: &mut Session, entry: &CounterEntry, found: &mut Entities) -> Result<()> {
    for (id, counter) in select(&session.pipeline.counters, entry.counter_id, "counter")? {
        let (from, count) = range(entry.index.as_ref(), counter.size, &counter.name)?;
        pages(from, count, |from, count| {
            let request = Request::ReadCounter { counter: counter.number, from, count };
            let counts = match accepted(session.control.request(request))? {
                Answer::Counts(counts) => counts,
                other => return Err(unexpected(&other)),
            };
            for (index, count) in (from..).zip(&counts) {
                let data = Some(counter_data(*count));
                found.push(Kind::CounterEntry(CounterEntry { counter_id: id, index: at(index), data }))?;
            }
            Ok(counts.len())
        })?;
    }
    Ok(())
}

pub fn write_meter(session: &mut Session, kind: Type, entry: &MeterEntry) -> Result<()> {
    modify_only(kind, "meters")?;
    let meter = lookup(&session.pipeline.meters, entry.meter_id, "meter")?;
    if entry.counter_data.is_some() {
        return Err(unimplemented("meters have no counters by colour"));
    }
    let (from, count) = range(entry.index.as_ref(), meter.size, &meter.name)?;
    let rates = entry.config.as_ref().map(|config| rates_of(meter.kind, config)).transpose()?;
    let set = |index| session.execute(Request::SetMeter { meter: meter.number, index, rates });
    (from..from + count).try_for_each(set)
}

pub fn read_meters(session: &mut Session, entry: &MeterEntry, found: &mut Entities) -> Result<()> {
    if entry.counter_data.is_some() {
        return Err(unimplemented("meters have no counters by colour"));
    }
    for (id, meter) in select(&session.pipeline.meters, entry.meter_id, "meter")? {
        let (from, count) = range(entry.index.as_ref(), meter.size, &meter.name)?;
        for index in from..from + count {
            let rates =
                match accepted(session.control.request(Request::ReadMeter { meter: meter.number, index }))? {
                    Answer::Meter(rates) => rates,
                    other => return Err(unexpected(&other)),
                };
            let config = rates.map(meter_config);
            found.push(Kind::MeterEntry(MeterEntry {
                meter_id: id,
                index: at(index),
                config,
                counter_data: None,
            }))?;
        }
    }
    Ok(())
}

pub fn write_register(session: &mut Session, kind: Type, entry: &RegisterEntry) -> Result<()> {
    modify_only(kind, "registers")?;
    let Register { name, number, size, data_type } =
        lookup(&session.pipeline.registers, entry.register_id, "register")?;
    let (from, count) = range(entry.index.as_ref(), *size, name)?;
    let data = entry.data.as_ref().ok_or_else(|| invalid(format!("{name}: expected a value")))?;
    let value = data_type.decode(data, name)?;
    (from..from + count).try_for_each(|index| {
        session.execute(Request::WriteRegister { array: *number, index, value: value.clone() })
    })
}

pub fn read_registers(session: &mut Session, entry: &RegisterEntry, found: &mut Entities) -> Result<()> {
    for (id, register) in select(&session.pipeline.registers, entry.register_id, "register")? {
        let (from, count) = range(entry.index.as_ref(), register.size, &register.name)?;
        pages(from, count, |from, count| {
            let request = Request::ReadRegister { array: register.number, from, count };
            let values = match accepted(session.control.request(request))? {
                Answer::Values(values) => values,
                other => return Err(unexpected(&other)),
            };
            for (index, value) in (from..).zip(&values) {
                let data = register.data_type.encode(&mut value.as_slice());
                let data =
                    Some(data.ok_or_else(|| internal(format!("{}: the value is too short", register.name)))?);
                found.push(Kind::RegisterEntry(RegisterEntry { register_id: id, index: at(index), data }))?;
            }
            Ok(values.len())
        })?;
    }
    Ok(())
}
