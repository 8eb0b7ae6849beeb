// SPDX-License-Identifier: Apache-2.0
//! The entry point of a node's container (docs/formats.md §5): waits for the interfaces that Containerlab creates,
//! configures them, starts the node (a guest, or an agent on the host's kernel), and relays messages between its gate
//! and the clients of `control.sock`. All processes that it has started end with it.

use crate::container::clients::Clients;
use crate::container::guest::{Node, Running};
use crate::container::interfaces::{Changes, Watch};
use crate::container::relay::Client;
use crate::container::{evidence, interfaces, origin, SOCKET};
use crate::failure::{Context, Failure, Result};
use crate::plan::place::{Place, Start};
use crate::plan::Plan;
use crate::results::files::{self, NODE};
use crate::world::token::{Token, Topic, Topics};
use nix::errno::Errno;
use nix::mount::{mount, MsFlags};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{waitpid, WaitPidFlag, WaitStatus};
use serde_json::{json, Value};
use std::fs;
use std::os::fd::AsFd;
use std::process::ExitCode;

const INTERFACE_POLL_MS: u8 = 10;

pub fn main() -> ExitCode {
    files::set_folder(NODE);
    match Supervisor::new().and_then(Supervisor::run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("qbed-agent: {failure}");
            ExitCode::FAILURE
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Preparing,
    Waiting,
    Running,
    Ended,
}

impl State {
    const fn name(self) -> &'static str {
        match self {
            Self::Preparing => "preparing",
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Ended => "ended",
        }
    }
}

/// Kinds of epoll events.
#[derive(Debug, Clone, Copy)]
enum Source {
    NewClient,
    Client,
    Signals,
    Gate,
    Interfaces,
}

struct Supervisor {
    node: Node,
    epoll: Epoll,
    sources: Topics<Source>,
    /// By client.
    client_lines: Topic,
    gate: Token,
    signals: SignalFd,
    interfaces: Watch,
    clients: Clients,
    running: Option<Running>,
    /// Reason for which the supervisor has ended the node.
    fault: Option<String>,
    state: State,
    error: Option<String>,
}

