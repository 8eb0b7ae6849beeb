// SPDX-License-Identifier: Apache-2.0
//! The plan of docs/formats.md, as the starting point of tests.

use crate::failure::Result;
use crate::plan::place::Place;
use crate::plan::Plan;
use crate::transport;
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

/// A program as workload, for the plan's `launches`.
pub fn launch() -> Value {
    serde_json::json!({
        "program": 0, "label": "server", "node": 2, "argv": ["iperf3", "-s", "-1"], "environment": {"HOME": "/"},
        "folder": "/tmp", "start_ns": -1_000_000_000, "stop_ns": null, "any_status": false, "output": "text",
    })
}

pub fn dumbbell(change: impl FnOnce(&mut Value)) -> Plan {
    let mut plan = example();
    change(&mut plan);
    parse(&plan).expect("the plan is valid")
}

pub fn refusal(change: impl FnOnce(&mut Value)) -> String {
    let mut plan = example();
    change(&mut plan);
    parse(&plan).expect_err("the plan is refused").to_string()
}

pub fn parse(plan: &Value) -> Result<Plan> {
    let plan = Plan::parse(&plan.to_string())?;
    transport::ALL.check(&plan).map(|()| plan)
}

/// A container's part of a plan.
pub fn place(node: usize, host_kernel: &[usize], dilation: u32) -> Place {
    let place = serde_json::json!({
        "version": 1, "node": node, "host_kernel": host_kernel, "dilation": dilation, "start": "on go",
        "boot": if host_kernel.contains(&node) { [].as_slice() } else { &["mem=64M"] },
    });
    serde_json::from_value(place).expect("the place is valid")
}

/// Each room uses those before it and no other; of two on a line neither uses the other.
const ROOMS: &[&[&str]] = &[
    &["failure"],
    &["socket", "clock", "gate", "machine", "plan"],
    &["scope"],
    &["netlink", "pipeline"],
    &["lab", "workload"],
    &["results", "world"],
    &["transport", "observe", "programs"],
    &["engine"],
    &["serve", "container"],
    &["main"],
];

#[test]
fn rooms_use_only_what_is_before_them() {
    let level = |room: &str| {
        ROOMS.iter().position(|line| line.contains(&room)).ok_or_else(|| format!("no room {room}"))
    };
    let sources = std::path::Path::new(&std::env::var("CARGO_MANIFEST_DIR").unwrap()).join("src");
    let mut folders = vec![sources.clone()];
    let mut seen = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let room = path.strip_prefix(&sources).unwrap().iter().next().unwrap().to_str().unwrap();
            let room = room.trim_end_matches(".rs");
            if ["fuzz", "testing"].contains(&room) {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            // A room's tests may begin with the plan of the contract.
            for used in text.split("crate::").skip(1).filter(|rest| !rest.starts_with("testing")) {
                let used = used.split(|letter: char| !letter.is_ascii_lowercase()).next().unwrap();
                let in_order = used == room || level(used).unwrap() < level(room).unwrap();
                assert!(in_order, "{}: {room} uses {used}", path.display());
                seen += 1;
            }
        }
    }
    assert!(seen > 100, "{seen}");
}
