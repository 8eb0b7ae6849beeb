// SPDX-License-Identifier: Apache-2.0
//! Types that differ between P4Info and the program, and tables with entries of the program.

use super::*;
use crate::proto::p4::config::v1::P4Info;
use crate::testing::{translated, types, with_ids_of};

#[test]
fn ports_have_translated_types() {
    for controller in [25, 32] {
        translated_ports(controller);
    }
}

fn translated_ports(controller: u32) {
    let mut bench = Bench::of(translated(&format!("sdn_bitwidth: {controller}")));
    let out = |port: &str| -> PacketOut {
        let metadata = format!(
            "metadata {{ metadata_id: 1 value: '{port}' }} metadata {{ metadata_id: 2 value: '\\x7f' }}"
        );
        message("p4.v1.PacketOut", &metadata)
    };
    let header = bench.device.pipeline().unwrap().packet_out.clone();
    let packet = crate::packets::packet_out(&header, &out("\\0\\0\\x01\\xfe")).unwrap();
    assert_eq!(packet, b"\xff\x7f", "the program's 9 and 7 bits: port 510");
    let refused = crate::packets::packet_out(&header, &out("\\x02\\0")).unwrap_err();
    assert_eq!(
        (refused.code, refused.message),
        (
            Code::OutOfRange,
            format!(
                "egress_port: a value of 10 bits for bit<9> in the program, P4Info has bit<{controller}>"
            )
        )
    );
    bench.arrive(9, b"no probe".to_vec());
    let Ok(Event::PacketIn(packet)) = bench.events.try_recv() else { panic!("no packet") };
    let packet = crate::packets::packet_in(&bench.device.pipeline().unwrap().packet_in, &packet).unwrap();
    assert_eq!(
        (packet.metadata[0].value.as_slice(), packet.payload.as_slice()),
        (&[9][..], &b"no probe"[..])
    );

    bench.insert(HOST);
    bench.finds("table_entry { table_id: <hosts> }", &[HOST]);
    let ones = if controller == 32 { "\\xff\\xff\\xff\\xff" } else { "\\x01\\xff\\xff\\xff" };
    let rule = format!("table_entry {{ table_id: <rules> priority: 9
        match {{ field_id: 1 ternary {{ value: '\\x01' mask: '{ones}' }} }}
        match {{ field_id: 2 range {{ low: '\\0' high: '\\x10' }} }}
        match {{ field_id: 3 optional {{ value: '\\x07' }} }} action {{ action {{ action_id: <NoAction> }} }} }}");
    bench.insert(&rule);
    bench.finds("table_entry { table_id: <rules> }", &[&rule]);
    let too_wide = HOST.replace("\\x05", "\\x02\\0").replace("\\x0a", "\\x0b");
    bench.refuses(Type::Insert, &too_wide, Code::OutOfRange, "10 bits for bit<9> in the program");
}

#[test]
fn value_sets_and_registers_have_translated_types() {
    let mut bench = Bench::of(translated("sdn_bitwidth: 32"));
    let set = |value: &str| {
        let member = format!("match {{ field_id: 1 exact {{ value: '{value}' }} }}");
        format!("value_set_entry {{ value_set_id: <probes> members {{ {member} }} }}")
    };
    bench.modify(&set("\\x01\\x01"));
    bench.refuses(Type::Modify, &set("\\x01\\0\\0"), Code::OutOfRange, "17 bits for bit<16> in the program");
    bench.finds("value_set_entry { }", &[&set("\\x01\\x01")]);
    bench.probe(2, 0x101, 10, 0, 9);
    let counter = "counter_entry { counter_id: <port_counter> index { index: 2 }";
    let counted = format!("{counter} data {{ packet_count: 1 byte_count: 10 }} }}");
    bench.finds(&format!("{counter} }}"), &[&counted]);

    let register = |value: &str| {
        format!("register_entry {{ register_id: <last_seen> index {{ index: 7 }} data {{ bitstring: '{value}' }} }}")
    };
    bench.modify(&register("\\xff\\x02\\x03\\x04"));
    bench.finds(
        "register_entry { register_id: <last_seen> index { index: 7 } }",
        &[&register("\\xff\\x02\\x03\\x04")],
    );
    bench.refuses(Type::Modify, &register("\\x01\\0\\0\\0\\0"), Code::OutOfRange, "33 bits for bit<32>");
}

#[test]
fn digests_have_translated_types() {
    let mut bench = Bench::of(translated("sdn_bitwidth: 32"));
    bench.parse_probes();
    bench.insert("digest_entry { digest_id: <learned_t> config { max_list_size: 1 } }");
    bench.probe(3, 0x101, 1, 0, 0);
    let Ok(Event::Digest { id, values }) = bench.events.try_recv() else { panic!("no digest") };
    let (pipeline, digests) = bench.device.digests().unwrap();
    let list = digests.add(pipeline, id, values, std::time::Instant::now()).unwrap();
    let learned = "struct { members { bitstring: '\\x01' } members { bitstring: '\\x03' } }";
    assert_eq!(list.data, [message("p4.v1.P4Data", learned)]);
}

