// SPDX-License-Identifier: Apache-2.0
//! `qlink` pairs: the request that creates one, with both ends in their nodes at once.

use crate::failure::Result;
use crate::lab::namespaces::Namespaces;
use crate::netlink::{Batch, Netlink};
use crate::plan::{End, Link, Plan};

/// kernel/include/uapi/qbed/qlink.h
mod qlink {
    pub const PEER: u16 = 1;
    pub const RATE: u16 = 2;
    pub const DELAY: u16 = 3;
    pub const OVERHEAD: u16 = 4;
    pub const LOSS: u16 = 5;
    /// From an end's attribute to the same of its peer.
    pub const OF_PEER: u16 = 4;
}

/// linux/if_link.h: IFLA_INFO_*
const INFO_KIND: u16 = 1;
pub const INFO_DATA: u16 = 2;

/// `struct ifinfomsg` for a request that goes by name.
pub const IFINFO: [u8; 16] = [0; 16];

/// Creates those that have an end here. Of a link between agents, the end of the other one's node is a device at home
/// that is bridged to the container's interface. It transmits as the plan says if that node has no qlink of its own
/// (it is on the host's kernel), else at once: there it was done already.
pub fn create(netlink: &Netlink, plan: &Plan, namespaces: &Namespaces) -> Result<()> {
    let mut batch = Batch::default();
    for (index, link) in plan.links.iter().enumerate() {
        if link.ends().iter().any(|end| plan.carries(end.node)) {
            request(&mut batch, plan, index, |node| namespaces.descriptor(node));
        }
    }
    netlink.run(batch)
}

/// The name of a link's far device.
pub fn far_device(link: usize) -> String {
    format!("far{link}")
}

/// QLINK_RATE_NONE: no transmitter, no wire.
const AT_ONCE_BPS: u64 = u64::MAX;

fn request(batch: &mut Batch, plan: &Plan, index: usize, descriptor: impl Fn(usize) -> i32) {
    let link = &plan.links[index];
    let [a, b] = link.ends().map(|end| as_built(plan, index, end));
    let (a, b) = (a.as_ref().unwrap_or(&link.a), b.as_ref().unwrap_or(&link.b));
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
    transmitter(batch, a, 0);
    transmitter(batch, b, qlink::OF_PEER);
    batch.end(data).end(info);
}

/// None: as the plan has it.
fn as_built(plan: &Plan, link: usize, end: &End) -> Option<End> {
    let place = plan.place.as_ref().filter(|place| place.node != end.node)?;
    let mut far = End { interface: far_device(link), ..end.clone() };
    if !place.on_host_kernel(end.node) {
        far = End { rate_bps: AT_ONCE_BPS, delay_ns: 0, overhead_bytes: 0, loss: 0.0, ..far };
    }
    Some(far)
}

fn identity(batch: &mut Batch, link: &Link, end: &End, descriptor: impl Fn(usize) -> i32) {
    batch
        .text(libc::IFLA_IFNAME, &end.interface)
        .attribute(libc::IFLA_ADDRESS, &end.mac.0)
        .u32(libc::IFLA_MTU, link.mtu)
        .u32(libc::IFLA_NET_NS_FD, descriptor(end.node) as u32);
}

fn transmitter(batch: &mut Batch, end: &End, offset: u16) {
    batch
        .u64(qlink::RATE + offset, end.rate_bps)
        .u64(qlink::DELAY + offset, end.delay_ns)
        .u32(qlink::OVERHEAD + offset, end.overhead_bytes)
        .u32(qlink::LOSS + offset, loss_scaled(end.loss));
}

/// Probability x 2^32. A probability just below 1 rounds up to 2^32, which the attribute cannot hold.
fn loss_scaled(probability: f64) -> u32 {
    (probability * 2f64.powi(32)).round().min(f64::from(u32::MAX)) as u32
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
