// SPDX-License-Identifier: Apache-2.0
//! The event loop: waits for the next deadline or event and dispatches it to the responsible module. One thread serves
//! all nodes. Its work takes no virtual time, so all actions of one instant happen at that instant on every node.

use crate::clock::timer::Timer;
use crate::control::gate::Gate;
use crate::control::message::Event;
use crate::failure::{Context, Failure, Result};
use crate::lab::{changes, link_state};
use crate::netlink::tap;
use crate::observe::capture::Captures;
use crate::observe::devices::Devices;
use crate::observe::lateness::Lateness;
use crate::observe::route_log::RouteLog;
use crate::observe::statistics::Statistics;
use crate::observe::taps::TapStream;
use crate::observe::windows::Windows;
use crate::observe::{counters, forwarding};
use crate::plan::{ChangeKind, LinkChange, LinkEvent};
use crate::programs::children::{ChildEvent, Children};
use crate::programs::daemons::Daemons;
use crate::programs::launches::Launches;
use crate::results::flow_samples::FlowSamples;
use crate::results::flows;
use crate::transport::{self, Transport};
use crate::world::token::{Part, Token, Topic};
use crate::world::{World, READABLE, READABLE_LEVEL};
use nix::errno::Errno;
use nix::sys::epoll::{EpollEvent, EpollTimeout};
use std::ops::RangeInclusive;

const EVENTS_PER_WAIT: usize = 256;
/// Reserved program id: `run_until_exit(GATE_ID)` returns when the gate is readable.
pub const GATE_ID: u64 = u64::MAX;
/// Bounds for the number of progress events.
const PROGRESS_STEPS: RangeInclusive<u64> = 10..=100;
/// Interval of checks of routing (lab time), and how long an interactive lab may take to converge after its epoch (real
/// time; the host waits 60 s).
const ROUTING_INTERVAL_NS: u64 = 20_000_000;
const ROUTING_TIMEOUT_NS: u64 = 50_000_000_000;
/// Node-nanoseconds per progress event: an event takes four system calls, so short labs send fewer.
const PROGRESS_NODE_NS: u64 = 50_000_000;

/// State of the check of routing daemons and routes before the epoch.
struct Routing {
    check: Token,
    /// Until when a failed check is repeated; 0 outside of `wait_for_routing`.
    deadline_ns: u64,
    has_converged: bool,
}

pub struct Engine<'a> {
    pub world: World<'a>,
    pub gate: Option<Gate>,
    pub children: Children,
    /// Whether the host controls the lab (mode `lab`): failed programs then do not end it.
    pub interactive: bool,
    transports: Vec<Box<dyn Transport>>,
    captures: Captures,
    daemons: Daemons,
    routing: Routing,
    launches: Launches,
    routes: RouteLog,
    /// None on the host's kernel, which has no taps.
    taps: Option<TapStream>,
    timer: Timer,
    lateness: Lateness,
    windows: Windows,
    statistics: Statistics,
    devices: Devices,
    /// By index in the plan's `events`.
    links: Topic,
    /// By index in the plan's `changes`.
    changes: Topic,
    /// By step.
    progress: Topic,
    /// Ends `run`. Numbered, because a `run` that ends for another reason leaves its alarm on the agenda.
    alarms: Topic,
    alarm: u32,
}

