// SPDX-License-Identifier: Apache-2.0
//! Exchanges over TCP (closed loop): a client sends requests to servers, waits for all responses, and starts the next
//! exchange after a think time. Only the client's agent has the state of an exchange; a server acts on the header of a
//! request (`stream`).

mod client;
mod client_connection;
mod server_connection;
mod settings;
mod slots;
mod stream;

use crate::failure::{Context, Result};
use crate::plan::workload::{Connect, Pattern, Workload};
use crate::results::exchanges::{Exchange, ExchangeWriter};
use crate::results::flows::FlowRecord;
use crate::socket;
use crate::transport::exchanges::client::{Client, Request};
use crate::transport::exchanges::client_connection::{ClientConnection, PendingExchange, UNSENT_BYTES};
use crate::transport::exchanges::server_connection::ServerConnection;
use crate::transport::exchanges::settings::Settings;
use crate::transport::exchanges::slots::Slots;
use crate::transport::exchanges::stream::Response;
use crate::transport::tcp::sockets::{self, BACKLOG};
use crate::transport::{NumberedFlow, Transport, TransportKind, CONNECT_WINDOW_NS, LEAD_TIME_NS};
use crate::world::token::{Part, Token, Topic};
use crate::world::{World, READABLE, READABLE_LEVEL, WRITABLE};
use nix::sys::epoll::EpollFlags;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;

pub const KIND: TransportKind = TransportKind {
    name: "exchanges",
    check: settings::check,
    open: |world, part, flows| Ok(Box::new(Exchanges::open(world, part, flows)?)),
};

struct Topics {
    /// By index in `early`.
    connects: Topic,
    /// By client.
    starts: Topic,
    /// By slot.
    client_connections: Topic,
    /// By slot.
    server_connections: Topic,
    listeners: Topic,
}

struct Listener {
    name: String,
    socket: OwnedFd,
    node: usize,
    /// Whether the workload names the congestion control, which then does not follow the node's.
    explicit_control: bool,
}

struct Exchanges {
    topics: Topics,
    /// By workload; None: it has another transport.
    settings: Vec<Option<Settings>>,
    clients: Vec<Client>,
    client_connections: Slots<ClientConnection>,
    server_connections: Slots<ServerConnection>,
    listeners: Vec<Listener>,
    /// Connections to open before the epoch: (client, server).
    early: Vec<(u32, u32)>,
    base_ns: u64,
    /// New congestion control of hosts that have changed it.
    changed_controls: BTreeMap<usize, String>,
    /// Whether a node's sockets must be bound to an address.
    must_bind: Vec<bool>,
    records: Option<ExchangeWriter>,
}

impl Exchanges {
    /// Opens the listening sockets of local servers.
    fn open(world: &mut World<'_>, part: Part, _flows: Vec<NumberedFlow>) -> Result<Self> {
        let mut topic = || world.topic(part);
        let topics = Topics {
            connects: topic(),
            starts: topic(),
            client_connections: topic(),
            server_connections: topic(),
            listeners: topic(),
        };
        let plan = world.plan;
        let parse = |workload: &Workload| {
            let settings = (workload.transport == KIND.name).then(|| Settings::of(workload));
            settings.map(|settings| settings.expect("`check` has parsed the settings"))
        };
        let settings: Vec<_> = plan.workloads.iter().map(parse).collect();
        let local_clients = |(workload, settings): (usize, &Option<Settings>)| {
            let settings = settings.as_ref()?;
            Some(client::clients(plan, world.placement, workload, settings))
        };
        let clients: Vec<Client> = settings.iter().enumerate().filter_map(local_clients).flatten().collect();
        let early = |client: &&(u32, &Client)| plan.workloads[client.1.workload].connect == Connect::Before;
        let numbered: Vec<_> = (0..).zip(&clients).collect();
        let pairs = numbered
            .iter()
            .filter(early)
            .flat_map(|(number, client)| client.servers.iter().map(|server| (*number, *server)));
        let early = pairs.collect();
        let records = settings.iter().any(Option::is_some).then(ExchangeWriter::create).transpose()?;
        let must_bind = sockets::multihomed(plan);
        let mut exchanges = Self {
            topics,
            settings,
            clients,
            client_connections: Slots::default(),
            server_connections: Slots::default(),
            listeners: Vec::new(),
            early,
            base_ns: 0,
            changed_controls: BTreeMap::new(),
            must_bind,
            records,
        };
        (0..plan.workloads.len()).try_for_each(|workload| exchanges.listen(world, workload))?;
        Ok(exchanges)
    }

