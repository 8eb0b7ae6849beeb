// SPDX-License-Identifier: Apache-2.0
//! Pipelines that are set, replaced and adopted.

use super::*;

#[test]
fn pipelines_are_verified_saved_and_committed() {
    let (sender, _events) = tokio::sync::mpsc::channel(16);
    let mut device = Device::new(Box::new(crate::loopback::Loopback::new(sender)));
    let code = |result: Result<()>| result.err().map(|refused| refused.code);
    let update = Update { r#type: Type::Insert.into(), entity: Some(Bench::entity(HOST)) };
    assert_eq!(code(device.write(&update)), Some(Code::FailedPrecondition));
    assert_eq!(code(device.configure(Action::Unspecified, Some(everything()))), Some(Code::InvalidArgument));
    assert_eq!(code(device.configure(Action::Verify, None)), Some(Code::InvalidArgument));
    assert_eq!(code(device.configure(Action::Commit, None)), Some(Code::NotFound));
    assert_eq!(code(device.configure(Action::Commit, Some(everything()))), Some(Code::InvalidArgument));
    device.configure(Action::Verify, Some(everything())).unwrap();
    assert_eq!(device.config(), None);
    device.configure(Action::VerifyAndSave, Some(everything())).unwrap();
    assert_eq!(code(device.write(&update)), Some(Code::FailedPrecondition), "it waits for its COMMIT");
    device.configure(Action::Commit, None).unwrap();
    device.write(&update).unwrap();
    assert_eq!(device.config(), Some(&everything()));

    // A config that cannot run or does not fit changes nothing.
    let truncated = ForwardingPipelineConfig {
        p4_device_config: everything().p4_device_config[..500].to_vec(),
        ..everything()
    };
    let unknown_table = with_info(|info| info.tables[0].preamble.as_mut().unwrap().name = "hosts".into());
    for config in [truncated, unknown_table, ForwardingPipelineConfig::default()] {
        for action in
            [Action::Verify, Action::VerifyAndSave, Action::VerifyAndCommit, Action::ReconcileAndCommit]
        {
            assert_eq!(code(device.configure(action, Some(config.clone()))), Some(Code::InvalidArgument));
        }
    }
    assert_eq!(code(device.write(&update)), Some(Code::AlreadyExists));
    device.configure(Action::VerifyAndCommit, Some(everything())).unwrap();
    device.write(&update).unwrap();
}

/// The entities that reconciliation preserves.
fn all(bench: &mut Bench) -> [Vec<Entity>; 9] {
    let wildcards = [
        "table_entry { meter_config { } }",
        "table_entry { is_default_action: true }",
        "action_profile_member { }",
        "action_profile_group { }",
        "meter_entry { }",
        "packet_replication_engine_entry { multicast_group_entry { } }",
        "packet_replication_engine_entry { clone_session_entry { } }",
        "digest_entry { }",
        "value_set_entry { }",
    ];
    wildcards.map(|wildcard| bench.read(wildcard))
}

#[test]
fn reconciliation_preserves_entities() {
    let mut bench = Bench::new();
    bench.parse_probes();
    let entry = HOST.replacen(
        "action {",
        "metadata: 'm' meter_config { cir: 1 cburst: 2 pir: 3 pburst: 4 } action {",
        1,
    );
    let default =
        "table_entry { table_id: <routes> is_default_action: true action { action { action_id: <drop> } } }";
    let member =
        "action_profile_member { action_profile_id: <hops> member_id: 4 action { action_id: <drop> } }";
    let hop = "table_entry { table_id: <by_hop> match { field_id: 1 exact { value: '\\x05' } } action { action_profile_member_id: 4 } }";
    let group = "packet_replication_engine_entry { multicast_group_entry { multicast_group_id: 3 replicas { port: '\\x01' } } }";
    let digest = "digest_entry { digest_id: <learned_t> config { max_list_size: 2 } }";
    let clone =
        group.replace("multicast_group_entry { multicast_group_id", "clone_session_entry { session_id");
    let way =
        "action_profile_member { action_profile_id: <paths> member_id: 1 action { action_id: <forward> params { param_id: 1 value: '\\x04' } } }";
    let paths =
        "action_profile_group { action_profile_id: <paths> group_id: 2 members { member_id: 1 weight: 3 } }";
    let path = "table_entry { table_id: <by_path> match { field_id: 1 exact { value: '\\x05' } } action { action_profile_group_id: 2 } }";
    for entity in [&entry, member, hop, group, digest, &clone, way, paths, path] {
        bench.insert(entity);
    }
    let rates = "config { cir: 1 cburst: 2 pir: 3 pburst: 4 }";
    bench.modify(&format!("meter_entry {{ meter_id: <port_meter> index {{ index: 3 }} {rates} }}"));
    bench.modify(default);
    // Reset to 0 by reconciliation.
    bench.modify("register_entry { register_id: <balance> data { bitstring: '\\x05' } }");
    bench.modify("counter_entry { counter_id: <port_counter> data { packet_count: 5 byte_count: 6 } }");
    let before = all(&mut bench);
    assert!(before.iter().all(|found| !found.is_empty()), "{before:?}");
    bench.device.configure(Action::ReconcileAndCommit, Some(everything())).unwrap();
    assert_eq!(all(&mut bench), before);
    bench.finds(
        "register_entry { register_id: <balance> index { index: 0 } }",
        &["register_entry { register_id: <balance> index { index: 0 } data { bitstring: '\\0' } }"],
    );
    bench.finds(
        "counter_entry { counter_id: <port_counter> index { index: 3 } }",
        &["counter_entry { counter_id: <port_counter> index { index: 3 } data { } }"],
    );

    // The table of the entry does not exist under its new id.
    let renumbered = with_info(|info| {
        info.tables[0].preamble.as_mut().unwrap().id = 0x2000_0001;
        info.direct_counters[0].direct_table_id = 0x2000_0001;
        info.direct_meters[0].direct_table_id = 0x2000_0001;
    });
    let refused = bench.device.configure(Action::ReconcileAndCommit, Some(renumbered)).unwrap_err();
    assert!(refused.code == Code::InvalidArgument && refused.message.contains("does not fit"), "{refused:?}");
    assert_eq!(all(&mut bench), before);
    assert_eq!(bench.device.config(), Some(&everything()));
}

#[test]
fn a_running_pipeline_is_adopted_with_its_entries() {
    let mut bench = Bench::new();
    bench.insert(HOST);
    bench.device.running = None;
    let unknown_table = with_info(|info| info.tables[0].preamble.as_mut().unwrap().name = "guests".into());
    assert_eq!(bench.device.take_over(unknown_table).unwrap_err().code, Code::InvalidArgument);
    assert!(bench.device.ready().is_err());
    bench.device.take_over(everything()).unwrap();
    assert_eq!(bench.device.config(), Some(&everything()));
    bench.finds("table_entry { table_id: <hosts> }", &[HOST]);
    bench.refuses(Type::Insert, HOST, Code::AlreadyExists, "");
    bench.write(Type::Delete, HOST).unwrap();
    bench.finds("table_entry { table_id: <hosts> }", &[]);
}
