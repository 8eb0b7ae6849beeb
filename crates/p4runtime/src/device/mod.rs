// SPDX-License-Identifier: Apache-2.0
//! The device: its pipeline, and writes and reads of entities.
//!
//! The engine has the state for packets, `State` has the state that only P4Runtime needs.

mod actions;
mod arrays;
mod digests;
mod profiles;
mod replication;
mod tables;
#[cfg(test)]
mod tests;
mod value_sets;

use std::collections::{BTreeMap, HashMap};

use qbed_p4engine::control::{Answer, Request};
use qbed_p4engine::program::{ActionCall, Match, Program, TableId};

pub use digests::Digests;

use crate::control::Control;
use crate::error::{
    accepted, exhausted, invalid, not_found, precondition, unexpected, unimplemented, RequestError, Result,
};
use crate::pipeline::Pipeline;
use crate::proto::p4::v1::entity::Entity as Kind;
use crate::proto::p4::v1::packet_replication_engine_entry::Type as Replication;
use crate::proto::p4::v1::set_forwarding_pipeline_config_request::Action;
use crate::proto::p4::v1::update::Type;
use crate::proto::p4::v1::{self, Entity, ForwardingPipelineConfig, TableEntry, Update};

/// Limit on the entities of one answer.
const MAX_READ: usize = 1 << 20;
/// Number of entries or elements per request to the engine.
const PAGE: u32 = 4096;

pub struct Device {
    control: Box<dyn Control>,
    running: Option<Running>,
    /// The pipeline of VERIFY_AND_SAVE until its COMMIT.
    saved: Option<Pipeline>,
}

struct Running {
    pipeline: Pipeline,
    state: State,
}

/// State that controllers write and read and the engine does not need.
#[derive(Default)]
struct State {
    /// By table, key and priority.
    annotations: BTreeMap<(TableId, Vec<Match>, u32), tables::Annotations>,
    defaults: HashMap<TableId, (ActionCall, tables::Annotations)>,
    profiles: BTreeMap<u32, profiles::Members>,
    multicast: BTreeMap<u32, v1::MulticastGroupEntry>,
    clones: BTreeMap<u32, v1::CloneSessionEntry>,
    value_sets: BTreeMap<u32, Vec<Vec<Match>>>,
    digests: Digests,
}

/// The context of a request to the running pipeline.
struct Session<'a> {
    pipeline: &'a Pipeline,
    control: &'a mut dyn Control,
    state: &'a mut State,
}

impl Session<'_> {
    /// Execute a request without an answer. The error names the object.
    fn execute(&mut self, request: Request) -> Result<()> {
        let name = object_name(&self.pipeline.program, &request).unwrap_or_default();
        match accepted(self.control.request(request)) {
            Ok(Answer::Done) => Ok(()),
            Ok(other) => Err(unexpected(&other)),
            Err(refused) if name.is_empty() => Err(refused),
            Err(RequestError { code, message }) => {
                Err(RequestError { code, message: format!("{name}: {message}") })
            }
        }
    }
}

/// The name of the object that a request changes.
fn object_name<'a>(program: &'a Program, request: &Request) -> Option<&'a str> {
    let at = |number: &u16| usize::from(*number);
    Some(match request {
        Request::Insert { table, .. }
        | Request::Modify { table, .. }
        | Request::Delete { table, .. }
        | Request::SetDefault { table, .. }
        | Request::ResetDefault { table }
        | Request::SetDirectMeter { table, .. }
        | Request::WriteDirectCounter { table, .. } => &program.tables.get(at(table))?.name,
        Request::InsertMember { profile, .. }
        | Request::ModifyMember { profile, .. }
        | Request::DeleteMember { profile, .. }
        | Request::SetGroup { profile, .. }
        | Request::DeleteGroup { profile, .. } => &program.profiles.get(at(profile))?.name,
        Request::WriteRegister { array, .. } => &program.arrays.get(at(array))?.name,
        Request::WriteCounter { counter, .. } => &program.counters.get(at(counter))?.name,
        Request::SetMeter { meter, .. } => &program.meters.get(at(meter))?.name,
        Request::SetValueSet { set, .. } => &program.value_sets.get(at(set))?.name,
        _ => return None,
    })
}

/// Entities found by a read.
#[derive(Default)]
pub struct Entities(Vec<Entity>);

impl Entities {
    fn push(&mut self, kind: Kind) -> Result<()> {
        if self.0.len() >= MAX_READ {
            return Err(exhausted(format!("more than {MAX_READ} entities: read fewer at once")));
        }
        self.0.push(Entity { entity: Some(kind) });
        Ok(())
    }

    pub fn retain(&mut self, wanted: impl FnMut(&Entity) -> bool) {
        self.0.retain(wanted);
    }

    pub fn into_entities(self) -> Vec<Entity> {
        self.0
    }
}

impl Device {
    pub fn new(control: Box<dyn Control>) -> Device {
        Device { control, running: None, saved: None }
    }