    fn listen(&mut self, world: &World<'_>, index: usize) -> Result<()> {
        if self.settings[index].is_none() {
            return Ok(());
        }
        let workload = &world.plan.workloads[index];
        let servers: BTreeSet<usize> = workload
            .endpoints()
            .map(|(_, server)| server)
            .filter(|server| world.placement.is_local(*server))
            .collect();
        for node in servers {
            let name = format!("node {}: port {}", world.lab.namespaces.name(node), workload.port);
            world.lab.namespaces.enter(node)?;
            fs::write("/proc/sys/net/core/somaxconn", BACKLOG.to_string()).with_context(|| name.clone())?;
            let token = self.topics.listeners.at(self.listeners.len() as u32);
            let open = || {
                let socket = sockets::listen(world, index, node)?;
                // Accepted connections inherit the option.
                socket::set(&socket, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)?;
                world.watch(&socket, token, READABLE_LEVEL)?;
                Ok::<_, io::Error>(socket)
            };
            let socket = open().with_context(|| name.clone())?;
            let explicit_control = workload.congestion_control.is_some();
            self.listeners.push(Listener { name, socket, node, explicit_control });
        }
        Ok(())
    }

    /// Starts a client's next exchange.
    fn start(&mut self, world: &mut World<'_>, index: u32) -> Result<()> {
        let client = &mut self.clients[index as usize];
        let settings = self.settings[client.workload]
            .as_ref()
            .expect("clients exist only for workloads of this transport");
        let requests = client.draw_requests(settings);
        client.pending = requests.len() as u32;
        client.started += 1;
        requests.into_iter().try_for_each(|request| self.request(world, index, request))
    }

    /// Sends one request of an exchange, over a new connection if there is none.
    fn request(&mut self, world: &mut World<'_>, index: u32, request: Request) -> Result<()> {
        let client = &self.clients[index as usize];
        let settings = self.settings[client.workload]
            .as_ref()
            .expect("clients exist only for workloads of this transport");
        let close = !settings.persistent;
        let mut exchange = Exchange {
            workload: world.plan.workloads[client.workload].id,
            client: client.number,
            number: client.started - 1,
            src: client.node as u32,
            dst: request.server,
            start_ns: world.now_since_epoch(),
            request_bytes: request.request_bytes,
            response_bytes: request.response_bytes.unwrap_or(0),
            ..Exchange::default()
        };
        let open = client.connections.get(&request.server).copied();
        let slot =
            match open.map_or_else(|| self.connect(world, index, request.server), |slot| Ok(Ok(slot)))? {
                Ok(slot) => slot,
                Err(error) => {
                    exchange.connection = self.clients[index as usize].opened;
                    return self.fail_exchange(world, index, exchange, &error);
                }
            };
        let connection =
            self.client_connections.get(slot).expect("the slot was just assigned or is persistent");
        exchange.connection = connection.number;
        let response = request.response_bytes.map_or(Response::Report, Response::Bytes);
        connection.start(PendingExchange::new(exchange, response, request.on_ns), close);
        self.advance(world, slot)
    }

