// SPDX-License-Identifier: Apache-2.0
//! State that all parts of the engine share: the plan, its placement, the lab, the clock, the agenda and the epoll
//! instance.

pub mod token;

use crate::clock::agenda::Agenda;
use crate::clock::lab_clock::{Clock, TimeScale};
use crate::failure::{Context, Result};
use crate::lab::Lab;
use crate::placement::Placement;
use crate::plan::workload::Workload;
use crate::plan::{Plan, CONGESTION_CONTROL};
use crate::results::flow_samples::FlowSamples;
use crate::world::token::{Part, Token, Topic, Topics};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use std::os::fd::AsFd;

/// Edge-triggered: each event is reported once.
pub const READABLE: EpollFlags = EpollFlags::EPOLLIN.union(EpollFlags::EPOLLRDHUP).union(EpollFlags::EPOLLET);
pub const WRITABLE: EpollFlags =
    EpollFlags::EPOLLOUT.union(EpollFlags::EPOLLRDHUP).union(EpollFlags::EPOLLET);
/// Level-triggered: reported as long as data remain, for handlers that read one buffer per event.
pub const READABLE_LEVEL: EpollFlags = EpollFlags::EPOLLIN;

pub struct World<'a> {
    pub plan: &'a Plan,
    pub placement: &'a Placement,
    pub lab: &'a Lab,
    pub agenda: Agenda<Token>,
    pub epoll: Epoll,
    pub clock: Clock,
    /// Samples of flows; None if the plan has neither an interval for them nor congestion controls with statistics.
    pub flow_samples: Option<FlowSamples>,
    topics: Topics<Part>,
}

impl<'a> World<'a> {
    pub fn new(plan: &'a Plan, placement: &'a Placement, lab: &'a Lab, scale: TimeScale) -> Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).with_context(|| "epoll".into())?;
        let clock = Clock::new(scale).with_context(|| "clock".into())?;
        let (agenda, topics) = (Agenda::default(), Topics::default());
        Ok(Self { plan, placement, lab, agenda, epoll, clock, flow_samples: None, topics })
    }

    /// Allocates a topic for one kind of event of a part.
    pub fn topic(&mut self, part: Part) -> Topic {
        self.topics.allocate(part)
    }

    /// The part that owns a token's topic.
    pub fn part(&self, token: Token) -> Part {
        self.topics.part(token)
    }

    pub fn watch(&self, fd: impl AsFd, token: Token, flags: EpollFlags) -> nix::Result<()> {
        self.epoll.add(fd, EpollEvent::new(flags, token.into()))
    }

    pub fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    pub fn since_epoch(&self, monotonic_ns: u64) -> i64 {
        monotonic_ns.wrapping_sub(self.plan.epoch_ns) as i64
    }

    pub fn now_since_epoch(&self) -> i64 {
        self.since_epoch(self.now_ns())
    }

    /// Time since the epoch of a packet's timestamp (CLOCK_REALTIME).
    pub fn timestamp_since_epoch(&self, realtime_ns: u64) -> i64 {
        self.since_epoch(self.clock.timestamp_to_lab_ns(realtime_ns))
    }

    /// Congestion control to set on a workload's sockets at a node; None: the namespace's default. On the host's
    /// kernel the node's default is set per socket, because a container may lack permission for the sysctl
    /// (`tcp_allowed_congestion_control`).
    pub fn congestion_control(&self, workload: &'a Workload, node: usize) -> Option<&'a str> {
        let sysctl = || self.plan.nodes[node].sysctls.get(CONGESTION_CONTROL);
        let node_default = || self.placement.on_host_kernel().then(sysctl).flatten();
        workload.congestion_control.as_ref().or_else(node_default).map(String::as_str)
    }
}
