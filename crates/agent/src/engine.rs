// SPDX-License-Identifier: Apache-2.0
//! The loop: waits for the next deadline or event, and hands it to whom it concerns. One thread serves all nodes; it
//! costs no virtual time, so what it does at an instant happens at that instant everywhere.

use crate::clock::timer::Timer;
use crate::failure::{Failure, Of, Result};
use crate::gate::{Event, Gate};
use crate::lab::{changes, linkstate};
use crate::netlink::tap;
use crate::observe::capture::Captures;
use crate::observe::devices::Devices;
use crate::observe::lateness::Lateness;
use crate::observe::routelog::RouteLog;
use crate::observe::statistics::Statistics;
use crate::observe::taps::TapStream;
use crate::observe::windows::Windows;
use crate::observe::{counters, forwarding};
use crate::plan::Changed;
use crate::programs::children::{Children, Notice};
use crate::programs::launched::Launches;
use crate::programs::resident::Programs;
use crate::results::flows;
use crate::transport::{self, Transport};
use crate::world::token::{Part, Token, Topic};
use crate::world::{World, READABLE, READABLE_STILL};
use nix::errno::Errno;
use nix::sys::epoll::{EpollEvent, EpollTimeout};
use std::ops::RangeInclusive;

const EVENTS_A_WAIT: usize = 256;
/// Stands for the gate where the id of a program that ended is expected.
pub const GATE: u64 = u64::MAX;
/// Progress is told this often; each time takes four system calls, so a lab that runs for a moment only tells it less
/// often: once for so much of its nodes' time.
const PROGRESS_STEPS: RangeInclusive<u64> = 10..=100;
const PROGRESS_NODE_NS: u64 = 50_000_000;

pub struct Engine<'a> {
    pub world: World<'a>,
    pub gate: Option<Gate>,
    pub children: Children,
    /// Whether somebody plays with the lab.
    pub interactive: bool,
    transports: Vec<Box<dyn Transport>>,
    captures: Captures,
    programs: Programs,
    launches: Launches,
    routes: RouteLog,
    /// None: the host's kernel has no taps.
    taps: Option<TapStream>,
    timer: Timer,
    lateness: Lateness,
    windows: Windows,
    statistics: Statistics,
    devices: Devices,
    /// By event of the plan.
    links: Topic,
    /// By change of the plan.
    changes: Topic,
    /// By step.
    progress: Topic,
    /// Ends `run`; by number, since one that ended for another reason leaves its alarm behind.
    alarms: Topic,
    alarm: u32,
}