    /// Starts connecting a client to a server. Returns the slot of the connection. The inner error concerns the
    /// exchange.
    fn connect(&mut self, world: &World<'_>, index: u32, server: u32) -> Result<io::Result<u32>> {
        let client = &mut self.clients[index as usize];
        let settings = self.settings[client.workload]
            .as_ref()
            .expect("clients exist only for workloads of this transport");
        let (bind, ends) = (self.must_bind[client.node].then_some(0), [client.node, server as usize]);
        let watched =
            (self.topics.client_connections.at(self.client_connections.next()), READABLE | WRITABLE);
        world.lab.namespaces.enter(client.node)?;
        let opened = sockets::connect(world, client.workload, ends, bind, watched).and_then(|(socket, _)| {
            let lowat = settings.on_ns.as_ref().map(|_| UNSENT_BYTES);
            let set = |bytes| socket::set(&socket, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, bytes);
            lowat.map_or(Ok(()), set).map(|()| socket)
        });
        let connection = opened.map(|socket| ClientConnection::new(socket, index, client.opened));
        let slot = connection.map(|connection| self.client_connections.add(connection));
        if let Ok(slot) = slot {
            client.opened += 1;
            if settings.persistent {
                client.connections.insert(server, slot);
            }
        }
        Ok(slot)
    }

    fn on_client_connection(&mut self, world: &mut World<'_>, slot: u32, events: EpollFlags) -> Result<()> {
        let Some(connection) = self.client_connections.get(slot) else { return Ok(()) };
        if events.intersects(EpollFlags::EPOLLERR | EpollFlags::EPOLLHUP) {
            let error = socket::pending_error(&connection.socket);
            let error = error.unwrap_or_else(|| io::Error::from_raw_os_error(libc::ECONNRESET));
            return self.fail(world, slot, &error);
        }
        if !connection.connected {
            connection.connected = true;
            if let Some(pending) = &mut connection.pending {
                pending.exchange.connected_ns = Some(world.now_since_epoch());
            }
            // The host's congestion control may have changed during the handshake. It is set now, because DCTCP needs
            // the negotiated ECN.
            let client = &self.clients[connection.client as usize];
            let explicit = world.plan.workloads[client.workload].congestion_control.is_some();
            if let Some(name) = self.changed_controls.get(&client.node).filter(|_| !explicit) {
                if let Err(error) = set_control(&connection.socket, name) {
                    return self.fail(world, slot, &error);
                }
            }
        }
        self.advance(world, slot)
    }

    fn advance(&mut self, world: &mut World<'_>, slot: u32) -> Result<()> {
        let Some(connection) = self.client_connections.get(slot) else { return Ok(()) };
        match connection.advance(world.now_since_epoch()) {
            Ok(false) => Ok(()),
            Ok(true) => self.on_response(world, slot),
            Err(error) => self.fail(world, slot, &error),
        }
    }

    /// Handles a complete response.
    fn on_response(&mut self, world: &mut World<'_>, slot: u32) -> Result<()> {
        let connection = self.client_connections.get(slot).expect("the connection has just had a response");
        let (index, pending) = (connection.client, connection.pending.take());
        let client = &self.clients[index as usize];
        if self.settings[client.workload].as_ref().is_some_and(|settings| !settings.persistent) {
            // The server has sent its FIN after the response: TIME_WAIT is there, where it occupies no ephemeral port.
            self.client_connections.remove(slot);
        }
        pending.map_or(Ok(()), |pending| self.end_request(world, index, pending.exchange))
    }

    /// Handles a failed connection: its client stops.
    fn fail(&mut self, world: &mut World<'_>, slot: u32, error: &io::Error) -> Result<()> {
        let Some(connection) = self.client_connections.remove(slot) else { return Ok(()) };
        self.clients[connection.client as usize].connections.retain(|_, other| *other != slot);
        let Some(pending) = connection.pending else { return Ok(()) };
        self.fail_exchange(world, connection.client, pending.exchange, error)
    }

    fn fail_exchange(
        &mut self,
        world: &mut World<'_>,
        index: u32,
        mut exchange: Exchange,
        error: &io::Error,
    ) -> Result<()> {
        let number = error.raw_os_error().and_then(|number| u16::try_from(number).ok());
        exchange.error = Some(number.unwrap_or(libc::EIO as u16));
        self.clients[index as usize].failed = true;
        self.end_request(world, index, exchange)
    }