impl<'a> Engine<'a> {
    pub fn new(mut world: World<'a>, gate: Option<Gate>) -> Result<Self> {
        let timer = Timer::new(world.clock.scale).with_context(|| "timer".into())?;
        let token = world.topic(Part::Timer).only();
        world.watch(&timer.descriptor, token, READABLE).with_context(|| "timer".into())?;
        world.flow_samples = FlowSamples::open(world.plan)?;
        let transports = transport::ALL.open(&mut world)?;
        let taps = TapStream::open(&mut world)?;
        let captures = Captures::open(&mut world)?;
        let children = Children::new(&mut world)?;
        let routes = RouteLog::open(&mut world)?;
        let daemons = Daemons::schedule(&mut world);
        let windows = Windows::open(&mut world)?;
        let statistics = Statistics::open(&mut world)?;
        let devices = Devices::open(&mut world)?;
        // Some connections are opened before the epoch; routing must have converged by then.
        let routing = Routing { check: world.topic(Part::Forwarding).only(), deadline_ns: 0, has_converged: false };
        world.agenda.add(world.plan.epoch_ns.saturating_sub(transport::LEAD_TIME_NS), routing.check);
        let (links, progress) = (world.topic(Part::Links), world.topic(Part::Progress));
        let changes = world.topic(Part::Changes);
        let alarms = world.topic(Part::Alarm);
        let launches = Launches::new(&mut world);
        Ok(Self {
            world,
            gate,
            children,
            interactive: false,
            transports,
            captures,
            daemons,
            routing,
            launches,
            routes,
            taps,
            timer,
            lateness: Lateness::default(),
            windows,
            statistics,
            devices,
            links,
            changes,
            progress,
            alarms,
            alarm: 0,
        })
    }

    /// Waits until routing daemons are ready and routing has converged: a lab that comes up on a loaded machine takes
    /// as long as its daemons do. Fails after `ROUTING_TIMEOUT_NS` of real time.
    pub fn wait_for_routing(&mut self) -> Result<()> {
        let epoch_ns = self.world.plan.epoch_ns;
        let timeout_ns = self.world.placement.to_lab_ns(ROUTING_TIMEOUT_NS);
        self.routing.deadline_ns = self.world.now_ns().max(epoch_ns) + timeout_ns;
        self.run_until(epoch_ns)?;
        while !self.routing.has_converged {
            self.run_until(self.world.now_ns() + ROUTING_INTERVAL_NS)?;
        }
        Ok(())
    }

    /// Checks daemons and routes. Before the deadline of `wait_for_routing`, a failed check is repeated.
    fn check_routing(&mut self) -> Result<()> {
        let result = self.daemons.check(&self.world).and_then(|()| forwarding::check(&self.world));
        let now_ns = self.world.now_ns();
        if result.is_err() && now_ns < self.routing.deadline_ns {
            self.world.agenda.add(now_ns + ROUTING_INTERVAL_NS, self.routing.check);
            return Ok(());
        }
        self.routing.has_converged = true;
        result
    }

    /// Starts reports of device counters and lateness of a lab that is up, one per second of real time.
    pub fn report_devices(&mut self) {
        self.devices.schedule(&mut self.world, 0);
    }

    /// Sends a report. A guest that is ready may still be late from its boot, so lateness before the first report is
    /// discarded.
    fn on_report(&mut self, number: u32) -> Result<()> {
        if number == 0 {
            self.lateness.reset()?;
        }
        self.send_devices()?;
        self.devices.schedule(&mut self.world, number.saturating_add(1));
        Ok(())
    }

    fn send_devices(&mut self) -> Result<()> {
        if !self.world.placement.on_wall_clock() {
            return Ok(());
        }
        let context = || "devices".to_owned();
        let devices = serde_json::to_value(self.devices.read()?).with_context(context)?;
        let late_ns = serde_json::to_value(self.lateness.read(&self.world)).with_context(context)?;
        self.send(&Event::Devices { devices, late_ns })
    }

    /// Watches a non-blocking gate, so that `run_until_exit(GATE_ID)` returns when the host has sent something.
    pub fn watch_gate(&mut self) -> Result<()> {
        let gate = self.gate.as_ref().ok_or_else(|| Failure::new("mode lab: no gate"))?;
        let token = self.world.topic(Part::Gate).only();
        // Level-triggered: a read takes only one buffer.
        self.world.watch(gate, token, READABLE_LEVEL).with_context(|| "gate".into())
    }