#[test]
fn translations_to_strings_are_refused() {
    let with_string = translated("sdn_string { }");
    let part = |keep: fn(&mut P4Info, &P4Info)| {
        let mut config = everything();
        keep(config.p4info.as_mut().unwrap(), with_string.p4info.as_ref().unwrap());
        config
    };
    let is_port = "is translated to a string, which is not supported";
    for (config, what) in [
        (part(|info, of| info.actions = of.actions.clone()), "action ProbeIngress.host_forward: port"),
        (
            part(|info, of| info.controller_packet_metadata = of.controller_packet_metadata.clone()),
            "packet_in: ingress_port",
        ),
        (part(|info, of| info.tables = of.tables.clone()), "table ProbeIngress.rules: hdr.probe.flags"),
        (part(|info, of| info.value_sets = of.value_sets.clone()), "value set ProbeParser.probes: "),
        (part(|info, of| info.registers = of.registers.clone()), "register ProbeIngress.last_seen: time_t"),
        (part(|_, _| ()), "digest learned_t: port_t"),
    ] {
        let config = ForwardingPipelineConfig {
            p4info: config.p4info.map(|mut info| {
                info.type_info = with_string.p4info.clone().unwrap().type_info;
                info
            }),
            ..config
        };
        let (events, _received) = tokio::sync::mpsc::channel(16);
        let mut device = Device::new(Box::new(crate::loopback::Loopback::new(events)));
        let refused = device.configure(Action::Verify, Some(config)).unwrap_err();
        assert!(refused.message.contains(&format!("{what} {is_port}")), "{what}: {refused:?}");
    }
}

/// `everything` with `entries` instead of `const entries` for `fixed`, as compiled by p4c: the JSON is the same.
fn with_initial_entries() -> ForwardingPipelineConfig {
    with_info(|info| {
        let fixed = info.tables.iter_mut().find(|table| table.is_const_table).unwrap();
        fixed.is_const_table = false;
    })
}

#[test]
fn initial_entries_can_be_changed() {
    let mut bench = Bench::of(with_initial_entries());
    let entry = |key: u8, action: &str| {
        let key = format!("match {{ field_id: 1 exact {{ value: '\\x01\\x{key:02x}' }} }}");
        format!("table_entry {{ table_id: <fixed> {key} {action} }}")
    };
    let forward = |port: u8| {
        format!(
            "action {{ action {{ action_id: <forward> params {{ param_id: 1 value: '\\x{port:02x}' }} }} }}"
        )
    };
    let drop = "action { action { action_id: <drop> } }";
    let read = "table_entry { table_id: <fixed> }";
    bench.finds(read, &[&entry(2, &forward(7)), &entry(3, drop)]);
    bench.refuses(Type::Insert, &entry(2, drop), Code::AlreadyExists, "");
    bench.refuses(Type::Delete, &entry(3, "is_const: true"), Code::InvalidArgument, "is_const");
    bench.modify(&entry(2, &forward(8)));
    bench.write(Type::Delete, &entry(3, "")).unwrap();
    // The size is that of P4Info: the JSON has the number of entries instead.
    for key in 4..8 {
        bench.insert(&entry(key, drop));
    }
    let changed = [entry(2, &forward(8)), entry(4, drop), entry(5, drop), entry(6, drop), entry(7, drop)];
    bench.finds(read, &changed.each_ref().map(String::as_str));
    bench.device.configure(Action::ReconcileAndCommit, Some(with_initial_entries())).unwrap();
    bench.finds(read, &changed.each_ref().map(String::as_str));
    bench.device.configure(Action::VerifyAndCommit, Some(with_initial_entries())).unwrap();
    bench.finds(read, &[&entry(2, &forward(7)), &entry(3, drop)]);
}

/// Replace names of the objects of `types` by their ids.
fn of_types(text: &str) -> String {
    with_ids_of(types().p4info.as_ref().unwrap(), text)
}

/// Make a probe with these fields arrive at port 9.
fn probe(bench: &mut Bench, port: u16, stamp: u16, class: u8, number: u8) {
    let out = "metadata { metadata_id: 1 value: '\\0' } metadata { metadata_id: 2 value: '\\0\\0\\0\\x09' }
        metadata { metadata_id: 3 value: '\\0' }";
    let payload = [&(port << 7).to_be_bytes()[..], &stamp.to_be_bytes(), &[class, number]].concat();
    let out = PacketOut { payload, ..message("p4.v1.PacketOut", out) };
    let pipeline = bench.device.pipeline().unwrap();
    let packet = crate::packets::packet_out(&pipeline.packet_out, &out).unwrap();
    bench.device.inject(&packet).unwrap();
}

