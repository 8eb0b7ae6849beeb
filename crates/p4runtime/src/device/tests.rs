// SPDX-License-Identifier: Apache-2.0
//! Writes and reads of all kinds of entities with an engine that runs tests/programs/everything.p4.

use tonic::Code;

use super::*;
use crate::control::Event;
use crate::proto::p4::v1::PacketOut;
use crate::testing::{device, device_of, everything, message, with_ids};

mod pipelines;
mod profiles;
mod types;

struct Bench {
    device: Device,
    events: tokio::sync::mpsc::Receiver<Event>,
}

impl Bench {
    fn new() -> Bench {
        let (device, events) = device();
        Bench { device, events }
    }

    fn of(config: ForwardingPipelineConfig) -> Bench {
        let (device, events) = device_of(config);
        Bench { device, events }
    }

    fn entity(text: &str) -> Entity {
        message("p4.v1.Entity", &with_ids(text))
    }

    fn write(&mut self, kind: Type, text: &str) -> Result<()> {
        self.device.write(&Update { r#type: kind.into(), entity: Some(Bench::entity(text)) })
    }

    fn insert(&mut self, text: &str) {
        self.write(Type::Insert, text).unwrap_or_else(|refused| panic!("{refused:?}: {text}"));
    }

    fn modify(&mut self, text: &str) {
        self.write(Type::Modify, text).unwrap_or_else(|refused| panic!("{refused:?}: {text}"));
    }

    fn read(&mut self, text: &str) -> Vec<Entity> {
        let mut found = Entities::default();
        let read = self.device.read(&Bench::entity(text), &mut found);
        read.unwrap_or_else(|refused| panic!("{refused:?}: {text}"));
        found.into_entities()
    }

    /// Check the entities that a read finds, in any order.
    fn finds(&mut self, read: &str, expected: &[&str]) {
        let mut found = self.read(read);
        for text in expected {
            let wanted = Bench::entity(text);
            let place = found.iter().position(|entity| *entity == wanted);
            found.remove(place.unwrap_or_else(|| panic!("{read}: no {text} ({wanted:?}) in {found:#?}")));
        }
        assert_eq!(found, [], "{read}");
    }

    fn refuses(&mut self, kind: Type, text: &str, code: Code, why: &str) {
        let refused = self.write(kind, text).err().unwrap_or_else(|| panic!("accepted: {kind:?} {text}"));
        assert!(refused.code == code && refused.message.contains(why), "{kind:?} {text}: {refused:?}");
    }

    fn refuses_read(&mut self, text: &str, code: Code, why: &str) {
        let refused = self.device.read(&Bench::entity(text), &mut Entities::default());
        let refused = refused.err().unwrap_or_else(|| panic!("accepted: {text}"));
        assert!(refused.code == code && refused.message.contains(why), "{text}: {refused:?}");
    }

    /// Make a probe arrive at a port.
    fn probe(&mut self, port: u8, kind: u16, address: u32, low_and_flags: u16, flow: u16) {
        let mut payload = kind.to_be_bytes().to_vec();
        payload.extend(address.to_be_bytes());
        payload.extend(low_and_flags.to_be_bytes());
        payload.extend(flow.to_be_bytes());
        self.arrive(port, payload);
    }

    fn arrive(&mut self, port: u8, payload: Vec<u8>) {
        let text = format!("metadata {{ metadata_id: 1 value: \"\\x{port:02x}\" }} metadata {{ metadata_id: 2 value: \"\\0\" }}");
        let out = PacketOut { payload, ..message("p4.v1.PacketOut", &text) };
        let pipeline = self.device.pipeline().unwrap();
        let packet = crate::packets::packet_out(&pipeline.packet_out, &out).unwrap();
        self.device.inject(&packet).unwrap();
    }

    /// Make the parser accept probes of kind 0x101.
    fn parse_probes(&mut self) {
        self.modify("value_set_entry { value_set_id: <probes> members { match { field_id: 1 exact { value: '\\x01\\x01' } } } }");
    }
}

const HOST: &str = "table_entry { table_id: <hosts> match { field_id: 1 exact { value: '\\x0a' } }
    action { action { action_id: <host_forward> params { param_id: 1 value: '\\x05' } } } }";

#[test]
fn entries_of_all_kinds_of_match_are_read_as_written() {
    let mut bench = Bench::new();
    let route = "table_entry { table_id: <routes> match { field_id: 1 lpm { value: '\\x0a\\0\\0\\0' prefix_len: 8 } }
        action { action { action_id: <multicast> params { param_id: 1 value: '\\x01\\x02' } } } metadata: 'mine' }";
    let any_route =
        "table_entry { table_id: <routes> action { action { action_id: <drop> } } controller_metadata: 7 }";
    let rule = "table_entry { table_id: <rules> priority: 9 match { field_id: 1 ternary { value: '\\x01' mask: '\\x03' } }
        match { field_id: 2 range { low: '\\0' high: '\\x10' } } match { field_id: 3 optional { value: '\\x07' } }
        action { action { action_id: <forward> params { param_id: 1 value: '\\x01\\x02' } } } }";
    let any_rule =
        "table_entry { table_id: <rules> priority: 1 action { action { action_id: <NoAction> } } }";
    let fixed = [
        "\\x02' } } action { action { action_id: <forward> params { param_id: 1 value: '\\x07' } } }",
        "\\x03' } } action { action { action_id: <drop> } }",
    ];
    let fixed = fixed.map(|rest| {
        format!("table_entry {{ table_id: <fixed> is_const: true match {{ field_id: 1 exact {{ value: '\\x01{rest} }}")
    });
    for entry in [HOST, route, any_route, rule, any_rule] {
        bench.insert(entry);
        bench.refuses(Type::Insert, entry, Code::AlreadyExists, "");
    }
    bench.finds("table_entry {}", &[HOST, route, any_route, rule, any_rule, &fixed[0], &fixed[1]]);
    bench.finds("table_entry { table_id: <hosts> match { field_id: 1 exact { value: '\\x0a' } } }", &[HOST]);
    bench.finds("table_entry { table_id: <hosts> match { field_id: 1 exact { value: '\\x0b' } } }", &[]);
    bench.finds("table_entry { table_id: <rules> priority: 1 }", &[any_rule]);
    bench.finds("table_entry { table_id: <rules> match { field_id: 1 ternary { value: '\\x01' mask: '\\x03' } }
        match { field_id: 2 range { low: '\\0' high: '\\x10' } } match { field_id: 3 optional { value: '\\x07' } } }", &[rule]);
    bench.finds("table_entry { table_id: <routes> metadata: 'mine' }", &[route]);
    bench.finds("table_entry { table_id: <routes> action { action { action_id: <drop> } } }", &[any_route]);
    let changed = route.replace("'mine'", "'ours'").replace("\\x01\\x02", "\\x03");
    bench.modify(&changed);
    bench.finds("table_entry { table_id: <routes> }", &[&changed, any_route]);
    for entry in [HOST, &changed, any_route, rule, any_rule] {
        bench.write(Type::Delete, entry).unwrap();
        bench.refuses(Type::Delete, entry, Code::NotFound, "");
        bench.refuses(Type::Modify, entry, Code::NotFound, "");
    }
    bench.finds("table_entry { }", &[&fixed[0], &fixed[1]]);
}

