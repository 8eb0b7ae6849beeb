// SPDX-License-Identifier: Apache-2.0
//! When a TCP receiver is woken (SO_RCVLOWAT): seldom, but never so late that its unread bytes narrow the window that
//! the sender sees, and exactly at the last byte.
//!
//! Half of the receive buffer is window (the rest pays for packets' overhead). Unread bytes take from it, so in the
//! middle of a flow an eighth of the buffer may lie unread: three quarters of the window stay open, and the kernel
//! grows the buffer to twice what a round trip brings. The last three eighths of a flow may all lie unread: the
//! window has room for every byte that is still to come.

use crate::socket;
use std::io;
use std::os::fd::OwnedFd;

const MOST_IN_THE_MIDDLE: u32 = 512 * 1024;
/// Wake-ups between two looks at the buffer.
const WAKEUPS_A_LOOK: u8 = 8;

#[derive(Debug, Clone)]
pub struct Watermark {
    /// As the socket has it.
    set: u32,
    middle: u32,
    end: u32,
    wakeups: u8,
}

impl Watermark {
    /// Of a listener, from whose mark each connection starts.
    pub fn listen(listener: &OwnedFd) -> io::Result<Self> {
        let mut watermark = Self { set: 1, middle: 1, end: 1, wakeups: 0 };
        watermark.look(listener)?;
        Ok(watermark)
    }

    /// Of a connection whose listener has no mark.
    pub fn none() -> Self {
        Self { set: 1, middle: 1, end: 1, wakeups: WAKEUPS_A_LOOK }
    }

    /// To be called before the first read and after each. `remaining`: bytes to the end of the flow, if it has one.
    pub fn adapt(&mut self, fd: &OwnedFd, remaining: Option<u64>) -> io::Result<()> {
        self.wakeups += 1;
        if self.wakeups > WAKEUPS_A_LOOK {
            self.wakeups = 0;
            self.look(fd)?;
        }
        self.aim(fd, remaining)
    }

    /// Of a listener too, all of whose connections have so much to come: they need not be told one by one.
    pub fn aim(&mut self, fd: &OwnedFd, remaining: Option<u64>) -> io::Result<()> {
        let at_the_end = remaining.and_then(|left| u32::try_from(left).ok()).filter(|left| *left <= self.end);
        self.set(fd, at_the_end.unwrap_or(self.middle).max(1))
    }

    fn look(&mut self, fd: &OwnedFd) -> io::Result<()> {
        let buffer: u32 = socket::get(fd, libc::SOL_SOCKET, libc::SO_RCVBUF)?;
        self.middle = (buffer / 8).min(MOST_IN_THE_MIDDLE);
        self.end = buffer / 8 * 3;
        Ok(())
    }

    fn set(&mut self, fd: &OwnedFd, mark: u32) -> io::Result<()> {
        if mark != self.set {
            socket::set(fd, libc::SOL_SOCKET, libc::SO_RCVLOWAT, mark)?;
            self.set = mark;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    struct Connection {
        receiver: OwnedFd,
        watermark: Watermark,
        _sender: TcpStream,
    }

    fn connection(remaining: Option<u64>) -> Connection {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let listener = OwnedFd::from(listener);
        let mut watermark = Watermark::listen(&listener).unwrap();
        watermark.aim(&listener, remaining).unwrap();
        let sender = TcpStream::connect(address).unwrap();
        let receiver = TcpListener::from(listener).accept().unwrap().0.into();
        Connection { receiver, watermark, _sender: sender }
    }

    fn mark(fd: &OwnedFd) -> u32 {
        socket::get(fd, libc::SOL_SOCKET, libc::SO_RCVLOWAT).unwrap()
    }

    #[test]
    fn a_connection_has_its_listeners_mark() {
        for remaining in [None, Some(1_000), Some(1 << 40)] {
            let Connection { receiver, mut watermark, _sender } = connection(remaining);
            let aimed = remaining.filter(|left| *left == 1_000).unwrap_or(watermark.middle.into());
            assert_eq!(u64::from(mark(&receiver)), aimed);
            // So it need not be told.
            watermark.aim(&receiver, remaining).unwrap();
            assert_eq!(u64::from(watermark.set), aimed);
        }
    }

    #[test]
    fn the_end_of_a_flow_wakes_at_its_last_byte() {
        let Connection { receiver, mut watermark, _sender } = connection(None);
        watermark.adapt(&receiver, Some(1 << 40)).unwrap();
        assert_eq!(mark(&receiver), watermark.middle);
        for left in [20_000, 1] {
            watermark.adapt(&receiver, Some(left)).unwrap();
            assert_eq!(u64::from(mark(&receiver)), left);
        }
    }

    #[test]
    fn the_mark_never_grows_the_buffer() {
        let Connection { receiver, mut watermark, _sender } = connection(None);
        let buffer = || socket::get::<u32>(&receiver, libc::SOL_SOCKET, libc::SO_RCVBUF).unwrap();
        let before = buffer();
        watermark.adapt(&receiver, Some(watermark.end.into())).unwrap();
        assert_eq!(mark(&receiver), watermark.end);
        assert_eq!(buffer(), before);
    }
}
