// SPDX-License-Identifier: Apache-2.0
//! Multicast groups and clone sessions (section "PacketReplicationEngineEntry").

use std::collections::{BTreeMap, HashSet};

use qbed_p4engine::control::{CloneSession, Replica, Request};

use super::{Entities, Session};
use crate::bytestring::{decode, encode};
use crate::error::{already_exists, exhausted, invalid, not_found, unimplemented, Result};
use crate::proto::p4::v1::entity::Entity as Kind;
use crate::proto::p4::v1::packet_replication_engine_entry::Type as Replication;
use crate::proto::p4::v1::replica::PortKind;
use crate::proto::p4::v1::update::Type;
use crate::proto::p4::v1::{self, CloneSessionEntry, MulticastGroupEntry, PacketReplicationEngineEntry};

/// v1model's ports have nine bits. The highest one drops packets.
const PORT_BITS: u32 = 9;
const DROP_PORT: u16 = 511;
const MAX_METADATA: usize = 4096;
/// Limit on the replicas of one group or session.
const MAX_REPLICAS: usize = 4096;

fn replica(given: &v1::Replica) -> Result<Replica> {
    if !given.backup_replicas.is_empty() {
        return Err(unimplemented("backup replicas are not supported"));
    }
    let port = match &given.port_kind {
        #[allow(deprecated)]
        Some(PortKind::EgressPort(port)) => decode(&port.to_be_bytes(), PORT_BITS, "port")?,
        Some(PortKind::Port(port)) => decode(port, PORT_BITS, "port")?,
        None => return Err(invalid("a replica without a port")),
    };
    let port = port.iter().fold(0, |port, byte| port << 8 | u16::from(*byte));
    if port == DROP_PORT {
        return Err(invalid(format!("port {DROP_PORT} drops packets")));
    }
    let instance = given.instance.try_into().map_err(|_| invalid(format!("instance {}", given.instance)))?;
    Ok(Replica { port, instance })
}

fn replicas(given: &[v1::Replica]) -> Result<Vec<Replica>> {
    if given.len() > MAX_REPLICAS {
        return Err(exhausted(format!("{} replicas: at most {MAX_REPLICAS} are supported", given.len())));
    }
    let replicas = given.iter().map(replica).collect::<Result<Vec<_>>>()?;
    let mut seen = HashSet::new();
    match replicas.iter().find(|replica| !seen.insert((replica.port, replica.instance))) {
        Some(Replica { port, instance }) => Err(invalid(format!("port {port}, instance {instance} twice"))),
        None => Ok(replicas),
    }
}

/// The replicas for reads: ports are the shortest byte strings, in the field that the controller used.
fn canonical(given: &[v1::Replica], engine: &[Replica]) -> Vec<v1::Replica> {
    let canonical_replica = |(given, engine): (&v1::Replica, &Replica)| {
        let port_kind = match &given.port_kind {
            Some(PortKind::Port(_)) => Some(PortKind::Port(encode(&engine.port.to_be_bytes()))),
            other => other.clone(),
        };
        v1::Replica { port_kind, ..given.clone() }
    };
    given.iter().zip(engine).map(canonical_replica).collect()
}

/// Convert an id to the engine's number. Checks that the object exists as the kind of update requires.
fn number<T>(kind: Type, id: u32, all: &BTreeMap<u32, T>, kind_name: &str) -> Result<u16> {
    let number = match u16::try_from(id) {
        Ok(number @ 1..) => number,
        _ => return Err(invalid(format!("{kind_name} {id}: expected 1 to 65535"))),
    };
    match (kind, all.contains_key(&id)) {
        (Type::Insert, true) => Err(already_exists(format!("{kind_name} {id}"))),
        (Type::Modify | Type::Delete, false) => Err(not_found(format!("{kind_name} {id}"))),
        _ => Ok(number),
    }
}

pub fn write_group(session: &mut Session, kind: Type, given: &MulticastGroupEntry) -> Result<()> {
    let id = given.multicast_group_id;
    let group = number(kind, id, &session.state.multicast, "multicast group")?;
    if kind == Type::Delete {
        session.execute(Request::SetMulticastGroup { group, replicas: None })?;
        session.state.multicast.remove(&id);
        return Ok(());
    }
    if given.metadata.len() > MAX_METADATA {
        return Err(exhausted(format!("more than {MAX_METADATA} bytes of metadata")));
    }
    let engine = replicas(&given.replicas)?;
    let stored = MulticastGroupEntry { replicas: canonical(&given.replicas, &engine), ..given.clone() };
    session.execute(Request::SetMulticastGroup { group, replicas: Some(engine) })?;
    session.state.multicast.insert(id, stored);
    Ok(())
}

pub fn write_clone(session: &mut Session, kind: Type, given: &CloneSessionEntry) -> Result<()> {
    let id = given.session_id;
    let number = number(kind, id, &session.state.clones, "clone session")?;
    if kind == Type::Delete {
        session.execute(Request::SetCloneSession { session: number, clone: None })?;
        session.state.clones.remove(&id);
        return Ok(());
    }
    if given.class_of_service != 0 {
        return Err(unimplemented("classes of service of clones are not supported"));
    }
    let bytes = given.packet_length_bytes;
    let truncate_bytes = bytes.try_into().map_err(|_| invalid(format!("packet_length_bytes is {bytes}")))?;
    let replicas = replicas(&given.replicas)?;
    let stored = CloneSessionEntry { replicas: canonical(&given.replicas, &replicas), ..*given };
    let clone = Some(CloneSession { replicas, truncate_bytes });
    session.execute(Request::SetCloneSession { session: number, clone })?;
    session.state.clones.insert(id, stored);
    Ok(())
}

fn entity(kind: Replication) -> Kind {
    Kind::PacketReplicationEngineEntry(PacketReplicationEngineEntry { r#type: Some(kind) })
}

fn check_exists<T>(all: &BTreeMap<u32, T>, id: u32, kind_name: &str) -> Result<()> {
    match id != 0 && !all.contains_key(&id) {
        true => Err(not_found(format!("{kind_name} {id}"))),
        false => Ok(()),
    }
}

pub fn read_groups(session: &mut Session, filter: &MulticastGroupEntry, found: &mut Entities) -> Result<()> {
    let (all, filter_id) = (&session.state.multicast, filter.multicast_group_id);
    check_exists(all, filter_id, "multicast group")?;
    let mut groups = all.iter().filter(|(id, _)| filter_id == 0 || filter_id == **id);
    groups.try_for_each(|(_, group)| found.push(entity(Replication::MulticastGroupEntry(group.clone()))))
}

pub fn read_clones(session: &mut Session, filter: &CloneSessionEntry, found: &mut Entities) -> Result<()> {
    let (all, filter_id) = (&session.state.clones, filter.session_id);
    check_exists(all, filter_id, "clone session")?;
    let mut clones = all.iter().filter(|(id, _)| filter_id == 0 || filter_id == **id);
    clones.try_for_each(|(_, clone)| found.push(entity(Replication::CloneSessionEntry(clone.clone()))))
}