#[test]
fn bad_entries_are_refused() {
    let mut bench = Bench::new();
    let host = |rest: &str| format!("table_entry {{ table_id: <hosts> {rest} }}");
    let key = "match { field_id: 1 exact { value: '\\x0a' } }";
    let forward = |parameters: &str| {
        host(&format!("{key} action {{ action {{ action_id: <host_forward> {parameters} }} }}"))
    };
    for (kind, text, code, why) in [
        (Type::Insert, "table_entry { table_id: 77 }".into(), Code::NotFound, "no table 0x4d"),
        (Type::Insert, "table_entry { }".into(), Code::InvalidArgument, "expected the id of a table"),
        (Type::Insert, host(key), Code::InvalidArgument, "without an action"),
        (Type::Insert, host("action { action { action_id: <drop> } }"), Code::InvalidArgument, "needs a value"),
        (Type::Insert, host(&format!("{key} action {{ action {{ action_id: <multicast> }} }}")), Code::InvalidArgument, "has no action"),
        (Type::Insert, host(&format!("{key} action {{ action {{ action_id: <learn> }} }}")), Code::PermissionDenied, "default entry"),
        (Type::Insert, host(&format!("{key} action {{ action_profile_member_id: 1 }}")), Code::InvalidArgument, "expected an action"),
        (Type::Insert, forward(""), Code::InvalidArgument, "needs port"),
        (Type::Insert, forward("params { param_id: 2 value: '\\x01' }"), Code::InvalidArgument, "no parameter 2"),
        (Type::Insert, forward("params { param_id: 1 value: '\\x02\\0' }"), Code::OutOfRange, "10 bits for bit<9>"),
        (Type::Insert, HOST.replacen("action {", "priority: 1 action {", 1), Code::InvalidArgument, "have no priority"),
        (Type::Insert, HOST.replacen("action {", "is_const: true action {", 1), Code::InvalidArgument, "is_const"),
        (Type::Insert, HOST.replacen("action {", "idle_timeout_ns: -1 action {", 1), Code::InvalidArgument, "-1 ns"),
        (Type::Insert, "table_entry { table_id: <rules> action { action { action_id: <drop> } } }".into(), Code::InvalidArgument, "priority"),
        (Type::Insert, "table_entry { table_id: <routes> idle_timeout_ns: 1 action { action { action_id: <drop> } } }".into(), Code::InvalidArgument, "1 ns"),
        (Type::Insert, "table_entry { table_id: <routes> counter_data {} action { action { action_id: <drop> } } }".into(), Code::InvalidArgument, "no direct counter"),
        (Type::Insert, "table_entry { table_id: <fixed> match { field_id: 1 exact { value: '\\x09' } } action { action { action_id: <drop> } } }".into(), Code::PermissionDenied, "constant"),
        (Type::Delete, "table_entry { table_id: <fixed> match { field_id: 1 exact { value: '\\x01\\x02' } } }".into(), Code::PermissionDenied, "constant"),
        (Type::Insert, "table_entry { table_id: <hosts> is_default_action: true }".into(), Code::InvalidArgument, "only be modified"),
        (Type::Modify, "table_entry { table_id: <hosts> is_default_action: true action { action { action_id: <drop> } } }".into(), Code::PermissionDenied, "not for the default"),
        (Type::Modify, "table_entry { table_id: <rules> is_default_action: true action { action { action_id: <drop> } } }".into(), Code::PermissionDenied, "constant"),
        (Type::Modify, "table_entry { table_id: <by_hop> is_default_action: true }".into(), Code::PermissionDenied, "constant"),
        (Type::Unspecified, HOST.into(), Code::InvalidArgument, "without a type"),
        (Type::Insert, "extern_entry { }".into(), Code::Unimplemented, "externs"),
        (Type::Insert, "".into(), Code::InvalidArgument, "without an entity"),
    ] {
        bench.refuses(kind, &text, code, why);
    }
    let none = "register_entry { register_id: 9 }";
    bench.refuses(Type::Modify, none, Code::NotFound, "no register 0x9");
    bench.refuses_read(none, Code::NotFound, "no register 0x9");
    bench.refuses_read("", Code::InvalidArgument, "without an entity");
    bench.refuses_read("table_entry { priority: 3 }", Code::InvalidArgument, "no other filter");
    bench.refuses_read(
        "table_entry { table_id: <routes> time_since_last_hit { } }",
        Code::InvalidArgument,
        "idle",
    );
    for index in 0..64 {
        bench.insert(&HOST.replace("\\x0a", &format!("\\x{index:02x}")));
    }
    let one_more = HOST.replace("\\x0a", "\\x40");
    bench.refuses(Type::Insert, &one_more, Code::ResourceExhausted, "hosts: the table is full: 64 entries");
    bench.refuses(Type::Insert, HOST, Code::AlreadyExists, "hosts: an entry with these matches");
}

