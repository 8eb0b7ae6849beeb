// SPDX-License-Identifier: Apache-2.0
//! The loop: waits for the next deadline or event, and hands it to whom it concerns. One thread serves all nodes; it
//! costs no virtual time, so what it does at an instant happens at that instant everywhere.

use crate::clock::agenda::{Action, Timer};
use crate::failure::{Failure, Of, Result};
use crate::gate::{Event, Gate};
use crate::lab::linkstate;
use crate::netlink::qdisc::Taps;
use crate::observe::capture::Captures;
use crate::observe::forwarding;
use crate::observe::lateness::Lateness;
use crate::observe::routelog::RouteLog;
use crate::observe::taps::TapStream;
use crate::plan::Transport;
use crate::programs::children::{Children, Notice};
use crate::programs::resident::Programs;
use crate::results;
use crate::transport::cbr::Udp;
use crate::transport::tcp::{Tcp, CONNECT_AHEAD_NS};
use crate::world::{Token, World, READABLE};
use nix::errno::Errno;
use nix::sys::epoll::{EpollEvent, EpollFlags, EpollTimeout};

const EVENTS_A_WAIT: usize = 256;
/// Stands for the gate where the id of a program that ended is expected.
pub const GATE: u64 = u64::MAX;
/// On the wall clock, taps are written out this often (real time), for those who follow them.
const TAP_INTERVAL_NS: u64 = 100_000_000;
/// Progress is told this often.
const PROGRESS_STEPS: u32 = 100;

pub struct Engine<'a> {
    pub world: World<'a>,
    pub gate: Option<Gate>,
    pub children: Children,
    tcp: Tcp,
    udp: Udp,
    captures: Captures,
    /// Whether somebody plays with the lab.
    pub interactive: bool,
    programs: Programs,
    routes: RouteLog,
    /// None: the host's kernel has no taps.
    taps: Option<TapStream>,
    timer: Timer,
    lateness: Lateness,
}

impl<'a> Engine<'a> {
    pub fn new(world: World<'a>, gate: Option<Gate>) -> Result<Self> {
        let mut world = world;
        let plan = world.plan;
        let timer = Timer::new(world.paper()).of(|| "timer".into())?;
        world.watch(&timer.descriptor, Token::Timer, READABLE).of(|| "timer".into())?;
        let flows: Vec<_> = (0..).zip(crate::workload::schedule::flows(plan)).collect();
        let is_tcp = |spec: &crate::workload::schedule::FlowSpec| {
            plan.workloads[spec.workload].transport == Transport::Tcp
        };
        let (tcp, udp): (Vec<_>, Vec<_>) = flows.into_iter().partition(|(_, spec)| is_tcp(spec));
        let tcp = Tcp::new(&world, tcp.into_iter())?;
        let udp = Udp::new(&world, udp.into_iter())?;
        let taps = TapStream::open(&world)?;
        if taps.is_some() && plan.place.is_some() {
            world.agenda.add(plan.epoch_ns, Action::DrainTaps);
        }
        let mut captures = Captures::open(&world)?;
        let children = Children::new(&world)?;
        captures.schedule(&mut world);
        let lateness = Lateness::default();
        let routes = RouteLog::open(&world)?;
        let programs = Programs::schedule(&mut world);
        // Some flows connect ahead of the epoch; by then their way must be there.
        world.agenda.add(plan.epoch_ns.saturating_sub(CONNECT_AHEAD_NS), Action::CheckForwarding);
        let interactive = false;
        Ok(Self {
            world,
            gate,
            children,
            tcp,
            udp,
            captures,
            interactive,
            programs,
            routes,
            taps,
            timer,
            lateness,
        })
    }

    /// From now on `run_until_exit(GATE)` ends when the host says something. A gate that is polled.
    pub fn watch_gate(&mut self) -> Result<()> {
        let gate = self.gate.as_ref().ok_or_else(|| Failure::new("mode lab: no gate"))?;
        // Level-triggered: a read takes one piece only.
        self.world.watch(gate, Token::Gate, EpollFlags::EPOLLIN).of(|| "gate".into())
    }

