// SPDX-License-Identifier: Apache-2.0
//! STF files through the loader, the engine and the switch: files that pass, and the failures of others.

use std::path::{Path, PathBuf};

use proptest::prelude::*;
use qbed_p4engine::control::{Answer, Entry, Request, Target};
use qbed_p4engine::program::{ActionCall, Match, Program};
use qbed_p4engine::Engine;
use qbed_p4switch::load::{load, load_unoptimized};
use qbed_p4switch::replay::{replay, Report};
use qbed_p4switch::stf;
use qbed_p4switch::switch::Switch;
use serde_json::{json, Value};

const MIX: &str = include_str!("programs/mix.json");
const MIX_STF: &str = include_str!("programs/mix.stf");
const ROUNDS: &str = include_str!("programs/rounds.json");
const ROUNDS_STF: &str = include_str!("programs/rounds.stf");
const COPIES: &str = include_str!("programs/copies.json");
const COPIES_STF: &str = include_str!("programs/copies.stf");

fn program(json: &str) -> Program {
    load(json.as_bytes()).unwrap()
}

fn run(json: &str, text: &str) -> Report {
    replay(program(json), &stf::parse(text).unwrap()).unwrap()
}

fn failures(json: &str, text: &str) -> Vec<String> {
    run(json, text).failures
}

#[test]
fn mix_passes_its_file() {
    let report = run(MIX, MIX_STF);
    assert_eq!(report.failures, [""; 0]);
    assert_eq!((report.packets_in, report.packets_out), (15, 18));
}

#[test]
fn rounds_passes_its_file() {
    assert_eq!(failures(ROUNDS, ROUNDS_STF), [""; 0]);
}

/// For a function with an `inout standard_metadata_t`, p4c copies the metadata, runs the function on the copy and
/// copies it back. `mark_to_drop` marks the copy.
#[test]
fn a_packet_is_dropped_when_a_copy_of_its_metadata_is_marked() {
    let mut document: Value = serde_json::from_str(ROUNDS).unwrap();
    document["headers"].as_array_mut().unwrap().push(json!({
        "name": "copy", "id": 9, "header_type": "standard_metadata", "metadata": true, "pi_omit": true
    }));
    let assign = |to: &str, from: &str| {
        let field = |header: &str| json!({"type": "field", "value": [header, "egress_spec"]});
        json!({"op": "assign", "parameters": [field(to), field(from)]})
    };
    let mut marks = 0;
    for action in document["actions"].as_array_mut().unwrap() {
        let primitives = action["primitives"].as_array_mut().unwrap();
        let Some(mark) = primitives.iter().position(|primitive| primitive["op"] == "mark_to_drop") else {
            continue;
        };
        primitives[mark]["parameters"][0]["value"] = json!("copy");
        primitives.insert(mark, assign("copy", "standard_metadata"));
        primitives.insert(mark + 2, assign("standard_metadata", "copy"));
        marks += 1;
    }
    assert_eq!(marks, 1);
    let text =
        "packet 0 07 00 ff ff ff ff aa\npacket 0 00 00 ff ff ff ff aa\nexpect 1 00 00 00 00 00 00 aa $\n";
    assert_eq!(failures(ROUNDS, text), [""; 0]);
    assert_eq!(failures(&document.to_string(), text), [""; 0]);
}

/// Insert a field of 0 bits before each field of each header, and use one wherever a value can be read or written.
fn with_empty_fields(json: &str) -> String {
    let mut document: Value = serde_json::from_str(json).unwrap();
    for header in document["header_types"].as_array_mut().unwrap() {
        let fields = header["fields"].as_array_mut().unwrap();
        let known = std::mem::take(fields);
        for (index, field) in known.into_iter().enumerate() {
            fields.extend([json!([format!("empty{index}"), 0, false]), field]);
        }
    }
    let empty = json!({"type": "field", "value": ["ipv4", "empty0"]});
    move_positions(&mut document);
    for calculation in document["calculations"].as_array_mut().unwrap() {
        calculation["input"].as_array_mut().unwrap().insert(0, empty.clone());
    }
    for list in ["learn_lists", "field_lists"] {
        for list in document[list].as_array_mut().unwrap() {
            list["elements"].as_array_mut().unwrap().insert(0, empty.clone());
        }
    }
    for state in document["parsers"][0]["parse_states"].as_array_mut().unwrap() {
        let keys = state["transition_key"].as_array_mut().unwrap();
        if !keys.is_empty() {
            keys.push(empty.clone());
        }
    }
    let store = json!({"op": "assign", "parameters": [empty, {"type": "hexstr", "value": "0x01"}]});
    let read = json!({"type": "expression", "value": {"op": "+", "left": empty, "right": empty}});
    let store_sum = json!({"op": "assign", "parameters": [empty, read]});
    for action in document["actions"].as_array_mut().unwrap() {
        action["primitives"].as_array_mut().unwrap().extend([store.clone(), store_sum.clone()]);
    }
    document.to_string()
}

