// SPDX-License-Identifier: Apache-2.0
//! Exchanges over TCP: clients that ask servers, wait for their answers and think before they ask again (closed loop).
//! Only the client's agent knows of an exchange; a server does what a request's header says (`stream`).

mod asked;
mod client;
mod server;
mod settings;
mod slots;
mod stream;

use crate::failure::{Of, Result};
use crate::plan::workload::{Connect, Pattern, Workload};
use crate::results::exchanges::{Exchange, Exchanges as Records};
use crate::results::flows::FlowRecord;
use crate::socket;
use crate::transport::exchanges::asked::{Asked, Pending, UNSENT_BYTES};
use crate::transport::exchanges::client::{Client, Question};
use crate::transport::exchanges::server::Served;
use crate::transport::exchanges::settings::Settings;
use crate::transport::exchanges::slots::Slots;
use crate::transport::exchanges::stream::Answer;
use crate::transport::tcp::sockets::{self, BACKLOG};
use crate::transport::{Kind, Numbered, Transport, AHEAD_NS, CONNECT_WINDOW_NS};
use crate::world::token::{Part, Token, Topic};
use crate::world::{World, READABLE, READABLE_STILL, WRITABLE};
use nix::sys::epoll::EpollFlags;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;

pub const KIND: Kind = Kind {
    name: "exchanges",
    check: settings::check,
    open: |world, part, flows| Ok(Box::new(Exchanges::open(world, part, flows)?)),
};

struct Topics {
    /// By place in `early`.
    connects: Topic,
    /// By client.
    starts: Topic,
    /// By slot.
    asked: Topic,
    served: Topic,
    listeners: Topic,
}

struct Listener {
    name: String,
    socket: OwnedFd,
    node: usize,
    /// Whether its congestion control is its workload's, not the node's.
    own: bool,
}

struct Exchanges {
    topics: Topics,
    /// Of each workload that is this transport's.
    settings: Vec<Option<Settings>>,
    clients: Vec<Client>,
    asked: Slots<Asked>,
    served: Slots<Served>,
    listeners: Vec<Listener>,
    /// Connections before the epoch: clients and servers.
    early: Vec<(u32, u32)>,
    base_ns: u64,
    /// Hosts that have changed their congestion control, and what they have now.
    fickle: BTreeMap<usize, String>,
    /// Of each node: whether its sockets have to be told their address.
    bind: Vec<bool>,
    records: Option<Records>,
}

impl Exchanges {
    /// Opens the listening sockets of the servers that are here.
    fn open(world: &mut World<'_>, part: Part, _flows: Vec<Numbered>) -> Result<Self> {
        let mut topic = || world.topic(part);
        let topics = Topics {
            connects: topic(),
            starts: topic(),
            asked: topic(),
            served: topic(),
            listeners: topic(),
        };
        let plan = world.plan;
        let own = |workload: &Workload| {
            let settings = (workload.transport == KIND.name).then(|| Settings::of(workload));
            settings.map(|settings| settings.expect("`check` has read them"))
        };
        let settings: Vec<_> = plan.workloads.iter().map(own).collect();
        let of = |(workload, settings): (usize, &Option<Settings>)| {
            let settings = settings.as_ref()?;
            Some(client::clients(plan, world.scope, workload, settings))
        };
        let clients: Vec<Client> = settings.iter().enumerate().filter_map(of).flatten().collect();
        let early = |client: &&(u32, &Client)| plan.workloads[client.1.workload].connect == Connect::Before;
        let numbered: Vec<_> = (0..).zip(&clients).collect();
        let pairs = numbered
            .iter()
            .filter(early)
            .flat_map(|(number, client)| client.servers.iter().map(|server| (*number, *server)));
        let early = pairs.collect();
        let records = settings.iter().any(Option::is_some).then(Records::create).transpose()?;
        let bind = sockets::several_addresses(plan);
        let mut exchanges = Self {
            topics,
            settings,
            clients,
            asked: Slots::default(),
            served: Slots::default(),
            listeners: Vec::new(),
            early,
            base_ns: 0,
            fickle: BTreeMap::new(),
            bind,
            records,
        };
        (0..plan.workloads.len()).try_for_each(|workload| exchanges.listen(world, workload))?;
        Ok(exchanges)
    }

