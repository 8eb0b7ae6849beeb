// SPDX-License-Identifier: Apache-2.0
//! Interfaces: `qlink` pairs, created with both ends in their nodes at once; up and down; who is there.

use crate::netlink::{attribute, u32_at, u64_at, Batch, Netlink};
use crate::plan::{End, Link, LinkChange};
use std::collections::HashMap;
use std::io;
use std::os::fd::RawFd;

/// kernel/include/uapi/qbed/qlink.h
mod qlink {
    pub const PEER: u16 = 1;
    pub const RATE: u16 = 2;
    pub const DELAY: u16 = 3;
    pub const OVERHEAD: u16 = 4;
    pub const LOSS: u16 = 5;
    /// From an end's attribute to the same of its peer.
    pub const OF_PEER: u16 = 4;
    pub const JITTER: u16 = 14;
    pub const REORDERING: u16 = 15;
    /// From these to the same of the peer.
    pub const MORE_OF_PEER: u16 = 2;
}

/// linux/if_link.h: IFLA_INFO_*
const INFO_KIND: u16 = 1;
pub const INFO_DATA: u16 = 2;

/// linux/if_link.h, and the most that the kernel takes.
const IFLA_GSO_MAX_SEGS: u16 = 40;
const GSO_MAX_SEGS: u32 = 65535;

/// `struct ifinfomsg` for a request that goes by name.
pub const IFINFO: [u8; 16] = [0; 16];

/// QLINK_RATE_NONE: no transmitter, no wire.
pub const AT_ONCE_BPS: u64 = u64::MAX;

/// Asks for a link with these ends; `descriptor`: of a node's namespace.
pub fn request(batch: &mut Batch, link: &Link, [a, b]: [&End; 2], descriptor: impl Fn(usize) -> RawFd) {
    let flags = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
    batch.request(libc::RTM_NEWLINK, flags, &IFINFO, format!("link {}", link.name));
    identity(batch, link, a, &descriptor);
    let info = batch.begin(libc::IFLA_LINKINFO);
    batch.text(INFO_KIND, "qlink");
    let data = batch.begin(INFO_DATA);
    let peer = batch.begin(qlink::PEER);
    batch.raw(&IFINFO);
    identity(batch, link, b, &descriptor);
    batch.end(peer);
    transmitter(batch, a, 0, 0);
    transmitter(batch, b, qlink::OF_PEER, qlink::MORE_OF_PEER);
    batch.end(data).end(info);
}

fn identity(batch: &mut Batch, link: &Link, end: &End, descriptor: impl Fn(usize) -> RawFd) {
    batch
        .text(libc::IFLA_IFNAME, &end.interface)
        .attribute(libc::IFLA_ADDRESS, &end.mac.0)
        .u32(libc::IFLA_MTU, link.mtu)
        .u32(libc::IFLA_NET_NS_FD, descriptor(end.node) as u32);
}

fn transmitter(batch: &mut Batch, end: &End, offset: u16, more: u16) {
    batch
        .u64(qlink::RATE + offset, end.rate_bps)
        .u64(qlink::DELAY + offset, end.delay_ns)
        .u32(qlink::OVERHEAD + offset, end.overhead_bytes)
        .u32(qlink::LOSS + offset, loss_scaled(end.loss))
        .u64(qlink::JITTER + more, end.jitter_ns)
        .u32(qlink::REORDERING + more, end.reordering.into());
}

