// SPDX-License-Identifier: Apache-2.0
//! BMv2's JSON (major version 2) as serde types, with references unresolved.
//!
//! Members that p4c may omit have a default; members that BMv2 ignores are left out. Source: BMv2's
//! `docs/JSON_format.md`.

use serde::Deserialize;
use serde_json::Value as Json;

use crate::error::{LoadError, Result};

/// The JSON's major version that this loader reads.
const MAJOR: u32 = 2;

#[derive(Debug, Deserialize)]
pub struct Document {
    #[serde(default, rename = "__meta__")]
    pub meta: Option<Meta>,
    #[serde(default)]
    pub program: Option<String>,
    pub header_types: Vec<HeaderType>,
    pub headers: Vec<HeaderInstance>,
    #[serde(default)]
    pub header_stacks: Vec<HeaderStack>,
    #[serde(default)]
    pub header_union_types: Vec<UnionType>,
    #[serde(default)]
    pub header_unions: Vec<HeaderUnion>,
    #[serde(default)]
    pub header_union_stacks: Vec<UnionStack>,
    #[serde(default)]
    pub errors: Vec<(String, u32)>,
    pub parsers: Vec<Parser>,
    #[serde(default)]
    pub parse_vsets: Vec<ValueSet>,
    pub deparsers: Vec<Deparser>,
    #[serde(default)]
    pub meter_arrays: Vec<MeterArray>,
    #[serde(default)]
    pub counter_arrays: Vec<CounterArray>,
    #[serde(default)]
    pub register_arrays: Vec<RegisterArray>,
    pub actions: Vec<Action>,
    pub pipelines: Vec<Pipeline>,
    #[serde(default)]
    pub calculations: Vec<Calculation>,
    #[serde(default)]
    pub checksums: Vec<Checksum>,
    #[serde(default)]
    pub learn_lists: Vec<FieldList>,
    #[serde(default)]
    pub field_lists: Vec<FieldList>,
    #[serde(default)]
    pub extern_instances: Vec<Extern>,
    /// The architecture's name of a field, and the program's header and field.
    #[serde(default)]
    pub field_aliases: Vec<(String, (String, String))>,
}

#[derive(Debug, Deserialize)]
pub struct Meta {
    pub version: (u32, u32),
    #[serde(default)]
    pub compiler: Option<String>,
}

#[derive(Debug, Deserialize)]
pub struct HeaderType {
    pub name: String,
    /// Name, width in bits (or "*"), signed (a boolean, or 0 and 1; may be absent).
    pub fields: Vec<Vec<Json>>,
    #[serde(default)]
    pub length_exp: Option<Json>,
    /// In bytes, of types with a varbit field.
    #[serde(default)]
    pub max_length: Option<u32>,
}

#[derive(Debug, Deserialize)]
pub struct HeaderInstance {
    pub name: String,
    pub id: u32,
    pub header_type: String,
    #[serde(default)]
    pub metadata: bool,
}

#[derive(Debug, Deserialize)]
pub struct HeaderStack {
    pub name: String,
    pub header_ids: Vec<u32>,
}

#[derive(Debug, Deserialize)]
pub struct UnionType {
    pub name: String,
    /// Name of the member, and its header type.
    pub headers: Vec<(String, String)>,
}

#[derive(Debug, Deserialize)]
pub struct HeaderUnion {
    pub name: String,
    pub id: u32,
    pub union_type: String,
    pub header_ids: Vec<u32>,
}

#[derive(Debug, Deserialize)]
pub struct UnionStack {
    pub name: String,
    pub union_type: String,
    pub header_union_ids: Vec<u32>,
}

#[derive(Debug, Deserialize)]
pub struct Parser {
    pub name: String,
    pub init_state: Option<String>,
    pub parse_states: Vec<ParseState>,
}

#[derive(Debug, Deserialize)]
pub struct ParseState {
    pub name: String,
    #[serde(default)]
    pub parser_ops: Vec<ParserOp>,
    #[serde(default)]
    pub transition_key: Vec<Operand>,
    #[serde(default)]
    pub transitions: Vec<Transition>,
}

#[derive(Debug, Deserialize)]
pub struct ParserOp {
    pub op: String,
    /// Operands, or a call if `op` is `primitive`.
    pub parameters: Vec<Json>,
}

#[derive(Debug, Deserialize)]
pub struct Transition {
    /// Absent in the oldest files, where the value may be "default".
    #[serde(default, rename = "type")]
    pub kind: Option<String>,
    #[serde(default)]
    pub value: Option<String>,
    #[serde(default)]
    pub mask: Option<String>,
    pub next_state: Option<String>,
}