    /// Schedules the workloads. `base_ns` (CLOCK_MONOTONIC) is their time 0.
    pub fn start_workloads(&mut self, base_ns: u64) {
        self.transports.iter_mut().for_each(|transport| transport.schedule(&mut self.world, base_ns));
        self.launches.schedule(&mut self.world, base_ns);
        for (index, event) in (0..).zip(&self.world.plan.events) {
            self.world.agenda.add(base_ns + event.at_ns, self.links.at(index));
        }
        for (index, change) in (0..).zip(&self.world.plan.changes) {
            self.world.agenda.add(base_ns + change.at_ns, self.changes.at(index));
        }
        self.windows.schedule(&mut self.world, base_ns);
        self.statistics.schedule(&mut self.world, base_ns);
        self.world.agenda.add(base_ns, self.progress.at(0));
    }

    /// Runs until `until_ns`. Deadlines at that instant are still served if they were added before.
    pub fn run_until(&mut self, until_ns: u64) -> Result<()> {
        self.run_until_or_exit(until_ns, &[])
    }

    /// Runs until `until_ns`, or until one of the programs `ids` has ended or shows a shell prompt.
    pub fn run_until_or_exit(&mut self, until_ns: u64, ids: &[u64]) -> Result<()> {
        self.alarm = self.alarm.wrapping_add(1);
        self.world.agenda.add(until_ns, self.alarms.at(self.alarm));
        self.run(ids)
    }

    /// Runs until a program has ended.
    pub fn run_until_exit(&mut self, id: u64) -> Result<()> {
        self.run(&[id])
    }

    fn run(&mut self, awaited: &[u64]) -> Result<()> {
        let mut events = [EpollEvent::empty(); EVENTS_PER_WAIT];
        loop {
            // Deadlines become due only when the timer fires, so the clock is not read after other events.
            if self.timer.take_fired() && self.run_due()? {
                return Ok(());
            }
            self.timer.arm(self.world.agenda.next_ns()).with_context(|| "timer".into())?;
            let count = match self.world.epoll.wait(&mut events, EpollTimeout::NONE) {
                Err(Errno::EINTR) => 0,
                result => result.with_context(|| "epoll".into())?,
            };
            self.world.clock.invalidate();
            // All events are dispatched: most are edge-triggered and are not reported again.
            let mut done = false;
            for event in &events[..count] {
                done |= self.dispatch(event, awaited)?;
            }
            if done {
                return Ok(());
            }
        }
    }

    /// Serves all deadlines that are due. Returns true at the alarm of this `run`.
    fn run_due(&mut self) -> Result<bool> {
        while let Some((due_ns, token)) = self.world.agenda.pop_due(self.world.now_ns()) {
            self.lateness.record(self.world.now_ns() - due_ns);
            match self.world.part(token) {
                Part::Transport(number) => {
                    self.transports[number].on_timer(&mut self.world, token, due_ns)?;
                }
                Part::Taps => {
                    if self.interactive {
                        self.push()?;
                    }
                    let taps = self.taps.as_mut();
                    taps.map_or(Ok(()), |taps| taps.on_timer(&mut self.world, token, due_ns))?;
                }
                Part::Captures => self.captures.on_timer(&mut self.world)?,
                Part::Progress => self.report_progress(due_ns, token.index)?,
                Part::Daemons => self.daemons.start_next(&mut self.world, token.index)?,
                Part::LaunchStarts => {
                    let started = self.launches.start(&self.world, token.index);
                    self.unless_interactive(started)?;
                }
                Part::LaunchStops => self.launches.stop(&mut self.world, token.index),
                Part::LaunchKills => self.launches.kill(token.index),
                Part::Forwarding => self.check_routing()?,
                Part::Links => {
                    let plan = self.world.plan;
                    self.set_link(&plan.events[token.index as usize])?;
                }
                Part::Changes => self.apply_change(token.index as usize)?,
                Part::Windows => self.record_received(due_ns)?,
                Part::Statistics => self.statistics.on_timer(&mut self.world, due_ns)?,
                Part::Devices => self.on_report(token.index)?,
                Part::Kills => self.children.kill(token.index as i32),
                Part::Alarm if token.index == self.alarm => return Ok(true),
                Part::Alarm => {}
                part @ (Part::Timer | Part::Gate | Part::Children | Part::Pipes | Part::Routes) => {
                    unreachable!("{part:?} has no deadlines")
                }
            }
        }
        Ok(false)
    }

