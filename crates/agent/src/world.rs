// SPDX-License-Identifier: Apache-2.0
//! What every part of the engine needs: the plan, the lab, the clock, the agenda, and a way to be woken.

use crate::clock::agenda::Agenda;
use crate::failure::{Of, Result};
use crate::lab::Lab;
use crate::plan::Plan;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::time::{clock_gettime, ClockId};
use std::cell::Cell;
use std::os::fd::AsFd;

/// Whom an event is for. Numbers are indexes: of a flow, a listener, an open pipe, a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Token {
    Timer,
    Taps,
    Children,
    Gate,
    Pipe(u32),
    Listener(u32),
    Sender(u32),
    Receiver(u32),
    Routes(u32),
}

impl Token {
    fn pack(self) -> u64 {
        let (kind, index) = match self {
            Self::Timer => (0, 0),
            Self::Taps => (1, 0),
            Self::Children => (2, 0),
            Self::Gate => (7, 0),
            Self::Pipe(index) => (3, index),
            Self::Listener(index) => (4, index),
            Self::Sender(index) => (5, index),
            Self::Receiver(index) => (6, index),
            Self::Routes(index) => (8, index),
        };
        (kind << 32) | u64::from(index)
    }

    pub fn unpack(data: u64) -> Self {
        let index = data as u32;
        match data >> 32 {
            0 => Self::Timer,
            1 => Self::Taps,
            2 => Self::Children,
            3 => Self::Pipe(index),
            4 => Self::Listener(index),
            5 => Self::Sender(index),
            6 => Self::Receiver(index),
            7 => Self::Gate,
            _ => Self::Routes(index),
        }
    }
}

/// Edge-triggered: an event is told once, and nothing is asked of the kernel in between.
pub const READABLE: EpollFlags = EpollFlags::EPOLLIN.union(EpollFlags::EPOLLRDHUP).union(EpollFlags::EPOLLET);
pub const WRITABLE: EpollFlags =
    EpollFlags::EPOLLOUT.union(EpollFlags::EPOLLRDHUP).union(EpollFlags::EPOLLET);

pub struct World<'a> {
    pub plan: &'a Plan,
    pub lab: &'a Lab,
    pub agenda: Agenda,
    pub epoll: Epoll,
    clock: Clock,
}

impl<'a> World<'a> {
    pub fn new(plan: &'a Plan, lab: &'a Lab, paper: Paper) -> Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).of(|| "epoll".into())?;
        let clock = Clock::new(paper).of(|| "clock".into())?;
        Ok(Self { plan, lab, agenda: Agenda::default(), epoll, clock })
    }

    pub fn paper(&self) -> Paper {
        self.clock.paper
    }

    pub fn watch(&self, fd: impl AsFd, token: Token, flags: EpollFlags) -> nix::Result<()> {
        self.epoll.add(fd, EpollEvent::new(flags, token.pack()))
    }

    pub fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    /// To be called when the thread has waited, so that the clock is read again.
    pub fn time_has_passed(&self) {
        self.clock.cached_ns.set(None);
    }

    pub fn since_epoch(&self, monotonic_ns: u64) -> i64 {
        monotonic_ns.wrapping_sub(self.plan.epoch_ns) as i64
    }

    pub fn now_since_epoch(&self) -> i64 {
        self.since_epoch(self.now_ns())
    }

    /// Of a packet's time stamp (CLOCK_REALTIME).
    pub fn stamp_since_epoch(&self, realtime_ns: u64) -> i64 {
        let monotonic_ns = realtime_ns.wrapping_sub(self.clock.realtime_offset_ns);
        self.since_epoch(self.clock.paper.at_monotonic(monotonic_ns))
    }
}

/// Paper time as a function of CLOCK_MONOTONIC (docs/formats.md §5): the same in a guest, whose kernel sees to it.
#[derive(Debug, Clone, Copy)]
pub struct Paper {
    pub origin_ns: i64,
    pub dilation: u32,
}

impl Paper {
    pub const GUEST: Self = Self { origin_ns: 0, dilation: 1 };

    pub fn at_monotonic(self, monotonic_ns: u64) -> u64 {
        u64::try_from(monotonic_ns as i64 - self.origin_ns).unwrap_or(0) / u64::from(self.dilation)
    }

    pub fn to_monotonic(self, paper_ns: u64) -> u64 {
        let real_ns = i128::from(paper_ns) * i128::from(self.dilation) + i128::from(self.origin_ns);
        u64::try_from(real_ns.max(0)).unwrap_or(u64::MAX)
    }
}

/// CLOCK_MONOTONIC, read at most once between two waits: PID 1's own work takes no virtual time.
struct Clock {
    paper: Paper,
    cached_ns: Cell<Option<u64>>,
    realtime_offset_ns: u64,
}

impl Clock {
    fn new(paper: Paper) -> nix::Result<Self> {
        let realtime_ns = read_ns(ClockId::CLOCK_REALTIME)?;
        let realtime_offset_ns = realtime_ns.wrapping_sub(read_ns(ClockId::CLOCK_MONOTONIC)?);
        Ok(Self { paper, cached_ns: Cell::new(None), realtime_offset_ns })
    }

    fn now_ns(&self) -> u64 {
        self.cached_ns.get().unwrap_or_else(|| {
            let now_ns = read_ns(ClockId::CLOCK_MONOTONIC).expect("Linux has CLOCK_MONOTONIC");
            let now_ns = self.paper.at_monotonic(now_ns);
            self.cached_ns.set(Some(now_ns));
            now_ns
        })
    }
}

fn read_ns(clock: ClockId) -> nix::Result<u64> {
    let time = clock_gettime(clock)?;
    Ok(time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
}

#[cfg(test)]
mod tests {
    use super::Token;

    #[test]
    fn tokens_survive_the_kernel() {
        let all = [Token::Timer, Token::Taps, Token::Children, Token::Gate];
        let numbered = [Token::Pipe, Token::Listener, Token::Sender, Token::Receiver, Token::Routes];
        let all = all.into_iter().chain(numbered.into_iter().map(|token| token(u32::MAX)));
        assert!(all.into_iter().all(|token| Token::unpack(token.pack()) == token));
    }
}
