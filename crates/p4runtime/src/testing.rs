// SPDX-License-Identifier: Apache-2.0
//! What tests start from: programs as p4c leaves them, messages as text.

use std::path::Path;
use std::sync::LazyLock;

use prost::Message;

use crate::control::Event;
use crate::device::Device;
use crate::loopback::Loopback;
use crate::proto::p4::config::v1::{P4Info, Preamble};
use crate::proto::p4::v1::set_forwarding_pipeline_config_request::Action;
use crate::proto::p4::v1::ForwardingPipelineConfig;

pub fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A message of that name (`p4.v1.Entity`), from protobuf's text format.
pub fn message<T: Message + Default>(name: &str, text: &str) -> T {
    crate::text::message(name, text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// `PROGRAM.json` and `PROGRAM.p4info.txtpb` of a folder.
pub fn config(folder: &Path, program: &str) -> ForwardingPipelineConfig {
    let info = read(&folder.join(format!("{program}.p4info.txtpb")));
    ForwardingPipelineConfig {
        p4info: Some(message("p4.config.v1.P4Info", &info)),
        p4_device_config: read(&folder.join(format!("{program}.json"))).into_bytes(),
        cookie: None,
    }
}

/// The one that has one of everything.
pub fn everything() -> ForwardingPipelineConfig {
    static EVERYTHING: LazyLock<ForwardingPipelineConfig> = LazyLock::new(|| {
        config(&Path::new(&std::env::var("CARGO_MANIFEST_DIR").unwrap()).join("tests/programs"), "everything")
    });
    EVERYTHING.clone()
}

/// What all objects of a P4Info begin with.
pub fn preambles(info: &P4Info) -> impl Iterator<Item = &Preamble> {
    (info.tables.iter().map(|one| &one.preamble))
        .chain(info.actions.iter().map(|one| &one.preamble))
        .chain(info.action_profiles.iter().map(|one| &one.preamble))
        .chain(info.counters.iter().map(|one| &one.preamble))
        .chain(info.meters.iter().map(|one| &one.preamble))
        .chain(info.value_sets.iter().map(|one| &one.preamble))
        .chain(info.registers.iter().map(|one| &one.preamble))
        .chain(info.digests.iter().map(|one| &one.preamble))
        .flatten()
}

/// Names of everything's objects, `<hosts>`, as the ids of its P4Info.
pub fn with_ids(text: &str) -> String {
    let info = everything().p4info.unwrap();
    let mut text = text.to_owned();
    for preamble in preambles(&info) {
        text = text.replace(&format!("<{}>", preamble.alias), &preamble.id.to_string());
    }
    assert!(!text.contains('<'), "{text}");
    text
}

/// A switch that runs `everything`, and what it tells.
pub fn device() -> (Device, tokio::sync::mpsc::Receiver<Event>) {
    let (told, events) = tokio::sync::mpsc::channel(1024);
    let mut device = Device::new(Box::new(Loopback::new(told)));
    device.configure(Action::VerifyAndCommit, Some(everything())).unwrap();
    (device, events)
}
