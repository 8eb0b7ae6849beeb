// SPDX-License-Identifier: Apache-2.0
//! Requests for interfaces: creation of `qlink` pairs with each end in its node's namespace, state changes, queries.

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
    /// Added to RATE, DELAY, OVERHEAD or LOSS: the peer's attribute.
    pub const PEER_OFFSET: u16 = 4;
    pub const JITTER: u16 = 14;
    pub const REORDERING: u16 = 15;
    pub const PART: u16 = 18;
    pub const NUMBER: u16 = 19;
    pub const BORDER: u16 = 20;
    /// Added to JITTER or REORDERING: the peer's attribute.
    pub const PEER_JITTER_OFFSET: u16 = 2;
}

/// linux/if_link.h: IFLA_INFO_*
const INFO_KIND: u16 = 1;
pub const INFO_DATA: u16 = 2;

/// linux/if_link.h, and the kernel's limit.
const IFLA_GSO_MAX_SEGS: u16 = 40;
const GSO_MAX_SEGS: u32 = 65535;

/// An empty `struct ifinfomsg`.
pub const IFINFO: [u8; 16] = [0; 16];

/// QLINK_RATE_NONE: frames are delivered immediately.
pub const RATE_NONE_BPS: u64 = u64::MAX;

/// A cut link: the part of its other end, and its number, which is the same in both parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    pub part: u32,
    pub link: u32,
}

/// Requests a link with two ends; the second one of a cut link is the stub. `descriptor` returns the namespace of a
/// node.
pub fn request(
    batch: &mut Batch,
    link: &Link,
    [a, b]: [&End; 2],
    cut: Option<Cut>,
    descriptor: impl Fn(usize) -> RawFd,
) {
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
    transmitter(batch, b, qlink::PEER_OFFSET, qlink::PEER_JITTER_OFFSET);
    if let Some(cut) = cut {
        batch.u32(qlink::PART, cut.part).u32(qlink::NUMBER, cut.link);
    }
    batch.end(data).end(info);
}

fn identity(batch: &mut Batch, link: &Link, end: &End, descriptor: impl Fn(usize) -> RawFd) {
    batch
        .text(libc::IFLA_IFNAME, &end.interface)
        .attribute(libc::IFLA_ADDRESS, &end.mac.0)
        .u32(libc::IFLA_MTU, link.mtu)
        .u32(libc::IFLA_NET_NS_FD, descriptor(end.node) as u32);
}

fn transmitter(batch: &mut Batch, end: &End, offset: u16, jitter_offset: u16) {
    batch
        .u64(qlink::RATE + offset, end.rate_bps)
        .u64(qlink::DELAY + offset, end.delay_ns)
        .u32(qlink::OVERHEAD + offset, end.overhead_bytes)
        .u32(qlink::LOSS + offset, loss_scaled(end.loss))
        .u64(qlink::JITTER + jitter_offset, end.jitter_ns)
        .u32(qlink::REORDERING + jitter_offset, end.reordering.into());
}

/// Requests new settings of a link end.
pub fn change(batch: &mut Batch, ifindex: u32, change: &LinkChange, object: String) {
    change_end(batch, ifindex, object, |batch| {
        if let Some(rate_bps) = change.rate_bps {
            batch.u64(qlink::RATE, rate_bps);
        }
        if let Some(delay_ns) = change.delay_ns {
            batch.u64(qlink::DELAY, delay_ns);
        }
        if let Some(loss) = change.loss {
            batch.u32(qlink::LOSS, loss_scaled(loss));
        }
    });
}

/// A request that connects a stub with a vector device: each sends what the other receives.
pub fn border(batch: &mut Batch, stub: u32, device: u32, object: String) {
    change_end(batch, stub, object, |batch| {
        batch.u32(qlink::BORDER, device);
    });
}

/// A request that changes a link end; `attributes` adds those of qlink.
fn change_end(batch: &mut Batch, ifindex: u32, object: String, attributes: impl FnOnce(&mut Batch)) {
    let mut header = IFINFO;
    header[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    batch.request(libc::RTM_NEWLINK, 0, &header, object);
    let info = batch.begin(libc::IFLA_LINKINFO);
    batch.text(INFO_KIND, "qlink");
    let data = batch.begin(INFO_DATA);
    attributes(batch);
    batch.end(data).end(info);
}

/// Probability x 2^32, limited to 2^32 - 1 because the attribute has 32 bits.
fn loss_scaled(probability: f64) -> u32 {
    (probability * 2f64.powi(32)).round().min(f64::from(u32::MAX)) as u32
}

pub fn up(batch: &mut Batch, ifindex: u32, object: String) {
    set_flags(batch, ifindex, libc::IFF_UP as u32, object);
}

pub fn down(batch: &mut Batch, ifindex: u32, object: String) {
    set_flags(batch, ifindex, 0, object);
}

/// Brings a loopback interface up without GSO. A GSO packet would be segmented between output and input, and the IP
/// counters of the node would be inconsistent.
pub fn loopback_up(batch: &mut Batch, ifindex: u32, object: String) {
    set_flags(batch, ifindex, libc::IFF_UP as u32, object);
    batch.u32(IFLA_GSO_MAX_SEGS, 1);
}

/// Allows GSO packets of up to 64 KB, which are segmented when they leave the interface's queue.
pub fn allow_gso(batch: &mut Batch, ifindex: u32, object: String) {
    let mut header = IFINFO;
    header[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    batch.request(libc::RTM_NEWLINK, 0, &header, object).u32(IFLA_GSO_MAX_SEGS, GSO_MAX_SEGS);
}

/// Sets or clears IFF_UP.
fn set_flags(batch: &mut Batch, ifindex: u32, flags: u32, object: String) {
    let mut header = IFINFO;
    header[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    header[8..12].copy_from_slice(&flags.to_ne_bytes());
    header[12..16].copy_from_slice(&(libc::IFF_UP as u32).to_ne_bytes());
    batch.request(libc::RTM_NEWLINK, 0, &header, object);
}

pub fn hardware_address(batch: &mut Batch, ifindex: u32, end: &End) {
    let mut header = IFINFO;
    header[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    let object = format!("interface {}: its address", end.interface);
    batch.request(libc::RTM_NEWLINK, 0, &header, object).attribute(libc::IFLA_ADDRESS, &end.mac.0);
}

/// Interface indexes by name in the namespace of the socket.
pub fn indexes(netlink: &Netlink) -> io::Result<HashMap<String, u32>> {
    by_name(netlink, |index, _| index)
}

/// Counters of an interface.
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
    /// Parses the attributes of an interface (`struct rtnl_link_stats64`).
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

    /// The difference to an earlier snapshot.
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

/// Counters of all interfaces in the namespace of the socket, by name.
pub fn statistics(netlink: &Netlink) -> io::Result<HashMap<String, Statistics>> {
    by_name(netlink, Statistics::read)
}

/// Dumps all interfaces and applies `read` to index and attributes of each.
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
