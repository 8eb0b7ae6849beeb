// SPDX-License-Identifier: Apache-2.0
//! Programs that the host runs in the lab: started in a node's namespace, their output relayed, their end told.

use crate::failure::{Of, Result};
use crate::gate::{base64, Event, Program, Size};
use crate::lab::boot;
use crate::programs::exec::{self, Surroundings};
use crate::programs::terminal::{self, Terminal};
use crate::world::token::{Part, Topic};
use crate::world::{World, READABLE, READABLE_STILL};
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

/// Largest piece of output in one event.
const PIECE: usize = 32 * 1024;
/// A program that was asked to end is killed after this time (real time).
const PATIENCE_NS: u64 = 1_000_000_000;

pub enum Notice {
    Output(Output),
    Exit {
        id: u64,
        code: i32,
    },
    /// Of no program that the host knows.
    Other {
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
        let (id, data) = (self.id, base64(&self.bytes));
        match self.stream {
            Stream::Stdout => Event::Stdout { id, data },
            Stream::Stderr => Event::Stderr { id, data },
        }
    }
}

impl Notice {
    /// What the host is told.
    pub fn event(&self, time_ns: i64) -> Option<Event> {
        match self {
            Self::Output(output) => Some(output.event()),
            Self::Exit { id, code } => Some(Event::Exit { id: *id, code: *code, time_ns }),
            Self::Other { .. } => None,
        }
    }
}

struct Pipe {
    id: u64,
    stream: Stream,
    file: File,
}

pub struct Children {
    /// By process: it was asked to end, and is killed now.
    kills: Topic,
    pipe_tokens: Topic,
    signals: SignalFd,
    running: BTreeMap<i32, u64>,
    /// Those that were asked to end.
    ending: BTreeSet<i32>,
    pipes: BTreeMap<u32, Pipe>,
    next_pipe: u32,
    /// By program: which of the pipes is its terminal.
    terminals: BTreeMap<u64, (u32, Terminal)>,
}

