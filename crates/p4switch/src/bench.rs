// SPDX-License-Identifier: Apache-2.0
//! Throughput on one core: `p4switch bench`.

use crate::replay::Arrived;
use crate::switch::Switch;

/// Length of a round in seconds. The best round is least disturbed by other programs.
const ROUND_S: f64 = 0.05;

const ETHERNET: usize = 14;
const IPV4: usize = 20;
const IPV6: usize = 40;
const UDP: usize = 8;
const PROTOCOL_UDP: u8 = 17;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// Packets in.
    pub packets: u64,
    /// Packets out.
    pub sent: u64,
    pub seconds: f64,
    /// Time per packet in the best round.
    pub min_ns: f64,
}

/// Send the packets repeatedly for `seconds` of the clock.
pub fn measure(switch: &mut Switch, packets: &[Arrived], seconds: f64, clock: impl Fn() -> f64) -> Measured {
    let begin = clock();
    let mut measured = Measured { packets: 0, sent: 0, seconds: 0.0, min_ns: f64::INFINITY };
    while measured.seconds < seconds {
        let (round, first) = (clock(), measured.packets);
        let mut now = round;
        while now - round < ROUND_S {
            for (port, bytes) in packets {
                measured.packets += 1;
                measured.sent += switch.receive(*port, bytes.clone(), measured.packets).len() as u64;
            }
            switch.log.clear();
            now = clock();
        }
        measured.min_ns = measured.min_ns.min((now - round) * 1e9 / (measured.packets - first) as f64);
        measured.seconds = now - begin;
    }
    measured
}

/// Resize packets to `size` bytes. Packets that cannot be resized or are then dropped by the switch are left out.
pub fn resize_all(switch: &mut Switch, packets: &[Arrived], size: usize) -> Vec<Arrived> {
    let mut resized: Vec<Arrived> =
        packets.iter().filter_map(|(port, bytes)| Some((*port, resize(bytes, size)?))).collect();
    resized.retain(|(port, bytes)| !switch.receive(*port, bytes.clone(), 1).is_empty());
    switch.log.clear();
    resized
}

/// Truncate or pad a UDP datagram over IPv4 or IPv6 and update its lengths and IPv4's checksum. UDP's checksum becomes
/// 0 (none).
fn resize(frame: &[u8], size: usize) -> Option<Vec<u8>> {
    let (version, words) = (frame.get(ETHERNET)? >> 4, frame.get(ETHERNET)? & 15);
    let (network, protocol) = match (frame.get(12..ETHERNET)?, version, words) {
        ([0x08, 0], 4, 5) => (IPV4, *frame.get(ETHERNET + 9)?),
        ([0x86, 0xdd], 6, _) => (IPV6, *frame.get(ETHERNET + 6)?),
        _ => return None,
    };
    let transport = ETHERNET + network;
    if protocol != PROTOCOL_UDP || frame.len() < transport + UDP || size < transport + UDP {
        return None;
    }
    let mut resized = frame.to_vec();
    resized.resize(size, 0);
    let datagram = u16::try_from(size - transport).ok()?;
    resized[transport + 4..transport + 6].copy_from_slice(&datagram.to_be_bytes());
    resized[transport + 6..transport + UDP].fill(0);
    if version == 6 {
        resized[ETHERNET + 4..ETHERNET + 6].copy_from_slice(&datagram.to_be_bytes());
        return Some(resized);
    }
    let bytes = datagram.checked_add(IPV4 as u16)?;
    resized[ETHERNET + 2..ETHERNET + 4].copy_from_slice(&bytes.to_be_bytes());
    resized[ETHERNET + 10..ETHERNET + 12].fill(0);
    let mut sum: u32 =
        resized[ETHERNET..transport].chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    resized[ETHERNET + 10..ETHERNET + 12].copy_from_slice(&(!sum as u16).to_be_bytes());
    Some(resized)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 1071's sum. It is 0xffff for a header with a correct checksum.
    fn sum(header: &[u8]) -> u32 {
        let sum: u32 = header.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
        (sum & 0xffff) + (sum >> 16)
    }

    fn frame(network: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame.extend(network);
        frame.extend([0x9c, 0x40, 0x18, 0x2e, 0, 12, 1, 2, b'd', b'a', b't', b'a']);
        frame
    }

    #[test]
    fn datagrams_are_truncated_and_padded() {
        let ipv4 = [8, 0, 0x45, 0, 0, 32, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 2, 3];
        for size in [44, 64, 1514] {
            let resized = resize(&frame(&ipv4), size).unwrap();
            assert_eq!(resized.len(), size);
            assert_eq!(sum(&resized[14..34]), 0xffff);
            assert_eq!(usize::from(resized[16]) << 8 | usize::from(resized[17]), size - 14);
            assert_eq!(usize::from(resized[38]) << 8 | usize::from(resized[39]), size - 34);
            assert_eq!(resized[40..44], [0, 0, b'd', b'a']);
        }
        let mut ipv6 = vec![0x86, 0xdd, 0x60, 0, 0, 0, 0, 12, 17, 64];
        ipv6.extend([7; 32]);
        let resized = resize(&frame(&ipv6), 100).unwrap();
        assert_eq!((resized.len(), &resized[18..20], &resized[58..60]), (100, &[0, 46][..], &[0, 46][..]));
    }

    #[test]
    fn packets_that_are_not_udp_or_do_not_fit_are_left_out() {
        let tcp = [8, 0, 0x45, 0, 0, 32, 0, 1, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 2, 3];
        let udp = [8, 0, 0x45, 0, 0, 32, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 2, 3];
        assert_eq!(resize(&frame(&tcp), 64), None);
        assert_eq!(resize(&frame(&udp), 41), None);
        assert_eq!(resize(&frame(&udp), 70_000), None);
        assert_eq!(resize(&[0; 20], 64), None);
    }
}
