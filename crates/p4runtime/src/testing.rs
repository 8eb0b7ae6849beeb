// SPDX-License-Identifier: Apache-2.0
//! Test fixtures: programs of p4c, and messages as text.

use std::path::Path;
use std::sync::LazyLock;

use prost::Message;

use crate::control::Event;
use crate::device::Device;
use crate::loopback::Loopback;
use crate::proto::p4::config::v1::{P4Info, P4NamedType, Preamble};
use crate::proto::p4::v1::set_forwarding_pipeline_config_request::Action;
use crate::proto::p4::v1::ForwardingPipelineConfig;

pub fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Parse a message of the type `name` (such as `p4.v1.Entity`).
pub fn message<T: Message + Default>(name: &str, text: &str) -> T {
    crate::text::message(name, text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Read `PROGRAM.json` and `PROGRAM.p4info.txtpb` of a folder.
pub fn config(folder: &Path, program: &str) -> ForwardingPipelineConfig {
    let info = read(&folder.join(format!("{program}.p4info.txtpb")));
    ForwardingPipelineConfig {
        p4info: Some(message("p4.config.v1.P4Info", &info)),
        p4_device_config: read(&folder.join(format!("{program}.json"))).into_bytes(),
        cookie: None,
    }
}

fn program(name: &str) -> ForwardingPipelineConfig {
    config(&Path::new(&std::env::var("CARGO_MANIFEST_DIR").unwrap()).join("tests/programs"), name)
}

/// The program with each kind of object.
pub fn everything() -> ForwardingPipelineConfig {
    static EVERYTHING: LazyLock<ForwardingPipelineConfig> = LazyLock::new(|| program("everything"));
    EVERYTHING.clone()
}

/// The program with types that differ between P4Info and the program.
pub fn types() -> ForwardingPipelineConfig {
    program("types")
}

/// `everything` with translated types for its typedefs (`@p4runtime_translation("test/port", 32) type bit<9> port_t`,
/// and others of 16 and 48 bits), as compiled by p4c: the JSON is the same, P4Info has the translation `to`
/// (`sdn_bitwidth: 32`, or `sdn_string { }`).
pub fn translated(to: &str) -> ForwardingPipelineConfig {
    let mut config = everything();
    let info = config.p4info.as_mut().unwrap();
    let bitwidth = to.strip_prefix("sdn_bitwidth: ").map_or(0, |width| width.parse().unwrap());
    let named = |name: &str| Some(P4NamedType { name: name.into() });
    let new_type =
        |name: &str| Some(message("p4.config.v1.P4DataTypeSpec", &format!("new_type {{ name: '{name}' }}")));
    for param in info
        .actions
        .iter_mut()
        .flat_map(|action| &mut action.params)
        .filter(|parameter| parameter.name == "port")
    {
        (param.bitwidth, param.type_name) = (bitwidth, named("port_t"));
    }
    let metadata = info.controller_packet_metadata.iter_mut().flat_map(|header| &mut header.metadata);
    for field in metadata.filter(|field| field.name.ends_with("_port")) {
        (field.bitwidth, field.type_name) = (bitwidth, named("port_t"));
    }
    let kind = &mut info.value_sets[0].r#match[0];
    (kind.bitwidth, kind.type_name) = (bitwidth, named("kind_t"));
    let rules = info.tables.iter_mut().find(|table| table.match_fields.len() == 3).unwrap();
    for field in &mut rules.match_fields {
        (field.bitwidth, field.type_name) = (bitwidth, named("kind_t"));
    }
    info.registers[0].type_spec = new_type("time_t");
    let types = info.type_info.as_mut().unwrap();
    types.structs.get_mut("learned_t").unwrap().members[1].type_spec = new_type("port_t");
    let spec = format!("translated_type {{ uri: 'test/number' {to} }}");
    for name in ["port_t", "kind_t", "time_t"] {
        types.new_types.insert(name.into(), message("p4.config.v1.P4NewTypeSpec", &spec));
    }
    config
}

/// Preambles of the objects of a P4Info.
pub fn preambles(info: &P4Info) -> impl Iterator<Item = &Preamble> {
    (info.tables.iter().map(|table| &table.preamble))
        .chain(info.actions.iter().map(|action| &action.preamble))
        .chain(info.action_profiles.iter().map(|profile| &profile.preamble))
        .chain(info.counters.iter().map(|counter| &counter.preamble))
        .chain(info.meters.iter().map(|meter| &meter.preamble))
        .chain(info.value_sets.iter().map(|set| &set.preamble))
        .chain(info.registers.iter().map(|register| &register.preamble))
        .chain(info.digests.iter().map(|digest| &digest.preamble))
        .flatten()
}

/// Replace names of everything's objects (`<hosts>`) by their ids.
pub fn with_ids(text: &str) -> String {
    with_ids_of(&everything().p4info.unwrap(), text)
}

pub fn with_ids_of(info: &P4Info, text: &str) -> String {
    let mut text = text.to_owned();
    for preamble in preambles(info) {
        text = text.replace(&format!("<{}>", preamble.alias), &preamble.id.to_string());
    }
    assert!(!text.contains('<'), "{text}");
    text
}

/// A switch that runs `everything`, and its events.
pub fn device() -> (Device, tokio::sync::mpsc::Receiver<Event>) {
    device_of(everything())
}

pub fn device_of(config: ForwardingPipelineConfig) -> (Device, tokio::sync::mpsc::Receiver<Event>) {
    let (sender, events) = tokio::sync::mpsc::channel(1024);
    let mut device = Device::new(Box::new(Loopback::new(sender)));
    device.configure(Action::VerifyAndCommit, Some(config)).unwrap();
    (device, events)
}