    pub fn pipeline(&self) -> Option<&Pipeline> {
        self.running.as_ref().map(|running| &running.pipeline)
    }

    /// The config for GetForwardingPipelineConfig: the saved one, even before its COMMIT.
    pub fn config(&self) -> Option<&ForwardingPipelineConfig> {
        self.saved.as_ref().or(self.pipeline()).map(|pipeline| &pipeline.config)
    }

    pub fn digests(&mut self) -> Option<(&Pipeline, &mut Digests)> {
        self.running.as_mut().map(|running| (&running.pipeline, &mut running.state.digests))
    }

    pub fn inject(&mut self, packet: &[u8]) -> Result<()> {
        self.control.inject(packet).map_err(invalid)
    }

    /// Check that a pipeline can take requests.
    pub fn ready(&mut self) -> Result<()> {
        self.session().map(drop)
    }

    fn session(&mut self) -> Result<Session<'_>> {
        if self.saved.is_some() {
            return Err(precondition("the saved pipeline waits for its COMMIT"));
        }
        let running =
            self.running.as_mut().ok_or_else(|| precondition("no forwarding pipeline config is set"))?;
        Ok(Session { pipeline: &running.pipeline, control: &mut *self.control, state: &mut running.state })
    }

    pub fn write(&mut self, update: &Update) -> Result<()> {
        let mut session = self.session()?;
        let kind = match update.r#type() {
            Type::Unspecified => return Err(invalid("an update without a type")),
            kind => kind,
        };
        let entity = update.entity.as_ref().and_then(|entity| entity.entity.as_ref());
        let session = &mut session;
        match entity.ok_or_else(|| invalid("an update without an entity"))? {
            Kind::TableEntry(entry) => tables::write(session, kind, entry),
            Kind::DirectCounterEntry(entry) => tables::write_counter(session, kind, entry),
            Kind::DirectMeterEntry(entry) => tables::write_meter(session, kind, entry),
            Kind::ActionProfileMember(member) => profiles::write_member(session, kind, member),
            Kind::ActionProfileGroup(group) => profiles::write_group(session, kind, group),
            Kind::CounterEntry(entry) => arrays::write_counter(session, kind, entry),
            Kind::MeterEntry(entry) => arrays::write_meter(session, kind, entry),
            Kind::RegisterEntry(entry) => arrays::write_register(session, kind, entry),
            Kind::PacketReplicationEngineEntry(entry) => match &entry.r#type {
                Some(Replication::MulticastGroupEntry(group)) => {
                    replication::write_group(session, kind, group)
                }
                Some(Replication::CloneSessionEntry(clone)) => replication::write_clone(session, kind, clone),
                None => Err(invalid("a packet replication entry without a type")),
            },
            Kind::ValueSetEntry(entry) => value_sets::write(session, kind, entry),
            Kind::DigestEntry(entry) => digests::write(session, kind, entry),
            Kind::ExternEntry(_) => Err(unimplemented("externs are not supported")),
        }
    }

    pub fn read(&mut self, entity: &Entity, found: &mut Entities) -> Result<()> {
        let mut session = self.session()?;
        let session = &mut session;
        match entity.entity.as_ref().ok_or_else(|| invalid("a read without an entity"))? {
            Kind::TableEntry(entry) => tables::read(session, entry, found),
            Kind::DirectCounterEntry(entry) => tables::read_counters(session, entry, found),
            Kind::DirectMeterEntry(entry) => tables::read_meters(session, entry, found),
            Kind::ActionProfileMember(member) => profiles::read_members(session, member, found),
            Kind::ActionProfileGroup(group) => profiles::read_groups(session, group, found),
            Kind::CounterEntry(entry) => arrays::read_counters(session, entry, found),
            Kind::MeterEntry(entry) => arrays::read_meters(session, entry, found),
            Kind::RegisterEntry(entry) => arrays::read_registers(session, entry, found),
            Kind::PacketReplicationEngineEntry(entry) => match &entry.r#type {
                Some(Replication::MulticastGroupEntry(group)) => {
                    replication::read_groups(session, group, found)
                }
                Some(Replication::CloneSessionEntry(clone)) => {
                    replication::read_clones(session, clone, found)
                }
                None => Err(invalid("a packet replication entry without a type")),
            },
            Kind::ValueSetEntry(entry) => value_sets::read(session, entry, found),
            Kind::DigestEntry(entry) => digests::read(session, entry, found),
            Kind::ExternEntry(_) => Ok(()), // there are none
        }
    }

    /// The switch's clock.
    pub fn now_us(&self) -> u64 {
        self.control.now_us()
    }

    /// Entries with an expired idle timeout since their last hit or notification.
    pub fn idle(&mut self, now_us: u64, limit: u32) -> Result<Vec<TableEntry>> {
        let mut session = self.session()?;
        if !session.pipeline.tables.values().any(|table| table.idle_timeout) {
            return Ok(vec![]);
        }
        match accepted(session.control.request(Request::Idle { now_us, limit }))? {
            Answer::Idle(keys) => Ok(tables::idle_entries(&mut session, keys)),
            other => Err(unexpected(&other)),
        }
    }
}

