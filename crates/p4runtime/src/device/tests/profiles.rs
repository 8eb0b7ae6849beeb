// SPDX-License-Identifier: Apache-2.0
//! Action profiles: members, groups and one-shot action sets.

use super::*;

#[test]
fn members_and_groups_are_written_and_read() {
    let mut bench = Bench::new();
    let member = |id: u32, port: u8| {
        format!(
            "action_profile_member {{ action_profile_id: <paths> member_id: {id}
            action {{ action_id: <forward> params {{ param_id: 1 value: '\\x{port:02x}' }} }} }}"
        )
    };
    let group = |members: &str| {
        format!("action_profile_group {{ action_profile_id: <paths> group_id: 1 {members} }}")
    };
    let pair = group("members { member_id: 1 weight: 2 } members { member_id: 2 weight: 1 }");
    let entry = "table_entry { table_id: <by_path> match { field_id: 1 exact { value: '\\x05' } } action { action_profile_group_id: 1 } }";
    bench.refuses(Type::Insert, &pair, Code::NotFound, "");
    bench.refuses(Type::Insert, entry, Code::NotFound, "");
    bench.insert(&member(1, 4));
    bench.insert(&member(2, 5));
    bench.refuses(Type::Insert, &member(1, 4), Code::AlreadyExists, "");
    bench.refuses(Type::Modify, &member(3, 4), Code::NotFound, "");
    bench.refuses(Type::Insert, &member(0, 4), Code::InvalidArgument, "other than 0");
    bench.insert(&pair);
    bench.refuses(Type::Insert, &pair, Code::AlreadyExists, "group 1");
    bench.insert(entry);
    bench.modify(&member(2, 6));
    bench.finds("action_profile_member { }", &[&member(1, 4), &member(2, 6)]);
    bench.finds("action_profile_member { action_profile_id: <paths> member_id: 2 }", &[&member(2, 6)]);
    bench.finds("action_profile_group { }", &[&pair]);
    bench.finds("table_entry { table_id: <by_path> }", &[entry]);
    for (kind, text, code, why) in [
        (Type::Delete, member(1, 4), Code::FailedPrecondition, ""),
        (Type::Delete, pair.clone(), Code::FailedPrecondition, ""),
        (Type::Modify, group("members { member_id: 1 }"), Code::InvalidArgument, "a weight of 0"),
        (Type::Modify, group("members { member_id: 1 weight: 1 } members { member_id: 1 weight: 1 }"), Code::InvalidArgument, "twice"),
        (Type::Modify, group("members { member_id: 1 weight: 70000 }"), Code::ResourceExhausted, "70000"),
        (Type::Modify, group("members { member_id: 1 weight: 1 watch_port: '\\x01' }"), Code::Unimplemented, "port"),
        (Type::Modify, group("max_size: 3"), Code::InvalidArgument, "cannot change"),
        (Type::Insert, "action_profile_group { action_profile_id: <hops> group_id: 1 }".into(), Code::InvalidArgument, "no selector"),
        (Type::Insert, "table_entry { table_id: <by_hop> match { field_id: 1 exact { value: '\\x05' } } action { action_profile_group_id: 1 } }".into(), Code::InvalidArgument, "expected a member"),
        (Type::Modify, entry.replace("action_profile_group_id: 1", "action_profile_action_set { }"), Code::InvalidArgument, "exclude"),
    ] {
        bench.refuses(kind, &text, code, why);
    }
    bench.write(Type::Delete, entry).unwrap();
    bench.write(Type::Delete, &pair).unwrap();
    bench.write(Type::Delete, &member(1, 4)).unwrap();
    bench.finds("action_profile_group { }", &[]);
    bench.finds("action_profile_member { }", &[&member(2, 6)]);
}

#[test]
fn one_shot_action_sets_are_written_and_read() {
    let mut bench = Bench::new();
    let entry = |key: u8, set: &str| {
        format!(
            "table_entry {{ table_id: <by_path> match {{ field_id: 1 exact {{ value: '\\x{key:02x}' }} }}
            action {{ action_profile_action_set {{ {set} }} }} }}"
        )
    };
    let to = |port: u8, weight: i32| {
        format!("action_profile_actions {{ weight: {weight} action {{ action_id: <forward> params {{ param_id: 1 value: '\\x{port:02x}' }} }} }}")
    };
    let (first, second) = (entry(1, &format!("{} {}", to(1, 2), to(1, 1))), entry(2, &to(3, 1)));
    bench.insert(&first.replace("'\\x01'", "'\\0\\0\\x01'"));
    bench.insert(&second);
    bench.finds("table_entry { table_id: <by_path> }", &[&first, &second]);
    bench.finds("action_profile_member { }", &[]);
    bench.refuses(
        Type::Insert,
        "action_profile_member { action_profile_id: <paths> member_id: 1 action { action_id: <drop> } }",
        Code::InvalidArgument,
        "exclude",
    );
    bench.refuses(Type::Insert, &first, Code::AlreadyExists, "");
    bench.refuses(Type::Insert, &entry(3, &to(3, 0)), Code::InvalidArgument, "a weight of 0");
    // The profile has room for 16 members. A refused entry and a modified entry free their members.
    let thirteen: String = (1..=13).map(|port| to(port, 1)).collect();
    bench.insert(&entry(3, &thirteen));
    bench.refuses(Type::Insert, &entry(4, &to(1, 1)), Code::ResourceExhausted, "");
    bench.write(Type::Delete, &first).unwrap();
    bench.modify(&entry(2, &to(9, 1)));
    bench.insert(&entry(4, &to(1, 1)));
    bench.finds(
        "table_entry { table_id: <by_path> }",
        &[&entry(2, &to(9, 1)), &entry(3, &thirteen), &entry(4, &to(1, 1))],
    );
    for key in 2..=4 {
        bench.write(Type::Delete, &entry(key, "")).unwrap();
    }
    bench.insert("action_profile_member { action_profile_id: <paths> member_id: 1 action { action_id: <multicast> params { param_id: 1 value: '\\x01' } } }");
}