impl<'a> Engine<'a> {
    pub fn new(mut world: World<'a>, gate: Option<Gate>) -> Result<Self> {
        let timer = Timer::new(world.clock.paper).of(|| "timer".into())?;
        let token = world.topic(Part::Timer).only();
        world.watch(&timer.descriptor, token, READABLE).of(|| "timer".into())?;
        let transports = transport::ALL.open(&mut world)?;
        let taps = TapStream::open(&mut world)?;
        let captures = Captures::open(&mut world)?;
        let children = Children::new(&mut world)?;
        let routes = RouteLog::open(&mut world)?;
        let programs = Programs::schedule(&mut world);
        let windows = Windows::open(&mut world)?;
        let statistics = Statistics::open(&mut world)?;
        let devices = Devices::open(&mut world)?;
        // Some flows are sent ahead of the epoch; by then their way must be there.
        let checked = world.topic(Part::Forwarding).only();
        world.agenda.add(world.plan.epoch_ns.saturating_sub(transport::AHEAD_NS), checked);
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
            programs,
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

    /// Reports from now on, once a second of real time, what the devices of a lab that is up count, and how late it
    /// runs.
    pub fn report_devices(&mut self) {
        self.devices.schedule(&mut self.world, 0);
    }

    /// A guest that is ready may still be late from its boot: the first report comes when it has caught up, and what
    /// was late until then does not count.
    fn on_report(&mut self, number: u32) -> Result<()> {
        if number == 0 {
            self.lateness.reset()?;
        }
        self.tell_devices()?;
        self.devices.schedule(&mut self.world, number.saturating_add(1));
        Ok(())
    }

    fn tell_devices(&mut self) -> Result<()> {
        if !self.world.scope.on_wall_clock() {
            return Ok(());
        }
        let here = || "devices".to_owned();
        let devices = serde_json::to_value(self.devices.read()?).of(here)?;
        let late_ns = serde_json::to_value(self.lateness.read(&self.world)).of(here)?;
        self.tell(&Event::Devices { devices, late_ns })
    }

    /// From now on `run_until_exit(GATE)` ends when the host says something. A gate that is polled.
    pub fn watch_gate(&mut self) -> Result<()> {
        let gate = self.gate.as_ref().ok_or_else(|| Failure::new("mode lab: no gate"))?;
        let token = self.world.topic(Part::Gate).only();
        // A read takes one piece only.
        self.world.watch(gate, token, READABLE_STILL).of(|| "gate".into())
    }

    /// Starts the workloads; their times count from `base_ns` (CLOCK_MONOTONIC).
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

    /// Lets time flow until `until_ns`. What is due at that very instant still happens, if it was planned before.
    pub fn run_until(&mut self, until_ns: u64) -> Result<()> {
        self.run_until_or_exit(until_ns, &[])
    }

    /// The same, but no longer than until one of these children has ended, or waits as a shell for a command.
    pub fn run_until_or_exit(&mut self, until_ns: u64, ids: &[u64]) -> Result<()> {
        self.alarm = self.alarm.wrapping_add(1);
        self.world.agenda.add(until_ns, self.alarms.at(self.alarm));
        self.run(ids)
    }

    /// Lets time flow until a child has ended.
    pub fn run_until_exit(&mut self, id: u64) -> Result<()> {
        self.run(&[id])
    }

    fn run(&mut self, awaited: &[u64]) -> Result<()> {
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
            self.world.clock.time_has_passed();
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
        while let Some((due_ns, token)) = self.world.agenda.take_due(self.world.now_ns()) {
            self.lateness.count(self.world.now_ns() - due_ns);
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
                Part::Progress => self.tell_progress(due_ns, token.index)?,
                Part::Programs => self.programs.go_on(&mut self.world, token.index)?,
                Part::LaunchStarts => {
                    let started = self.launches.start(&self.world, token.index);
                    self.unless_played_with(started)?;
                }
                Part::LaunchStops => self.launches.stop(&mut self.world, token.index),
                Part::LaunchKills => self.launches.kill(token.index),
                Part::Forwarding => {
                    self.programs.check(&self.world)?;
                    forwarding::check(&self.world)?;
                }
                Part::Links => self.set_link(token.index as usize)?,
                Part::Changes => self.change(token.index as usize)?,
                Part::Windows => self.note_received(due_ns)?,
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

    /// Returns whether this is what is waited for.
    fn dispatch(&mut self, event: &EpollEvent, awaited: &[u64]) -> Result<bool> {
        let token = Token::from(event.data());
        match self.world.part(token) {
            Part::Transport(number) => {
                self.transports[number].on_ready(&mut self.world, token, event.events())?;
            }
            Part::Timer => self.timer.on_fired(),
            Part::Taps => self.taps.as_mut().map_or(Ok(()), TapStream::take)?,
            // Commands are taken between waits (serve).
            Part::Gate => return Ok(awaited.contains(&GATE)),
            Part::Pipes => {
                if let Some(output) = self.children.read(token.index) {
                    self.tell(&output.event())?;
                    return Ok(self.children.at_prompt(token.index).is_some_and(|id| awaited.contains(&id)));
                }
            }
            Part::Routes => self.routes.take(&self.world, token.index)?,
            Part::Children => return self.on_children(awaited),
            part => unreachable!("{part:?} watches nothing"),
        }
        Ok(false)
    }

    /// Tells of the children that ended; returns whether one of them is waited for.
    fn on_children(&mut self, awaited: &[u64]) -> Result<bool> {
        let time_ns = self.world.now_since_epoch();
        let mut over = false;
        for notice in self.children.reap()? {
            match notice {
                Notice::Exit { id, .. } => over |= awaited.contains(&id),
                Notice::Other { pid, code } => self.on_unknown_child(pid, code)?,
                Notice::Output(_) => {}
            }
            if let Some(event) = notice.event(time_ns) {
                self.tell(&event)?;
            }
        }
        Ok(over)
    }

    /// A program of the plan must not end before the lab does, one that is workload not with an error; only a lab that somebody plays with goes on without it.
    fn on_unknown_child(&mut self, pid: i32, code: i32) -> Result<()> {
        let ended = match self.launches.on_end(&self.world, pid, code) {
            Some(ended) => ended,
            None => self.programs.on_end(&self.world, pid, code).map_or(Ok(()), Err),
        };
        self.unless_played_with(ended)
    }

    fn unless_played_with(&self, result: Result<()>) -> Result<()> {
        let played_with = self.interactive && self.world.now_ns() >= self.world.plan.epoch_ns;
        if played_with {
            Ok(())
        } else {
            result
        }
    }

    fn set_link(&mut self, event: usize) -> Result<()> {
        let event = &self.world.plan.events[event];
        let link = &self.world.plan.links[event.link];
        for end in link.ends().into_iter().filter(|end| self.world.scope.has(end.node)) {
            self.routes.link(&self.world, end.node, &link.name, event.state)?;
        }
        linkstate::set(self.world.plan, self.world.scope, self.world.lab, event)
    }

    fn change(&mut self, change: usize) -> Result<()> {
        let what = &self.world.plan.changes[change].what;
        changes::make(self.world.plan, self.world.scope, self.world.lab, what)?;
        if let Changed::Node(change) = what {
            // Whoever has no flow of this host's has nothing to do.
            for transport in &mut self.transports {
                transport.set_congestion_control(&self.world, change.node, &change.congestion_control)?;
            }
        }
        Ok(())
    }

    /// Where a window begins or ends.
    fn note_received(&mut self, due_ns: u64) -> Result<()> {
        let at_ns = self.world.since_epoch(due_ns);
        let mut received = Vec::new();
        for transport in &mut self.transports {
            received.extend(transport.received(&self.world, at_ns)?);
        }
        self.windows.write(at_ns, received)
    }

    fn tell_progress(&mut self, due_ns: u64, step: u32) -> Result<()> {
        if step == 0 {
            self.lateness.reset()?;
        }
        self.tell(&Event::Progress { time_ns: self.world.since_epoch(due_ns) })?;
        let duration_ns = self.world.plan.duration_ns;
        let steps = progress_steps(duration_ns, self.world.plan.nodes.len());
        if u64::from(step) < steps {
            let until = |step: u32| duration_ns * u64::from(step) / steps;
            let next_ns = due_ns + until(step + 1) - until(step);
            self.world.agenda.add(next_ns, self.progress.at(step + 1));
        }
        Ok(())
    }

    /// Has written what is sampled so far, for who follows it.
    pub fn push(&mut self) -> Result<()> {
        if let Some(taps) = &mut self.taps {
            tap::Taps::find(self.world.plan)?.push()?;
            taps.take()?;
        }
        self.transports.iter_mut().try_for_each(|transport| transport.push())
    }

    /// Tells what has changed with those who read terminals.
    pub fn tell_moods(&mut self) -> Result<()> {
        self.children.moods().iter().try_for_each(|mood| self.tell(mood))
    }

    pub fn tell(&mut self, event: &Event) -> Result<()> {
        self.gate.as_mut().map_or(Ok(()), |gate| gate.send(event))
    }

    /// Writes all results of this instant. Returns its time.
    pub fn finish(mut self) -> Result<i64> {
        if !self.world.clock.is_true() {
            return Err(Failure::new("the clock's page is not CLOCK_MONOTONIC"));
        }
        let end_ns = self.world.now_since_epoch();
        // First the books: what closes flows below sends packets of its own, at this very instant.
        counters::write(&self.world)?;
        self.tell_devices()?;
        self.world.lab.namespaces.go_home()?;
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
        self.launches.finish(&self.world)?;
        let records = self.transports.iter().flat_map(|transport| transport.records(&self.world));
        flows::write(records.collect())?;
        Ok(end_ns)
    }
}

fn progress_steps(duration_ns: u64, nodes: usize) -> u64 {
    let (least, most) = PROGRESS_STEPS.into_inner();
    (duration_ns.saturating_mul(nodes as u64) / PROGRESS_NODE_NS).clamp(least, most)
}

#[cfg(test)]
mod tests {
    use super::progress_steps;

    #[test]
    fn progress_is_told_a_hundred_times_where_it_takes_long() {
        let (ms, hour) = (1_000_000, 3_600_000_000_000);
        assert_eq!(progress_steps(ms, 3), 10);
        assert_eq!(progress_steps(100 * ms, 6), 12);
        assert_eq!(progress_steps(100 * ms, 1000), 100);
        assert_eq!(progress_steps(hour, 2), 100);
        assert_eq!(progress_steps(u64::MAX, usize::MAX), 100);
    }
}