    /// Handles one event. Returns whether it ends the wait for `awaited`.
    fn dispatch(&mut self, event: &EpollEvent, awaited: &[u64]) -> Result<bool> {
        let token = Token::from(event.data());
        match self.world.part(token) {
            Part::Transport(number) => {
                self.transports[number].on_ready(&mut self.world, token, event.events())?;
            }
            Part::Timer => self.timer.on_fired(),
            Part::Taps => self.taps.as_mut().map_or(Ok(()), TapStream::drain)?,
            // `serve` reads commands between waits.
            Part::Gate => return Ok(awaited.contains(&GATE_ID)),
            Part::Pipes => {
                if let Some(output) = self.children.read(token.index) {
                    self.send(&output.event())?;
                    return Ok(self.children.at_prompt(token.index).is_some_and(|id| awaited.contains(&id)));
                }
            }
            Part::Routes => self.routes.drain(&self.world, token.index)?,
            Part::Children => return self.on_children(awaited),
            part => unreachable!("{part:?} watches nothing"),
        }
        Ok(false)
    }

    /// Reports the children that have ended. Returns whether one of them is in `awaited`.
    fn on_children(&mut self, awaited: &[u64]) -> Result<bool> {
        let time_ns = self.world.now_since_epoch();
        let mut done = false;
        for child_event in self.children.reap()? {
            match child_event {
                ChildEvent::Exit { id, .. } => done |= awaited.contains(&id),
                ChildEvent::OtherExit { pid, code } => self.on_other_exit(pid, code)?,
                ChildEvent::Output(_) => {}
            }
            if let Some(event) = child_event.event(time_ns) {
                self.send(&event)?;
            }
        }
        Ok(done)
    }

    /// Handles the exit of a program of the plan. A daemon must run as long as the lab, and a launch must not fail;
    /// only an interactive lab continues.
    fn on_other_exit(&mut self, pid: i32, code: i32) -> Result<()> {
        let result = match self.launches.on_exit(&self.world, pid, code) {
            Some(result) => result,
            None => self.daemons.on_exit(&self.world, pid, code).map_or(Ok(()), Err),
        };
        self.unless_interactive(result)
    }

    /// Ignores an error after the epoch of an interactive lab.
    fn unless_interactive(&self, result: Result<()>) -> Result<()> {
        if self.interactive && self.world.now_ns() >= self.world.plan.epoch_ns {
            Ok(())
        } else {
            result
        }
    }

    /// Changes links at once, in an interactive lab.
    pub fn change_links(&mut self, changes: Vec<LinkChange>, states: &[LinkEvent]) -> Result<()> {
        let numbers = changes.iter().map(|change| change.link).chain(states.iter().map(|state| state.link));
        if let Some(link) = numbers.into_iter().find(|link| *link >= self.world.plan.links.len()) {
            return Err(Failure::new(format!("no link {link}")));
        }
        for change in changes {
            let kind = ChangeKind::Link(change);
            changes::apply(self.world.plan, self.world.placement, self.world.lab, &kind)?;
        }
        states.iter().try_for_each(|state| self.set_link(state))
    }

    fn set_link(&mut self, event: &LinkEvent) -> Result<()> {
        let link = &self.world.plan.links[event.link];
        for end in link.ends().into_iter().filter(|end| self.world.placement.is_local(end.node)) {
            self.routes.link(&self.world, end.node, &link.name, event.state)?;
        }
        link_state::set(self.world.plan, self.world.placement, self.world.lab, event)
    }

    fn apply_change(&mut self, change: usize) -> Result<()> {
        let kind = &self.world.plan.changes[change].kind;
        changes::apply(self.world.plan, self.world.placement, self.world.lab, kind)?;
        if let ChangeKind::Node(change) = kind {
            for transport in &mut self.transports {
                transport.set_congestion_control(&self.world, change.node, &change.congestion_control)?;
            }
        }
        Ok(())
    }