    /// Records the end of one request. After the last one of an exchange, schedules the client's next exchange.
    fn end_request(&mut self, world: &mut World<'_>, index: u32, mut exchange: Exchange) -> Result<()> {
        let client = &mut self.clients[index as usize];
        client.pending -= 1;
        exchange.last = client.pending == 0 && !client.failed;
        if exchange.last {
            let workload = &world.plan.workloads[client.workload];
            let settings = self.settings[client.workload]
                .as_ref()
                .expect("clients exist only for workloads of this transport");
            let think_ns = client.draws.time_ns(&settings.think_ns);
            let Pattern::Exchanges { limit, .. } = workload.pattern else { unreachable!("`check`") };
            let next_ns = world.now_ns().saturating_add(think_ns);
            let in_time = workload.stop_ns.is_none_or(|stop_ns| next_ns < self.base_ns + stop_ns);
            if in_time && limit.is_none_or(|limit| u64::from(client.started) < limit) {
                world.agenda.add(next_ns, self.topics.starts.at(index));
            }
        }
        self.records.as_mut().map_or(Ok(()), |records| records.write(&exchange))
    }

    fn accept(&mut self, world: &World<'_>, index: u32) -> Result<()> {
        let Listener { name, socket, .. } = &self.listeners[index as usize];
        let socket = match socket::accept(socket) {
            Ok(Some((socket, _))) => socket,
            Ok(None) => return Ok(()),
            // The connection was reset before accept(); its client reports the error.
            Err(error) if error.raw_os_error() == Some(libc::ECONNABORTED) => return Ok(()),
            Err(error) => return Err(error).with_context(|| name.clone()),
        };
        let token = self.topics.server_connections.at(self.server_connections.next());
        world.watch(&socket, token, READABLE | WRITABLE).with_context(|| name.clone())?;
        self.server_connections.add(ServerConnection::new(socket, index));
        Ok(())
    }

    fn on_server_connection(&mut self, world: &World<'_>, slot: u32) {
        let Some(connection) = self.server_connections.get(slot) else { return };
        // The client reports errors of the connection.
        if !matches!(connection.advance(world.now_since_epoch()), Ok(true)) {
            self.server_connections.remove(slot);
        }
    }
}

fn set_control(socket: &OwnedFd, name: &str) -> io::Result<()> {
    socket::set_text(socket, libc::IPPROTO_TCP, libc::TCP_CONGESTION, name)
}

impl Transport for Exchanges {
    fn schedule(&mut self, world: &mut World<'_>, base_ns: u64) {
        self.base_ns = base_ns;
        let spacing_ns = CONNECT_WINDOW_NS / self.early.len().max(1) as u64;
        for index in 0..self.early.len() as u32 {
            let connect_ns = base_ns.saturating_sub(LEAD_TIME_NS) + u64::from(index) * spacing_ns;
            world.agenda.add(connect_ns, self.topics.connects.at(index));
        }
        for (index, client) in (0..).zip(&self.clients) {
            let workload = &world.plan.workloads[client.workload];
            let start_ns = workload.start_ns + client.offset_ns;
            if workload.stop_ns.is_none_or(|stop_ns| start_ns < stop_ns) {
                world.agenda.add(base_ns + start_ns, self.topics.starts.at(index));
            }
        }
    }

    fn on_ready(&mut self, world: &mut World<'_>, token: Token, events: EpollFlags) -> Result<()> {
        if token.topic == self.topics.client_connections {
            self.on_client_connection(world, token.index, events)
        } else if token.topic == self.topics.server_connections {
            self.on_server_connection(world, token.index);
            Ok(())
        } else {
            self.accept(world, token.index)
        }
    }

    fn on_timer(&mut self, world: &mut World<'_>, token: Token, _due_ns: u64) -> Result<()> {
        if token.topic == self.topics.starts {
            return self.start(world, token.index);
        }
        let (client, server) = self.early[token.index as usize];
        // An error is ignored: it recurs and is recorded when the connection is needed.
        self.connect(world, client, server).map(drop)
    }

    fn received_bytes(&mut self, _world: &World<'_>, _at_ns: i64) -> Result<Vec<(u32, u64)>> {
        Ok(Vec::new())
    }