/// Adjust the positions in `access_field` operations to headers with twice as many fields.
fn move_positions(json: &mut Value) {
    match json {
        Value::Object(members) => {
            if members.get("op") == Some(&json!("access_field")) {
                members["right"] = json!(members["right"].as_u64().unwrap() * 2 + 1);
            }
            members.values_mut().for_each(move_positions);
        }
        Value::Array(elements) => elements.iter_mut().for_each(move_positions),
        _ => {}
    }
}

#[test]
fn fields_of_no_bits_change_no_packet() {
    let report = run(&with_empty_fields(MIX), MIX_STF);
    assert_eq!(report.failures, [""; 0]);
    assert_eq!((report.packets_in, report.packets_out), (15, 18));
}

#[test]
fn copies_passes_its_file() {
    assert_eq!(failures(COPIES, COPIES_STF), [""; 0]);
}

#[test]
fn tables_can_share_a_selector() {
    let program = program(COPIES);
    let table =
        |name: &str| program.tables.iter().position(|table| table.name.ends_with(name)).unwrap() as u16;
    let tables = [table("first"), table("second")];
    let action = program.tables[usize::from(tables[0])].actions[0];
    let mut engine = Engine::load(program).unwrap();
    let call = ActionCall { action, arguments: vec![vec![0, 9]] };
    let mut requests = vec![
        Request::InsertMember { profile: 0, member: 1, call },
        Request::SetGroup { profile: 0, group: 1, members: vec![1] },
    ];
    requests.extend(tables.map(|table| {
        let matches = vec![Match::Exact(vec![2])];
        Request::Insert { table, entry: Entry { matches, priority: 0, target: Target::Group(1), idle_us: 0 } }
    }));
    for request in requests {
        assert_eq!(engine.control(&request), Answer::Done, "{request:?}");
    }
}

#[test]
fn the_schemes_pass_their_files() {
    let schemes = Path::new(&std::env::var("CARGO_MANIFEST_DIR").unwrap()).join("../../schemes");
    let read = |path: &Path| std::fs::read_to_string(path).unwrap();
    let mut files = 0;
    for scheme in schemes.read_dir().unwrap().map(|scheme| scheme.unwrap().path()) {
        let Ok(tests) = scheme.join("p4/tests").read_dir() else { continue };
        let name = scheme.file_name().unwrap().to_str().unwrap().to_owned();
        let json = read(&scheme.join("p4").join(format!("{name}.json")));
        let stf = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "stf");
        for file in tests.map(|file| file.unwrap().path()).filter(stf) {
            let lines = stf::parse(&read(&file)).unwrap();
            for program in [load(json.as_bytes()), load_unoptimized(json.as_bytes())] {
                let report = replay(program.unwrap(), &lines).unwrap();
                assert_eq!(report.failures, [""; 0], "{}", file.display());
            }
            files += 1;
        }
    }
    assert!(files >= 3, "{files} files");
}

#[test]
fn every_changed_expectation_fails_at_its_line() {
    for (index, line) in MIX_STF.lines().enumerate().filter(|(_, line)| line.starts_with("expect")) {
        let digit = line.trim_end_matches([' ', '$']).len() - 1;
        let mut changed = line.to_owned();
        changed.replace_range(digit..=digit, if line[digit..].starts_with('0') { "1" } else { "0" });
        let lines =
            MIX_STF.lines().enumerate().map(|(at, old)| if at == index { changed.as_str() } else { old });
        let failures = failures(MIX, &lines.collect::<Vec<_>>().join("\n"));
        assert_eq!(failures.len(), 1, "{failures:?}");
        assert!(failures[0].starts_with(&format!("line {}: port ", index + 1)), "{failures:?}");
    }
}

#[test]
fn missing_and_unexpected_packets_are_counted() {
    let failures = failures(MIX, "packet 0 05\nexpect 2 05\nexpect 1 05\nexpect 1 05");
    assert_eq!(failures, ["port 1: expected 2 packets, found 1", "port 2: expected 1 packets, found 0"]);
}