/// The pipeline.
impl Device {
    pub fn configure(&mut self, action: Action, config: Option<ForwardingPipelineConfig>) -> Result<()> {
        match (action, config) {
            (Action::Unspecified, _) => Err(invalid("no action is specified")),
            (Action::Commit, Some(_)) => {
                Err(invalid("COMMIT takes no config: it commits the one that was saved"))
            }
            (Action::Commit, None) => {
                let saved = self.saved.clone().ok_or_else(|| not_found("no config is saved"))?;
                self.commit(saved)
            }
            (_, None) => Err(invalid("expected a config")),
            (Action::Verify, Some(config)) => self.verify(config).map(drop),
            (Action::VerifyAndSave, Some(config)) => {
                self.saved = Some(self.verify(config)?);
                Ok(())
            }
            (Action::VerifyAndCommit, Some(config)) => {
                let pipeline = self.verify(config)?;
                self.commit(pipeline)
            }
            (Action::ReconcileAndCommit, Some(config)) => {
                let pipeline = self.verify(config)?;
                self.reconcile(pipeline)
            }
        }
    }

    /// Adopt the pipeline that the switch runs already, with its entries.
    pub fn take_over(&mut self, config: ForwardingPipelineConfig) -> Result<()> {
        let pipeline = self.verify(config)?;
        self.running = Some(Running { pipeline, state: State::default() });
        Ok(())
    }

    fn verify(&self, config: ForwardingPipelineConfig) -> Result<Pipeline> {
        let program = self.control.compile(&config.p4_device_config).map_err(invalid)?;
        Pipeline::new(config, program).map_err(|why| invalid(format!("P4Info and program do not fit: {why}")))
    }

    fn commit(&mut self, pipeline: Pipeline) -> Result<()> {
        self.control.load(&pipeline.program).map_err(invalid)?;
        self.running = Some(Running { pipeline, state: State::default() });
        self.saved = None;
        Ok(())
    }

    /// Replace the pipeline and write all entities again. If one does not fit, restore the old pipeline.
    fn reconcile(&mut self, pipeline: Pipeline) -> Result<()> {
        self.saved = None;
        let Some(old) = self.pipeline().cloned() else { return self.commit(pipeline) };
        let snapshot = self.snapshot()?;
        let refused = match self.commit(pipeline).and_then(|()| self.replay(&snapshot)) {
            Ok(()) => return Ok(()),
            Err(refused) => refused,
        };
        self.commit(old).and_then(|()| self.replay(&snapshot)).map_err(|worse| RequestError {
            message: format!(
                "{}; the old pipeline could not be restored: {}",
                refused.message, worse.message
            ),
            ..worse
        })?;
        Err(invalid(format!("an entity does not fit: {}", refused.message)))
    }

    /// All entities of controllers, as updates in an order that respects their references. Counters, registers and the
    /// buckets of meters are not included.
    fn snapshot(&mut self) -> Result<Vec<Update>> {
        use v1::packet_replication_engine_entry::Type as Replication;
        let tables = TableEntry { meter_config: Some(v1::MeterConfig::default()), ..Default::default() };
        let replication = |kind| {
            Kind::PacketReplicationEngineEntry(v1::PacketReplicationEngineEntry { r#type: Some(kind) })
        };
        let everything = [
            (Type::Insert, Kind::ActionProfileMember(Default::default())),
            (Type::Insert, Kind::ActionProfileGroup(Default::default())),
            (Type::Insert, Kind::TableEntry(tables)),
            (Type::Modify, Kind::TableEntry(TableEntry { is_default_action: true, ..Default::default() })),
            (Type::Modify, Kind::MeterEntry(Default::default())),
            (Type::Insert, replication(Replication::MulticastGroupEntry(Default::default()))),
            (Type::Insert, replication(Replication::CloneSessionEntry(Default::default()))),
            (Type::Modify, Kind::ValueSetEntry(Default::default())),
            (Type::Insert, Kind::DigestEntry(Default::default())),
        ];
        let mut updates = vec![];
        for (kind, wildcard) in everything {
            let mut found = Entities::default();
            self.read(&Entity { entity: Some(wildcard) }, &mut found)?;
            updates.extend(found.0.into_iter().filter_map(|entity| restoring_update(kind, entity)));
        }
        Ok(updates)
    }

    fn replay(&mut self, updates: &[Update]) -> Result<()> {
        tables::clear(&mut self.session()?)?;
        updates.iter().try_for_each(|update| self.write(update))
    }
}

/// The update that restores an entity. None for entities of the program.
fn restoring_update(kind: Type, entity: Entity) -> Option<Update> {
    let is_of_program = match entity.entity.as_ref()? {
        Kind::TableEntry(entry) => entry.is_const || entry.is_default_action && entry.action.is_none(),
        Kind::MeterEntry(entry) => entry.config.is_none(),
        _ => false,
    };
    (!is_of_program).then_some(Update { r#type: kind.into(), entity: Some(entity) })
}
