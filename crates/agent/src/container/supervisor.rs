// SPDX-License-Identifier: Apache-2.0
//! The entry point of a node's container (docs/formats.md §5): waits for the interfaces that Containerlab gives it,
//! prepares them, starts the node's kernel (ours as a process, or an agent on the host's), and stands between its gate
//! and the clients of `control.sock`. Whatever it started ends with it.

use crate::container::clients::Clients;
use crate::container::guest::{Node, Running};
use crate::container::interfaces::Watch;
use crate::container::relay::Client;
use crate::container::{evidence, interfaces, origin, SOCKET};
use crate::failure::{Failure, Of, Result};
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

const INTERFACES_EVERY_MS: u8 = 10;

pub fn main() -> ExitCode {
    files::are_in(NODE);
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

/// Who wakes the supervisor.
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
    /// Why what runs was ended before its time.
    fault: Option<String>,
    state: State,
    error: Option<String>,
}

impl Supervisor {
    fn new() -> Result<Self> {
        let node = read()?;
        let clients = Clients::listen()?;
        let mut mask = SigSet::empty();
        [Signal::SIGTERM, Signal::SIGINT, Signal::SIGCHLD].into_iter().for_each(|signal| mask.add(signal));
        mask.thread_block().of(|| "signals".into())?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        let signals = SignalFd::with_flags(&mask, flags).of(|| "signals".into())?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).of(|| "epoll".into())?;
        let mut sources = Topics::default();
        watch(&epoll, &clients, sources.hand_out(Source::NewClient).only()).of(|| SOCKET.into())?;
        watch(&epoll, &signals, sources.hand_out(Source::Signals).only()).of(|| "signals".into())?;
        let interfaces = Watch::open()?;
        let token = sources.hand_out(Source::Interfaces).only();
        watch(&epoll, &interfaces, token).of(|| "watching interfaces".into())?;
        Ok(Self {
            node,
            epoll,
            client_lines: sources.hand_out(Source::Client),
            gate: sources.hand_out(Source::Gate).only(),
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

    /// Serves until it is told to end.
    fn run(mut self) -> Result<()> {
        let mut events = [EpollEvent::empty(); 32];
        loop {
            if self.state == State::Preparing && self.interfaces_are_there() {
                self.prepare()?;
            }
            let timeout = match (self.state, &self.running) {
                (State::Preparing, _) => EpollTimeout::from(INTERFACES_EVERY_MS),
                (_, Some(running)) => running.frames.remaining().try_into().unwrap_or(EpollTimeout::ZERO),
                _ => EpollTimeout::NONE,
            };
            let count = match self.epoll.wait(&mut events, timeout) {
                Err(Errno::EINTR) => 0,
                result => result.of(|| "epoll".into())?,
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
                self.end_abandoned();
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

    fn interfaces_are_there(&self) -> bool {
        self.node.ends().all(|(end, _)| interfaces::is_there(&end.interface))
    }

    fn prepare(&mut self) -> Result<()> {
        let guest = !self.node.is_native;
        self.node.ends().try_for_each(|(end, mtu)| interfaces::prepare(&end.interface, mtu, guest))?;
        if guest {
            // Docker's own is 64 MB; a guest's memory is a file there, and grows as it is used.
            let mounted = mount(Some("tmpfs"), "/dev/shm", Some("tmpfs"), MsFlags::empty(), None::<&str>);
            mounted.of(|| "mounting /dev/shm (is the container privileged?)".into())?;
        } else {
            interfaces::prepare_loopback()?;
        }
        self.enter(State::Waiting, None);
        if self.node.place.start == Start::AtOnce {
            self.go("lab", origin::shared()?);
        }
        Ok(())
    }

    fn enter(&mut self, state: State, error: Option<String>) {
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
        watch(&self.epoll, stream, self.client_lines.at(client)).of(|| SOCKET.into())?;
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
            self.go(mode, origin_ns);
            return Ok(());
        }
        let command = self.clients.command(client, command)?;
        let not_running = || format!("the node is {}, not running", self.state.name());
        let running = self.running.as_mut().ok_or_else(not_running)?;
        running.tell(&command).map_err(|error| format!("the node does not answer: {error}"))
    }

    /// A client that has gone takes along what it has running.
    fn end_abandoned(&mut self) {
        for id in self.clients.take_abandoned() {
            if let Some(running) = &mut self.running {
                let _ = running.tell(&json!({"command": "end", "id": id}));
            }
        }
    }

    // --- the node

    /// Starts the node; if that fails, its state says so.
    fn go(&mut self, mode: &str, origin_ns: i64) {
        match self.start(mode, origin_ns) {
            Ok(running) => {
                self.running = Some(running);
                self.enter(State::Running, None);
            }
            Err(failure) => self.enter(State::Ended, Some(failure.to_string())),
        }
    }

    fn start(&mut self, mode: &str, origin_ns: i64) -> Result<Running> {
        // What is to run may be another than last time.
        self.node = read()?;
        let running = Running::start(&self.node, mode, origin_ns)?;
        watch(&self.epoll, &running, self.gate).of(|| "gate".into())?;
        Ok(running)
    }

    /// Returns whether there may be more.
    fn on_gate(&mut self) -> bool {
        let Some(running) = &mut self.running else { return false };
        let Some(events) = running.hear() else {
            // The end of the stream: SIGCHLD tells the rest.
            let _ = self.epoll.delete(&*running);
            return false;
        };
        for event in events {
            if running.frames.take(&event) {
                continue;
            }
            if event["event"] == "ready" {
                running.find_sockets(&self.node);
            }
            self.clients.deliver(event);
        }
        true
    }

    /// A cell without one of its links would measure another lab than the plan's. A lab that is up goes on, as with a
    /// cable that is pulled.
    fn on_interfaces(&mut self) -> Result<()> {
        let gone = self.interfaces.gone()?;
        let lost = self.lost(|interface| gone.iter().any(|name| name == interface));
        let Some(lost) = lost else { return Ok(()) };
        if let Some(running) = self.running.as_ref().filter(|running| running.is_cell) {
            running.end();
            self.fault.get_or_insert(lost);
        }
        Ok(())
    }

    /// The first of the node's links whose interface `is_gone` says has gone, in words.
    fn lost(&self, is_gone: impl Fn(&str) -> bool) -> Option<String> {
        self.node.plan.links.iter().find_map(|link| {
            let mut ends = link.ends().into_iter();
            let end = ends.find(|end| end.node == self.node.place.node && is_gone(&end.interface))?;
            Some(format!("interface {} of the link {} has gone", end.interface, link.name))
        })
    }

    /// Returns whether to end.
    fn on_signal(&mut self) -> Result<bool> {
        let mut end = false;
        while let Some(signal) = self.signals.read_signal().of(|| "signals".into())? {
            end |= signal.ssi_signo != Signal::SIGCHLD as u32;
        }
        // As process 1 it also reaps orphans.
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) | Err(_) => return Ok(end),
                Ok(status) => {
                    if self.running.as_ref().is_some_and(|running| running.is(status.pid())) {
                        self.on_end();
                    }
                }
            }
        }
    }

    fn on_end(&mut self) {
        self.running.iter_mut().for_each(Running::clean_up);
        while self.on_gate() {}
        let Some(mut running) = self.running.take() else { return };
        let fault = self.fault.take();
        // A guest that found a link gone while it began says something else; that may be another fault, too.
        let cause = || self.lost(|interface| !interfaces::is_there(interface)).filter(|_| running.is_cell);
        let all = |said| match cause() {
            Some(lost) => format!("{lost}; {said}"),
            None => said,
        };
        let mut error = fault.or_else(|| evidence::failure().map(all));
        if let Err(failure) = running.count_frames(&self.node, true) {
            error.get_or_insert(failure.to_string());
        }
        self.enter(State::Ended, error);
    }
}

fn watch(epoll: &Epoll, what: impl AsFd, token: Token) -> nix::Result<()> {
    epoll.add(what, EpollEvent::new(EpollFlags::EPOLLIN, token.into()))
}

fn read() -> Result<Node> {
    let text = fs::read_to_string(format!("{NODE}/plan.json")).of(|| "plan.json".into())?;
    let plan = Plan::parse(&text)?;
    let place = Place::read(NODE, plan.nodes.len())?;
    let place = place.ok_or_else(|| Failure::new(format!("{NODE}/place.json is missing")))?;
    Ok(Node::new(plan, place))
}
