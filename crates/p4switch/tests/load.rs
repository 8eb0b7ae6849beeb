// SPDX-License-Identifier: Apache-2.0
//! The loader with a program of p4c (programs/mix.p4), unchanged and damaged in many ways.

use proptest::prelude::*;
use qbed_p4engine::program::{HashKind, MatchKind, Next, Op};
use qbed_p4switch::load::{load, load_unoptimized};
use serde_json::{json, Value};

const MIX: &str = include_str!("programs/mix.json");

fn mix() -> Value {
    serde_json::from_str(MIX).unwrap()
}

/// The error of the program with one value changed.
fn refusal(pointer: &str, value: Value) -> String {
    let mut document = mix();
    *document.pointer_mut(pointer).unwrap_or_else(|| panic!("no {pointer}")) = value;
    load(document.to_string().as_bytes()).expect_err(pointer).to_string()
}

#[test]
fn a_program_has_the_objects_of_its_source() {
    let program = load(MIX.as_bytes()).unwrap();
    let header = |name: &str| program.headers.iter().find(|header| header.name == name).unwrap();
    assert_eq!((header("wide").bytes, header("ipv4").bytes), (32, 20));
    let options = header("options").varbit.unwrap();
    assert_eq!(program.fields[options.field as usize].width, 64);
    assert_eq!(program.stacks[0].headers.len(), 4);
    assert_eq!(program.unions[0].headers.len(), 2);
    assert!(header("number.short").union_of.is_some());
    let table = |name: &str| program.tables.iter().find(|table| table.name.ends_with(name)).unwrap();
    let kinds: Vec<_> = table("classes").keys.iter().map(|key| key.kind).collect();
    // p4c writes optional keys as ternary ones.
    assert_eq!(kinds, [MatchKind::Exact, MatchKind::Ternary, MatchKind::Range, MatchKind::Ternary]);
    assert_eq!(table("classes").entries.len(), 3);
    assert!(table("classes").constant_entries && table("classes").constant_default);
    assert!(matches!(table("routes").next, Next::ByHit { .. }));
    assert_eq!(program.counters[table("routes").counter.unwrap() as usize].name, "MixIngress.routed");
    assert!(program.hashes.iter().any(|hash| hash.kind == HashKind::Crc32));
    assert_eq!(program.digests[0].fields.len(), 2);
    assert_eq!(program.field_lists.len(), 1);
    assert!(program.standard.egress_spec.is_some() && program.standard.mcast_grp.is_some());
    // The program does not read the queue's length, so the switch need not write it.
    let unoptimized = load_unoptimized(MIX.as_bytes()).unwrap();
    assert!(unoptimized.standard.deq_qdepth.is_some() && program.standard.deq_qdepth.is_none());
    // Three words of 64 bits hold 128 bits and a sign, shifted left by 8.
    assert_eq!(program.wide_limbs, 3);
}

/// qbed's compiler marks tables with entries that are not constant in P4Info.
#[test]
fn entries_are_constant_unless_the_table_says_otherwise() {
    let mut document = mix();
    let tables = document.pointer_mut("/pipelines").unwrap().as_array_mut().unwrap().iter_mut();
    let mut tables = tables.flat_map(|pipeline| pipeline["tables"].as_array_mut().unwrap());
    let classes = tables.find(|table| table["name"].as_str().unwrap().ends_with("classes")).unwrap();
    classes["constant_entries"] = json!(false);
    let program = load(document.to_string().as_bytes()).unwrap();
    let classes = program.tables.iter().find(|table| table.name.ends_with("classes")).unwrap();
    assert_eq!((classes.constant_entries, classes.entries.len()), (false, 3));
}

