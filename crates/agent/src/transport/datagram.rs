// SPDX-License-Identifier: Apache-2.0
//! Flows of datagrams that the agent itself sends: their sockets, times and records. `cbr` and `probe` decide what is
//! sent and when.

use crate::failure::{Context, Result};
use crate::plan::workload::{Family, Workload};
use crate::results::flows::{FlowRecord, Status};
use crate::socket;
use crate::transport::set_dscp;
use crate::workload::ports::LocalFlow;
use crate::workload::schedule::FlowSpec;
use crate::world::token::Topic;
use crate::world::World;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

/// SOL_SOCKET options and their values.
pub type Options = &'static [(i32, i32)];

/// The local ends of a flow.
pub struct Ends {
    pub local: LocalFlow,
    /// Index of the receiver's socket; None: the receiver is remote.
    pub receiver: Option<u32>,
    pub sender: Option<OwnedFd>,
    pub base_ns: u64,
    pub start_ns: i64,
    pub last_arrival_ns: Option<i64>,
    pub done: bool,
    pub error: Option<Box<str>>,
}

impl Ends {
    pub fn new(local: LocalFlow, receiver: Option<u32>) -> Self {
        Self {
            local,
            receiver,
            sender: None,
            base_ns: 0,
            start_ns: 0,
            last_arrival_ns: None,
            done: false,
            error: None,
        }
    }

    /// Schedules the first datagram of flow `index`.
    pub fn schedule(&mut self, world: &mut World<'_>, base_ns: u64, sends: Topic, index: u32) {
        let at_ns = base_ns + self.local.spec.start_ns;
        (self.base_ns, self.start_ns) = (base_ns, world.since_epoch(at_ns));
        if self.local.sends {
            world.agenda.add(at_ns, sends.at(index));
        }
    }

    /// The deadline of a datagram that is due `offset_ns` after the start; None at or after the stop.
    pub fn due_ns(&self, offset_ns: u64) -> Option<u64> {
        let since_base = self.local.spec.start_ns.saturating_add(offset_ns);
        let in_time = self.local.spec.stop_ns.is_none_or(|stop| since_base < stop);
        in_time.then_some(self.base_ns.saturating_add(since_base))
    }

    /// A record without counters.
    pub fn record<'a>(&'a self, world: &World<'a>) -> FlowRecord<'a> {
        let status = match (&self.error, self.done) {
            (Some(_), _) => Status::Failed,
            (None, true) => Status::Complete,
            (None, false) => Status::Running,
        };
        FlowRecord {
            end_ns: self.last_arrival_ns.filter(|_| self.done || !self.local.sends),
            status,
            error: self.error.as_deref().map(str::to_owned),
            ..FlowRecord::new(world.plan, &self.local, self.start_ns)
        }
    }
}

/// The socket of all flows to a node's port.
pub struct Receiver {
    pub name: String,
    pub socket: OwnedFd,
}

/// Opens the receivers of flows, one for each node, port and family.
pub struct Receivers {
    options: Options,
    by_port: HashMap<(usize, u16, Family), u32>,
    pub list: Vec<Receiver>,
}

impl Receivers {
    pub fn new(options: Options) -> Self {
        Self { options, by_port: HashMap::new(), list: Vec::new() }
    }

    /// Index of a flow's receiver. Opens it for the first flow.
    pub fn index(&mut self, world: &World<'_>, spec: &FlowSpec) -> Result<u32> {
        let workload = &world.plan.workloads[spec.workload];
        let next = self.list.len() as u32;
        let index = *self.by_port.entry((spec.dst, workload.port, workload.family)).or_insert(next);
        if index == next {
            let name = format!("node {}: UDP port {}", world.lab.namespaces.name(spec.dst), workload.port);
            world.lab.namespaces.enter(spec.dst)?;
            let address = SocketAddr::new(world.plan.address(spec.dst, workload.family), workload.port);
            let socket = open(address, workload, self.options).with_context(|| name.clone())?;
            self.list.push(Receiver { name, socket });
        }
        Ok(index)
    }
}

/// Opens a flow's sender. Returns it with its address.
pub fn open_sender(
    world: &World<'_>,
    flow: &LocalFlow,
    options: Options,
) -> Result<io::Result<(OwnedFd, SocketAddr)>> {
    let LocalFlow { spec, src_port, .. } = flow;
    let workload = &world.plan.workloads[spec.workload];
    let [src, dst] = [spec.src, spec.dst].map(|node| world.plan.address(node, workload.family));
    world.lab.namespaces.enter(spec.src)?;
    Ok(open(SocketAddr::new(src, *src_port), workload, options).and_then(|socket| {
        socket::connect(&socket, SocketAddr::new(dst, workload.port))?;
        let port = socket::local_port(&socket)?;
        Ok((socket, SocketAddr::new(src, port)))
    }))
}

fn open(address: SocketAddr, workload: &Workload, options: Options) -> io::Result<OwnedFd> {
    let socket = socket::open(socket::domain(address.ip()), libc::SOCK_DGRAM | libc::SOCK_NONBLOCK, 0)?;
    for (name, value) in options {
        socket::set(&socket, libc::SOL_SOCKET, *name, *value)?;
    }
    set_dscp(&socket, workload)?;
    socket::bind(&socket, address)?;
    Ok(socket)
}