    /// Starts the workloads; their times count from `base_ns` (CLOCK_MONOTONIC).
    pub fn start_workloads(&mut self, base_ns: u64) {
        self.tcp.schedule(&mut self.world, base_ns);
        self.udp.schedule(&mut self.world, base_ns);
        if self.world.plan.flow_interval_ns > 0 {
            self.world.agenda.add(base_ns, Action::SampleFlows);
        }
        for (index, event) in (0..).zip(&self.world.plan.events) {
            self.world.agenda.add(base_ns + event.at_ns, Action::Link(index));
        }
        self.world.agenda.add(base_ns, Action::Progress(0));
    }

    /// Lets time flow until `until_ns`. What is due at that very instant still happens, if it was planned before.
    pub fn run_until(&mut self, until_ns: u64) -> Result<()> {
        self.world.agenda.add(until_ns, Action::Alarm);
        self.run(None)
    }

    /// Lets time flow until a child has ended.
    pub fn run_until_exit(&mut self, id: u64) -> Result<()> {
        self.run(Some(id))
    }

    fn run(&mut self, awaited: Option<u64>) -> Result<()> {
        let mut events = [EpollEvent::empty(); EVENTS_A_WAIT];
        loop {
            // Only the timer makes something due; so the clock is not read after other events.
            if self.timer.take_fired() && self.act()? {
                return Ok(());
            }
            self.timer.arm(self.world.agenda.next_ns()).of(|| "timer".into())?;
            let count = match self.world.epoll.wait(&mut events, EpollTimeout::NONE) {
                Err(Errno::EINTR) => 0,
                result => result.of(|| "epoll".into())?,
            };
            self.world.time_has_passed();
            // All of them, whatever comes first: most are told only once.
            let mut over = false;
            for event in &events[..count] {
                over |= self.dispatch(event, awaited)?;
            }
            if over {
                return Ok(());
            }
        }
    }

    /// Does all that is due. True at an alarm.
    fn act(&mut self) -> Result<bool> {
        while let Some((due_ns, action)) = self.world.agenda.take_due(self.world.now_ns()) {
            self.lateness.count(self.world.now_ns() - due_ns);
            match action {
                Action::TcpConnect(flow) => self.tcp.connect(&self.world, flow)?,
                Action::TcpBegin(flow) => self.tcp.begin(flow),
                Action::TcpStop(flow) => self.tcp.stop(flow),
                Action::UdpSend(flow) => self.udp.send(&mut self.world, flow)?,
                Action::UdpDrain => self.udp.drain_all(&mut self.world, due_ns)?,
                Action::DrainTaps => {
                    self.taps.as_mut().map_or(Ok(()), TapStream::take)?;
                    let dilation =
                        self.world.plan.place.as_ref().map_or(1, |place| u64::from(place.dilation));
                    self.world.agenda.add(due_ns + TAP_INTERVAL_NS / dilation, action);
                }
                Action::SampleFlows => {
                    self.tcp.sample(&self.world)?;
                    self.world.agenda.add(due_ns + self.world.plan.flow_interval_ns, action);
                }
                Action::DrainCaptures => {
                    self.captures.drain(&self.world)?;
                    self.captures.schedule(&mut self.world);
                }
                Action::Progress(step) => self.tell_progress(due_ns, step)?,
                Action::StartPrograms(node) => self.programs.go_on(&mut self.world, node)?,
                Action::CheckForwarding => {
                    self.programs.check(&self.world)?;
                    forwarding::check(&self.world)?;
                }
                Action::Link(event) => self.set_link(event as usize)?,
                Action::Kill(pid) => self.children.kill(pid as i32),
                Action::Alarm => return Ok(true),
            }
        }
        Ok(false)
    }