#[derive(Debug, Deserialize)]
pub struct ValueSet {
    pub name: String,
    pub compressed_bitwidth: u32,
    #[serde(default)]
    pub max_size: Option<u32>,
}

#[derive(Debug, Deserialize)]
pub struct Deparser {
    pub name: String,
    pub order: Vec<String>,
    #[serde(default)]
    pub primitives: Vec<Call>,
}

#[derive(Debug, Deserialize)]
pub struct MeterArray {
    pub name: String,
    #[serde(default)]
    pub is_direct: bool,
    #[serde(default = "two")]
    pub rate_count: u32,
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(default)]
    pub size: Option<u32>,
    #[serde(default)]
    pub binding: Option<String>,
    #[serde(default)]
    pub result_target: Option<(String, String)>,
}

fn two() -> u32 {
    2
}

#[derive(Debug, Deserialize)]
pub struct CounterArray {
    pub name: String,
    #[serde(default)]
    pub is_direct: bool,
    #[serde(default)]
    pub size: Option<u32>,
    #[serde(default)]
    pub binding: Option<String>,
}

#[derive(Debug, Deserialize)]
pub struct RegisterArray {
    pub name: String,
    pub size: u32,
    pub bitwidth: u32,
    #[serde(default)]
    pub signed: bool,
}

#[derive(Debug, Deserialize)]
pub struct Action {
    pub name: String,
    pub id: u32,
    #[serde(default)]
    pub runtime_data: Vec<RuntimeData>,
    #[serde(default)]
    pub primitives: Vec<Call>,
}

#[derive(Debug, Deserialize)]
pub struct RuntimeData {
    pub name: String,
    pub bitwidth: u32,
}

/// One primitive with its arguments.
#[derive(Debug, Deserialize)]
pub struct Call {
    pub op: String,
    #[serde(default)]
    pub parameters: Vec<Json>,
    #[serde(default)]
    pub source_info: Option<SourceInfo>,
}

#[derive(Debug, Deserialize)]
pub struct SourceInfo {
    #[serde(default)]
    pub filename: String,
    #[serde(default)]
    pub line: u32,
    #[serde(default)]
    pub source_fragment: String,
}

#[derive(Debug, Deserialize)]
pub struct Pipeline {
    pub name: String,
    pub init_table: Option<String>,
    #[serde(default)]
    pub tables: Vec<Table>,
    #[serde(default)]
    pub action_profiles: Vec<ActionProfile>,
    #[serde(default)]
    pub conditionals: Vec<Conditional>,
    #[serde(default)]
    pub action_calls: Vec<ActionCall>,
}

#[derive(Debug, Deserialize)]
pub struct ActionProfile {
    pub name: String,
    #[serde(default)]
    pub max_size: Option<u32>,
    #[serde(default)]
    pub selector: Option<Selector>,
}

#[derive(Debug, Deserialize)]
pub struct Selector {
    pub algo: String,
    pub input: Vec<Operand>,
}

#[derive(Debug, Deserialize)]
pub struct Table {
    pub name: String,
    pub key: Vec<Key>,
    #[serde(default = "simple", rename = "type")]
    pub kind: String,
    #[serde(default)]
    pub action_profile: Option<String>,
    /// Its name in the oldest files.
    #[serde(default)]
    pub act_prof_name: Option<String>,
    #[serde(default)]
    pub max_size: Option<u32>,
    #[serde(default)]
    pub with_counters: bool,
    #[serde(default)]
    pub support_timeout: bool,
    #[serde(default)]
    pub direct_meters: Option<String>,
    #[serde(default)]
    pub action_ids: Option<Vec<u32>>,
    pub actions: Vec<String>,
    #[serde(default)]
    pub base_default_next: Option<String>,
    pub next_tables: std::collections::BTreeMap<String, Option<String>>,
    #[serde(default)]
    pub default_entry: Option<DefaultEntry>,
    #[serde(default)]
    pub entries: Option<Vec<Entry>>,
    /// p4c omits it, and BMv2 treats all entries as constant. qbed's compiler adds `false` to tables with entries that
    /// are only initial in P4Info.
    #[serde(default = "yes")]
    pub constant_entries: bool,
}

fn simple() -> String {
    "simple".into()
}

