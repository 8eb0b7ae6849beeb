// SPDX-License-Identifier: Apache-2.0
//! Generic netlink: a module's family by its name.

use crate::failure::{Failure, Of, Result};
use crate::netlink::{attribute, u16_at, Batch, Netlink};

/// linux/genetlink.h
const CONTROL: u16 = 0x10;
const CONTROL_GET_FAMILY: u8 = 3;
const CONTROL_FAMILY_ID: u16 = 1;
const CONTROL_FAMILY_NAME: u16 = 2;
/// Of a message: command, version, two bytes of zero.
pub const HEADER_LEN: usize = 4;

/// A socket of the caller's network namespace.
pub fn open() -> Result<Netlink> {
    Netlink::open(libc::NETLINK_GENERIC).of(|| "generic netlink".into())
}

/// The number by which the kernel knows the family of the module of the same name: one for all namespaces.
pub fn family(name: &str) -> Result<u16> {
    let here = || format!("kernel module {name}: its netlink family");
    let mut query = Batch::default();
    let fixed = [CONTROL_GET_FAMILY, 1, 0, 0];
    query.request(CONTROL, libc::NLM_F_ACK, &fixed, name).text(CONTROL_FAMILY_NAME, name);
    let mut family = None;
    let each = |_, message: &[u8]| {
        let attributes = message.get(HEADER_LEN..).unwrap_or(&[]);
        family = attribute(attributes, CONTROL_FAMILY_ID).and_then(|id| u16_at(id, 0));
    };
    open()?.dump(query, each).of(here)?;
    family.ok_or_else(|| Failure::new(format!("{}: not found", here())))
}
