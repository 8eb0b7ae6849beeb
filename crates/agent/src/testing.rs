// SPDX-License-Identifier: Apache-2.0
//! The plan of docs/formats.md, as the starting point of tests.

use crate::plan::Plan;
use serde_json::Value;

/// The text of the first JSON example of the contract itself, so that contract and model cannot drift apart. Its
/// third node, which the example leaves to the reader, is added.
pub fn example() -> Value {
    let contract = include_str!("../../../docs/formats.md");
    let after = contract.split("```json\n").nth(1).expect("formats.md begins with an example");
    let text = after.split("```").next().expect("the example ends");
    let mut plan: Value = serde_json::from_str(text).expect("the example is JSON");
    let mut switch = plan["nodes"][0].clone();
    switch["name"] = "s1".into();
    switch["kind"] = "switch".into();
    switch["addresses"] = serde_json::json!(["10.0.0.0"]);
    switch["routes"] = serde_json::json!([]);
    let mut host = switch.clone();
    host["name"] = "h2".into();
    host["kind"] = "host".into();
    host["addresses"] = serde_json::json!(["10.0.0.5"]);
    plan["nodes"] = serde_json::json!([plan["nodes"][0], switch, host]);
    plan
}

pub fn dumbbell(change: impl FnOnce(&mut Value)) -> Plan {
    let mut plan = example();
    change(&mut plan);
    Plan::parse(&plan.to_string()).expect("the plan is valid")
}

pub fn refusal(change: impl FnOnce(&mut Value)) -> String {
    let mut plan = example();
    change(&mut plan);
    Plan::parse(&plan.to_string()).expect_err("the plan is refused").to_string()
}