#[test]
fn failed_commands_are_reported_with_their_line() {
    let cases = [
        ("add nowhere a:1 b()", "line 1: no table nowhere"),
        ("add routes dst:1 send(port:1)", "line 1: no key dst"),
        (
            "add routes hdr.ipv4.destination:1/33 send(port:1)",
            "line 1: key hdr.ipv4.destination: prefix longer than the field",
        ),
        ("add routes hdr.ipv4.destination:0x1ffffffff/8 send(port:1)", "does not fit into 32 bits"),
        ("add routes hdr.ipv4.destination:1/8 fly(port:1)", "no action fly"),
        ("add routes hdr.ipv4.destination:1/8 send()", "no argument for port"),
        ("add routes hdr.ipv4.destination:1/8 send(port:512)", "port: 0x200 does not fit into 9 bits"),
        ("add routes hdr.ipv4.destination:1/8 send(port:1, x:1)", "send has no parameter x"),
        ("wait\nadd classes hdr.kind.kind:1 classify(class:1)", "line 2: "),
        ("setdefault classes classify(class:1)", "line 1: "),
        ("mc_node_associate 1 0", "line 1: no node 0"),
        ("register_write seen 99 1", "line 1: "),
        ("register_write e 0 1", "line 1: no register e"),
        ("check_counter arrived(1) packets == 1", "arrived(1): expected packets == 1, found 0"),
    ];
    for (text, reason) in cases {
        let failures = failures(MIX, text);
        assert_eq!(failures.len(), 1, "{text}: {failures:?}");
        assert!(failures[0].contains(reason), "{text}: {failures:?}");
    }
}

const DROPPED: &str = "1 packets dropped after 1000 passes or 100000 copies";

#[test]
fn a_packet_in_a_loop_is_dropped() {
    for way in ["04", "05"] {
        let failures = failures(ROUNDS, &format!("packet 0 {way} 00 00 00 00 00"));
        assert_eq!(failures, [DROPPED], "{way}");
    }
}

#[test]
fn a_clone_of_each_clone_is_dropped() {
    let text = "mirroring_add 1 9\npacket 0 06 00 00 00 00 00\nexpect 1";
    assert_eq!(failures(ROUNDS, text), [DROPPED]);
}

#[test]
fn packets_that_multiply_are_dropped() {
    let group = "mc_mgrp_create 1\nmc_node_create 0 8 9\nmc_node_associate 1 0\nmirroring_add_mc 1 1\n";
    let failures = failures(ROUNDS, &format!("{group}packet 0 06 00 00 00 00 00\nexpect 1"));
    assert!(failures.len() == 1 && failures[0].contains("packets dropped after"), "{failures:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn fuzz_packets_never_panic(packets in prop::collection::vec((0_u16..9, prop::collection::vec(any::<u8>(), 0..80)), 1..20)) {
        for json in [MIX, ROUNDS] {
            let mut switch = Switch::new(program(json), 1).unwrap();
            for (port, bytes) in &packets {
                // Ways 4, 5 and 6 loop and have other tests.
                let endless = json == ROUNDS && bytes.first().is_some_and(|way| (4..=6).contains(way));
                if !endless {
                    switch.receive(*port, bytes.clone(), 0);
                }
            }
        }
    }

    #[test]
    fn fuzz_optimizations_change_no_packet(packets in prop::collection::vec((0_u8..10, prop::collection::vec(any::<u8>(), 0..80)), 1..20)) {
        for json in [MIX, ROUNDS] {
            let mut optimized = Switch::new(load(json.as_bytes()).unwrap(), 1).unwrap();
            let mut unoptimized = Switch::new(load_unoptimized(json.as_bytes()).unwrap(), 1).unwrap();
            prop_assert!(optimized.program().code.len() < unoptimized.program().code.len());
            for (kind, rest) in &packets {
                let bytes = [&[*kind], rest.as_slice()].concat();
                let endless = json == ROUNDS && (4..=6).contains(kind);
                if !endless {
                    prop_assert_eq!(optimized.receive(0, bytes.clone(), 0), unoptimized.receive(0, bytes.clone(), 0));
                }
            }
        }
    }

    #[test]
    fn fuzz_the_same_seed_gives_the_same_packets(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        let out = || Switch::new(program(MIX), 7).unwrap().receive(0, bytes.clone(), 5);
        prop_assert_eq!(out(), out());
    }

    #[test]
    fn fuzz_broken_files_never_panic(
        lines in prop::collection::vec((0..MIX_STF.lines().count(), any::<prop::sample::Index>(), "[0-9a-z:()/.$* ]{0,3}"), 1..4),
    ) {
        let mut text: Vec<String> = MIX_STF.lines().map(str::to_owned).collect();
        for (line, at, inserted) in lines {
            let line = &mut text[line];
            if !line.is_empty() && line.is_ascii() {
                let at = at.index(line.len());
                line.replace_range(at..=at, &inserted);
            }
        }
        if let Ok(lines) = stf::parse(&text.join("\n")) {
            let _ = replay(program(MIX), &lines);
        }
    }
}
