// SPDX-License-Identifier: Apache-2.0
//! Fixtures for tests, based on the example plan of docs/formats.md; the test of the module order.

use crate::failure::Result;
use crate::plan::place::Place;
use crate::plan::Plan;
use crate::transport;
use serde_json::Value;

/// The first JSON example of docs/formats.md, so that documentation and model stay equal. The nodes s1 and h2, which
/// the example omits, are added.
pub fn example() -> Value {
    let formats = include_str!("../../../docs/formats.md");
    let block = formats.split("```json\n").nth(1).expect("formats.md begins with an example");
    let text = block.split("```").next().expect("the example ends");
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

/// An entry of the plan's `launches`.
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

/// The `place.json` of a container.
pub fn place(node: usize, host_kernel: &[usize], dilation: u32) -> Place {
    let place = serde_json::json!({
        "version": 1, "node": node, "host_kernel": host_kernel, "dilation": dilation, "start": "on go",
        "boot": if host_kernel.contains(&node) { [].as_slice() } else { &["mem=64M"] },
    });
    serde_json::from_value(place).expect("the place is valid")
}

/// Layers of modules. A module uses only modules of the layers before its own.
const LAYERS: &[&[&str]] = &[
    &["failure"],
    &["socket", "clock", "subprocess", "plan"],
    &["control", "placement"],
    &["netlink", "pipeline"],
    &["lab", "workload"],
    &["results"],
    &["world"],
    &["transport", "observe", "programs"],
    &["engine"],
    &["serve", "container"],
    &["main"],
];

#[test]
fn modules_use_only_lower_layers() {
    let layer = |module: &str| {
        LAYERS
            .iter()
            .position(|layer| layer.contains(&module))
            .ok_or_else(|| format!("no layer for {module}"))
    };
    let sources = std::path::Path::new(&std::env::var("CARGO_MANIFEST_DIR").unwrap()).join("src");
    let mut folders = vec![sources.clone()];
    let mut uses = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let module = path.strip_prefix(&sources).unwrap().iter().next().unwrap().to_str().unwrap();
            let module = module.trim_end_matches(".rs");
            if ["fuzz", "testing"].contains(&module) {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            // Tests of any module may use the fixtures.
            for used in text.split("crate::").skip(1).filter(|rest| !rest.starts_with("testing")) {
                let used = used.split(|letter: char| !letter.is_ascii_lowercase()).next().unwrap();
                let in_order = used == module || layer(used).unwrap() < layer(module).unwrap();
                assert!(in_order, "{}: {module} uses {used}", path.display());
                uses += 1;
            }
        }
    }
    assert!(uses > 100, "{uses}");
}
