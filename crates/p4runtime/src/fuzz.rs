// SPDX-License-Identifier: Apache-2.0
//! No message of a controller or a switch causes a panic, and the server's state is bounded.
//!
//! Messages are mutated bytes of valid messages, and entities of random numbers that often exist in the program.

use proptest::collection::vec;
use proptest::prelude::*;
use prost::Message;
use std::time::Instant;
use tonic::Code;

use crate::control::Event;
use crate::loopback::Loopback;
use crate::proto::p4::v1::action_profile_group::Member;
use crate::proto::p4::v1::entity::Entity as Kind;
use crate::proto::p4::v1::field_match::{Exact, FieldMatchType, Lpm, Optional, Range, Ternary};
use crate::proto::p4::v1::packet_replication_engine_entry::Type as Replication;
use crate::proto::p4::v1::replica::PortKind;
use crate::proto::p4::v1::stream_message_request::Update as ClientMessage;
use crate::proto::p4::v1::table_action::Type as ActionType;
use crate::proto::p4::v1::{self, *};
use crate::service::Service;
use crate::testing::{everything, preambles};

/// A service with a pipeline, and the stream of its primary controller.
fn service() -> (Service, u64, tokio::sync::mpsc::Receiver<Event>) {
    let (sender, events) = tokio::sync::mpsc::channel(64);
    let service = Service::new(1, Box::new(Loopback::new(sender)));
    let (outgoing, _) = tokio::sync::mpsc::channel(1024);
    let id = service.connect(outgoing, Default::default()).unwrap();
    let arbitration = MasterArbitrationUpdate {
        device_id: 1,
        election_id: Some(Uint128 { high: 0, low: 1 }),
        ..Default::default()
    };
    service
        .handle_message(id, StreamMessageRequest { update: Some(ClientMessage::Arbitration(arbitration)) })
        .unwrap();
    let set = SetForwardingPipelineConfigRequest {
        device_id: 1,
        election_id: Some(Uint128 { high: 0, low: 1 }),
        action: set_forwarding_pipeline_config_request::Action::VerifyAndCommit.into(),
        config: Some(everything()),
        ..Default::default()
    };
    service.handle_set_pipeline(set).unwrap();
    (service, id, events)
}

fn ids() -> impl Strategy<Value = u32> {
    let info = everything().p4info.unwrap();
    let mut known: Vec<u32> = preambles(&info).map(|preamble| preamble.id).collect();
    known.push(0);
    prop_oneof![9 => proptest::sample::select(known), 1 => any::<u32>()]
}

fn small() -> impl Strategy<Value = u32> {
    prop_oneof![9 => 0u32..6, 1 => any::<u32>()]
}

fn signed() -> impl Strategy<Value = i64> {
    prop_oneof![8 => 0i64..20, 1 => -2i64..0, 1 => any::<i64>()]
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![8 => vec(0u8..4, 1..4), 2 => vec(any::<u8>(), 0..9)]
}

fn field_match() -> impl Strategy<Value = FieldMatch> {
    let kind = prop_oneof![
        value().prop_map(|value| FieldMatchType::Exact(Exact { value })),
        (value(), signed())
            .prop_map(|(value, length)| FieldMatchType::Lpm(Lpm { value, prefix_len: length as i32 })),
        (value(), value()).prop_map(|(value, mask)| FieldMatchType::Ternary(Ternary { value, mask })),
        (value(), value()).prop_map(|(low, high)| FieldMatchType::Range(Range { low, high })),
        value().prop_map(|value| FieldMatchType::Optional(Optional { value })),
    ];
    (small(), proptest::option::weighted(0.95, kind))
        .prop_map(|(field_id, field_match_type)| FieldMatch { field_id, field_match_type })
}

fn action() -> impl Strategy<Value = v1::Action> {
    let param = (small(), value()).prop_map(|(param_id, value)| action::Param { param_id, value });
    (ids(), vec(param, 0..3)).prop_map(|(action_id, params)| v1::Action { action_id, params })
}