/// The metadata and the last byte of the last PacketIn. None if there is none.
fn packet_in(bench: &mut Bench) -> Option<(Vec<Vec<u8>>, u8)> {
    let mut packet = None;
    while let Ok(event) = bench.events.try_recv() {
        if let Event::PacketIn(bytes) = event {
            packet = Some(bytes);
        }
    }
    let packet = packet?;
    let packet = crate::packets::packet_in(&bench.device.pipeline().unwrap().packet_in, &packet).unwrap();
    let metadata = packet.metadata.into_iter().map(|field| field.value).collect();
    Some((metadata, *packet.payload.last().unwrap()))
}

#[test]
fn headers_with_structs_and_fields_of_no_bits_are_laid_out() {
    let mut bench = Bench::of(types());
    probe(&mut bench, 3, 7, 1, 9);
    assert_eq!(packet_in(&mut bench), Some((vec![vec![9], vec![5], vec![9]], 9)));
    let register = |name: &str, value: &str| {
        of_types(&format!(
            "register_entry {{ register_id: <{name}> index {{ }} data {{ bitstring: '{value}' }} }}"
        ))
    };
    for (name, value) in [("ports", "\\x03"), ("stamps", "\\x07")] {
        let read = of_types(&format!("register_entry {{ register_id: <{name}> index {{ }} }}"));
        bench.finds(&read, &[&register(name, value)]);
    }
    bench.refuses(Type::Modify, &register("ports", "\\x02\\0"), Code::OutOfRange, "bit<9> in the program");
}

#[test]
fn digests_have_fields_of_no_bits() {
    let mut bench = Bench::of(types());
    bench.insert(&of_types("digest_entry { digest_id: <seen_t> config { max_list_size: 1 } }"));
    probe(&mut bench, 300, 0x1234, 5, 9);
    let Ok(Event::Digest { id, values }) = bench.events.try_recv() else { panic!("no digest") };
    let (pipeline, digests) = bench.device.digests().unwrap();
    let list = digests.add(pipeline, id, values, std::time::Instant::now()).unwrap();
    let fields = ["\\x01\\x2c", "\\0", "\\x12\\x34", "\\x05"];
    let members = fields.map(|value| format!("members {{ bitstring: '{value}' }}")).concat();
    assert_eq!(list.data, [message("p4.v1.P4Data", &format!("struct {{ {members} }}"))]);
}

#[test]
fn prefixes_of_translated_types_have_their_width() {
    let mut bench = Bench::of(types());
    // All values that a bit<9> has with the highest bit set: 256 to 511 of 32 bits.
    let key = "match { field_id: 1 lpm { value: '\\x01\\0' prefix_len: 24 } }";
    let params = "params { param_id: 1 value: '\\x01' } params { param_id: 2 value: '\\0' }";
    let action = format!("action {{ action {{ action_id: <send> {params} }} }}");
    let entry = of_types(&format!("table_entry {{ table_id: <prefixes> {key} {action} }}"));
    bench.insert(&entry);
    bench.finds(&of_types("table_entry { table_id: <prefixes> }"), &[&entry]);
    for (port, sent) in [(255, false), (256, true), (511, true)] {
        probe(&mut bench, port, 0, 0, 9);
        assert_eq!(packet_in(&mut bench).is_none(), sent, "{port}");
    }
}

#[test]
fn initial_entries_have_the_order_of_the_source_as_priorities() {
    let mut bench = Bench::of(types());
    let note = "action { action { action_id: <note> params { param_id: 1 value: '\\x07' } } }";
    let range = |low: u8, high: u8| format!("range {{ low: '\\x{low:02x}' high: '\\x{high:02x}' }}");
    let entry = |priority: u8, range: &str, action: &str| {
        let key = format!("match {{ field_id: 2 {range} }}");
        of_types(&format!("table_entry {{ table_id: <masks> priority: {priority} {key} {action} }}"))
    };
    let drop = "action { action { action_id: <drop> } }";
    let read = of_types("table_entry { table_id: <masks> }");
    bench.finds(&read, &[&entry(2, &range(1, 3), note), &entry(1, &range(2, 2), drop)]);
    probe(&mut bench, 1, 2, 0, 2);
    assert_eq!(packet_in(&mut bench).map(|(_, number)| number), Some(7));
    bench.write(Type::Delete, &entry(2, &range(1, 3), "")).unwrap();
    probe(&mut bench, 1, 2, 0, 2);
    assert_eq!(packet_in(&mut bench), None, "the other one drops it");
    (3..=17).for_each(|priority| bench.insert(&entry(priority, &range(2, 2), note)));
    bench.refuses(Type::Insert, &entry(18, &range(2, 2), note), Code::ResourceExhausted, "full: 16 entries");
}