    fn listen(&mut self, world: &World<'_>, workload: usize) -> Result<()> {
        if self.settings[workload].is_none() {
            return Ok(());
        }
        let of_plan = &world.plan.workloads[workload];
        let servers: BTreeSet<usize> =
            of_plan.endpoints().map(|(_, server)| server).filter(|server| world.scope.has(*server)).collect();
        for node in servers {
            let name = format!("node {}: port {}", world.lab.namespaces.name(node), of_plan.port);
            world.lab.namespaces.enter(node)?;
            fs::write("/proc/sys/net/core/somaxconn", BACKLOG.to_string()).of(|| name.clone())?;
            let token = self.topics.listeners.at(self.listeners.len() as u32);
            let open = || {
                let socket = sockets::listen(world, workload, node)?;
                // Of its connections, too.
                socket::set(&socket, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)?;
                world.watch(&socket, token, READABLE_STILL)?;
                Ok::<_, io::Error>(socket)
            };
            let socket = open().of(|| name.clone())?;
            self.listeners.push(Listener { name, socket, node, own: of_plan.congestion_control.is_some() });
        }
        Ok(())
    }

    /// A client's next exchange.
    fn start(&mut self, world: &mut World<'_>, index: u32) -> Result<()> {
        let client = &mut self.clients[index as usize];
        let settings = self.settings[client.workload].as_ref().expect("only clients of ours are here");
        let questions = client.questions(settings);
        client.waiting = questions.len() as u32;
        client.begun += 1;
        questions.into_iter().try_for_each(|question| self.ask(world, index, question))
    }

    fn ask(&mut self, world: &mut World<'_>, index: u32, question: Question) -> Result<()> {
        let client = &self.clients[index as usize];
        let settings = self.settings[client.workload].as_ref().expect("only clients of ours are here");
        let close = !settings.persistent;
        let mut exchange = Exchange {
            workload: world.plan.workloads[client.workload].id,
            client: client.number,
            number: client.begun - 1,
            src: client.node as u32,
            dst: question.server,
            start_ns: world.now_since_epoch(),
            request_bytes: question.request_bytes,
            response_bytes: question.response_bytes.unwrap_or(0),
            ..Exchange::default()
        };
        let known = client.connections.get(&question.server).copied();
        let slot =
            match known.map_or_else(|| self.connect(world, index, question.server), |slot| Ok(Ok(slot)))? {
                Ok(slot) => slot,
                Err(error) => {
                    exchange.connection = self.clients[index as usize].opened;
                    return self.fail_exchange(world, index, exchange, &error);
                }
            };
        let asked = self.asked.get(slot).expect("a client knows its connections");
        exchange.connection = asked.number;
        let answer = question.response_bytes.map_or(Answer::Report, Answer::Bytes);
        asked.ask(Pending::new(exchange, answer, question.on_ns), close);
        self.go_on(world, slot)
    }

    /// A connection that is being made, by its slot, or why there is none.
    fn connect(&mut self, world: &World<'_>, index: u32, server: u32) -> Result<io::Result<u32>> {
        let client = &mut self.clients[index as usize];
        let settings = self.settings[client.workload].as_ref().expect("only clients of ours are here");
        let (bind, ends) = (self.bind[client.node].then_some(0), [client.node, server as usize]);
        let watched = (self.topics.asked.at(self.asked.next()), READABLE | WRITABLE);
        world.lab.namespaces.enter(client.node)?;
        let opened = sockets::connect(world, client.workload, ends, bind, watched).and_then(|(socket, _)| {
            let least = settings.on_ns.as_ref().map(|_| UNSENT_BYTES);
            let set = |bytes| socket::set(&socket, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, bytes);
            least.map_or(Ok(()), set).map(|()| socket)
        });
        let slot = opened.map(|socket| self.asked.add(Asked::new(socket, index, client.opened)));
        if let Ok(slot) = slot {
            client.opened += 1;
            if settings.persistent {
                client.connections.insert(server, slot);
            }
        }
        Ok(slot)
    }