fn table_action() -> impl Strategy<Value = TableAction> {
    let set = vec((action(), -1..4i32), 0..4).prop_map(|actions| {
        let actions = actions.into_iter().map(|(action, weight)| ActionProfileAction {
            action: Some(action),
            weight,
            watch_kind: None,
        });
        ActionProfileActionSet { action_profile_actions: actions.collect(), ..Default::default() }
    });
    prop_oneof![
        4 => action().prop_map(ActionType::Action),
        1 => small().prop_map(ActionType::ActionProfileMemberId),
        1 => small().prop_map(ActionType::ActionProfileGroupId),
        2 => set.prop_map(ActionType::ActionProfileActionSet),
    ]
    .prop_map(|kind| TableAction { r#type: Some(kind) })
}

fn meter_config() -> impl Strategy<Value = MeterConfig> {
    (signed(), signed(), signed(), signed(), -1..2i64)
        .prop_map(|(cir, cburst, pir, pburst, eburst)| MeterConfig { cir, cburst, pir, pburst, eburst })
}

fn counts() -> impl Strategy<Value = CounterData> {
    (signed(), signed()).prop_map(|(byte_count, packet_count)| CounterData { byte_count, packet_count })
}

fn table_entry() -> impl Strategy<Value = TableEntry> {
    let option = proptest::option::of::<proptest::strategy::BoxedStrategy<MeterConfig>>;
    (
        (ids(), vec(field_match(), 0..4), proptest::option::of(table_action()), signed(), any::<bool>()),
        (option(meter_config().boxed()), proptest::option::of(counts()), value(), signed()),
    )
        .prop_map(|((table_id, r#match, action, priority, is_default_action), rest)| TableEntry {
            table_id,
            r#match,
            action,
            priority: priority as i32,
            is_default_action,
            meter_config: rest.0,
            counter_data: rest.1,
            metadata: rest.2,
            idle_timeout_ns: rest.3,
            ..Default::default()
        })
}

fn index() -> impl Strategy<Value = Option<Index>> {
    proptest::option::of(signed().prop_map(|index| Index { index }))
}

fn replication() -> impl Strategy<Value = Replication> {
    let replica = (value(), small()).prop_map(|(port, instance)| Replica {
        port_kind: Some(PortKind::Port(port)),
        instance,
        ..Default::default()
    });
    (any::<bool>(), small(), vec(replica, 0..4), signed()).prop_map(|(multicast, id, replicas, bytes)| {
        match multicast {
            true => Replication::MulticastGroupEntry(MulticastGroupEntry {
                multicast_group_id: id,
                replicas,
                metadata: vec![],
            }),
            false => Replication::CloneSessionEntry(CloneSessionEntry {
                session_id: id,
                replicas,
                class_of_service: 0,
                packet_length_bytes: bytes as i32,
            }),
        }
    })
}

fn entity() -> impl Strategy<Value = Entity> {
    let data = value().prop_map(|value| P4Data { data: Some(p4_data::Data::Bitstring(value)) });
    let member =
        (small(), -1..4i32).prop_map(|(member_id, weight)| Member { member_id, weight, watch_kind: None });
    let set_member = vec(field_match(), 0..3).prop_map(|r#match| ValueSetMember { r#match });
    prop_oneof![
        5 => table_entry().prop_map(Kind::TableEntry),
        1 => (table_entry(), counts()).prop_map(|(entry, data)| {
            Kind::DirectCounterEntry(DirectCounterEntry { table_entry: Some(entry), data: Some(data) })
        }),
        1 => (table_entry(), meter_config()).prop_map(|(entry, config)| {
            Kind::DirectMeterEntry(DirectMeterEntry { table_entry: Some(entry), config: Some(config), counter_data: None })
        }),
        2 => (ids(), small(), proptest::option::of(action())).prop_map(|(action_profile_id, member_id, action)| {
            Kind::ActionProfileMember(ActionProfileMember { action_profile_id, member_id, action })
        }),
        2 => (ids(), small(), vec(member, 0..4), signed()).prop_map(|(action_profile_id, group_id, members, size)| {
            Kind::ActionProfileGroup(ActionProfileGroup { action_profile_id, group_id, members, max_size: size as i32 })
        }),
        1 => (ids(), index(), counts()).prop_map(|(counter_id, index, data)| {
            Kind::CounterEntry(CounterEntry { counter_id, index, data: Some(data) })
        }),
        1 => (ids(), index(), meter_config()).prop_map(|(meter_id, index, config)| {
            Kind::MeterEntry(MeterEntry { meter_id, index, config: Some(config), counter_data: None })
        }),
        1 => (ids(), index(), data).prop_map(|(register_id, index, data)| {
            Kind::RegisterEntry(RegisterEntry { register_id, index, data: Some(data) })
        }),
        2 => replication().prop_map(|kind| {
            Kind::PacketReplicationEngineEntry(PacketReplicationEngineEntry { r#type: Some(kind) })
        }),
        1 => (ids(), vec(set_member, 0..6)).prop_map(|(value_set_id, members)| {
            Kind::ValueSetEntry(ValueSetEntry { value_set_id, members })
        }),
        1 => (ids(), signed(), signed(), signed()).prop_map(|(digest_id, timeout, size, ack)| {
            let config = digest_entry::Config { max_timeout_ns: timeout, max_list_size: size as i32, ack_timeout_ns: ack };
            Kind::DigestEntry(DigestEntry { digest_id, config: Some(config) })
        }),
    ]
    .prop_map(|kind| Entity { entity: Some(kind) })
}

fn write_request(updates: Vec<Update>) -> WriteRequest {
    let election_id = Some(Uint128 { high: 0, low: 1 });
    WriteRequest { device_id: 1, election_id, updates, ..Default::default() }
}

/// A message with some bytes changed, removed or inserted.
fn mutated(bytes: &[u8], changes: &[(usize, u8, u8)]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for (place, how, byte) in changes {
        let at = place % (bytes.len() + 1);
        match how % 4 {
            0 => bytes.insert(at, *byte),
            1 => bytes.truncate(at.max(1)),
            _ if at < bytes.len() => bytes[at] = *byte,
            _ => {}
        }
    }
    bytes
}

proptest! {
    /// Accepted entities can be read, and no error is internal.
    #[test]
    fn fuzz_entities(updates in vec((0..4i32, entity()), 1..60), reads in vec(entity(), 0..6)) {
        let (service, ..) = service();
        let entities: Vec<Entity> = updates.iter().map(|(_, entity)| entity.clone()).collect();
        let updates = updates.into_iter().map(|(kind, entity)| Update { r#type: kind, entity: Some(entity) }).collect();
        let _ = service.handle_write(&write_request(updates));
        for entities in [reads, entities] {
            if let Ok((_, Some(status))) = service.handle_read(&ReadRequest { device_id: 1, entities, ..Default::default() }) {
                let details = crate::proto::google::rpc::Status::decode(status.details()).unwrap().details;
                let errors = details.iter().map(|any| v1::Error::decode(any.value.as_slice()).unwrap());
                prop_assert!(errors.into_iter().all(|error| error.canonical_code != Code::Internal as i32));
            }
        }
        let all = Entity { entity: Some(Kind::TableEntry(TableEntry::default())) };
        let (found, status) = service.handle_read(&ReadRequest { device_id: 1, entities: vec![all], ..Default::default() }).unwrap();
        prop_assert!(status.is_none() && found.into_entities().len() <= 64 + 1024 + 32 + 2 + 1024 + 1024);
        service.send_idle_timeouts();
        service.send_due_digests(Instant::now());
    }

    #[test]
    fn fuzz_requests(
        entities in vec(entity(), 1..5),
        changes in vec((any::<usize>(), any::<u8>(), any::<u8>()), 0..8),
        payload in vec(any::<u8>(), 0..40),
    ) {
        let (service, id, _events) = service();
        let updates = entities.iter().map(|entity| Update { r#type: 1, entity: Some(entity.clone()) }).collect();
        if let Ok(request) = WriteRequest::decode(mutated(&write_request(updates).encode_to_vec(), &changes).as_slice()) {
            let _ = service.handle_write(&request);
        }
        let read = ReadRequest { device_id: 1, entities, ..Default::default() };
        if let Ok(request) = ReadRequest::decode(mutated(&read.encode_to_vec(), &changes).as_slice()) {
            let _ = service.handle_read(&request);
        }
        let metadata = |metadata_id, value| PacketMetadata { metadata_id, value };
        let packet = PacketOut { payload: payload.clone(), metadata: vec![metadata(1, vec![3]), metadata(2, vec![0])] };
        let packet = StreamMessageRequest { update: Some(ClientMessage::Packet(packet)) };
        let arbitration = MasterArbitrationUpdate { device_id: 1, ..Default::default() };
        let arbitration = StreamMessageRequest { update: Some(ClientMessage::Arbitration(arbitration)) };
        for message in [packet, arbitration] {
            if let Ok(message) = StreamMessageRequest::decode(mutated(&message.encode_to_vec(), &changes).as_slice()) {
                let _ = service.handle_message(id, message);
            }
        }
        service.handle_event(Event::PacketIn(payload.clone()), Instant::now());
        service.handle_event(Event::Digest { id: 1, values: payload }, Instant::now());
    }

    #[test]
    fn fuzz_pipelines(changes in vec((any::<usize>(), any::<u8>(), any::<u8>()), 1..6)) {
        let (service, ..) = service();
        let mut config = everything();
        let info = mutated(&config.p4info.take().unwrap().encode_to_vec(), &changes);
        config.p4info = crate::proto::p4::config::v1::P4Info::decode(info.as_slice()).ok();
        let set = SetForwardingPipelineConfigRequest {
            device_id: 1,
            election_id: Some(Uint128 { high: 0, low: 1 }),
            action: set_forwarding_pipeline_config_request::Action::ReconcileAndCommit.into(),
            config: Some(config),
            ..Default::default()
        };
        let _ = service.handle_set_pipeline(set);
        let all = Entity { entity: Some(Kind::TableEntry(TableEntry::default())) };
        let read = service.handle_read(&ReadRequest { device_id: 1, entities: vec![all], ..Default::default() });
        prop_assert!(read.is_ok_and(|(_, status)| status.is_none()), "the old or the new pipeline is set");
    }
}
