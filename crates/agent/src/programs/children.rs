// SPDX-License-Identifier: Apache-2.0
//! Child processes: starts programs for the host, forwards their output, and reaps all children of the agent.

use crate::control::message::{Event, ExecRequest, TerminalSize};
use crate::failure::{Context, Result};
use crate::lab::boot;
use crate::programs::exec::{self, NodeContext};
use crate::programs::terminal::{self, Terminal};
use crate::world::token::{Part, Topic};
use crate::world::{World, READABLE, READABLE_LEVEL};
use nix::errno::Errno;
use nix::fcntl::{fcntl, FcntlArg, OFlag};
use nix::sys::signal::{killpg, SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{waitpid, WaitPidFlag, WaitStatus};
use nix::unistd::Pid;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::OwnedFd;

/// Limit on the output bytes of one event.
const OUTPUT_MAX: usize = 32 * 1024;
/// Time between SIGTERM and SIGKILL (real time).
const KILL_DELAY_NS: u64 = 1_000_000_000;

pub enum ChildEvent {
    Output(Output),
    Exit {
        id: u64,
        code: i32,
    },
    /// Exit of a program of the plan or of an orphan.
    OtherExit {
        pid: i32,
        code: i32,
    },
}

pub struct Output {
    id: u64,
    stream: Stream,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy)]
enum Stream {
    Stdout,
    Stderr,
}

impl Output {
    pub fn event(&self) -> Event {
        let (id, data) = (self.id, self.bytes.clone());
        match self.stream {
            Stream::Stdout => Event::Stdout { id, data },
            Stream::Stderr => Event::Stderr { id, data },
        }
    }
}

impl ChildEvent {
    /// The event for the host; None for programs that the host did not start.
    pub fn event(&self, time_ns: i64) -> Option<Event> {
        match self {
            Self::Output(output) => Some(output.event()),
            Self::Exit { id, code } => Some(Event::Exit { id: *id, code: *code, time_ns }),
            Self::OtherExit { .. } => None,
        }
    }
}

struct Pipe {
    id: u64,
    stream: Stream,
    file: File,
}

pub struct Children {
    /// By process id: SIGKILL is due.
    kills: Topic,
    pipe_tokens: Topic,
    signals: SignalFd,
    /// Process id to program id.
    running: BTreeMap<i32, u64>,
    /// Process ids that were sent SIGTERM.
    terminating: BTreeSet<i32>,
    pipes: BTreeMap<u32, Pipe>,
    next_pipe: u32,
    /// By program id: the number in `pipes` of its terminal.
    terminals: BTreeMap<u64, (u32, Terminal)>,
}

impl Children {
    pub fn new(world: &mut World<'_>) -> Result<Self> {
        let context = || "SIGCHLD".to_owned();
        let mask = SigSet::from(Signal::SIGCHLD);
        mask.thread_block().with_context(context)?;
        let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
            .with_context(context)?;
        let token = world.topic(Part::Children).only();
        world.watch(&signals, token, READABLE).with_context(context)?;
        Ok(Self {
            kills: world.topic(Part::Kills),
            pipe_tokens: world.topic(Part::Pipes),
            signals,
            running: BTreeMap::new(),
            terminating: BTreeSet::new(),
            pipes: BTreeMap::new(),
            next_pipe: 0,
            terminals: BTreeMap::new(),
        })
    }

    /// Starts a program. The inner error concerns the program and does not end the lab.
    pub fn start(
        &mut self,
        world: &World<'_>,
        request: &ExecRequest,
    ) -> Result<std::result::Result<(), String>> {
        let Some(node) = world.lab.namespaces.find(&request.node) else {
            return Ok(Err(format!("no node {:?}", request.node)));
        };
        world.lab.namespaces.enter(node)?;
        if request.terminal.is_some() {
            boot::mount_devpts()?;
        }
        let environment = &world.plan.nodes[node].environment;
        // Not in virtual time, where the additional system call would cost the program virtual time.
        let new_group = world.placement.on_wall_clock();
        match exec::spawn(request, &NodeContext { environment, view: &world.lab.views[node], new_group }) {
            Err(error) => Ok(Err(error)),
            Ok(child) => {
                self.running.insert(child.pid, request.id);
                let number = self.add_pipe(world, request.id, Stream::Stdout, child.stdout)?;
                match child.stderr {
                    Some(stderr) => drop(self.add_pipe(world, request.id, Stream::Stderr, stderr)?),
                    None => {
                        let terminal = Terminal::new(child.pid, request.shell);
                        self.terminals.insert(request.id, (number, terminal));
                    }
                }
                Ok(Ok(()))
            }
        }
    }

    /// Writes input to a program's terminal. Does nothing if the program has ended.
    pub fn write_input(&mut self, id: u64, bytes: &[u8]) {
        if let Some((file, terminal)) = self.terminal(id) {
            terminal.write_input(file, bytes);
        }
    }