impl Supervisor {
    fn new() -> Result<Self> {
        let node = read_node()?;
        let clients = Clients::listen()?;
        let mut mask = SigSet::empty();
        [Signal::SIGTERM, Signal::SIGINT, Signal::SIGCHLD].into_iter().for_each(|signal| mask.add(signal));
        mask.thread_block().with_context(|| "signals".into())?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        let signals = SignalFd::with_flags(&mask, flags).with_context(|| "signals".into())?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).with_context(|| "epoll".into())?;
        let mut sources = Topics::default();
        watch(&epoll, &clients, sources.allocate(Source::NewClient).only()).with_context(|| SOCKET.into())?;
        watch(&epoll, &signals, sources.allocate(Source::Signals).only())
            .with_context(|| "signals".into())?;
        let interfaces = Watch::open()?;
        let token = sources.allocate(Source::Interfaces).only();
        watch(&epoll, &interfaces, token).with_context(|| "watching interfaces".into())?;
        Ok(Self {
            node,
            epoll,
            client_lines: sources.allocate(Source::Client),
            gate: sources.allocate(Source::Gate).only(),
            sources,
            signals,
            interfaces,
            clients,
            running: None,
            fault: None,
            state: State::Preparing,
            error: None,
        })
    }

    /// Runs until SIGTERM or SIGINT.
    fn run(mut self) -> Result<()> {
        let mut events = [EpollEvent::empty(); 32];
        loop {
            if self.state == State::Preparing && self.has_all_interfaces() {
                self.prepare()?;
            }
            let timeout = match (self.state, &self.running) {
                (State::Preparing, _) => EpollTimeout::from(INTERFACE_POLL_MS),
                (_, Some(running)) => running.frames.remaining().try_into().unwrap_or(EpollTimeout::ZERO),
                _ => EpollTimeout::NONE,
            };
            let count = match self.epoll.wait(&mut events, timeout) {
                Err(Errno::EINTR) => 0,
                result => result.with_context(|| "epoll".into())?,
            };
            for event in &events[..count] {
                let token = Token::from(event.data());
                match self.sources.part(token) {
                    Source::NewClient => self.accept()?,
                    Source::Client => self.on_client(token.index),
                    Source::Gate => {
                        self.on_gate();
                    }
                    Source::Interfaces => self.on_interfaces()?,
                    Source::Signals => {
                        if self.on_signal()? {
                            self.running.iter().for_each(Running::kill);
                            let _ = fs::remove_file(SOCKET);
                            return Ok(());
                        }
                    }
                }
                self.end_orphaned();
            }
            if let Some(running) =
                self.running.as_mut().filter(|running| running.frames.remaining().is_zero())
            {
                if let Err(failure) = running.count_frames(&self.node, false) {
                    eprintln!("qbed-agent: {failure}");
                }
            }
        }
    }

    fn has_all_interfaces(&self) -> bool {
        self.node.ends().all(|(end, _)| interfaces::exists(&end.interface))
    }

    fn prepare(&mut self) -> Result<()> {
        let (guest, gso) = (!self.node.is_native, self.node.place.gso);
        self.node.ends().try_for_each(|(end, mtu)| interfaces::prepare(&end.interface, mtu, guest, gso))?;
        if guest {
            // Docker's default is 64 MB. A guest's memory is a sparse file there.
            let mounted = mount(Some("tmpfs"), "/dev/shm", Some("tmpfs"), MsFlags::empty(), None::<&str>);
            mounted.with_context(|| "mounting /dev/shm (is the container privileged?)".into())?;
        } else {
            interfaces::prepare_loopback()?;
        }
        self.set_state(State::Waiting, None);
        if self.node.place.start == Start::Immediately {
            self.start_node("lab", origin::shared_origin()?);
        }
        Ok(())
    }

    fn set_state(&mut self, state: State, error: Option<String>) {
        self.state = state;
        self.error = error;
        self.clients.broadcast(&self.hello());
    }

    fn hello(&self) -> Value {
        json!({"event": "hello", "node": self.node.name(), "state": self.state.name(), "error": self.error})
    }

    // --- clients

    fn accept(&mut self) -> Result<()> {
        let Some((client, stream)) = self.clients.accept()? else { return Ok(()) };
        watch(&self.epoll, stream, self.client_lines.at(client)).with_context(|| SOCKET.into())?;
        self.clients.send(client, &self.hello());
        Ok(())
    }

    fn on_client(&mut self, client: Client) {
        for line in self.clients.read(client) {
            if let Err(error) = self.command(client, &line) {
                self.clients.send(client, &json!({"event": "error", "error": error}));
            }
        }
    }

    fn command(&mut self, client: Client, line: &[u8]) -> std::result::Result<(), String> {
        let command: Value =
            serde_json::from_slice(line).map_err(|error| format!("not a command: {error}"))?;
        if command["command"] == "go" {
            let origin_ns = command["origin_ns"].as_i64().ok_or("go needs origin_ns")?;
            let mode = command["mode"].as_str().filter(|mode| ["cell", "lab"].contains(mode));
            let mode = mode.ok_or("the mode of go is cell or lab")?;
            if !matches!(self.state, State::Waiting | State::Ended) {
                return Err(format!("the node is {}, not waiting", self.state.name()));
            }
            self.start_node(mode, origin_ns);
            return Ok(());
        }
        let command = self.clients.command(client, command)?;
        let not_running = || format!("the node is {}, not running", self.state.name());
        let running = self.running.as_mut().ok_or_else(not_running)?;
        running.send(&command).map_err(|error| format!("the node does not answer: {error}"))
    }

    /// Ends the programs of disconnected clients.
    fn end_orphaned(&mut self) {
        for id in self.clients.take_orphaned() {
            if let Some(running) = &mut self.running {
                let _ = running.send(&json!({"command": "end", "id": id}));
            }
        }
    }

    // --- the node

    /// Starts the node. If that fails, enters the state `ended` with the error.
    fn start_node(&mut self, mode: &str, origin_ns: i64) {
        match self.spawn_node(mode, origin_ns) {
            Ok(running) => {
                self.running = Some(running);
                self.set_state(State::Running, None);
            }
            Err(failure) => self.set_state(State::Ended, Some(failure.to_string())),
        }
    }

    fn spawn_node(&mut self, mode: &str, origin_ns: i64) -> Result<Running> {
        // The plan may have changed since the last start.
        self.node = read_node()?;
        let running = Running::start(&self.node, mode, origin_ns)?;
        watch(&self.epoll, &running, self.gate).with_context(|| "gate".into())?;
        Ok(running)
    }

    /// Delivers events of the node. Returns whether more may be available.
    fn on_gate(&mut self) -> bool {
        let Some(running) = &mut self.running else { return false };
        let Some(events) = running.receive() else {
            // The end of the stream; SIGCHLD follows.
            let _ = self.epoll.delete(&*running);
            return false;
        };
        for event in events {
            if running.frames.on_event(&event) {
                continue;
            }
            if event["event"] == "ready" {
                running.find_sockets(&self.node);
            }
            self.clients.deliver(event);
        }
        true
    }

    /// Ends a cell when an interface of a link is removed, because its results would not be those of the plan. An
    /// interactive lab continues, as after an unplugged cable.
    ///
    /// Containerlab disables checksum offload, and so TSO, some time after it has created an interface. The machine's
    /// kernel then drops all GSO packets of a guest, so the features are set again.
    fn on_interfaces(&mut self) -> Result<()> {
        let Changes { removed, changed } = self.interfaces.changes()?;
        if self.node.place.gso && self.state != State::Preparing {
            let ends = self.node.ends().filter(|(end, _)| changed.contains(&end.interface));
            ends.for_each(|(end, _)| interfaces::set_offloads(&end.interface, true));
        }
        let lost = self.lost_link(|interface| removed.iter().any(|name| name == interface));
        let Some(lost) = lost else { return Ok(()) };
        if let Some(running) = self.running.as_ref().filter(|running| running.is_cell) {
            running.end();
            self.fault.get_or_insert(lost);
        }
        Ok(())
    }

    /// An error text for the first of the node's links that has no interface.
    fn lost_link(&self, is_missing: impl Fn(&str) -> bool) -> Option<String> {
        self.node.plan.links.iter().find_map(|link| {
            let mut ends = link.ends().into_iter();
            let end = ends.find(|end| end.node == self.node.place.node && is_missing(&end.interface))?;
            Some(format!("interface {} of link {} was removed", end.interface, link.name))
        })
    }

    /// Handles signals. Returns whether the supervisor must end.
    fn on_signal(&mut self) -> Result<bool> {
        let mut end = false;
        while let Some(signal) = self.signals.read_signal().with_context(|| "signals".into())? {
            end |= signal.ssi_signo != Signal::SIGCHLD as u32;
        }
        // Process 1 also reaps orphans.
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) | Err(_) => return Ok(end),
                Ok(status) => {
                    if self.running.as_ref().is_some_and(|running| running.is(status.pid())) {
                        self.on_exit();
                    }
                }
            }
        }
    }

    /// Handles the end of the node.
    fn on_exit(&mut self) {
        self.running.iter_mut().for_each(Running::clean_up);
        while self.on_gate() {}
        let Some(mut running) = self.running.take() else { return };
        let fault = self.fault.take();
        // If a link was removed while the guest started, its error is only a consequence, so that both are reported.
        let cause = || self.lost_link(|interface| !interfaces::exists(interface)).filter(|_| running.is_cell);
        let with_cause = |error| match cause() {
            Some(lost) => format!("{lost}; {error}"),
            None => error,
        };
        let mut error = fault.or_else(|| evidence::failure().map(with_cause));
        if let Err(failure) = running.count_frames(&self.node, true) {
            error.get_or_insert(failure.to_string());
        }
        self.set_state(State::Ended, error);
    }
}

fn watch(epoll: &Epoll, fd: impl AsFd, token: Token) -> nix::Result<()> {
    epoll.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, token.into()))
}

/// Reads plan.json and place.json.
fn read_node() -> Result<Node> {
    let text = fs::read_to_string(format!("{NODE}/plan.json")).with_context(|| "plan.json".into())?;
    let plan = Plan::parse(&text)?;
    let place = Place::read(NODE, plan.nodes.len())?;
    let place = place.ok_or_else(|| Failure::new(format!("{NODE}/place.json is missing")))?;
    Ok(Node::new(plan, place))
}
