// SPDX-License-Identifier: Apache-2.0
//! Permissions of a role. The specification does not define the message of a role's config; clients send Stratum's,
//! `stratum.P4RoleConfig`.

use std::collections::BTreeSet;

use prost::Message;
use prost_types::Any;

use crate::bytestring::encode;
use crate::error::{denied, invalid, Result};
use crate::proto::p4::v1::entity::Entity as Kind;
use crate::proto::p4::v1::stream_message_response::Update as ServerMessage;
use crate::proto::p4::v1::{Entity, PacketIn};

const TYPE: &str = "stratum.P4RoleConfig";

#[derive(Clone, PartialEq, Message)]
pub struct P4RoleConfig {
    #[prost(uint32, repeated, tag = "1")]
    pub exclusive_p4_ids: Vec<u32>,
    #[prost(uint32, repeated, tag = "2")]
    pub shared_p4_ids: Vec<u32>,
    #[prost(message, optional, tag = "3")]
    pub packet_in_filter: Option<PacketFilter>,
    #[prost(bool, tag = "4")]
    pub receives_packet_ins: bool,
    #[prost(bool, tag = "5")]
    pub can_push_pipeline: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct PacketFilter {
    #[prost(uint32, tag = "1")]
    pub metadata_id: u32,
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct RoleConfig {
    /// The message as received, for notifications.
    pub original: Any,
    message: P4RoleConfig,
    /// Exclusive and shared ids.
    ids: BTreeSet<u32>,
}

impl RoleConfig {
    pub fn new(original: &Any) -> Result<RoleConfig> {
        if original.type_url.rsplit('/').next() != Some(TYPE) {
            return Err(invalid(format!("role config: expected {TYPE}, found {}", original.type_url)));
        }
        let message = P4RoleConfig::decode(original.value.as_slice())
            .map_err(|error| invalid(format!("role config: invalid {TYPE}: {error}")))?;
        let mut ids = BTreeSet::new();
        for id in message.exclusive_p4_ids.iter().chain(&message.shared_p4_ids) {
            if !ids.insert(*id) {
                return Err(invalid(format!("role config: the id {id:#x} twice")));
            }
        }
        if message.packet_in_filter.is_some() && !message.receives_packet_ins {
            return Err(invalid("role config: packet_in_filter without receives_packet_ins"));
        }
        Ok(RoleConfig { original: original.clone(), message, ids })
    }

    /// An id of both roles that is exclusive to one of them.
    pub fn conflict(&self, other: &RoleConfig) -> Option<u32> {
        let common = self.ids.intersection(&other.ids);
        let exclusive = |id: &u32| {
            self.message.exclusive_p4_ids.contains(id) || other.message.exclusive_p4_ids.contains(id)
        };
        common.copied().find(exclusive)
    }

    pub fn has(&self, id: u32) -> bool {
        self.ids.contains(&id)
    }

    /// Check access to an entity. Replication entries and wildcards are always allowed.
    pub fn allow(&self, entity: Option<&Entity>) -> Result<()> {
        match entity.and_then(id_of) {
            Some(id) if id != 0 && !self.has(id) => Err(denied(format!("the role has no access to {id:#x}"))),
            _ => Ok(()),
        }
    }

    pub fn allow_pipeline(&self) -> Result<()> {
        match self.message.can_push_pipeline {
            true => Ok(()),
            false => Err(denied("the role may not set the pipeline config")),
        }
    }

    fn receives(&self, packet: &PacketIn) -> bool {
        let fits = |filter: &PacketFilter| {
            let mut metadata = packet.metadata.iter();
            metadata
                .any(|value| value.metadata_id == filter.metadata_id && value.value == encode(&filter.value))
        };
        self.message.receives_packet_ins && self.message.packet_in_filter.as_ref().is_none_or(fits)
    }

    /// The part of a message that the role receives.
    pub fn filter(&self, message: &ServerMessage) -> Option<ServerMessage> {
        match message {
            ServerMessage::Packet(packet) if !self.receives(packet) => None,
            ServerMessage::Digest(list) if !self.has(list.digest_id) => None,
            ServerMessage::IdleTimeoutNotification(notification) => {
                let mut notification = notification.clone();
                notification.table_entry.retain(|entry| self.has(entry.table_id));
                (!notification.table_entry.is_empty())
                    .then_some(ServerMessage::IdleTimeoutNotification(notification))
            }
            other => Some(other.clone()),
        }
    }
}

/// The P4 id of an entity's object. 0 means all objects of its kind.
pub fn id_of(entity: &Entity) -> Option<u32> {
    Some(match entity.entity.as_ref()? {
        Kind::TableEntry(entry) => entry.table_id,
        Kind::DirectCounterEntry(entry) => entry.table_entry.as_ref()?.table_id,
        Kind::DirectMeterEntry(entry) => entry.table_entry.as_ref()?.table_id,
        Kind::ActionProfileMember(member) => member.action_profile_id,
        Kind::ActionProfileGroup(group) => group.action_profile_id,
        Kind::CounterEntry(entry) => entry.counter_id,
        Kind::MeterEntry(entry) => entry.meter_id,
        Kind::RegisterEntry(entry) => entry.register_id,
        Kind::ValueSetEntry(entry) => entry.value_set_id,
        Kind::DigestEntry(entry) => entry.digest_id,
        Kind::PacketReplicationEngineEntry(_) | Kind::ExternEntry(_) => return None,
    })
}
