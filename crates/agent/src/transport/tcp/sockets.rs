// SPDX-License-Identifier: Apache-2.0
//! How TCP's sockets are opened, for all that is sent over them.

use crate::plan::workload::Family;
use crate::plan::{Link, Plan};
use crate::socket;
use crate::transport::mark;
use crate::world::token::Token;
use crate::world::World;
use nix::sys::epoll::EpollFlags;
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

/// All flows of an incast may connect in one instant.
pub const BACKLOG: i32 = 65_535;

/// Of each node: whether it has more than one address of a family, so that the kernel cannot know which one is meant.
pub fn several_addresses(plan: &Plan) -> Vec<bool> {
    let mut addresses: Vec<BTreeSet<IpAddr>> =
        plan.nodes.iter().map(|node| node.addresses.iter().copied().collect()).collect();
    for end in plan.links.iter().flat_map(Link::ends) {
        addresses[end.node].extend(end.addresses.iter().map(|prefix| prefix.address));
    }
    let of = |all: &BTreeSet<IpAddr>, family| all.iter().filter(|a| Family::of(**a) == family).count();
    addresses.iter().map(|all| of(all, Family::V4) > 1 || of(all, Family::V6) > 1).collect()
}

/// A socket that connects from a node, whose namespace has been entered, to another one's port of its workload, and its
/// own address.
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
    // The last segment is not held back; MSG_MORE keeps all others full.
    socket::set(&fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)?;
    mark(&fd, workload)?;
    if let Some(name) = world.congestion_control(workload, from) {
        socket::set_text(&fd, libc::IPPROTO_TCP, libc::TCP_CONGESTION, name)?;
    }
    if let Some(port) = bind {
        // A port of 0 is chosen at connect(), where only the four-tuple has to be free.
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

/// A listening socket at a node, whose namespace has been entered, on its workload's port.
pub fn listen(world: &World<'_>, workload: usize, node: usize) -> io::Result<OwnedFd> {
    let workload = &world.plan.workloads[workload];
    let address = world.plan.address(node, workload.family);
    let fd = socket::open(socket::domain(address), libc::SOCK_STREAM | libc::SOCK_NONBLOCK, 0)?;
    socket::set(&fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
    // A receiver has its part in some congestion controls (DCTCP's echo of CE), so it has the sender's.
    if let Some(name) = world.congestion_control(workload, node) {
        socket::set_text(&fd, libc::IPPROTO_TCP, libc::TCP_CONGESTION, name)?;
    }
    // Its connections have it, too.
    mark(&fd, workload)?;
    socket::bind(&fd, SocketAddr::new(address, workload.port))?;
    socket::listen(&fd, BACKLOG)?;
    Ok(fd)
}