    fn on_asked(&mut self, world: &mut World<'_>, slot: u32, events: EpollFlags) -> Result<()> {
        let Some(asked) = self.asked.get(slot) else { return Ok(()) };
        if events.intersects(EpollFlags::EPOLLERR | EpollFlags::EPOLLHUP) {
            let error = socket::pending_error(&asked.socket);
            let error = error.unwrap_or_else(|| io::Error::from_raw_os_error(libc::ECONNRESET));
            return self.fail(world, slot, &error);
        }
        if !asked.connected {
            asked.connected = true;
            if let Some(pending) = &mut asked.pending {
                pending.exchange.connected_ns = Some(world.now_since_epoch());
            }
            // Changed during the handshake: before its end DCTCP would have found no ECN.
            let client = &self.clients[asked.client as usize];
            let own = world.plan.workloads[client.workload].congestion_control.is_some();
            if let Some(name) = self.fickle.get(&client.node).filter(|_| !own) {
                if let Err(error) = set_control(&asked.socket, name) {
                    return self.fail(world, slot, &error);
                }
            }
        }
        self.go_on(world, slot)
    }

    fn go_on(&mut self, world: &mut World<'_>, slot: u32) -> Result<()> {
        let Some(asked) = self.asked.get(slot) else { return Ok(()) };
        match asked.go_on(world.now_since_epoch()) {
            Ok(false) => Ok(()),
            Ok(true) => self.answered(world, slot),
            Err(error) => self.fail(world, slot, &error),
        }
    }

    fn answered(&mut self, world: &mut World<'_>, slot: u32) -> Result<()> {
        let asked = self.asked.get(slot).expect("it has just been answered");
        let (index, pending) = (asked.client, asked.pending.take());
        let client = &self.clients[index as usize];
        if self.settings[client.workload].as_ref().is_some_and(|settings| !settings.persistent) {
            // The server has sent its FIN behind the answer: TIME_WAIT is there, where it holds no ephemeral port.
            self.asked.remove(slot);
        }
        pending.map_or(Ok(()), |pending| self.over(world, index, pending.exchange))
    }

    /// The connection is of no use any more; its client gives up.
    fn fail(&mut self, world: &mut World<'_>, slot: u32, error: &io::Error) -> Result<()> {
        let Some(asked) = self.asked.remove(slot) else { return Ok(()) };
        self.clients[asked.client as usize].connections.retain(|_, known| *known != slot);
        let Some(pending) = asked.pending else { return Ok(()) };
        self.fail_exchange(world, asked.client, pending.exchange, error)
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
        self.over(world, index, exchange)
    }

