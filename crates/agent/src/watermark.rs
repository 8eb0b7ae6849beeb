// SPDX-License-Identifier: Apache-2.0
//! When a TCP receiver is woken (SO_RCVLOWAT): seldom, but never so late that its unread bytes narrow the window that
//! the sender sees, and exactly at the last byte.

use crate::socket;
use std::io;
use std::os::fd::OwnedFd;

/// With the default receive buffer of 128 KiB, half of which is window: a quarter of the window.
pub const FIRST: u32 = 16 * 1024;
const MOST: u32 = 512 * 1024;
/// A receiver that may leave an eighth of its buffer unread leaves three quarters of its window open.
const SHARE_OF_BUFFER: u32 = 8;
/// Wake-ups between two looks at the buffer, which the kernel grows.
const WAKEUPS_A_LOOK: u8 = 8;

#[derive(Debug)]
pub struct Watermark {
    /// Set on the socket; a listener hands FIRST on to its connections.
    set: u32,
    chunk: u32,
    wakeups: u8,
}

impl Default for Watermark {
    fn default() -> Self {
        Self {
            set: FIRST,
            chunk: FIRST,
            wakeups: 0,
        }
    }
}

impl Watermark {
    /// To be called after each read. `remaining`: bytes to the end of the flow, if it has one.
    pub fn adapt(&mut self, fd: &OwnedFd, remaining: Option<u64>) -> io::Result<()> {
        self.wakeups += 1;
        if self.wakeups > WAKEUPS_A_LOOK {
            self.wakeups = 0;
            let buffer: u32 = socket::get(fd, libc::SOL_SOCKET, libc::SO_RCVBUF)?;
            self.chunk = (buffer / SHARE_OF_BUFFER).clamp(FIRST, MOST);
        }
        let wanted = remaining
            .map_or(self.chunk, |left| left.min(self.chunk.into()) as u32)
            .max(1);
        if wanted != self.set {
            socket::set(fd, libc::SOL_SOCKET, libc::SO_RCVLOWAT, wanted)?;
            self.set = wanted;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    fn pair() -> (OwnedFd, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (listener.accept().unwrap().0.into(), sender)
    }

    fn set_on(fd: &OwnedFd) -> u32 {
        socket::get(fd, libc::SOL_SOCKET, libc::SO_RCVLOWAT).unwrap()
    }

    #[test]
    fn the_end_of_a_flow_lowers_the_mark_to_its_last_byte() {
        let (receiver, _sender) = pair();
        let mut watermark = Watermark::default();
        watermark.adapt(&receiver, Some(1 << 30)).unwrap();
        watermark.adapt(&receiver, Some(1000)).unwrap();
        assert_eq!(set_on(&receiver), 1000);
        watermark.adapt(&receiver, Some(1)).unwrap();
        assert_eq!(set_on(&receiver), 1);
    }

    #[test]
    fn the_mark_stays_an_eighth_of_the_buffer() {
        let (receiver, _sender) = pair();
        let mut watermark = Watermark::default();
        for _ in 0..20 {
            watermark.adapt(&receiver, None).unwrap();
        }
        let buffer: u32 = socket::get(&receiver, libc::SOL_SOCKET, libc::SO_RCVBUF).unwrap();
        assert_eq!(watermark.chunk, (buffer / SHARE_OF_BUFFER).clamp(FIRST, MOST));
    }
}