impl Children {
    pub fn new(world: &mut World<'_>) -> Result<Self> {
        let here = || "SIGCHLD".to_owned();
        let mask = SigSet::from(Signal::SIGCHLD);
        mask.thread_block().of(here)?;
        let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC).of(here)?;
        let token = world.topic(Part::Children).only();
        world.watch(&signals, token, READABLE).of(here)?;
        Ok(Self {
            kills: world.topic(Part::Kills),
            pipe_tokens: world.topic(Part::Pipes),
            signals,
            running: BTreeMap::new(),
            ending: BTreeSet::new(),
            pipes: BTreeMap::new(),
            next_pipe: 0,
            terminals: BTreeMap::new(),
        })
    }

    /// Starts a program. An error is one of the program, not of the lab.
    pub fn start(&mut self, world: &World<'_>, program: &Program) -> Result<std::result::Result<(), String>> {
        let Some(node) = world.lab.namespaces.find(&program.node) else {
            return Ok(Err(format!("no node {:?}", program.node)));
        };
        world.lab.namespaces.enter(node)?;
        if program.terminal.is_some() {
            boot::mount_terminals()?;
        }
        let environment = &world.plan.nodes[node].environment;
        // On the wall clock only: in virtual time a program pays for the system call that it takes.
        let own_group = world.scope.on_wall_clock();
        match exec::spawn(program, &Surroundings { environment, view: &world.lab.views[node], own_group }) {
            Err(error) => Ok(Err(error)),
            Ok(started) => {
                self.running.insert(started.pid, program.id);
                let number = self.relay(world, program.id, Stream::Stdout, started.stdout)?;
                match started.stderr {
                    Some(stderr) => drop(self.relay(world, program.id, Stream::Stderr, stderr)?),
                    None => {
                        let terminal = Terminal::new(started.pid, program.shell);
                        self.terminals.insert(program.id, (number, terminal));
                    }
                }
                Ok(Ok(()))
            }
        }
    }

    /// Types at a program's terminal. One that has ended is no error.
    pub fn type_in(&mut self, id: u64, bytes: &[u8]) {
        if let Some((file, terminal)) = self.terminal(id) {
            terminal.type_in(file, bytes);
        }
    }

    pub fn resize(&mut self, id: u64, size: Size) {
        if let Some((file, _)) = self.terminal(id) {
            terminal::resize(file, size);
        }
    }

    fn terminal(&mut self, id: u64) -> Option<(&File, &mut Terminal)> {
        let (number, terminal) = self.terminals.get_mut(&id)?;
        Some((&self.pipes.get(number)?.file, terminal))
    }

    /// Whether this is the terminal of a shell that waits for a command: which program's.
    pub fn at_prompt(&self, number: u32) -> Option<u64> {
        let pipe = self.pipes.get(&number)?;
        let (_, terminal) = self.terminals.get(&pipe.id)?;
        terminal.mood(&pipe.file).prompt.then_some(pipe.id)
    }

    /// What has changed with those who read terminals since this was asked last.
    pub fn moods(&mut self) -> Vec<Event> {
        let mut changed = Vec::new();
        for (id, (number, terminal)) in &mut self.terminals {
            let Some(pipe) = self.pipes.get(number) else { continue };
            let mood = terminal.mood(&pipe.file);
            if mood != std::mem::replace(&mut terminal.told, mood) {
                changed.push(Event::Terminal { id: *id, raw: mood.raw, prompt: mood.prompt });
            }
        }
        changed
    }

    /// Asks a program to end, and all that it started. One that has ended already is no error.
    pub fn end(&mut self, world: &mut World<'_>, id: u64) {
        let Some((pid, _)) = self.running.iter().find(|(_, running)| **running == id) else { return };
        let _ = killpg(Pid::from_raw(*pid), Signal::SIGTERM);
        self.ending.insert(*pid);
        let patience_ns = world.scope.real_ns(PATIENCE_NS);
        world.agenda.add(world.now_ns() + patience_ns, self.kills.at(*pid as u32));
    }

    /// Ends a program that was asked to end and did not.
    pub fn kill(&mut self, pid: i32) {
        if self.ending.remove(&pid) {
            let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }

    fn relay(&mut self, world: &World<'_>, id: u64, stream: Stream, end: OwnedFd) -> Result<u32> {
        let here = || "a program's output".to_owned();
        fcntl(&end, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).of(here)?;
        let number = self.next_pipe;
        self.next_pipe += 1;
        // A read takes one piece only.
        world.watch(&end, self.pipe_tokens.at(number), READABLE_STILL).of(here)?;
        self.pipes.insert(number, Pipe { id, stream, file: end.into() });
        Ok(number)
    }

    /// The next piece of a pipe. A pipe whose last writer is gone is closed.
    pub fn read(&mut self, number: u32) -> Option<Output> {
        let pipe = self.pipes.get_mut(&number)?;
        let mut bytes = vec![0; PIECE];
        match pipe.file.read(&mut bytes) {
            Ok(length) if length > 0 => {
                bytes.truncate(length);
                if let Some((_, terminal)) = self.terminals.get_mut(&pipe.id) {
                    terminal.type_in(&pipe.file, &[]); // there may be room now
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

    /// Collects all that ended, orphans included: of a program first what it wrote, then its exit.
    pub fn reap(&mut self) -> Result<Vec<Notice>> {
        while self.signals.read_signal().of(|| "SIGCHLD".into())?.is_some() {}
        let mut notices = Vec::new();
        loop {
            let (pid, code) = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, code)) => (pid, code),
                // As a shell reports it.
                Ok(WaitStatus::Signaled(pid, signal, _)) => (pid, 128 + signal as i32),
                Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return Ok(notices),
                Ok(_) => continue,
                Err(error) => return Err(error).of(|| "waiting for programs".into()),
            };
            self.ending.remove(&pid.as_raw());
            if let Some(id) = self.running.remove(&pid.as_raw()) {
                let numbers: Vec<u32> =
                    self.pipes.iter().filter(|(_, p)| p.id == id).map(|(n, _)| *n).collect();
                for number in numbers {
                    while let Some(output) = self.read(number) {
                        notices.push(Notice::Output(output));
                    }
                }
                if let Some((number, _)) = self.terminals.remove(&id) {
                    self.pipes.remove(&number); // who is left at it is told that it hangs up
                }
                notices.push(Notice::Exit { id, code });
            } else {
                notices.push(Notice::Other { pid: pid.as_raw(), code });
            }
        }
    }
}