    pub fn resize(&mut self, id: u64, size: TerminalSize) {
        if let Some((file, _)) = self.terminal(id) {
            terminal::resize(file, size);
        }
    }

    fn terminal(&mut self, id: u64) -> Option<(&File, &mut Terminal)> {
        let (number, terminal) = self.terminals.get_mut(&id)?;
        Some((&self.pipes.get(number)?.file, terminal))
    }

    /// The program id of a shell at this terminal, if it shows a prompt.
    pub fn at_prompt(&self, number: u32) -> Option<u64> {
        let pipe = self.pipes.get(&number)?;
        let (_, terminal) = self.terminals.get(&pipe.id)?;
        terminal.state(&pipe.file).prompt.then_some(pipe.id)
    }

    /// `terminal` events for all changes of terminal states since the last call.
    pub fn changed_terminals(&mut self) -> Vec<Event> {
        let mut changed = Vec::new();
        for (id, (number, terminal)) in &mut self.terminals {
            let Some(pipe) = self.pipes.get(number) else { continue };
            let state = terminal.state(&pipe.file);
            if state != std::mem::replace(&mut terminal.reported, state) {
                changed.push(Event::Terminal { id: *id, raw: state.raw, prompt: state.prompt });
            }
        }
        changed
    }

    /// Sends SIGTERM to a program's process group. Does nothing if the program has ended.
    pub fn terminate(&mut self, world: &mut World<'_>, id: u64) {
        let Some((pid, _)) = self.running.iter().find(|(_, running)| **running == id) else { return };
        let _ = killpg(Pid::from_raw(*pid), Signal::SIGTERM);
        self.terminating.insert(*pid);
        let delay_ns = world.placement.to_lab_ns(KILL_DELAY_NS);
        world.agenda.add(world.now_ns() + delay_ns, self.kills.at(*pid as u32));
    }

    /// Sends SIGKILL to a program that SIGTERM has not ended.
    pub fn kill(&mut self, pid: i32) {
        if self.terminating.remove(&pid) {
            let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }

    /// Watches a program's output. Returns the number of the pipe.
    fn add_pipe(&mut self, world: &World<'_>, id: u64, stream: Stream, end: OwnedFd) -> Result<u32> {
        let context = || "a program's output".to_owned();
        fcntl(&end, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).with_context(context)?;
        let number = self.next_pipe;
        self.next_pipe += 1;
        // Level-triggered: a read takes only one buffer.
        world.watch(&end, self.pipe_tokens.at(number), READABLE_LEVEL).with_context(context)?;
        self.pipes.insert(number, Pipe { id, stream, file: end.into() });
        Ok(number)
    }

    /// Reads available output of a pipe. Closes the pipe when its last writer is gone.
    pub fn read(&mut self, number: u32) -> Option<Output> {
        let pipe = self.pipes.get_mut(&number)?;
        let mut bytes = vec![0; OUTPUT_MAX];
        match pipe.file.read(&mut bytes) {
            Ok(length) if length > 0 => {
                bytes.truncate(length);
                if let Some((_, terminal)) = self.terminals.get_mut(&pipe.id) {
                    terminal.write_input(&pipe.file, &[]); // the terminal may accept pending input now
                }
                Some(Output { id: pipe.id, stream: pipe.stream, bytes })
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            _ => {
                self.pipes.remove(&number);
                None
            }
        }
    }

    /// Reaps all ended children, including orphans. The remaining output of a program precedes its exit.
    pub fn reap(&mut self) -> Result<Vec<ChildEvent>> {
        while self.signals.read_signal().with_context(|| "SIGCHLD".into())?.is_some() {}
        let mut events = Vec::new();
        loop {
            let (pid, code) = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, code)) => (pid, code),
                // As a shell reports it.
                Ok(WaitStatus::Signaled(pid, signal, _)) => (pid, 128 + signal as i32),
                Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return Ok(events),
                Ok(_) => continue,
                Err(error) => return Err(error).with_context(|| "waiting for programs".into()),
            };
            self.terminating.remove(&pid.as_raw());
            if let Some(id) = self.running.remove(&pid.as_raw()) {
                let numbers: Vec<u32> =
                    self.pipes.iter().filter(|(_, p)| p.id == id).map(|(n, _)| *n).collect();
                for number in numbers {
                    while let Some(output) = self.read(number) {
                        events.push(ChildEvent::Output(output));
                    }
                }
                if let Some((number, _)) = self.terminals.remove(&id) {
                    self.pipes.remove(&number); // hangs up the terminal of remaining processes
                }
                events.push(ChildEvent::Exit { id, code });
            } else {
                events.push(ChildEvent::OtherExit { pid: pid.as_raw(), code });
            }
        }
    }
}