    /// One server's part of an exchange is over.
    fn over(&mut self, world: &mut World<'_>, index: u32, mut exchange: Exchange) -> Result<()> {
        let client = &mut self.clients[index as usize];
        client.waiting -= 1;
        let all = client.waiting == 0;
        exchange.last = all && !client.failed;
        if exchange.last {
            let workload = &world.plan.workloads[client.workload];
            let settings = self.settings[client.workload].as_ref().expect("only clients of ours are here");
            let think_ns = client.draws.time_ns(&settings.think_ns);
            let Pattern::Exchanges { limit, .. } = workload.pattern else { unreachable!("`check`") };
            let next_ns = world.now_ns().saturating_add(think_ns);
            let in_time = workload.stop_ns.is_none_or(|stop_ns| next_ns < self.base_ns + stop_ns);
            if in_time && limit.is_none_or(|limit| u64::from(client.begun) < limit) {
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
            // The connection was reset before it could be accepted; its client reports it.
            Err(error) if error.raw_os_error() == Some(libc::ECONNABORTED) => return Ok(()),
            Err(error) => return Err(error).of(|| name.clone()),
        };
        let token = self.topics.served.at(self.served.next());
        world.watch(&socket, token, READABLE | WRITABLE).of(|| name.clone())?;
        self.served.add(Served::new(socket, index));
        Ok(())
    }

    fn on_served(&mut self, world: &World<'_>, slot: u32) {
        let Some(served) = self.served.get(slot) else { return };
        // What is wrong with a connection is its client's to tell.
        if !matches!(served.go_on(world.now_since_epoch()), Ok(true)) {
            self.served.remove(slot);
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
        for place in 0..self.early.len() as u32 {
            let connect_ns = base_ns.saturating_sub(AHEAD_NS) + u64::from(place) * spacing_ns;
            world.agenda.add(connect_ns, self.topics.connects.at(place));
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
        if token.topic == self.topics.asked {
            self.on_asked(world, token.index, events)
        } else if token.topic == self.topics.served {
            self.on_served(world, token.index);
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
        // What fails here fails again when it is needed, and is told then.
        self.connect(world, client, server).map(drop)
    }

    fn received(&mut self, _world: &World<'_>, _at_ns: i64) -> Result<Vec<(u32, u64)>> {
        Ok(Vec::new())
    }

    fn set_congestion_control(&mut self, world: &World<'_>, node: usize, name: &str) -> Result<()> {
        self.fickle.insert(node, name.to_owned());
        let own = |client: &Client| world.plan.workloads[client.workload].congestion_control.is_some();
        let clients = &self.clients;
        let asking = self.asked.iter().filter(|asked| {
            let client = &clients[asked.client as usize];
            client.node == node && asked.connected && !own(client)
        });
        let listens = |listener: &Listener| listener.node == node && !listener.own;
        let served = self.served.iter().filter(|served| listens(&self.listeners[served.listener as usize]));
        let listeners = self.listeners.iter().filter(|listener| listens(listener));
        let sockets = asking.map(|asked| &asked.socket).chain(served.map(|served| &served.socket));
        sockets.chain(listeners.map(|listener| &listener.socket)).try_for_each(|socket| {
            set_control(socket, name)
                .of(|| format!("exchanges at {}: {name}", world.lab.namespaces.name(node)))
        })
    }

    /// Writes down what is not over.
    fn finish(&mut self, _world: &World<'_>) -> Result<()> {
        let Some(records) = &mut self.records else { return Ok(()) };
        let pending = self.asked.iter().filter_map(|asked| asked.pending.as_ref());
        pending.map(|pending| &pending.exchange).try_for_each(|exchange| records.write(exchange))?;
        records.finish()
    }

    fn records<'a>(&'a self, _world: &World<'a>) -> Vec<FlowRecord<'a>> {
        Vec::new()
    }
}

/// The plan of the contract with exchanges in it.
#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;
    use crate::scope::Scope;
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

    fn here(plan: &Plan, scope: &Scope) -> Vec<Client> {
        client::clients(plan, scope, 0, &Settings::of(&plan.workloads[0]).unwrap())
    }

    #[test]
    fn what_cannot_be_carried_out_is_refused_with_the_reason() {
        let with = |settings: Value| refusal(|plan| plan["workloads"] = json!([workload(&settings)]));
        for (message, says) in [
            (
                with(json!({"request": null})),
                "workload 0 (queries): it needs a request or a time to send for",
            ),
            (with(json!({"on_ns": {"fixed": 5}})), "it needs a request or a time"),
            (
                with(json!({"request": null, "on_ns": {"fixed": 5}})),
                "what is sent for a time has no response",
            ),
            (with(json!({"fanout": 2})), "fanout is more than its servers, or 0"),
            (with(json!({"fanout": 0})), "fanout is more than its servers, or 0"),
            (with(json!({"outstanding": 0})), "too many clients, or none"),
            (with(json!({"outstanding": u64::MAX})), "too many clients, or none"),
            (with(json!({"persistent": false, "connect": "before"})), "only connections that stay"),
            (with(json!({"outstanding": 100_001, "connect": "before"})), "too many connections before"),
            (with(json!({"request": {"fixed": 15}})), "a request of 15 bytes is less than its header of 16"),
            (with(json!({"response": {"fixed": 0}})), "the size is 0"),
            (
                with(json!({"think_ns": {"exponential": -1.0}})),
                "a time is longer than a lab, or no distribution",
            ),
            (with(json!({"think_ns": {"pareto": {"mean_ns": 1.0, "shape": 1.0}}})), "or no distribution"),
            (with(json!({"think_ns": {"uniform": [2, 1]}})), "or no distribution"),
            (with(json!({"sources": [2]})), "a source has no destination but itself"),
            (with(json!({"burst": 1})), "unknown field `burst`"),
            (with(json!({"transport": "tcp"})), "its kind is another transport's"),
            (refusal(|plan| plan["workloads"][0]["transport"] = json!("exchanges")), "another transport's"),
        ] {
            assert!(message.contains(says), "{message:?} does not say {says:?}");
        }
    }

    #[test]
    fn each_source_asks_all_others_and_each_pair_its_own() {
        let plan_of = |settings| plan(&settings);
        let ends = |plan: &Plan| {
            let scope = Scope::new(plan, None);
            here(plan, &scope).iter().map(|c| (c.number, c.node, c.servers.clone())).collect::<Vec<_>>()
        };
        let product = plan_of(json!({"sources": [0, 2], "destinations": [0, 1, 2], "outstanding": 2}));
        let (first, second) = (vec![1, 2], vec![0, 1]);
        let expected = [(0, 0, &first), (1, 0, &first), (2, 2, &second), (3, 2, &second)];
        assert_eq!(ends(&product), expected.map(|(number, node, servers)| (number, node, servers.clone())));
        let pairs = plan_of(json!({"pairs": [[0, 2], [2, 0], [0, 1]]}));
        assert_eq!(ends(&pairs), [(0, 0, vec![2]), (1, 2, vec![0]), (2, 0, vec![1])]);
    }

    #[test]
    fn a_containers_clients_ask_what_they_ask_in_virtual_time() {
        let plan = plan(&json!({
            "sources": [0, 2], "destinations": [0, 1, 2], "spread_ns": 1000, "response": {"uniform": [1, 1_000_000]},
        }));
        let settings = Settings::of(&plan.workloads[0]).unwrap();
        let asked = |mut client: Client| {
            let questions: Vec<_> = (0..5).flat_map(|_| client.questions(&settings)).collect();
            (client.number, client.offset_ns, questions)
        };
        let whole: Vec<_> = here(&plan, &Scope::new(&plan, None)).into_iter().map(asked).collect();
        let parts = [0, 1, 2].map(|node| here(&plan, &Scope::new(&plan, Some(&place(node, &[], 1)))));
        let parts: Vec<_> = parts.into_iter().flatten().map(asked).collect();
        assert_eq!(whole, parts);
        assert_ne!(whole[0].2, whole[1].2);
    }

    #[test]
    fn a_fanout_draws_different_servers_and_everyone_in_time() {
        let plan = plan(&json!({"destinations": (1..3).collect::<Vec<_>>(), "fanout": 1}));
        let mut settings = Settings::of(&plan.workloads[0]).unwrap();
        let mut client = here(&plan, &Scope::new(&plan, None)).remove(0);
        client.servers = (1..=10).collect();
        settings.fanout = Some(4);
        let mut seen = HashSet::new();
        for _ in 0..30 {
            let servers: HashSet<_> = client.questions(&settings).iter().map(|q| q.server).collect();
            assert_eq!(servers.len(), 4);
            seen.extend(servers);
        }
        assert_eq!(seen.len(), 10);
        settings.fanout = None;
        client.servers.sort_unstable();
        let all: Vec<_> = client.questions(&settings).iter().map(|q| q.server).collect();
        assert_eq!(all, (1..=10).collect::<Vec<_>>(), "all of them are asked in their order, without a draw");
    }

    #[test]
    fn requests_have_room_for_their_header() {
        let plan = plan(&json!({"request": {"pareto": {"mean_bytes": 3.0, "shape": 2.0}}}));
        let settings = Settings::of(&plan.workloads[0]).unwrap();
        let mut client = here(&plan, &Scope::new(&plan, None)).remove(0);
        let least = (0..200).flat_map(|_| client.questions(&settings)).map(|q| q.request_bytes).min();
        assert_eq!(least, Some(stream::HEADER_BYTES));
    }
}
