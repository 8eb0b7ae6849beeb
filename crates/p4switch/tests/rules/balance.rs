// SPDX-License-Identifier: Apache-2.0
//! The buckets of labs/controller/balance.p4: CRC-32 of a flow's addresses and ports.

use crate::bench::{Bench, Packet, Queue};
use qbed_p4engine::program::Match;

const BUCKETS: u32 = 64;

/// CRC-32/ISO-HDLC, bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

/// An IPv6 packet with the transport of an IPv4 one, from fd00::N to fd00::M.
fn ipv6(packet: &Packet) -> Vec<u8> {
    let length = u16::try_from(packet.transport.len()).unwrap().to_be_bytes();
    let mut frame = [&[0; 12], &[0x86, 0xdd, 0x60, 0, 0, 0][..], &length, &[packet.protocol, 64]].concat();
    for end in [packet.from, packet.to] {
        frame.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, end]);
    }
    [frame, packet.transport.clone()].concat()
}

fn bucket_is_the_hash(bench: &mut Bench, frame: &[u8], flow: &[u8]) -> u32 {
    let index = 2 * BUCKETS + (crc32(flow) >> 26);
    let before = bench.register("bucket_bytes", index);
    bench.pass(1, frame, 10, Queue::default());
    assert_eq!(bench.register("bucket_bytes", index) - before, frame.len() as u64, "{flow:x?}");
    index
}

#[test]
fn buckets_are_hashes_of_the_addresses_that_a_packet_has() {
    let mut bench = Bench::load("labs/controller/balance.json");
    let prefix = vec![0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    bench.insert("ipv6_routes", vec![Match::Lpm { value: prefix, length: 16 }], "route", &[2, 1, 0]);
    let mut buckets = std::collections::BTreeSet::new();
    for from in 1..=20 {
        for protocol in [6, 17] {
            let packet = Packet { protocol, ..Packet::tcp((from, 1000), (2, 80), 0x10, b"data") };
            let (ipv4, ipv6) = (packet.frame(), ipv6(&packet));
            let ports = &packet.transport[..4];
            bucket_is_the_hash(&mut bench, &ipv4, &[&ipv4[26..34], ports].concat());
            buckets.insert(bucket_is_the_hash(&mut bench, &ipv6, &[&ipv6[22..54], ports].concat()));
        }
    }
    assert!(buckets.len() > 5, "{buckets:?}");
}