#[test]
fn default_entries_are_modified_and_reset() {
    let mut bench = Bench::new();
    let read = "table_entry { table_id: <routes> is_default_action: true }";
    let initial = "table_entry { table_id: <routes> is_default_action: true action { action { action_id: <NoAction> } } }";
    bench.finds(read, &[initial]);
    let changed = "table_entry { table_id: <routes> is_default_action: true metadata: 'x'
        action { action { action_id: <forward> params { param_id: 1 value: '\\x03' } } } }";
    bench.modify(changed);
    bench.finds(read, &[changed]);
    bench.modify("table_entry { table_id: <routes> is_default_action: true }");
    bench.finds(read, &[initial]);
    assert_eq!(bench.read("table_entry { is_default_action: true }").len(), 6, "one for each table");
}

#[test]
fn direct_counters_and_meters_belong_to_entries() {
    let mut bench = Bench::new();
    bench.parse_probes();
    let with = |text: &str, rest: &str| text.replacen("action {", &format!("{rest} action {{"), 1);
    let config = "meter_config { cir: 10 cburst: 20 pir: 30 pburst: 40 }";
    bench.insert(&with(HOST, &format!("{config} counter_data {{ packet_count: 3 byte_count: 300 }}")));
    bench.probe(2, 0x101, 10, 0, 0); // 10 bytes that match
    let key = "table_entry { table_id: <hosts> match { field_id: 1 exact { value: '\\x0a' } }";
    let counter = format!("direct_counter_entry {{ {key} }} data {{ packet_count: 4 byte_count: 310 }} }}");
    bench.finds("direct_counter_entry { table_entry { table_id: <hosts> } }", &[&counter]);
    bench.finds("direct_counter_entry { }", &[&counter]);
    let with_counter = with(HOST, &format!("{config} counter_data {{ packet_count: 4 byte_count: 310 }}"));
    bench.finds("table_entry { table_id: <hosts> counter_data {} meter_config {} }", &[&with_counter]);
    bench.finds("table_entry { table_id: <hosts> }", &[HOST]);
    bench.finds(
        "direct_meter_entry { }",
        &[&format!("direct_meter_entry {{ {key} }} config {{ cir: 10 cburst: 20 pir: 30 pburst: 40 }} }}")],
    );

    // Modify without them: the counter keeps its value, the meter has no limit.
    bench.modify(HOST);
    bench.finds(
        "table_entry { table_id: <hosts> counter_data {} meter_config {} }",
        &[&with(HOST, "counter_data { packet_count: 4 byte_count: 310 }")],
    );
    bench.modify(&format!("direct_counter_entry {{ {key} }} data {{ }} }}"));
    bench.finds("direct_counter_entry { }", &[&format!("direct_counter_entry {{ {key} }} data {{ }} }}")]);
    let other = key.replace("0a", "0b");
    bench.refuses(
        Type::Modify,
        &format!("direct_counter_entry {{ {other} }} data {{ }} }}"),
        Code::NotFound,
        "no such entry",
    );
    bench.refuses_read(&format!("direct_counter_entry {{ {other} }} }}"), Code::NotFound, "no such entry");
    bench.refuses(Type::Insert, &counter, Code::InvalidArgument, "only be modified");
    bench.refuses_read(
        "direct_counter_entry { table_entry { table_id: <routes> } }",
        Code::InvalidArgument,
        "has no such resource",
    );
    bench.refuses(
        Type::Modify,
        &format!("direct_meter_entry {{ {key} }} config {{ eburst: 1 }} }}"),
        Code::InvalidArgument,
        "eburst",
    );
    bench.refuses_read("direct_meter_entry { counter_data { } }", Code::Unimplemented, "colour");
}

