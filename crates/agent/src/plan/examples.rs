// SPDX-License-Identifier: Apache-2.0
//! Tests with example plans that the orchestrator generates from its model (`make generate`).

use crate::plan::Plan;
use crate::testing::parse;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// Generated from the types of the fields: names and indices are not valid.
const ONLY_TYPES: &[&str] = &["every-field.json", "required-fields.json"];
const PARTS: &str = "parts.json";

/// A place of a part in an example, and the fields without which the part is refused.
#[derive(Deserialize)]
struct Place {
    part: String,
    plan: String,
    at: String,
    required: Vec<String>,
}

fn examples() -> BTreeMap<String, Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/plans");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let read = |path: &Path| serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    files.map(|file| (file.file_name().into_string().unwrap(), read(&file.path()))).collect()
}

fn read(name: &str, plan: &Value) -> Result<(), String> {
    if ONLY_TYPES.contains(&name) {
        return serde_json::from_value::<Plan>(plan.clone()).map(drop).map_err(|error| error.to_string());
    }
    parse(plan).map(drop).map_err(|error| error.to_string())
}

#[test]
fn every_example_is_accepted() {
    let mut examples = examples();
    examples.remove(PARTS).expect("parts.json is among the examples");
    assert!(ONLY_TYPES.iter().all(|name| examples.contains_key(*name)) && examples.len() > ONLY_TYPES.len());
    for (name, plan) in &examples {
        read(name, plan).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
fn an_unknown_or_missing_field_of_any_part_is_refused() {
    let mut examples = examples();
    let places: Vec<Place> = serde_json::from_value(examples.remove(PARTS).unwrap()).unwrap();
    for Place { part, plan, at, required } in &places {
        let refusal = |change: &dyn Fn(&mut serde_json::Map<String, Value>)| {
            let mut changed = examples[plan].clone();
            change(changed.pointer_mut(at).unwrap().as_object_mut().unwrap());
            read(plan, &changed).err()
        };
        let refused = refusal(&|fields| drop(fields.insert("surprise".into(), 1.into())));
        assert!(refused.is_some(), "{part} with an unknown field: {plan}{at}");
        for field in required {
            let refused = refusal(&|fields| drop(fields.remove(field).unwrap()));
            assert!(refused.is_some(), "{part} without {field}: {plan}{at}");
        }
    }
}
