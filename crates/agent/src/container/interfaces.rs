// SPDX-License-Identifier: Apache-2.0
//! The container's interfaces, which Containerlab creates.

use crate::failure::{Context, Result};
use crate::netlink::{attributes, Subscription};
use crate::subprocess;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::process::{Command, Stdio};

/// Offload features that change frames, by their names in `ethtool -k`.
const OFFLOADS: [&str; 5] = [
    "tx-checksumming",
    "tcp-segmentation-offload",
    "generic-segmentation-offload",
    "generic-receive-offload",
    "large-receive-offload",
];

/// linux/rtnetlink.h: RTNLGRP_LINK, and the length of the header before a link's attributes.
const GROUP: u32 = 1;
const IFINFOMSG_LEN: usize = 16;

/// Receives notifications of removed and changed interfaces.
pub struct Watch(Subscription);

/// Names of interfaces. A changed one may have other flags or features than before, or is new.
#[derive(Default)]
pub struct Changes {
    pub removed: Vec<String>,
    pub changed: Vec<String>,
}

impl Watch {
    pub fn open() -> Result<Self> {
        Subscription::open(libc::NETLINK_ROUTE, &[GROUP])
            .map(Self)
            .with_context(|| "watching interfaces".into())
    }

    /// Changes since the last call.
    pub fn changes(&self) -> Result<Changes> {
        let mut changes = Changes::default();
        let drained = self.0.drain(|kind, payload| {
            let names = match kind {
                libc::RTM_DELLINK => &mut changes.removed,
                libc::RTM_NEWLINK => &mut changes.changed,
                _ => return,
            };
            names.extend(name(payload.get(IFINFOMSG_LEN..).unwrap_or_default()));
        });
        drained.with_context(|| "watching interfaces".into()).map(|()| changes)
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn name(link: &[u8]) -> Option<String> {
    let (_, text) = attributes(link).find(|(kind, _)| *kind == libc::IFLA_IFNAME)?;
    Some(String::from_utf8_lossy(text).trim_end_matches('\0').to_owned())
}

pub fn exists(interface: &str) -> bool {
    Path::new("/sys/class/net").join(interface).exists()
}

/// Sets offload features: without `gso` all are off, so that frames pass unchanged.
pub fn set_offloads(interface: &str, gso: bool) {
    let features = ["rx", "tx", "sg", "tso", "gso"].into_iter();
    let features = features.flat_map(|feature| [feature, if gso { "on" } else { "off" }]);
    // Not every device supports all features; `counters` records those that stay on.
    let _ = Command::new("ethtool")
        .args(["-K", interface, "gro", "off"])
        .args(features)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
}

/// Sets offload features, MTU and state; for a guest also disables IPv6, so that the interface sends no frames.
pub fn prepare(interface: &str, mtu: u32, for_guest: bool, gso: bool) -> Result<()> {
    let context = || format!("interface {interface}");
    set_offloads(interface, gso);
    if for_guest {
        fs::write(format!("/proc/sys/net/ipv6/conf/{interface}/disable_ipv6"), "1").with_context(context)?;
    }
    let (mtu, segments) = (mtu.to_string(), if gso { "65535" } else { "1" });
    subprocess::run("ip", &["link", "set", interface, "mtu", &mtu, "gso_max_segs", segments, "up"], "")
}

/// Disables GSO on the loopback interface, as in `netlink::link::loopback_up`.
pub fn prepare_loopback() -> Result<()> {
    subprocess::run("ip", &["link", "set", "lo", "gso_max_segs", "1"], "")
}

/// The offloads of an interface that are on.
pub fn offloads(interface: &str) -> Vec<&'static str> {
    let output = Command::new("ethtool").args(["-k", interface]).output();
    let features = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    offloads_on(&features.unwrap_or_default())
}

fn offloads_on(features: &str) -> Vec<&'static str> {
    let on = |name: &&str| features.lines().any(|line| line.trim().starts_with(&format!("{name}: on")));
    OFFLOADS.into_iter().filter(on).collect()
}

#[cfg(test)]
mod tests {
    use super::{name, offloads_on};
    use crate::netlink::Batch;

    #[test]
    fn the_name_of_a_link_is_parsed() {
        let mut link = Batch::default();
        link.request(libc::RTM_DELLINK, 0, &[], "").u32(libc::IFLA_MTU, 1500).text(libc::IFLA_IFNAME, "eth7");
        assert_eq!(name(link.body()).as_deref(), Some("eth7"));
        assert_eq!(name(&[]), None);
    }

    #[test]
    fn offloads_that_are_on_are_named() {
        let output =
            "Features for eth0:\ntx-checksumming: off\n\ttx-checksum-ipv4: on\ngeneric-receive-offload: on\n\
                    large-receive-offload: off [fixed]\n";
        assert_eq!(offloads_on(output), ["generic-receive-offload"]);
    }
}