#[test]
fn a_field_of_no_bits_is_no_key() {
    let mut document = mix();
    let position = |list: &Value, name: &str| {
        let named = |object: &Value| object["name"].as_str().is_some_and(|known| known.ends_with(name));
        list.as_array().unwrap().iter().position(named).unwrap()
    };
    let header = document["headers"][position(&document["headers"], "ipv4")]["header_type"].clone();
    let of = position(&document["header_types"], header.as_str().unwrap());
    document["header_types"][of]["fields"].as_array_mut().unwrap().push(json!(["empty", 0, false]));
    let table = position(&document["pipelines"][0]["tables"], "classes");
    document["pipelines"][0]["tables"][table]["key"][0]["target"] = json!(["ipv4", "empty"]);
    let error = load(document.to_string().as_bytes()).unwrap_err().to_string();
    assert!(error.ends_with("classes: key 0: target: ipv4.empty has 0 bits"), "{error}");
}

#[test]
fn instructions_refer_to_existing_objects() {
    let program = load(MIX.as_bytes()).unwrap();
    for op in &program.code {
        match op {
            Op::Jump { to } | Op::JumpIf { to, .. } | Op::JumpUnless { to, .. } => {
                assert!((*to as usize) < program.code.len());
            }
            Op::Load { to, field } => {
                assert!(*to < program.registers && program.fields[*field as usize].width <= 64);
            }
            Op::WideLoad { to, .. } => assert!(*to < program.wide_registers),
            Op::Copy { to, from } => {
                assert_eq!(program.fields[*to as usize].width, program.fields[*from as usize].width);
            }
            _ => {}
        }
    }
}

#[test]
fn tables_of_single_statements_are_inlined() {
    let program = load(MIX.as_bytes()).unwrap();
    let applied = |name: &str| {
        let id = program.tables.iter().position(|table| table.name.ends_with(name)).unwrap();
        program.code.iter().any(|op| matches!(op, Op::Apply { table } if *table as usize == id))
    };
    assert!(applied("routes") && applied("classes"));
    assert!(!applied("tbl_arithmetic") && !applied("tbl_report"));
    // Drops are counted by table.
    assert!(applied("tbl_drop"));
}

#[test]
fn errors_name_the_object_and_its_place() {
    let cases = [
        ("/__meta__/version", json!([1, 5]), "__meta__: BMv2 JSON of version 1.5"),
        ("/pipelines/0/tables/6/key/0/match_type", json!("fuzzy"), "ingress: tables[6] MixIngress.classes"),
        ("/pipelines/0/tables/6/key/0/match_type", json!("fuzzy"), "key 0: match type fuzzy is unknown"),
        ("/pipelines/0/tables/6/key/0/target", json!(["nowhere", "x"]), "no header nowhere"),
        (
            "/pipelines/0/tables/6/key/0/match_type",
            json!(7),
            "pipelines[0].tables[6].key[0].match_type: invalid type",
        ),
        ("/parsers/0/init_state", json!("nowhere"), "parser parser: no state nowhere"),
        (
            "/extern_instances",
            json!([{"name": "x", "id": 0, "type": "Checksum"}]),
            "extern type Checksum is not part of v1model",
        ),
        ("/calculations/0/algo", json!("md5"), "calculations[0] calc: hash algorithm md5 is unknown"),
        ("/header_types/1/fields/0", json!(["f", 1 << 20]), "field 0: f of 1048576 bits"),
        ("/register_arrays/0/size", json!(u32::MAX), "register_arrays[0]"),
        ("/deparsers/0/order/0", json!("nothing"), "deparser deparser: no header nothing"),
        ("/header_stacks/0/header_ids", json!([0, 1]), "several types"),
    ];
    for (pointer, value, reason) in cases {
        let message = refusal(pointer, value);
        assert!(message.contains(reason), "{pointer}: no {reason:?} in {message:?}");
    }
}

#[test]
fn an_unknown_primitive_is_refused_by_name() {
    let mut document = mix();
    let actions = document["actions"].as_array().unwrap();
    let index =
        actions.iter().position(|action| !action["primitives"].as_array().unwrap().is_empty()).unwrap();
    document["actions"][index]["primitives"][0]["op"] = json!("_Checksum_update");
    let message = load(document.to_string().as_bytes()).unwrap_err().to_string();
    assert!(message.contains("primitive 0 _Checksum_update: not a primitive of v1model"), "{message}");
}