    /// Returns whether this is what is waited for.
    fn dispatch(&mut self, event: &EpollEvent, awaited: Option<u64>) -> Result<bool> {
        match Token::unpack(event.data()) {
            Token::Timer => self.timer.on_fired(),
            Token::Taps => self.taps.as_mut().map_or(Ok(()), TapStream::take)?,
            // Commands are taken between waits (lab.rs).
            Token::Gate => return Ok(awaited == Some(GATE)),
            Token::Listener(listener) => self.tcp.on_listener(&self.world, listener)?,
            Token::Sender(flow) => self.tcp.on_sender(&self.world, flow, event.events()),
            Token::Receiver(flow) => self.tcp.on_receiver(&self.world, flow, event.events()),
            Token::Pipe(pipe) => {
                if let Some(output) = self.children.read(pipe) {
                    self.tell(&output.event())?;
                }
            }
            Token::Routes(node) => self.routes.take(&self.world, node)?,
            Token::Children => return self.bury(awaited),
        }
        Ok(false)
    }

    /// Tells of the children that ended; returns whether one of them is waited for.
    fn bury(&mut self, awaited: Option<u64>) -> Result<bool> {
        let time_ns = self.world.now_since_epoch();
        let mut over = false;
        for notice in self.children.reap()? {
            match notice {
                Notice::Exit { id, .. } => over |= awaited == Some(id),
                Notice::Other { pid, code } => self.mourn(pid, code)?,
                Notice::Output(_) => {}
            }
            if let Some(event) = notice.event(time_ns) {
                self.tell(&event)?;
            }
        }
        Ok(over)
    }

    /// A program of the plan must not end before the lab does; only a lab that somebody plays with goes on without it.
    fn mourn(&mut self, pid: i32, code: i32) -> Result<()> {
        let failure = self.programs.bury(&self.world, pid, code);
        let played_with = self.interactive && self.world.now_ns() >= self.world.plan.epoch_ns;
        failure.filter(|_| !played_with).map_or(Ok(()), Err)
    }

    fn set_link(&mut self, event: usize) -> Result<()> {
        let event = &self.world.plan.events[event];
        let link = &self.world.plan.links[event.link];
        for end in link.ends().into_iter().filter(|end| self.world.plan.carries(end.node)) {
            self.routes.link(&self.world, end.node, &link.name, event.state)?;
        }
        linkstate::set(&self.world, event)
    }

    fn tell_progress(&mut self, due_ns: u64, step: u32) -> Result<()> {
        if step == 0 {
            self.lateness.reset()?;
        }
        self.tell(&Event::Progress { time_ns: self.world.since_epoch(due_ns) })?;
        if step < PROGRESS_STEPS {
            let duration_ns = self.world.plan.duration_ns;
            let until = |step: u32| duration_ns * u64::from(step) / u64::from(PROGRESS_STEPS);
            let next_ns = due_ns + until(step + 1) - until(step);
            self.world.agenda.add(next_ns, Action::Progress(step + 1));
        }
        Ok(())
    }

    pub fn tell(&mut self, event: &Event) -> Result<()> {
        self.gate.as_mut().map_or(Ok(()), |gate| gate.send(event))
    }

    /// Writes all results of this instant. Returns its time.
    pub fn finish(mut self) -> Result<i64> {
        let end_ns = self.world.now_since_epoch();
        // First the books: what closes flows below sends packets of its own, at this very instant.
        crate::observe::counters::write(&self.world)?;
        self.world.lab.namespaces.go_home()?;
        if let Some(taps) = self.taps {
            Taps::find(self.world.plan)?.flush()?;
            taps.finish()?;
        }
        self.lateness.write(&self.world)?;
        self.captures.finish(&self.world)?;
        self.routes.finish(&self.world)?;
        self.tcp.finish(&self.world)?;
        self.udp.finish(&self.world)?;
        results::write_flows(self.tcp.records(&self.world).chain(self.udp.records(&self.world)).collect())?;
        Ok(end_ns)
    }
}
