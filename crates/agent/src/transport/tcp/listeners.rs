// SPDX-License-Identifier: Apache-2.0
//! Listening sockets. A new connection is matched to its flow by the sender's address and port, so that the stream
//! needs no header.

use crate::failure::{Context, Failure, Result};
use crate::plan::workload::Family;
use crate::socket;
use crate::transport::tcp::sockets::{self, BACKLOG};
use crate::transport::tcp::watermark::Watermark;
use crate::workload::schedule::FlowSpec;
use crate::world::token::Topic;
use crate::world::{World, READABLE_LEVEL};
use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

type Key = (usize, u16, Family);

struct Listener {
    name: String,
    socket: OwnedFd,
    node: usize,
    /// Whether the workload names the congestion control, which then does not follow the node's.
    explicit_control: bool,
    /// Initial watermark of connections.
    watermark: Watermark,
    /// The size of all flows; None if they differ or have none.
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
    /// Expected connections: (listener, sender's address) to flow.
    expected: HashMap<(u32, SocketAddr), u32>,
}

fn key(world: &World<'_>, spec: &FlowSpec) -> Key {
    let workload = &world.plan.workloads[spec.workload];
    (spec.dst, workload.port, workload.family)
}

impl Listeners {
    /// Opens the listening sockets of `flows` and watches them under `topic`, by index.
    pub fn open<'s>(
        world: &World<'_>,
        topic: Topic,
        flows: impl Iterator<Item = &'s FlowSpec>,
    ) -> Result<Self> {
        let mut listeners = Self { listeners: Vec::new(), index: HashMap::new(), expected: HashMap::new() };
        let mut nodes = BTreeSet::new();
        for spec in flows {
            let key = key(world, spec);
            if let Some(existing) = listeners.index.get(&key) {
                let size_bytes = &mut listeners.listeners[*existing as usize].size_bytes;
                *size_bytes = size_bytes.filter(|size| spec.size_bytes == Some(*size));
                continue;
            }
            let workload = &world.plan.workloads[spec.workload];
            let node = world.lab.namespaces.name(spec.dst);
            let control = workload.congestion_control.as_deref().unwrap_or("the node's");
            let name = format!("node {node}: listening on port {} (congestion control: {control})", key.1);
            world.lab.namespaces.enter(spec.dst)?;
            if nodes.insert(spec.dst) {
                fs::write("/proc/sys/net/core/somaxconn", BACKLOG.to_string())
                    .with_context(|| name.clone())?;
            }
            let next = listeners.listeners.len() as u32;
            let (socket, watermark) = listen(world, spec).with_context(|| name.clone())?;
            // Level-triggered: each event accepts one connection.
            world.watch(&socket, topic.at(next), READABLE_LEVEL).with_context(|| name.clone())?;
            let explicit_control = workload.congestion_control.is_some();
            let (node, size_bytes) = (spec.dst, spec.size_bytes);
            listeners.listeners.push(Listener {
                name,
                socket,
                node,
                explicit_control,
                watermark,
                size_bytes,
            });
            listeners.index.insert(key, next);
        }
        for Listener { name, socket, watermark, size_bytes, .. } in &mut listeners.listeners {
            watermark.set_for(socket, *size_bytes).with_context(|| name.clone())?;
        }
        Ok(listeners)
    }

    /// Sets the congestion control of a node's listening sockets, which may negotiate by it at the SYN (DCTCP).
    pub fn set_congestion_control(&self, node: usize, name: &str) -> Result<()> {
        self.listeners
            .iter()
            .filter(|listener| listener.node == node && !listener.explicit_control)
            .try_for_each(|listener| {
                let set = socket::set_text(&listener.socket, libc::IPPROTO_TCP, libc::TCP_CONGESTION, name);
                set.with_context(|| format!("{}: {name}", listener.name))
            })
    }

    /// Registers the connection of a flow.
    pub fn expect(&mut self, world: &World<'_>, spec: &FlowSpec, source: SocketAddr, flow: u32) {
        self.expected.insert((self.index[&key(world, spec)], source), flow);
    }

    /// Accepts the next connection. Closes it if it belongs to no flow (a program in the lab).
    pub fn accept(&mut self, listener: u32) -> Result<Option<Connection>> {
        let Listener { name, socket, watermark, .. } = &self.listeners[listener as usize];
        match socket::accept(socket) {
            Ok(Some((socket, source))) => {
                let flow = self.expected.remove(&(listener, source));
                Ok(flow.map(|flow| Connection { socket, watermark: watermark.clone(), flow }))
            }
            Ok(None) => Ok(None),
            // The connection was reset before accept(); its sender reports the error.
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
