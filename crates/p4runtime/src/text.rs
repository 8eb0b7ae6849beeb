// SPDX-License-Identifier: Apache-2.0
//! Messages in protobuf's text format, which p4c uses for P4Info.

use std::sync::LazyLock;

use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage};

use crate::proto::p4::config::v1::P4Info;

/// Parse a message of the type `name` (such as `p4.v1.Entity`).
pub fn message<T: Message + Default>(name: &str, text: &str) -> Result<T, String> {
    static POOL: LazyLock<Option<DescriptorPool>> = LazyLock::new(|| {
        let descriptors = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
        DescriptorPool::decode(descriptors.as_slice()).ok()
    });
    let descriptor = POOL.as_ref().and_then(|pool| pool.get_message_by_name(name));
    let descriptor = descriptor.ok_or_else(|| format!("there is no message {name}"))?;
    let parsed = DynamicMessage::parse_text_format(descriptor, text).map_err(|error| error.to_string())?;
    T::decode(parsed.encode_to_vec().as_slice()).map_err(|error| error.to_string())
}

/// Parse a `PROGRAM.p4info.txtpb`.
pub fn p4info(text: &str) -> Result<P4Info, String> {
    message("p4.config.v1.P4Info", text)
}