/// A switch with the profile `paths` for both tables `by_hop` (forward, drop) and `by_path` (forward, multicast).
fn with_shared_profile() -> Bench {
    let mut config = everything();
    let program = String::from_utf8(config.p4_device_config).unwrap();
    let program = program.replace("\"type\": \"indirect\"", "\"type\": \"indirect_ws\"");
    let of_table = |name: &str| format!("\"action_profile\": \"ProbeIngress.{name}\"");
    assert_eq!(program.matches(&of_table("hops")).count(), 1);
    config.p4_device_config = program.replace(&of_table("hops"), &of_table("paths")).into_bytes();
    let tables = &mut config.p4info.as_mut().unwrap().tables;
    let table = tables.iter_mut().find(|table| table.preamble.as_ref().unwrap().alias == "by_hop").unwrap();
    table.implementation_id = with_ids("<paths>").parse().unwrap();
    let mut bench = Bench::new();
    bench.device.configure(Action::VerifyAndCommit, Some(config)).unwrap();
    bench
}

#[test]
fn tables_share_members_and_groups_with_their_actions() {
    let mut bench = with_shared_profile();
    let member = |id: u32, action: &str| {
        format!("action_profile_member {{ action_profile_id: <paths> member_id: {id} action {{ action_id: {action} }} }}")
    };
    let port = "<forward> params { param_id: 1 value: '\\x04' }";
    let group = "<multicast> params { param_id: 1 value: '\\x01' }";
    let members = [member(1, port), member(2, "<drop>"), member(3, group)];
    members.iter().for_each(|member| bench.insert(member));
    bench.finds("action_profile_member { }", &members.each_ref().map(String::as_str));
    bench.insert(
        "action_profile_group { action_profile_id: <paths> group_id: 1 members { member_id: 1 weight: 1 } members { member_id: 3 weight: 1 } }",
    );
    let entry = |table: &str, key: u8, target: &str| {
        format!("table_entry {{ table_id: <{table}> match {{ field_id: 1 exact {{ value: '\\x{key:02x}' }} }} action {{ {target} }} }}")
    };
    for (table, member, missing) in [("by_hop", 2, 3), ("by_path", 3, 2)] {
        bench.insert(&entry(table, 1, "action_profile_member_id: 1"));
        bench.insert(&entry(table, 2, &format!("action_profile_member_id: {member}")));
        let refused = entry(table, 3, &format!("action_profile_member_id: {missing}"));
        bench.refuses(
            Type::Insert,
            &refused,
            Code::InvalidArgument,
            &format!("which table ProbeIngress.{table} does not have"),
        );
    }
    bench.insert(&entry("by_path", 4, "action_profile_group_id: 1"));
    let refused = entry("by_hop", 4, "action_profile_group_id: 1");
    bench.refuses(Type::Insert, &refused, Code::InvalidArgument, "member 3 calls ProbeIngress.multicast");
}

#[test]
fn an_action_set_has_actions_of_its_table() {
    let mut bench = with_shared_profile();
    let entry = |table: &str, action: &str| {
        format!(
            "table_entry {{ table_id: <{table}> match {{ field_id: 1 exact {{ value: '\\x01' }} }}
            action {{ action_profile_action_set {{ action_profile_actions {{ weight: 1 action {{ action_id: {action} }} }} }} }} }}"
        )
    };
    let group = "<multicast> params { param_id: 1 value: '\\x01' }";
    for (table, action) in [("by_hop", "<drop>"), ("by_path", group)] {
        let written = entry(table, action);
        bench.insert(&written);
        bench.finds(&format!("table_entry {{ table_id: <{table}> }}"), &[&written]);
    }
    bench.refuses(Type::Modify, &entry("by_hop", group), Code::InvalidArgument, "by_hop");
    bench.refuses(Type::Modify, &entry("by_path", "<drop>"), Code::InvalidArgument, "by_path");
}
