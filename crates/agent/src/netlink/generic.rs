// SPDX-License-Identifier: Apache-2.0
//! Generic netlink: resolves the family of a kernel module.

use crate::failure::{Context, Failure, Result};
use crate::netlink::{attribute, u16_at, Batch, Netlink};

/// linux/genetlink.h
const CONTROL: u16 = 0x10;
const CONTROL_GET_FAMILY: u8 = 3;
const CONTROL_FAMILY_ID: u16 = 1;
const CONTROL_FAMILY_NAME: u16 = 2;
/// Length of `struct genlmsghdr`: command, version, two reserved bytes.
pub const HEADER_LEN: usize = 4;

/// Opens a socket in the thread's current network namespace.
pub fn open() -> Result<Netlink> {
    Netlink::open(libc::NETLINK_GENERIC).with_context(|| "generic netlink".into())
}

/// The family number of the module `name`, which is the same in all namespaces.
pub fn family(name: &str) -> Result<u16> {
    let context = || format!("kernel module {name}: its netlink family");
    let mut query = Batch::default();
    let header = [CONTROL_GET_FAMILY, 1, 0, 0];
    query.request(CONTROL, libc::NLM_F_ACK, &header, name).text(CONTROL_FAMILY_NAME, name);
    let mut family = None;
    let each = |_, message: &[u8]| {
        let attributes = message.get(HEADER_LEN..).unwrap_or(&[]);
        family = attribute(attributes, CONTROL_FAMILY_ID).and_then(|id| u16_at(id, 0));
    };
    open()?.dump(query, each).with_context(context)?;
    family.ok_or_else(|| Failure::new(format!("{}: not found", context())))
}