#[test]
fn idle_entries_are_found() {
    let mut bench = Bench::new();
    bench.parse_probes();
    bench.insert(&HOST.replacen("action {", "idle_timeout_ns: 20000000 metadata: 'm' action {", 1));
    bench.probe(2, 0x101, 10, 0, 0);
    let hit_us = bench.device.now_us();
    assert_eq!(bench.device.idle(hit_us, 10).unwrap(), []);
    std::thread::sleep(std::time::Duration::from_millis(30));
    let now_us = bench.device.now_us();
    let idle = bench.device.idle(now_us, 10).unwrap();
    let key = "table_id: <hosts> match { field_id: 1 exact { value: '\\x0a' } }";
    assert_eq!(
        idle,
        [message("p4.v1.TableEntry", &with_ids(&format!("{key} idle_timeout_ns: 20000000 metadata: 'm'")))]
    );
    let again = [0, 19_999, 20_000].map(|later| bench.device.idle(now_us + later, 10).unwrap().len());
    assert_eq!(again, [0, 0, 1], "after another timeout");
    let read = bench.read("table_entry { table_id: <hosts> time_since_last_hit { } }");
    let Some(Kind::TableEntry(entry)) = &read[0].entity else { panic!("{read:?}") };
    assert!(entry.time_since_last_hit.unwrap().elapsed_ns >= 30_000_000);
}

