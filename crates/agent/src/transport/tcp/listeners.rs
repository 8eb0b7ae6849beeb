// SPDX-License-Identifier: Apache-2.0
//! Listening sockets, and which flow a new connection belongs to: the sender's address and port tell, so the stream
//! needs no header.

use crate::failure::{Failure, Of, Result};
use crate::plan::workload::Family;
use crate::socket;
use crate::transport::tcp::sockets::{self, BACKLOG};
use crate::transport::tcp::watermark::Watermark;
use crate::workload::schedule::FlowSpec;
use crate::world::token::Topic;
use crate::world::{World, READABLE_STILL};
use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

type Key = (usize, u16, Family);

struct Listener {
    name: String,
    socket: OwnedFd,
    node: usize,
    /// Whether its congestion control is its workload's, not the node's.
    own: bool,
    /// That its connections start with.
    watermark: Watermark,
    /// Of each of its flows, if it is the same and finite.
    size_bytes: Option<u64>,
}

pub struct Connection {
    pub socket: OwnedFd,
    pub watermark: Watermark,
    pub flow: u32,
}

pub struct Listeners {
    listeners: Vec<Listener>,
    index: HashMap<Key, u32>,
    /// Connections to come: (listener, the sender's address) to a flow.
    expected: HashMap<(u32, SocketAddr), u32>,
}

fn key(world: &World<'_>, spec: &FlowSpec) -> Key {
    let workload = &world.plan.workloads[spec.workload];
    (spec.dst, workload.port, workload.family)
}

impl Listeners {
    /// `topic`: what they are watched under, by number.
    pub fn open<'s>(
        world: &World<'_>,
        topic: Topic,
        flows: impl Iterator<Item = &'s FlowSpec>,
    ) -> Result<Self> {
        let mut listeners = Self { listeners: Vec::new(), index: HashMap::new(), expected: HashMap::new() };
        let mut nodes = BTreeSet::new();
        for spec in flows {
            let key = key(world, spec);
            if let Some(known) = listeners.index.get(&key) {
                let size_bytes = &mut listeners.listeners[*known as usize].size_bytes;
                *size_bytes = size_bytes.filter(|size| spec.size_bytes == Some(*size));
                continue;
            }
            let workload = &world.plan.workloads[spec.workload];
            let node = world.lab.namespaces.name(spec.dst);
            let control = workload.congestion_control.as_deref().unwrap_or("the node's");
            let name = format!("node {node}: listening on port {} (congestion control: {control})", key.1);
            world.lab.namespaces.enter(spec.dst)?;
            if nodes.insert(spec.dst) {
                fs::write("/proc/sys/net/core/somaxconn", BACKLOG.to_string()).of(|| name.clone())?;
            }
            let next = listeners.listeners.len() as u32;
            let (socket, watermark) = listen(world, spec).of(|| name.clone())?;
            // Connections are taken one at a time, and each event is for one of them.
            world.watch(&socket, topic.at(next), READABLE_STILL).of(|| name.clone())?;
            let own = workload.congestion_control.is_some();
            let (node, size_bytes) = (spec.dst, spec.size_bytes);
            listeners.listeners.push(Listener { name, socket, node, own, watermark, size_bytes });
            listeners.index.insert(key, next);
        }
        for Listener { name, socket, watermark, size_bytes, .. } in &mut listeners.listeners {
            watermark.aim(socket, *size_bytes).of(|| name.clone())?;
        }
        Ok(listeners)
    }

    /// A node has another congestion control: its listening sockets, too, which may decide by it at the SYN (DCTCP).
    pub fn set_congestion_control(&self, node: usize, name: &str) -> Result<()> {
        self.listeners.iter().filter(|listener| listener.node == node && !listener.own).try_for_each(
            |listener| {
                let set = socket::set_text(&listener.socket, libc::IPPROTO_TCP, libc::TCP_CONGESTION, name);
                set.of(|| format!("{}: {name}", listener.name))
            },
        )
    }

    /// Announces a connection that begins now.
    pub fn expect(&mut self, world: &World<'_>, spec: &FlowSpec, source: SocketAddr, flow: u32) {
        self.expected.insert((self.index[&key(world, spec)], source), flow);
    }

    /// The next connection. Strangers (a program in the lab) are turned away.
    pub fn accept(&mut self, listener: u32) -> Result<Option<Connection>> {
        let Listener { name, socket, watermark, .. } = &self.listeners[listener as usize];
        match socket::accept(socket) {
            Ok(Some((socket, source))) => {
                let flow = self.expected.remove(&(listener, source));
                Ok(flow.map(|flow| Connection { socket, watermark: watermark.clone(), flow }))
            }
            Ok(None) => Ok(None),
            // The connection was reset before it could be accepted; its sender reports it.
            Err(error) if error.raw_os_error() == Some(libc::ECONNABORTED) => Ok(None),
            Err(error) => Err(Failure::new(format!("{name}: {error}"))),
        }
    }
}

fn listen(world: &World<'_>, spec: &FlowSpec) -> std::io::Result<(OwnedFd, Watermark)> {
    let fd = sockets::listen(world, spec.workload, spec.dst)?;
    let watermark = Watermark::listen(&fd)?;
    Ok((fd, watermark))
}