    fn set_congestion_control(&mut self, world: &World<'_>, node: usize, name: &str) -> Result<()> {
        self.changed_controls.insert(node, name.to_owned());
        let explicit = |client: &Client| world.plan.workloads[client.workload].congestion_control.is_some();
        let clients = &self.clients;
        let at_clients = self.client_connections.iter().filter(|connection| {
            let client = &clients[connection.client as usize];
            client.node == node && connection.connected && !explicit(client)
        });
        let is_affected = |listener: &Listener| listener.node == node && !listener.explicit_control;
        let at_servers = self
            .server_connections
            .iter()
            .filter(|connection| is_affected(&self.listeners[connection.listener as usize]));
        let listeners = self.listeners.iter().filter(|listener| is_affected(listener));
        let sockets = at_clients
            .map(|connection| &connection.socket)
            .chain(at_servers.map(|connection| &connection.socket));
        sockets.chain(listeners.map(|listener| &listener.socket)).try_for_each(|socket| {
            set_control(socket, name)
                .with_context(|| format!("exchanges at {}: {name}", world.lab.namespaces.name(node)))
        })
    }

    /// Records all exchanges that have not ended.
    fn finish(&mut self, _world: &mut World<'_>) -> Result<()> {
        let Some(records) = &mut self.records else { return Ok(()) };
        let pending = self.client_connections.iter().filter_map(|connection| connection.pending.as_ref());
        pending.map(|pending| &pending.exchange).try_for_each(|exchange| records.write(exchange))?;
        records.finish()
    }

    fn records<'a>(&'a self, _world: &World<'a>) -> Vec<FlowRecord<'a>> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::Placement;
    use crate::plan::Plan;
    use crate::testing::{dumbbell, place, refusal};
    use serde_json::{json, Value};
    use std::collections::HashSet;

    fn workload(settings: &Value) -> Value {
        let mut workload = json!({
            "id": 0, "kind": "exchanges", "label": "queries", "transport": "exchanges", "sources": [0],
            "destinations": [2], "start_ns": 0, "spread_ns": 0, "stop_ns": null, "limit": null, "connect": "at start",
            "port": 5001, "family": 4, "congestion_control": null, "fanout": 1, "request": {"fixed": 100},
            "response": {"fixed": 2000}, "think_ns": {"fixed": 1000}, "persistent": true, "outstanding": 1,
        });
        for (name, value) in settings.as_object().unwrap() {
            workload[name] = value.clone();
        }
        workload
    }

    fn plan(settings: &Value) -> Plan {
        dumbbell(|plan| plan["workloads"] = json!([workload(settings)]))
    }

    fn local_clients(plan: &Plan, placement: &Placement) -> Vec<Client> {
        client::clients(plan, placement, 0, &Settings::of(&plan.workloads[0]).unwrap())
    }

    #[test]
    fn invalid_settings_are_rejected() {
        let with = |settings: Value| refusal(|plan| plan["workloads"] = json!([workload(&settings)]));
        for (message, expected) in [
            (with(json!({"request": null})), "workload 0 (queries): it needs either request or on_ns"),
            (with(json!({"on_ns": {"fixed": 5}})), "it needs either request or on_ns"),
            (with(json!({"request": null, "on_ns": {"fixed": 5}})), "on_ns excludes response"),
            (with(json!({"fanout": 2})), "fanout is 0 or larger than the number of servers"),
            (with(json!({"fanout": 0})), "fanout is 0 or larger than the number of servers"),
            (with(json!({"outstanding": 0})), "too many clients, or none"),
            (with(json!({"outstanding": u64::MAX})), "too many clients, or none"),
            (
                with(json!({"persistent": false, "connect": "before"})),
                "connect: before needs persistent connections",
            ),
            (with(json!({"outstanding": 100_001, "connect": "before"})), "too many connections before"),
            (with(json!({"request": {"fixed": 15}})), "a request of 15 bytes is less than its header of 16"),
            (with(json!({"response": {"fixed": 0}})), "the size is 0"),
            (
                with(json!({"think_ns": {"exponential": -1.0}})),
                "a time is longer than a lab, or not a valid distribution",
            ),
            (
                with(json!({"think_ns": {"pareto": {"mean_ns": 1.0, "shape": 1.0}}})),
                "or not a valid distribution",
            ),
            (with(json!({"think_ns": {"uniform": [2, 1]}})), "or not a valid distribution"),
            (with(json!({"sources": [2]})), "a source has no destination except itself"),
            (with(json!({"burst": 1})), "unknown field `burst`"),
            (with(json!({"transport": "tcp"})), "its kind needs another transport"),
            (
                refusal(|plan| plan["workloads"][0]["transport"] = json!("exchanges")),
                "needs another transport",
            ),
        ] {
            assert!(message.contains(expected), "{message:?} does not contain {expected:?}");
        }
    }