#[test]
fn counters_and_registers_are_written_and_read() {
    let mut bench = Bench::new();
    bench.parse_probes();
    bench.probe(2, 0x101, 10, 0xffe0, 9);
    bench.finds("counter_entry { counter_id: <port_counter> index { index: 2 } }",
        &["counter_entry { counter_id: <port_counter> index { index: 2 } data { packet_count: 1 byte_count: 10 } }"]);
    bench.finds(
        "register_entry { register_id: <balance> index { index: 1 } }",
        &["register_entry { register_id: <balance> index { index: 1 } data { bitstring: '\\xfe' } }"],
    ); // -2 of 12 bits
    bench.modify("counter_entry { counter_id: <port_counter> data { packet_count: 5 byte_count: 6 } }");
    assert_eq!(bench.read("counter_entry { }").len(), 16);
    bench.finds("counter_entry { counter_id: <port_counter> index { index: 15 } }",
        &["counter_entry { counter_id: <port_counter> index { index: 15 } data { packet_count: 5 byte_count: 6 } }"]);
    bench.modify("register_entry { register_id: <last_seen> index { index: 7 } data { bitstring: '\\x01\\x02\\x03\\x04\\x05\\x06' } }");
    bench.modify("register_entry { register_id: <balance> data { bitstring: '\\xff\\x9d' } }");
    bench.finds("register_entry { register_id: <balance> }", &[0, 1, 2, 3].map(|index| {
        format!("register_entry {{ register_id: <balance> index {{ index: {index} }} data {{ bitstring: '\\x9d' }} }}")
    }).each_ref().map(String::as_str));
    assert_eq!(bench.read("register_entry { }").len(), 12);
}

#[test]
fn meters_are_set_and_reset() {
    let mut bench = Bench::new();
    let meter = "meter_entry { meter_id: <port_meter> index { index: 3 } config { cir: 1 cburst: 2 pir: 3 pburst: 4 } }";
    bench.modify(meter);
    bench.finds("meter_entry { meter_id: <port_meter> index { index: 3 } }", &[meter]);
    bench.modify("meter_entry { meter_id: <port_meter> }");
    bench.finds(
        "meter_entry { meter_id: <port_meter> index { index: 3 } }",
        &["meter_entry { meter_id: <port_meter> index { index: 3 } }"],
    );
}

#[test]
fn bad_indices_and_values_are_refused() {
    use Code::{InvalidArgument, OutOfRange, Unimplemented};
    let mut bench = Bench::new();
    for (kind, text, code, why) in [
        (Type::Insert, "counter_entry { counter_id: <port_counter> }", InvalidArgument, "only be modified"),
        (
            Type::Modify,
            "counter_entry { counter_id: <port_counter> index { index: -1 } data { } }",
            InvalidArgument,
            "-1",
        ),
        (
            Type::Modify,
            "counter_entry { counter_id: <port_counter> index { index: 16 } data { } }",
            OutOfRange,
            "16 elements",
        ),
        (
            Type::Modify,
            "counter_entry { counter_id: <port_counter> data { packet_count: -1 } }",
            InvalidArgument,
            "negative count",
        ),
        (
            Type::Modify,
            "register_entry { register_id: <balance> index { index: 4 } data { bitstring: '\\0' } }",
            OutOfRange,
            "4 elements",
        ),
        (
            Type::Modify,
            "register_entry { register_id: <balance> data { bitstring: '\\x08\\0' } }",
            OutOfRange,
            "int<12>",
        ),
        (
            Type::Modify,
            "register_entry { register_id: <balance> data { bool: true } }",
            InvalidArgument,
            "Signed(12)",
        ),
        (Type::Modify, "register_entry { register_id: <balance> }", InvalidArgument, "expected a value"),
        (
            Type::Modify,
            "meter_entry { meter_id: <port_meter> config { cir: -1 } }",
            InvalidArgument,
            "cir is -1",
        ),
        (Type::Modify, "meter_entry { meter_id: <port_meter> counter_data { } }", Unimplemented, "colour"),
    ] {
        bench.refuses(kind, text, code, why);
    }
}

