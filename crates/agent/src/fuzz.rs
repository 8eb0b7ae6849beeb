// SPDX-License-Identifier: Apache-2.0
//! Fuzz tests of the plan parser: a mutated plan is either valid or rejected with an error text. The corpus is in
//! `tests/fuzz/corpus/plans`; `PROPTEST_CASES` sets the number of new cases (`make fuzz` runs for hours).

use crate::plan::workload::{Interarrival, Pattern};
use crate::plan::Plan;
use crate::testing::{example, launch, parse};
use crate::workload::schedule;
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{json, Value};
use std::path::Path;

/// Plans with more flows are parsed, but their schedule is not drawn.
const FLOWS_MAX: u64 = 100_000;

const TEXTS: &[&str] = &[
    "",
    " ",
    ".",
    "..",
    "/",
    "//",
    "../x",
    "a/b",
    "\0",
    "\u{202e}",
    "\u{1b}[31m",
    "lo",
    "eth0",
    "eth99",
    "h1",
    "s1",
    "interface-of-more-than-15",
    "10.0.0.1",
    "10.0.0.1/31",
    "10.0.0.1/33",
    "::/0",
    "::1/129",
    "fd00::1",
    "0.0.0.0/0",
    "02:00:00:00:00:00",
    "+2:00:00:00:00:00",
    "ff:ff:ff:ff:ff:ff:ff",
    "00",
    "0",
    "0g",
    "é0",
    "e8030000",
    "tcp",
    "udp",
    "rate",
    "host",
    "switch",
    "flows",
    "arrivals",
    "at start",
    "before",
    "up",
    "down",
    "pfifo",
    "dctcp",
    "NaN",
    "-1",
];
const NUMBERS: &[f64] = &[0.5, -0.0, -1.0, 1.0, 1e-300, 1e300, 5e-324, 1.5e19];
const INTEGERS: &[u64] =
    &[0, 1, 2, 3, 4, 6, 127, 128, 255, 65_535, 65_536, 1 << 31, 1 << 32, 1 << 56, 1 << 62, u64::MAX];

fn unusual_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        prop::sample::select(vec![
            Value::Null,
            json!(true),
            json!([]),
            json!({}),
            json!([[]]),
            json!([[0, 0]])
        ]),
        prop::sample::select(TEXTS).prop_map(Value::from),
        prop::sample::select(NUMBERS).prop_map(Value::from),
        prop::sample::select(INTEGERS).prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        prop::sample::select(vec![
            json!({"exponential": 1e-9}),
            json!({"fixed": 0}),
            json!({"fixed": u64::MAX}),
            json!({"cdf": []}),
            json!({"uniform": [1, u64::MAX]}),
            json!({"uniform": [2, 1]}),
            json!({"cdf": [[1.0, 1.0]]}),
            json!({"pareto": {"mean_bytes": 1e300, "shape": 1.000_001}}),
            json!({"cdf": [[0.0, 0.0], [1e300, 1.0]]}),
        ]),
    ]
}

/// Collects the JSON pointers of all values within a value.
fn pointers(value: &Value, prefix: &str, found: &mut Vec<String>) {
    found.push(prefix.to_owned());
    match value {
        Value::Array(items) => {
            items
                .iter()
                .enumerate()
                .for_each(|(index, item)| pointers(item, &format!("{prefix}/{index}"), found));
        }
        Value::Object(fields) => fields.iter().for_each(|(name, item)| {
            pointers(item, &format!("{prefix}/{}", name.replace('~', "~0").replace('/', "~1")), found);
        }),
        _ => {}
    }
}

#[derive(Debug, Clone)]
enum Change {
    Replace(Value),
    Remove,
    /// Appends the first item of a list again.
    Repeat,
    /// Copies another value of the plan.
    Exchange(Index),
}

fn change() -> impl Strategy<Value = (Index, Change)> {
    let kind = prop_oneof![
        6 => unusual_value().prop_map(Change::Replace),
        1 => Just(Change::Remove),
        1 => Just(Change::Repeat),
        2 => any::<Index>().prop_map(Change::Exchange),
    ];
    (any::<Index>(), kind)
}

