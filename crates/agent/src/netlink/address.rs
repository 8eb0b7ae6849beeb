// SPDX-License-Identifier: Apache-2.0
//! Addresses, and permanent neighbours instead of ARP and neighbour discovery.

use crate::netlink::Batch;
use crate::plan::End;
use crate::socket;
use std::net::IpAddr;

/// Requests the addresses of a link end, and its peer's addresses as permanent neighbours.
pub fn configure_end(batch: &mut Batch, node: &str, end: &End, peer: &End, ifindex: u32) {
    for prefix in &end.addresses {
        let object = format!("node {node}: address {prefix} on {}", end.interface);
        address(batch, ifindex, prefix.address, prefix.length, object);
    }
    for prefix in &peer.addresses {
        let object = format!("node {node}: neighbour {} on {}", prefix.address, end.interface);
        neighbour(batch, ifindex, prefix.address, peer.mac.0, object);
    }
}

pub fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

pub fn family(address: IpAddr) -> u8 {
    socket::domain(address) as u8
}

pub fn address(batch: &mut Batch, ifindex: u32, address: IpAddr, length: u8, object: String) {
    let mut header = [family(address), length, 0, 0, 0, 0, 0, 0]; // ifaddrmsg
    header[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    let flags = libc::NLM_F_CREATE | libc::NLM_F_REPLACE;
    batch
        .request(libc::RTM_NEWADDR, flags, &header, object)
        .attribute(libc::IFA_LOCAL, &octets(address))
        .attribute(libc::IFA_ADDRESS, &octets(address))
        .u32(libc::IFA_FLAGS, libc::IFA_F_NODAD);
}

/// Requests a permanent neighbour entry, so that no ARP and no neighbour discovery is sent.
fn neighbour(batch: &mut Batch, ifindex: u32, address: IpAddr, mac: [u8; 6], object: String) {
    let mut header = [0u8; 12]; // ndmsg
    header[0] = family(address);
    header[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    header[8..10].copy_from_slice(&libc::NUD_PERMANENT.to_ne_bytes());
    batch
        .request(libc::RTM_NEWNEIGH, libc::NLM_F_CREATE | libc::NLM_F_REPLACE, &header, object)
        .attribute(libc::NDA_DST, &octets(address))
        .attribute(libc::NDA_LLADDR, &mac);
}
