// SPDX-License-Identifier: Apache-2.0
//! Statistics of a sender's congestion control: what `get_info` of its module returns (`TCP_CC_INFO`).

use crate::results::flow_samples::Values;
use crate::socket;
use std::io;
use std::os::fd::OwnedFd;

/// include/uapi/linux/tcp.h
const TCP_CC_INFO: i32 = 26;
/// Size of `union tcp_cc_info` in words of 32 bits.
const WORDS: usize = 5;

/// Reads the statistics as the values of a flow sample: the position of the congestion control in `controls`, the
/// number of bytes, the words. None if the socket has another congestion control.
pub fn read(sender: &OwnedFd, controls: &[String]) -> io::Result<Option<Values>> {
    if controls.is_empty() {
        return Ok(None);
    }
    let name = socket::congestion_control(sender)?;
    let Some(position) = controls.iter().position(|control| *control == name) else { return Ok(None) };
    let (words, length) = socket::get_with_length::<[u32; WORDS]>(sender, libc::IPPROTO_TCP, TCP_CC_INFO)?;
    let mut values = Values::default();
    (values[0], values[1]) = (Some(position as u64), Some(length as u64));
    for (value, word) in values[2..].iter_mut().zip(words) {
        *value = Some(word.into());
    }
    Ok(Some(values))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_control_without_statistics_fills_no_bytes() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let sender = OwnedFd::from(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        socket::set_text(&sender, libc::IPPROTO_TCP, libc::TCP_CONGESTION, "reno").unwrap();
        assert_eq!(read(&sender, &[]).unwrap(), None);
        assert_eq!(read(&sender, &["cubic".into()]).unwrap(), None);
        let values = read(&sender, &["cubic".into(), "reno".into()]).unwrap().unwrap();
        assert_eq!(values[..7], [Some(1), Some(0), Some(0), Some(0), Some(0), Some(0), Some(0)]);
        assert_eq!(values[7..], [None; 3]);
    }
}