fn apply(plan: &mut Value, (place, change): &(Index, Change)) {
    let mut found = Vec::new();
    pointers(plan, "", &mut found);
    let path = place.get(&found).clone();
    let Some((parent, name)) = path.rsplit_once('/') else { return };
    match change {
        Change::Replace(value) => *plan.pointer_mut(&path).unwrap() = value.clone(),
        Change::Exchange(other) => {
            let value = plan.pointer(other.get::<String>(&found)).unwrap().clone();
            *plan.pointer_mut(&path).unwrap() = value;
        }
        Change::Remove | Change::Repeat => match plan.pointer_mut(parent).unwrap() {
            Value::Array(items) if matches!(change, Change::Repeat) => items.push(items[0].clone()),
            Value::Array(items) => drop(items.pop()),
            Value::Object(fields) => drop(fields.remove(name)),
            _ => {}
        },
    }
}

/// The example plan with a workload of the transport `rate` and a launch.
fn base() -> Value {
    let mut plan = example();
    plan["nodes"][0]["controller"] = json!({
        "name": "timely", "parameters": "0800010005000000", "signal": "max", "unit": "time", "bits": 4, "forward": true,
    });
    plan["nodes"][2]["reflect"] = json!(0.025);
    let mut rate_workload = plan["workloads"][0].clone();
    rate_workload["id"] = json!(2);
    rate_workload["transport"] = json!("rate");
    rate_workload["port"] = json!(6190);
    rate_workload["payload_bytes"] = json!(1384);
    plan["workloads"].as_array_mut().unwrap().push(rate_workload);
    plan["launches"] = json!([launch()]);
    plan
}

/// Draws the schedule of a valid plan, unless it has too many flows for a test.
fn draw(plan: &Plan) {
    let arrivals = plan.workloads.iter().map(|workload| match &workload.pattern {
        Pattern::Flows { .. } | Pattern::Exchanges { .. } => 0,
        Pattern::Arrivals { pairs, interarrival, limit, together, .. } => {
            let gap_ns = match interarrival {
                Interarrival::Exponential(mean) => mean.max(1.0) as u64,
                Interarrival::Fixed(gap) => *gap,
            };
            let at_once = if *together { pairs.count() as u64 } else { 1 };
            (plan.duration_ns / gap_ns).saturating_mul(at_once).min(limit.unwrap_or(u64::MAX))
        }
    });
    if arrivals.fold(0, u64::saturating_add) <= FLOWS_MAX {
        let flows = schedule::flows(plan);
        assert!(flows.iter().all(|flow| flow.start_ns < plan.duration_ns && flow.src != flow.dst));
    }
}

#[test]
fn the_base_plan_is_valid() {
    draw(&parse(&base()).unwrap());
}

#[test]
fn the_corpus_is_valid_or_rejected() {
    let corpus =
        Path::new(&std::env::var("CARGO_MANIFEST_DIR").unwrap()).join("../../tests/fuzz/corpus/plans");
    let mut valid = Vec::new();
    for entry in std::fs::read_dir(corpus).unwrap() {
        let path = entry.unwrap().path();
        if let Ok(plan) = Plan::parse(&std::fs::read_to_string(&path).unwrap()) {
            draw(&plan);
            valid.push(path.file_stem().unwrap().to_owned());
        }
    }
    assert_eq!(valid, ["star"]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(2_000), ..Default::default() })]

    #[test]
    fn a_mutated_plan_is_valid_or_rejected(changes in prop::collection::vec(change(), 1..5)) {
        let mut plan = base();
        changes.iter().for_each(|change| apply(&mut plan, change));
        match parse(&plan) {
            Ok(plan) => draw(&plan),
            Err(failure) => prop_assert!(!failure.to_string().is_empty()),
        }
    }

    #[test]
    fn a_damaged_plan_is_valid_or_rejected(place: Index, byte: u8, cut: Index, cuts: bool) {
        let mut text = base().to_string().into_bytes();
        let place = place.index(text.len());
        text[place] = byte;
        text.truncate(if cuts { cut.index(text.len()) } else { text.len() });
        if let Ok(plan) = Plan::parse(&String::from_utf8_lossy(&text)) {
            draw(&plan);
        }
    }
}
