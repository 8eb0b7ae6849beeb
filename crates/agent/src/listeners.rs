// SPDX-License-Identifier: Apache-2.0
//! Listening sockets, and which flow a new connection belongs to: the sender's address and port tell, so the stream
//! needs no header.

use crate::failure::{Failure, Of, Result};
use crate::plan::Family;
use crate::records::address;
use crate::schedule::FlowSpec;
use crate::socket;
use crate::watermark;
use crate::world::{Token, World, READABLE};
use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

/// All flows of an incast may connect in one instant.
const BACKLOG: i32 = 65_535;

type Key = (usize, u16, Family);

pub struct Listeners {
    sockets: Vec<(String, OwnedFd)>,
    index: HashMap<Key, u32>,
    /// Connections to come: (listener, the sender's address) to a flow.
    expected: HashMap<(u32, SocketAddr), u32>,
}

fn key(world: &World<'_>, spec: &FlowSpec) -> Key {
    let workload = &world.plan.workloads[spec.workload];
    (spec.dst, workload.port, workload.family)
}

impl Listeners {
    pub fn open<'s>(world: &World<'_>, flows: impl Iterator<Item = &'s FlowSpec>) -> Result<Self> {
        let mut listeners = Self {
            sockets: Vec::new(),
            index: HashMap::new(),
            expected: HashMap::new(),
        };
        let mut nodes = BTreeSet::new();
        for spec in flows {
            let key = key(world, spec);
            if listeners.index.contains_key(&key) {
                continue;
            }
            let name = format!(
                "node {}: listening on port {}",
                world.lab.namespaces.name(spec.dst),
                key.1
            );
            world.lab.namespaces.enter(spec.dst)?;
            if nodes.insert(spec.dst) {
                fs::write("/proc/sys/net/core/somaxconn", BACKLOG.to_string()).of(|| name.clone())?;
            }
            let next = listeners.sockets.len() as u32;
            let socket = listen(world, spec).of(|| name.clone())?;
            world
                .watch(&socket, Token::Listener(next), READABLE)
                .of(|| name.clone())?;
            listeners.sockets.push((name, socket));
            listeners.index.insert(key, next);
        }
        Ok(listeners)
    }

    /// Announces a connection that begins now.
    pub fn expect(&mut self, world: &World<'_>, spec: &FlowSpec, source: SocketAddr, flow: u32) {
        self.expected
            .insert((self.index[&key(world, spec)], source), flow);
    }

    /// The next connection and its flow. Strangers (a program in the lab) are turned away.
    pub fn accept(&mut self, listener: u32) -> Result<Option<(OwnedFd, u32)>> {
        let (name, socket) = &self.sockets[listener as usize];
        loop {
            match socket::accept(socket) {
                Ok(None) => return Ok(None),
                Ok(Some((connection, source))) => {
                    if let Some(flow) = self.expected.remove(&(listener, source)) {
                        return Ok(Some((connection, flow)));
                    }
                }
                // The connection was reset before it could be accepted; its sender reports it.
                Err(error) if error.raw_os_error() == Some(libc::ECONNABORTED) => {}
                Err(error) => return Err(Failure::new(format!("{name}: {error}"))),
            }
        }
    }
}

fn listen(world: &World<'_>, spec: &FlowSpec) -> std::io::Result<OwnedFd> {
    let workload = &world.plan.workloads[spec.workload];
    let address = address(world.plan, spec.dst, workload.family);
    let fd = socket::open(
        socket::domain(address),
        libc::SOCK_STREAM | libc::SOCK_NONBLOCK,
        0,
    )?;
    socket::set(&fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
    socket::set(&fd, libc::SOL_SOCKET, libc::SO_RCVLOWAT, watermark::FIRST)?;
    // A receiver has its part in some congestion controls (DCTCP's echo of CE), so it has the sender's.
    if let Some(name) = &workload.congestion_control {
        socket::set_text(&fd, libc::IPPROTO_TCP, libc::TCP_CONGESTION, name)?;
    }
    socket::bind(&fd, SocketAddr::new(address, workload.port))?;
    socket::listen(&fd, BACKLOG)?;
    Ok(fd)
}
