// SPDX-License-Identifier: Apache-2.0
//! SO_RCVLOWAT of TCP receivers. Wake-ups are rare, but unread bytes must not limit the advertised window, and the
//! last byte of a flow must wake the receiver immediately.
//!
//! Half of the receive buffer is window; the rest accounts for the overhead of packets. Unread bytes reduce the
//! window. During a flow, an eighth of the buffer may be unread: three quarters of the window stay open, and the
//! kernel grows the buffer to twice the bytes of a round trip. At the end of a flow, three eighths of the buffer may
//! be unread, because the window is large enough for all remaining bytes.

use crate::socket;
use std::io;
use std::os::fd::OwnedFd;

/// Limit on the watermark during a flow.
const MID_FLOW_MAX_BYTES: u32 = 512 * 1024;
/// Wake-ups between two reads of the buffer size.
const WAKEUPS_PER_READ: u8 = 8;

#[derive(Debug, Clone)]
pub struct Watermark {
    /// SO_RCVLOWAT of the socket.
    current: u32,
    /// Value during a flow.
    mid_flow: u32,
    /// Largest value at the end of a flow.
    end_of_flow: u32,
    wakeups: u8,
}

impl Watermark {
    /// The watermark of a listener, which its connections inherit.
    pub fn listen(listener: &OwnedFd) -> io::Result<Self> {
        let mut watermark = Self { current: 1, mid_flow: 1, end_of_flow: 1, wakeups: 0 };
        watermark.read_buffer_size(listener)?;
        Ok(watermark)
    }

    /// The watermark of a connection that does not inherit one.
    pub fn unset() -> Self {
        Self { current: 1, mid_flow: 1, end_of_flow: 1, wakeups: WAKEUPS_PER_READ }
    }

    /// Updates the watermark. To be called before the first read and after each. `remaining`: bytes to the end of the
    /// flow; None for a flow without a size.
    pub fn adapt(&mut self, fd: &OwnedFd, remaining: Option<u64>) -> io::Result<()> {
        self.wakeups += 1;
        if self.wakeups > WAKEUPS_PER_READ {
            self.wakeups = 0;
            self.read_buffer_size(fd)?;
        }
        self.set_for(fd, remaining)
    }

    /// Sets the watermark for `remaining` bytes. On a listener, it replaces a system call per connection if all
    /// connections expect that many bytes.
    pub fn set_for(&mut self, fd: &OwnedFd, remaining: Option<u64>) -> io::Result<()> {
        let at_the_end =
            remaining.and_then(|left| u32::try_from(left).ok()).filter(|left| *left <= self.end_of_flow);
        self.set(fd, at_the_end.unwrap_or(self.mid_flow).max(1))
    }

    fn read_buffer_size(&mut self, fd: &OwnedFd) -> io::Result<()> {
        let buffer: u32 = socket::get(fd, libc::SOL_SOCKET, libc::SO_RCVBUF)?;
        self.mid_flow = (buffer / 8).min(MID_FLOW_MAX_BYTES);
        self.end_of_flow = buffer / 8 * 3;
        Ok(())
    }

    fn set(&mut self, fd: &OwnedFd, value: u32) -> io::Result<()> {
        if value != self.current {
            socket::set(fd, libc::SOL_SOCKET, libc::SO_RCVLOWAT, value)?;
            self.current = value;
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
        watermark.set_for(&listener, remaining).unwrap();
        let sender = TcpStream::connect(address).unwrap();
        let receiver = TcpListener::from(listener).accept().unwrap().0.into();
        Connection { receiver, watermark, _sender: sender }
    }

    fn rcvlowat(fd: &OwnedFd) -> u32 {
        socket::get(fd, libc::SOL_SOCKET, libc::SO_RCVLOWAT).unwrap()
    }

    #[test]
    fn a_connection_inherits_the_listeners_watermark() {
        for remaining in [None, Some(1_000), Some(1 << 40)] {
            let Connection { receiver, mut watermark, _sender } = connection(remaining);
            let expected = remaining.filter(|left| *left == 1_000).unwrap_or(watermark.mid_flow.into());
            assert_eq!(u64::from(rcvlowat(&receiver)), expected);
            // No system call is needed.
            watermark.set_for(&receiver, remaining).unwrap();
            assert_eq!(u64::from(watermark.current), expected);
        }
    }

    #[test]
    fn the_end_of_a_flow_wakes_at_its_last_byte() {
        let Connection { receiver, mut watermark, _sender } = connection(None);
        watermark.adapt(&receiver, Some(1 << 40)).unwrap();
        assert_eq!(rcvlowat(&receiver), watermark.mid_flow);
        for left in [20_000, 1] {
            watermark.adapt(&receiver, Some(left)).unwrap();
            assert_eq!(u64::from(rcvlowat(&receiver)), left);
        }
    }

    #[test]
    fn the_watermark_does_not_grow_the_buffer() {
        let Connection { receiver, mut watermark, _sender } = connection(None);
        let buffer = || socket::get::<u32>(&receiver, libc::SOL_SOCKET, libc::SO_RCVBUF).unwrap();
        let before = buffer();
        watermark.adapt(&receiver, Some(watermark.end_of_flow.into())).unwrap();
        assert_eq!(rcvlowat(&receiver), watermark.end_of_flow);
        assert_eq!(buffer(), before);
    }
}