    /// Records the received bytes of all flows at a window bound.
    fn record_received(&mut self, due_ns: u64) -> Result<()> {
        let at_ns = self.world.since_epoch(due_ns);
        let mut received = Vec::new();
        for transport in &mut self.transports {
            received.extend(transport.received_bytes(&self.world, at_ns)?);
        }
        self.windows.write(at_ns, received)
    }

    fn report_progress(&mut self, due_ns: u64, step: u32) -> Result<()> {
        if step == 0 {
            self.lateness.reset()?;
        }
        self.send(&Event::Progress { time_ns: self.world.since_epoch(due_ns) })?;
        let duration_ns = self.world.plan.duration_ns;
        let steps = progress_steps(duration_ns, self.world.plan.nodes.len());
        if u64::from(step) < steps {
            let until = |step: u32| duration_ns * u64::from(step) / steps;
            let next_ns = due_ns + until(step + 1) - until(step);
            self.world.agenda.add(next_ns, self.progress.at(step + 1));
        }
        Ok(())
    }

    /// Flushes all samples to their files, for live readers.
    pub fn push(&mut self) -> Result<()> {
        if let Some(taps) = &mut self.taps {
            tap::Taps::find(self.world.plan)?.push()?;
            taps.drain()?;
        }
        self.world.flow_samples.as_mut().map_or(Ok(()), FlowSamples::flush)
    }

    /// Sends a `terminal` event for each change of a terminal's state.
    pub fn send_terminal_states(&mut self) -> Result<()> {
        self.children.changed_terminals().iter().try_for_each(|event| self.send(event))
    }

    /// Sends an event to the host, if there is a gate.
    pub fn send(&mut self, event: &Event) -> Result<()> {
        self.gate.as_mut().map_or(Ok(()), |gate| gate.send(event))
    }

    /// Writes all results and returns the time of the end.
    pub fn finish(mut self) -> Result<i64> {
        if !self.world.clock.page_is_consistent() {
            return Err(Failure::new("the clock page differs from CLOCK_MONOTONIC"));
        }
        let end_ns = self.world.now_since_epoch();
        // Counters first: closing the flows below sends further packets at this instant.
        counters::write(&self.world)?;
        self.send_devices()?;
        self.world.lab.namespaces.enter_root()?;
        if let Some(taps) = self.taps {
            tap::Taps::find(self.world.plan)?.flush()?;
            taps.finish()?;
        }
        self.lateness.write(&self.world)?;
        self.captures.finish(&self.world)?;
        self.routes.finish(&self.world)?;
        self.windows.finish()?;
        self.statistics.finish()?;
        self.transports.iter_mut().try_for_each(|transport| transport.finish(&self.world))?;
        self.world.flow_samples.take().map_or(Ok(()), |mut samples| samples.flush())?;
        self.launches.finish(&self.world)?;
        let records = self.transports.iter().flat_map(|transport| transport.records(&self.world));
        flows::write(records.collect())?;
        Ok(end_ns)
    }
}

fn progress_steps(duration_ns: u64, nodes: usize) -> u64 {
    let (min, max) = PROGRESS_STEPS.into_inner();
    (duration_ns.saturating_mul(nodes as u64) / PROGRESS_NODE_NS).clamp(min, max)
}

#[cfg(test)]
mod tests {
    use super::progress_steps;

    #[test]
    fn long_labs_send_a_hundred_progress_events() {
        let (ms, hour) = (1_000_000, 3_600_000_000_000);
        assert_eq!(progress_steps(ms, 3), 10);
        assert_eq!(progress_steps(100 * ms, 6), 12);
        assert_eq!(progress_steps(100 * ms, 1000), 100);
        assert_eq!(progress_steps(hour, 2), 100);
        assert_eq!(progress_steps(u64::MAX, usize::MAX), 100);
    }
}