    #[test]
    fn a_source_has_all_other_servers_and_a_pair_has_one() {
        let plan_of = |settings| plan(&settings);
        let ends = |plan: &Plan| {
            let placement = Placement::new(plan, None);
            local_clients(plan, &placement)
                .iter()
                .map(|c| (c.number, c.node, c.servers.clone()))
                .collect::<Vec<_>>()
        };
        let product = plan_of(json!({"sources": [0, 2], "destinations": [0, 1, 2], "outstanding": 2}));
        let (first, second) = (vec![1, 2], vec![0, 1]);
        let expected = [(0, 0, &first), (1, 0, &first), (2, 2, &second), (3, 2, &second)];
        assert_eq!(ends(&product), expected.map(|(number, node, servers)| (number, node, servers.clone())));
        let pairs = plan_of(json!({"pairs": [[0, 2], [2, 0], [0, 1]]}));
        assert_eq!(ends(&pairs), [(0, 0, vec![2]), (1, 2, vec![0]), (2, 0, vec![1])]);
    }

    #[test]
    fn clients_draw_the_same_requests_in_a_container_and_in_virtual_time() {
        let plan = plan(&json!({
            "sources": [0, 2], "destinations": [0, 1, 2], "spread_ns": 1000, "response": {"uniform": [1, 1_000_000]},
        }));
        let settings = Settings::of(&plan.workloads[0]).unwrap();
        let draw = |mut client: Client| {
            let requests: Vec<_> = (0..5).flat_map(|_| client.draw_requests(&settings)).collect();
            (client.number, client.offset_ns, requests)
        };
        let complete: Vec<_> =
            local_clients(&plan, &Placement::new(&plan, None)).into_iter().map(draw).collect();
        let parts =
            [0, 1, 2].map(|node| local_clients(&plan, &Placement::new(&plan, Some(&place(node, &[], 1)))));
        let parts: Vec<_> = parts.into_iter().flatten().map(draw).collect();
        assert_eq!(complete, parts);
        assert_ne!(complete[0].2, complete[1].2);
    }

    #[test]
    fn a_fanout_draws_distinct_servers_and_eventually_all() {
        let plan = plan(&json!({"destinations": (1..3).collect::<Vec<_>>(), "fanout": 1}));
        let mut settings = Settings::of(&plan.workloads[0]).unwrap();
        let mut client = local_clients(&plan, &Placement::new(&plan, None)).remove(0);
        client.servers = (1..=10).collect();
        settings.fanout = Some(4);
        let mut drawn = HashSet::new();
        for _ in 0..30 {
            let servers: HashSet<_> = client.draw_requests(&settings).iter().map(|q| q.server).collect();
            assert_eq!(servers.len(), 4);
            drawn.extend(servers);
        }
        assert_eq!(drawn.len(), 10);
        settings.fanout = None;
        client.servers.sort_unstable();
        let all: Vec<_> = client.draw_requests(&settings).iter().map(|q| q.server).collect();
        assert_eq!(all, (1..=10).collect::<Vec<_>>(), "without a fanout the order of the servers is kept");
    }

    #[test]
    fn requests_are_at_least_as_long_as_their_header() {
        let plan = plan(&json!({"request": {"pareto": {"mean_bytes": 3.0, "shape": 2.0}}}));
        let settings = Settings::of(&plan.workloads[0]).unwrap();
        let mut client = local_clients(&plan, &Placement::new(&plan, None)).remove(0);
        let min = (0..200).flat_map(|_| client.draw_requests(&settings)).map(|q| q.request_bytes).min();
        assert_eq!(min, Some(stream::HEADER_BYTES));
    }
}
