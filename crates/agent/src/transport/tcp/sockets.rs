// SPDX-License-Identifier: Apache-2.0
//! Opens TCP sockets for flows and exchanges.

use crate::plan::workload::Family;
use crate::plan::{Link, Plan};
use crate::socket;
use crate::transport::set_dscp;
use crate::world::token::Token;
use crate::world::World;
use nix::sys::epoll::EpollFlags;
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

/// All flows of an incast may connect at the same instant.
pub const BACKLOG: i32 = 65_535;

/// Nodes with more than one address of a family. Their sockets must be bound, because the kernel could choose another
/// source address than the plan's.
pub fn multihomed(plan: &Plan) -> Vec<bool> {
    let mut addresses: Vec<BTreeSet<IpAddr>> =
        plan.nodes.iter().map(|node| node.addresses.iter().copied().collect()).collect();
    for end in plan.links.iter().flat_map(Link::ends) {
        addresses[end.node].extend(end.addresses.iter().map(|prefix| prefix.address));
    }
    let count = |all: &BTreeSet<IpAddr>, family| all.iter().filter(|a| Family::of(**a) == family).count();
    addresses.iter().map(|all| count(all, Family::V4) > 1 || count(all, Family::V6) > 1).collect()
}

/// Connects from a node to the workload's port at another node. The thread must be in the first node's namespace.
/// Binds to the port `bind` (0: chosen by the kernel), if it is set. Returns the socket and its local address.
pub fn connect(
    world: &World<'_>,
    workload: usize,
    [from, to]: [usize; 2],
    bind: Option<u16>,
    (token, events): (Token, EpollFlags),
) -> io::Result<(OwnedFd, SocketAddr)> {
    let workload = &world.plan.workloads[workload];
    let [src, dst] = [from, to].map(|node| world.plan.address(node, workload.family));
    let fd = socket::open(socket::domain(src), libc::SOCK_STREAM | libc::SOCK_NONBLOCK, 0)?;
    // Nagle's algorithm would delay the last segment; MSG_MORE keeps all others full.
    socket::set(&fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)?;
    set_dscp(&fd, workload)?;
    if let Some(name) = world.congestion_control(workload, from) {
        socket::set_text(&fd, libc::IPPROTO_TCP, libc::TCP_CONGESTION, name)?;
    }
    if let Some(port) = bind {
        // Port 0 is chosen at connect(), where only the four-tuple must be unique.
        let option = if port == 0 {
            (libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT)
        } else {
            (libc::SOL_SOCKET, libc::SO_REUSEADDR)
        };
        socket::set(&fd, option.0, option.1, 1)?;
        socket::bind(&fd, SocketAddr::new(src, port))?;
    }
    socket::connect(&fd, SocketAddr::new(dst, workload.port))?;
    let port = socket::local_port(&fd)?;
    world.watch(&fd, token, events)?;
    Ok((fd, SocketAddr::new(src, port)))
}

/// Opens a listening socket on the workload's port at a node. The thread must be in the node's namespace.
pub fn listen(world: &World<'_>, workload: usize, node: usize) -> io::Result<OwnedFd> {
    let workload = &world.plan.workloads[workload];
    let address = world.plan.address(node, workload.family);
    let fd = socket::open(socket::domain(address), libc::SOCK_STREAM | libc::SOCK_NONBLOCK, 0)?;
    socket::set(&fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
    // Some congestion controls need the receiver's cooperation (DCTCP's echo of CE).
    if let Some(name) = world.congestion_control(workload, node) {
        socket::set_text(&fd, libc::IPPROTO_TCP, libc::TCP_CONGESTION, name)?;
    }
    // Accepted connections inherit the DSCP.
    set_dscp(&fd, workload)?;
    socket::bind(&fd, SocketAddr::new(address, workload.port))?;
    socket::listen(&fd, BACKLOG)?;
    Ok(fd)
}