/// Asks for what a link's end has from now on.
pub fn change(batch: &mut Batch, ifindex: u32, change: &LinkChange, object: String) {
    let mut fixed = IFINFO;
    fixed[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    batch.request(libc::RTM_NEWLINK, 0, &fixed, object);
    let info = batch.begin(libc::IFLA_LINKINFO);
    batch.text(INFO_KIND, "qlink");
    let data = batch.begin(INFO_DATA);
    if let Some(rate_bps) = change.rate_bps {
        batch.u64(qlink::RATE, rate_bps);
    }
    if let Some(delay_ns) = change.delay_ns {
        batch.u64(qlink::DELAY, delay_ns);
    }
    if let Some(loss) = change.loss {
        batch.u32(qlink::LOSS, loss_scaled(loss));
    }
    batch.end(data).end(info);
}

/// Probability x 2^32. A probability just below 1 rounds up to 2^32, which the attribute cannot hold.
fn loss_scaled(probability: f64) -> u32 {
    (probability * 2f64.powi(32)).round().min(f64::from(u32::MAX)) as u32
}

pub fn up(batch: &mut Batch, ifindex: u32, object: String) {
    flags(batch, ifindex, libc::IFF_UP as u32, object);
}

pub fn down(batch: &mut Batch, ifindex: u32, object: String) {
    flags(batch, ifindex, 0, object);
}

/// A node's loopback interface. A packet is one to IP on its way out and on its way in, or the node's books would not
/// add up: super-packets would be cut in between.
pub fn loopback_up(batch: &mut Batch, ifindex: u32, object: String) {
    flags(batch, ifindex, libc::IFF_UP as u32, object);
    batch.u32(IFLA_GSO_MAX_SEGS, 1);
}

/// Sockets may build packets of up to 64 KB, which are cut as they leave the interface's queue.
pub fn allow_super_packets(batch: &mut Batch, ifindex: u32, object: String) {
    let mut fixed = IFINFO;
    fixed[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    batch.request(libc::RTM_NEWLINK, 0, &fixed, object).u32(IFLA_GSO_MAX_SEGS, GSO_MAX_SEGS);
}

/// Sets IFF_UP, or clears it.
fn flags(batch: &mut Batch, ifindex: u32, flags: u32, object: String) {
    let mut fixed = IFINFO;
    fixed[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    fixed[8..12].copy_from_slice(&flags.to_ne_bytes());
    fixed[12..16].copy_from_slice(&(libc::IFF_UP as u32).to_ne_bytes());
    batch.request(libc::RTM_NEWLINK, 0, &fixed, object);
}

pub fn hardware_address(batch: &mut Batch, ifindex: u32, end: &End) {
    let mut fixed = IFINFO;
    fixed[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    let object = format!("interface {}: its address", end.interface);
    batch.request(libc::RTM_NEWLINK, 0, &fixed, object).attribute(libc::IFLA_ADDRESS, &end.mac.0);
}

/// The interfaces of the namespace in which the socket was opened, by name.
pub fn indexes(netlink: &Netlink) -> io::Result<HashMap<String, u32>> {
    by_name(netlink, |index, _| index)
}

/// Frames that crossed an interface, and those that its device dropped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    pub index: u32,
    pub rx_packets: u64,
    pub tx_packets: u64,
    pub rx_bytes: u64,
    pub tx_bytes: u64,
    pub rx_dropped: u64,
    pub tx_dropped: u64,
}

impl Statistics {
    /// From the attributes of an interface (struct rtnl_link_stats64).
    pub fn read(index: u32, attributes: &[u8]) -> Self {
        let stats = attribute(attributes, libc::IFLA_STATS64).unwrap_or(&[]);
        let stat = |number: usize| u64_at(stats, 8 * number).unwrap_or(0);
        Self {
            index,
            rx_packets: stat(0),
            tx_packets: stat(1),
            rx_bytes: stat(2),
            tx_bytes: stat(3),
            rx_dropped: stat(6),
            tx_dropped: stat(7),
        }
    }

    /// What was counted after `before`.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            index: self.index,
            rx_packets: self.rx_packets.saturating_sub(before.rx_packets),
            tx_packets: self.tx_packets.saturating_sub(before.tx_packets),
            rx_bytes: self.rx_bytes.saturating_sub(before.rx_bytes),
            tx_bytes: self.tx_bytes.saturating_sub(before.tx_bytes),
            rx_dropped: self.rx_dropped.saturating_sub(before.rx_dropped),
            tx_dropped: self.tx_dropped.saturating_sub(before.tx_dropped),
        }
    }
}

/// The statistics of all interfaces of the namespace in which the socket was opened, by name.
pub fn statistics(netlink: &Netlink) -> io::Result<HashMap<String, Statistics>> {
    by_name(netlink, Statistics::read)
}

fn by_name<T>(netlink: &Netlink, read: impl Fn(u32, &[u8]) -> T) -> io::Result<HashMap<String, T>> {
    let mut found = HashMap::new();
    let mut query = Batch::default();
    query.request(libc::RTM_GETLINK, libc::NLM_F_DUMP, &IFINFO, "links");
    netlink.dump(query, |_, message| {
        let Some(attributes) = message.get(IFINFO.len()..) else { return };
        if let (Some(index), Some(name)) = (u32_at(message, 4), attribute(attributes, libc::IFLA_IFNAME)) {
            let name = String::from_utf8_lossy(name).trim_end_matches('\0').to_owned();
            found.insert(name, read(index, attributes));
        }
    })?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_is_scaled_to_32_bits() {
        assert_eq!(loss_scaled(0.0), 0);
        assert_eq!(loss_scaled(0.5), 1 << 31);
        assert_eq!(loss_scaled(1.0 - 1e-12), u32::MAX);
    }
}