#[test]
fn value_sets_are_written_and_read() {
    let mut bench = Bench::new();
    let member = |value: &str| format!("members {{ match {{ field_id: 1 exact {{ value: '{value}' }} }} }}");
    let set = |members: &str| format!("value_set_entry {{ value_set_id: <probes> {members} }}");
    bench.finds("value_set_entry { }", &[&set("")]);
    bench.modify(&set(&(member("\\x05") + &member("\\x01\\x02"))));
    bench.finds(
        "value_set_entry { value_set_id: <probes> }",
        &[&set(&(member("\\x05") + &member("\\x01\\x02")))],
    );
    bench.refuses(Type::Modify, &set(&member("\\x05").repeat(2)), Code::AlreadyExists, "twice");
    bench.refuses(
        Type::Modify,
        &set(&member("\\x05").repeat(5)),
        Code::ResourceExhausted,
        "at most 4 members",
    );
    bench.refuses(Type::Insert, &set(""), Code::InvalidArgument, "only be modified");
}

#[test]
fn multicast_groups_and_clone_sessions_are_written_and_read() {
    let mut bench = Bench::new();
    let engine = |rest: &str| format!("packet_replication_engine_entry {{ {rest} }}");
    let group = |rest: &str| engine(&format!("multicast_group_entry {{ multicast_group_id: 7 {rest} }}"));
    let clone = |rest: &str| engine(&format!("clone_session_entry {{ session_id: 5 {rest} }}"));
    let replica = |port: &str, instance: u32| format!("replicas {{ port: '{port}' instance: {instance} }}");
    for entry in [&group, &clone] as [&dyn Fn(&str) -> String; 2] {
        let (first, second) =
            (entry(&replica("\\x01", 1)), entry(&(replica("\\x01", 2) + &replica("\\x01\\0", 0))));
        bench.refuses(Type::Modify, &first, Code::NotFound, "");
        bench.insert(&first);
        bench.refuses(Type::Insert, &first, Code::AlreadyExists, "");
        bench.modify(&second);
        bench.finds(&entry(""), &[&second]);
        bench.finds(&entry("").replace('7', "0").replace("id: 5", "id: 0"), &[&second]);
        bench.modify(&entry(&replica("\\0\\0\\0\\x01", 3)));
        bench.finds(&entry(""), &[&entry(&replica("\\x01", 3))]);
        bench.refuses(Type::Modify, &entry(&"replicas { }".repeat(4097)), Code::ResourceExhausted, "4097");
        bench.refuses(Type::Modify, &entry(&replica("\\x01", 1).repeat(2)), Code::InvalidArgument, "twice");
        bench.refuses(
            Type::Modify,
            &entry(&replica("\\x01\\xff", 1)),
            Code::InvalidArgument,
            "drops packets",
        );
        bench.refuses(Type::Modify, &entry(&replica("\\x02\\0", 1)), Code::OutOfRange, "bit<9>");
        bench.refuses(
            Type::Modify,
            &entry(&replica("\\x02", 65536)),
            Code::InvalidArgument,
            "instance 65536",
        );
        bench.refuses(
            Type::Modify,
            &entry("replicas { port: '\\x01' backup_replicas { } }"),
            Code::Unimplemented,
            "backup",
        );
        bench.write(Type::Delete, &first).unwrap();
        bench.refuses(Type::Delete, &first, Code::NotFound, "");
    }
    bench.refuses(Type::Insert, &clone("class_of_service: 1"), Code::Unimplemented, "class");
    bench.refuses(Type::Insert, &engine("multicast_group_entry { }"), Code::InvalidArgument, "1 to 65535");
}

