// SPDX-License-Identifier: Apache-2.0
//! What every part of the engine needs: the plan, what of it is here, the lab, the clock, the agenda, and a way to be
//! woken.

pub mod token;

use crate::clock::agenda::Agenda;
use crate::clock::paper::{Clock, Paper};
use crate::failure::{Of, Result};
use crate::lab::Lab;
use crate::plan::workload::Workload;
use crate::plan::{Plan, CONGESTION_CONTROL};
use crate::scope::Scope;
use crate::world::token::{Part, Token, Topic, Topics};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use std::os::fd::AsFd;

/// Edge-triggered: an event is told once, and nothing is asked of the kernel in between.
pub const READABLE: EpollFlags = EpollFlags::EPOLLIN.union(EpollFlags::EPOLLRDHUP).union(EpollFlags::EPOLLET);
pub const WRITABLE: EpollFlags =
    EpollFlags::EPOLLOUT.union(EpollFlags::EPOLLRDHUP).union(EpollFlags::EPOLLET);
/// Level-triggered: told again as long as something waits, for those who take one piece at a time.
pub const READABLE_STILL: EpollFlags = EpollFlags::EPOLLIN;

pub struct World<'a> {
    pub plan: &'a Plan,
    pub scope: &'a Scope,
    pub lab: &'a Lab,
    pub agenda: Agenda<Token>,
    pub epoll: Epoll,
    pub clock: Clock,
    topics: Topics<Part>,
}

impl<'a> World<'a> {
    pub fn new(plan: &'a Plan, scope: &'a Scope, lab: &'a Lab, paper: Paper) -> Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).of(|| "epoll".into())?;
        let clock = Clock::new(paper).of(|| "clock".into())?;
        Ok(Self { plan, scope, lab, agenda: Agenda::default(), epoll, clock, topics: Topics::default() })
    }

    /// Hands out a number for one kind of what a part waits for.
    pub fn topic(&mut self, part: Part) -> Topic {
        self.topics.hand_out(part)
    }

    /// Who was handed out the topic of a token.
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

    /// Of a packet's time stamp (CLOCK_REALTIME).
    pub fn stamp_since_epoch(&self, realtime_ns: u64) -> i64 {
        self.since_epoch(self.clock.at_stamp(realtime_ns))
    }

    /// What a workload's sockets at a node have to be told; None: the kernel's default is right. In a container the
    /// host's kernel may not let a default be chosen (`tcp_allowed_congestion_control`), but each socket may.
    pub fn congestion_control(&self, workload: &'a Workload, node: usize) -> Option<&'a str> {
        let of_the_node = || self.plan.nodes[node].sysctls.get(CONGESTION_CONTROL);
        let own = || self.scope.on_host_kernel().then(of_the_node).flatten();
        workload.congestion_control.as_ref().or_else(own).map(String::as_str)
    }
}
