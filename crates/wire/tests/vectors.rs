// SPDX-License-Identifier: Apache-2.0
//! tests/wire/vectors.json, and what holds for every header.

use proptest::prelude::*;
use qbed_wire::{checksum, Header, Kind, Refusal, Type, Unit, HEADER_BYTES, VERSION};
use serde::Deserialize;
use std::collections::HashMap;

#[derive(Deserialize)]
struct Vectors {
    packets: Vec<Packet>,
    ways: Vec<Way>,
}

#[derive(Deserialize)]
struct Packet {
    name: String,
    payload_at: usize,
    verdict: String,
    packet: String,
    #[serde(default)]
    header: HashMap<String, Said>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Said {
    Number(u64),
    Wide(String),
}

#[derive(Deserialize)]
struct Way {
    name: String,
    payload_at: usize,
    parts: Vec<u64>,
    before: String,
    after: String,
}

fn vectors() -> Vectors {
    serde_json::from_str(include_str!("../../../tests/wire/vectors.json")).unwrap()
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn fields(header: &Header) -> Vec<(&'static str, u128)> {
    vec![
        ("version", VERSION.into()),
        ("type", header.r#type as u128),
        ("flags", header.flags.into()),
        ("kind", header.kind as u128),
        ("unit", header.unit as u128),
        ("bits", header.bits.into()),
        ("hops", header.hops.into()),
        ("echo_hops", header.echo_hops.into()),
        ("flow", header.flow.into()),
        ("feedback", header.feedback.into()),
        ("feedback_bits", header.feedback_bits.into()),
        ("reserved", 0),
        ("sequence", header.sequence.into()),
        ("offset", header.offset.into()),
        ("window", header.window.into()),
        ("time", header.time.into()),
        ("echo_time", header.echo_time.into()),
        ("signal", header.signal),
        ("echo_signal", header.echo_signal),
    ]
}

#[test]
fn packets_say_what_they_say() {
    for vector in vectors().packets {
        let packet = bytes(&vector.packet);
        let payload = &packet[vector.payload_at..];
        let found = Header::parse(payload);
        let refused = match vector.verdict.as_str() {
            "unknown version" => Some(Refusal::UnknownVersion),
            "too short" => Some(Refusal::TooShort),
            "malformed" => Some(Refusal::Malformed),
            _ => None,
        };
        assert_eq!(found.err(), refused, "{}", vector.name);
        let Ok(header) = found else { continue };
        assert_eq!(header.emit(), payload[..HEADER_BYTES], "{}", vector.name);
        let said = fields(&header);
        assert_eq!(said.len(), vector.header.len());
        for (name, value) in said {
            let expected = match &vector.header[name] {
                Said::Number(number) => u128::from(*number),
                Said::Wide(hex) => u128::from_str_radix(hex, 16).unwrap(),
            };
            assert_eq!(value, expected, "{}: {name}", vector.name);
        }
    }
}

#[test]
fn queues_on_the_way_fold_their_parts() {
    for way in vectors().ways {
        let mut packet = bytes(&way.before);
        for &part in &way.parts {
            let before: [u8; HEADER_BYTES] = packet[way.payload_at..][..HEADER_BYTES].try_into().unwrap();
            let mut header = Header::parse(&before).unwrap();
            header.fold(part);
            let at = way.payload_at - 2;
            let check = u16::from_be_bytes([packet[at], packet[at + 1]]);
            packet[at..at + 2].copy_from_slice(&checksum(check, &before, &header.emit()).to_be_bytes());
            packet[way.payload_at..][..HEADER_BYTES].copy_from_slice(&header.emit());
        }
        assert_eq!(packet, bytes(&way.after), "{}", way.name);
    }
}

fn any_header() -> impl Strategy<Value = Header> {
    let types = prop::sample::select(vec![Type::Data, Type::Ack, Type::Feedback]);
    let kinds = prop::sample::select(vec![Kind::Sum, Kind::SumOfSquares, Kind::Max, Kind::Indicator]);
    let units = prop::sample::select(vec![Unit::Packets, Unit::Bytes, Unit::Nanoseconds]);
    let small = (any::<[u8; 4]>(), 1..=32u8, any::<u32>(), any::<u16>());
    let large = (any::<[u64; 5]>(), any::<[u128; 2]>());
    (types, kinds, units, small, large).prop_map(
        |(r#type, kind, unit, (bytes, bits, flow, feedback), large)| {
            let [flags, hops, echo_hops, feedback_bits] = bytes;
            let ([sequence, offset, window, time, echo_time], [signal, echo_signal]) = large;
            Header {
                r#type,
                flags,
                kind,
                unit,
                bits,
                hops,
                echo_hops,
                flow,
                feedback,
                feedback_bits,
                sequence,
                offset,
                window,
                time,
                echo_time,
                signal,
                echo_signal,
            }
        },
    )
}

/// The ones' complement sum over a header, which a checksum complements.
fn sum(header: &[u8]) -> u16 {
    let total: u32 =
        header.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    (total % 0xffff) as u16
}

proptest! {
    #[test]
    fn what_is_emitted_is_what_is_parsed(header in any_header()) {
        prop_assert_eq!(Header::parse(&header.emit()), Ok(header));
    }

    #[test]
    fn any_bytes_are_refused_or_emitted_again(payload in prop::collection::vec(any::<u8>(), 0..200), first in 0..3u8) {
        let mut payload = payload;
        if let Some(byte) = payload.first_mut() {
            *byte = first;
        }
        if let Ok(header) = Header::parse(&payload) {
            prop_assert_eq!(Header::parse(&header.emit()), Ok(header));
        }
    }

    #[test]
    fn a_checksum_follows_every_change(before in any_header(), after in any_header(), check in 1..=u16::MAX) {
        let (before, after) = (before.emit(), after.emit());
        let changed = checksum(check, &before, &after);
        prop_assert_ne!(changed, 0);
        let rest = (u32::from(check) + u32::from(sum(&before))) % 0xffff;
        prop_assert_eq!((u32::from(changed) + u32::from(sum(&after))) % 0xffff, rest);
    }

    #[test]
    fn signals_never_fall(header in any_header(), part: u64) {
        let mut folded = header;
        folded.fold(part);
        prop_assert!(folded.signal >= header.signal);
        prop_assert_eq!(folded.hops, header.hops.saturating_add(1));
    }
}