#[test]
fn digest_entries_are_written_and_read() {
    let mut bench = Bench::new();
    let digest = "digest_entry { digest_id: <learned_t> config { max_timeout_ns: 5 max_list_size: 2 ack_timeout_ns: 9 } }";
    bench.refuses(Type::Modify, digest, Code::NotFound, "not configured");
    bench.insert(digest);
    bench.refuses(Type::Insert, digest, Code::AlreadyExists, "already");
    bench.finds("digest_entry { }", &[digest]);
    bench.write(Type::Delete, digest).unwrap();
    bench.finds("digest_entry { }", &[]);
}

#[test]
fn digests_are_sent_in_lists_without_duplicates() {
    use std::time::{Duration, Instant};
    let mut bench = Bench::new();
    bench.parse_probes();
    bench.insert("digest_entry { digest_id: <learned_t> config { max_timeout_ns: 1000000 max_list_size: 2 ack_timeout_ns: 1000000000 } }");
    let began = Instant::now();
    let at = |milliseconds: u64| began + Duration::from_millis(milliseconds);
    let add = |bench: &mut Bench, address: u32, now: Instant| {
        bench.probe(3, 0x101, address, 0, 0);
        let Ok(Event::Digest { id, values }) = bench.events.try_recv() else { panic!("no digest") };
        let (pipeline, digests) = bench.device.digests().unwrap();
        digests.add(pipeline, id, values, now)
    };
    assert_eq!(add(&mut bench, 1, at(0)), None);
    assert_eq!(add(&mut bench, 1, at(0)), None, "a duplicate");
    let list = add(&mut bench, 2, at(0)).expect("two make a list");
    let learned = |address: u8| {
        message(
            "p4.v1.P4Data",
            &format!(
                "struct {{ members {{ bitstring: '\\x{address:02x}' }} members {{ bitstring: '\\x03' }} }}"
            ),
        )
    };
    assert_eq!(list.data, [learned(1), learned(2)]);
    assert_eq!(add(&mut bench, 2, at(1)), None, "it was sent and not acknowledged");
    let (pipeline, digests) = bench.device.digests().unwrap();
    assert_eq!(digests.due(pipeline, at(5)), [], "nothing waits");
    let ack = v1::DigestListAck { digest_id: list.digest_id, list_id: list.list_id };
    digests.acknowledge(pipeline, &ack).unwrap();
    assert_eq!(add(&mut bench, 2, at(10)), None);
    let (pipeline, digests) = bench.device.digests().unwrap();
    assert_eq!(digests.next(), Some(at(11)));
    let due = digests.due(pipeline, at(11));
    assert_eq!(due.len(), 1, "one message, after a millisecond");
    assert_eq!((&due[0].data, due[0].list_id), (&vec![learned(2)], list.list_id + 1));
    assert_eq!(add(&mut bench, 2, at(500)), None, "not acknowledged yet");
    assert_eq!(
        add(&mut bench, 2, at(1011)),
        None,
        "the acknowledgement timed out, so it waits for a list again"
    );
    assert!(bench.device.digests().unwrap().1.next().is_some());
    let unknown = v1::DigestListAck { digest_id: 1, list_id: 1 };
    let (pipeline, digests) = bench.device.digests().unwrap();
    assert_eq!(digests.acknowledge(pipeline, &unknown).unwrap_err().code, Code::InvalidArgument);
}

#[test]
fn packets_reach_the_controller() {
    let mut bench = Bench::new();
    bench.arrive(9, b"no probe".to_vec());
    let Ok(Event::PacketIn(packet)) = bench.events.try_recv() else { panic!("no packet") };
    let pipeline = bench.device.pipeline().unwrap();
    let packet = crate::packets::packet_in(&pipeline.packet_in, &packet).unwrap();
    assert_eq!(packet.payload, b"no probe");
    assert_eq!(packet.metadata[0].value, [9]);
}

fn with_info(change: impl Fn(&mut crate::proto::p4::config::v1::P4Info)) -> ForwardingPipelineConfig {
    let mut config = everything();
    change(config.p4info.as_mut().unwrap());
    config
}