#[test]
fn mark_to_drop_needs_standard_metadata() {
    let text = MIX.split_whitespace().collect::<String>();
    let marked = r#""op":"mark_to_drop","parameters":[{"type":"header","value":"standard_metadata"}]"#;
    for (value, reason) in
        [("ipv4", "argument 0: no field ipv4.egress_spec"), ("nothing", "no header nothing")]
    {
        let changed = text.replacen(marked, &marked.replace("standard_metadata", value), 1);
        let message = load(changed.as_bytes()).unwrap_err().to_string();
        assert!(message.contains("mark_to_drop: ") && message.contains(reason), "{message}");
    }
}

#[test]
fn a_cycle_in_a_control_is_refused() {
    let mut document = mix();
    let first = document["pipelines"][0]["init_table"].clone();
    for table in document["pipelines"][0]["tables"].as_array_mut().unwrap() {
        for next in table["next_tables"].as_object_mut().unwrap().values_mut() {
            *next = first.clone();
        }
    }
    let message = load(document.to_string().as_bytes()).unwrap_err().to_string();
    assert!(message.contains("ingress: the control flow has a cycle"), "{message}");
}

/// JSON pointers to all values of a document.
fn pointers(of: &Value, at: &str, to: &mut Vec<String>) {
    to.push(at.to_owned());
    match of {
        Value::Object(members) => {
            for (name, member) in members {
                pointers(member, &format!("{at}/{}", name.replace('~', "~0").replace('/', "~1")), to);
            }
        }
        Value::Array(members) => {
            for (index, member) in members.iter().enumerate() {
                pointers(member, &format!("{at}/{index}"), to);
            }
        }
        _ => {}
    }
}

fn odd_values() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        Just(json!(true)),
        Just(json!([])),
        Just(json!({})),
        Just(json!("")),
        Just(json!("-0x1")),
        Just(json!("0xffffffffffffffffffffffffffffffffff")),
        Just(json!("expression")),
        Just(json!(-1)),
        any::<u32>().prop_map(|number| json!(number)),
        (0_u32..70).prop_map(|number| json!(number)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn fuzz_broken_programs_never_panic(changes in prop::collection::vec((any::<prop::sample::Index>(), odd_values()), 1..4)) {
        let mut document = mix();
        for (place, value) in changes {
            let mut places = Vec::new();
            pointers(&document, "", &mut places);
            *document.pointer_mut(place.get::<String>(&places)).unwrap() = value;
        }
        if let Ok(program) = load(document.to_string().as_bytes()) {
            let _ = qbed_p4switch::check::summary(&program);
        }
    }

    #[test]
    fn fuzz_swapped_parts_never_panic(from in any::<prop::sample::Index>(), to in any::<prop::sample::Index>()) {
        let mut document = mix();
        let mut places = Vec::new();
        pointers(&document, "", &mut places);
        let part = document.pointer(from.get::<String>(&places)).unwrap().clone();
        *document.pointer_mut(to.get::<String>(&places)).unwrap() = part;
        let _ = load(document.to_string().as_bytes());
    }

    #[test]
    fn fuzz_truncated_text_never_panics(length in 0..MIX.len()) {
        prop_assert!(load(&MIX.as_bytes()[..length.min(MIX.trim_end().len() - 1)]).is_err());
    }
}

/// An expression with `levels` nested additions.
fn nested(levels: usize) -> Value {
    let start = json!({"type": "field", "value": ["kind", "count"]});
    (0..levels).fold(start, |inner, _| {
        let one_value = json!({"type": "hexstr", "value": "0x01"});
        json!({"type": "expression", "value": {"op": "+", "left": inner, "right": one_value}})
    })
}

#[test]
fn the_depth_of_expressions_is_limited() {
    let with = |levels| {
        let mut document = mix();
        document["pipelines"][0]["conditionals"][0]["expression"] = nested(levels);
        let text = document.to_string();
        // Dropping it would recurse for each level.
        std::mem::forget(document);
        load(text.as_bytes())
    };
    assert!(with(450).is_ok());
    let message = with(600).unwrap_err().to_string();
    assert!(message.contains("nested levels: at most 1000 are supported"), "{message}");
}