#[derive(Debug, Deserialize)]
pub struct Key {
    pub match_type: String,
    #[serde(default)]
    pub name: Option<String>,
    /// `[header, field]`, or a header's name.
    pub target: Json,
    #[serde(default)]
    pub mask: Option<String>,
}

#[derive(Debug, Deserialize)]
pub struct DefaultEntry {
    pub action_id: u32,
    #[serde(default)]
    pub action_const: bool,
    #[serde(default)]
    pub action_data: Option<Vec<String>>,
    #[serde(default)]
    pub action_entry_const: bool,
}

#[derive(Debug, Deserialize)]
pub struct Entry {
    pub match_key: Vec<EntryKey>,
    pub action_entry: ActionEntry,
    #[serde(default)]
    pub priority: Option<u32>,
}

#[derive(Debug, Deserialize)]
pub struct EntryKey {
    pub match_type: String,
    /// A hexstr, or a boolean (valid).
    #[serde(default)]
    pub key: Json,
    #[serde(default)]
    pub mask: Option<String>,
    #[serde(default)]
    pub prefix_length: Option<u32>,
    #[serde(default)]
    pub start: Option<String>,
    #[serde(default)]
    pub end: Option<String>,
}

#[derive(Debug, Deserialize)]
pub struct ActionEntry {
    pub action_id: u32,
    #[serde(default)]
    pub action_data: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub struct Conditional {
    pub name: String,
    pub expression: Operand,
    pub true_next: Option<String>,
    pub false_next: Option<String>,
}

#[derive(Debug, Deserialize)]
pub struct ActionCall {
    pub name: String,
    pub action_id: u32,
    pub next_node: Option<String>,
}

#[derive(Debug, Deserialize)]
pub struct Calculation {
    pub name: String,
    pub algo: String,
    pub input: Vec<Operand>,
}

#[derive(Debug, Deserialize)]
pub struct Checksum {
    pub name: String,
    pub target: (String, String),
    #[serde(rename = "type")]
    pub kind: String,
    pub calculation: String,
    #[serde(default = "yes")]
    pub verify: bool,
    #[serde(default = "yes")]
    pub update: bool,
    #[serde(default)]
    pub if_cond: Option<Operand>,
}

fn yes() -> bool {
    true
}

#[derive(Debug, Deserialize)]
pub struct FieldList {
    pub id: u32,
    pub name: String,
    #[serde(default)]
    pub elements: Vec<Operand>,
}

#[derive(Debug, Deserialize)]
pub struct Extern {
    pub name: String,
    #[serde(rename = "type")]
    pub kind: String,
}

/// JSON_format's "type value object".
#[derive(Debug, Clone, Deserialize)]
pub struct Operand {
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(default)]
    pub value: Json,
    #[serde(default)]
    pub bitwidth: Option<u32>,
}

/// The `value` of an operand of type `expression`.
#[derive(Debug, Deserialize)]
pub struct Operation {
    pub op: String,
    #[serde(default)]
    pub left: Json,
    pub right: Json,
    #[serde(default)]
    pub cond: Json,
}

impl Document {
    /// Parse a file. The error has the path in the JSON.
    pub fn parse(text: &[u8]) -> Result<Self> {
        #[derive(Deserialize)]
        struct Head {
            #[serde(default, rename = "__meta__")]
            meta: Option<Meta>,
        }
        let head: Head = from_slice(text)?;
        match head.meta {
            Some(Meta { version: (MAJOR, _), .. }) => from_slice(text),
            Some(Meta { version: (major, minor), .. }) => Err(LoadError::new(format!(
                "BMv2 JSON of version {major}.{minor}: this loader reads major version {MAJOR}"
            ))
            .within("__meta__")),
            None => Err(LoadError::new(format!(
                "no __meta__.version: not a BMv2 JSON of major version {MAJOR} (is it p4c-bm2-ss's output?)"
            ))),
        }
    }
}

fn from_slice<'a, T: Deserialize<'a>>(text: &'a [u8]) -> Result<T> {
    let mut reader = serde_json::Deserializer::from_slice(text);
    // `load` limits the depth and has a stack for it.
    reader.disable_recursion_limit();
    serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let place = error.path().to_string();
        let error = LoadError::new(error.into_inner().to_string());
        if place == "." {
            error
        } else {
            error.within(place)
        }
    })
}

/// Deserialize a value with a type that depends on another member.
pub fn part<'a, T: Deserialize<'a>>(json: &'a Json) -> Result<T> {
    T::deserialize(json).map_err(|error| LoadError::new(error.to_string()))
}
