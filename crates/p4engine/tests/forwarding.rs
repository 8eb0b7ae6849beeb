// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! A small router: parser, longest prefix match, TTL, checksum, deparser.

mod build;

use build::{arrival, departure, Build, Recorder};
use qbed_p4engine::control::{Answer, Entry, Refusal, Request, Target};
use qbed_p4engine::packet::Forward;
use qbed_p4engine::program::*;
use qbed_p4engine::Engine;

const IPV4: [u32; 12] = [4, 4, 8, 16, 16, 3, 13, 8, 8, 16, 32, 32];
const TTL: FieldId = 7;
const CHECKSUM: FieldId = 9;
const DESTINATION: FieldId = 11;

/// A program with a table that forwards to a port or drops, by destination.
fn router() -> Program {
    let mut build = Build::new();
    let standard = build.standard();
    let (ethernet, mac) = build.header("ethernet", &[48, 48, 16]);
    let (ipv4, first) = build.header("ipv4", &IPV4);
    build.program.selects = vec![Select {
        keys: vec![SelectKey::Field(mac + 2)],
        bytes: 2,
        cases: vec![SelectCase { on: SelectOn::Value { value: vec![8, 0], mask: None }, next: 4 }],
        default: Some(3),
    }];
    // Instruction 0 is the builder's `End`.
    build.program.entry.parser = build.code(&[
        Op::Extract { header: ethernet },
        Op::Select { select: 0 },
        Op::End, // 3
        Op::Extract { header: ipv4 },
        Op::End,
    ]);
    let drop = build.action("drop", &[], &[Op::MarkToDrop, Op::End]);
    let forward = build.action(
        "forward",
        &[9],
        &[
            Op::Argument { to: 0, argument: 0 },
            Op::Store { field: standard.egress_spec.unwrap(), from: 0 },
            Op::Load { to: 0, field: first + TTL },
            Op::Set { to: 1, value: 1 },
            Op::Binary { op: Binary::Subtract, to: 0, left: 0, right: 1 },
            Op::Store { field: first + TTL, from: 0 },
            Op::End,
        ],
    );
    let end = build.code(&[Op::End]);
    let table = build.table("routes", &[(first + DESTINATION, MatchKind::Lpm)], &[drop, forward], end);
    build.program.entry.ingress = build.code(&[Op::Apply { table }]);
    build.code(&[Op::End]);
    let input =
        (0..12).filter(|field| *field != CHECKSUM).map(|field| HashInput::Field(first + field)).collect();
    let hash = build.hash(HashKind::Csum16, input);
    build.program.entry.update =
        build.code(&[Op::Checksum { to: 0, hash }, Op::Store { field: first + CHECKSUM, from: 0 }, Op::End]);
    build.program.entry.deparser =
        build.code(&[Op::Emit { header: ethernet }, Op::Emit { header: ipv4 }, Op::End]);
    build.program
}

/// A packet to 10.1.2.3 with TTL 64 and a valid checksum.
fn packet() -> Vec<u8> {
    let mut packet = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    packet.extend([0x45, 0, 0, 24, 0, 1, 0, 0, 64, 17, 0x64, 0xd0, 10, 0, 0, 1, 10, 1, 2, 3, 1, 2, 3, 4]);
    packet
}

fn route(prefix: [u8; 4], length: u16, port: u16) -> Request {
    let call = ActionCall { action: 1, arguments: vec![port.to_be_bytes().to_vec()] };
    let matches = vec![Match::Lpm { value: prefix.to_vec(), length }];
    Request::Insert {
        table: 0,
        entry: Entry { matches, priority: 0, target: Target::Call(call), idle_us: 0 },
    }
}

fn sum(bytes: &[u8]) -> u32 {
    let sum: u32 = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    (sum & 0xffff) + (sum >> 16)
}

#[test]
fn a_packet_matches_the_longest_prefix_and_its_ttl_is_decremented() {
    let mut engine = Engine::load(router()).unwrap();
    assert_eq!(engine.control(&route([10, 0, 0, 0], 8, 1)), Answer::Done);
    assert_eq!(engine.control(&route([10, 1, 0, 0], 16, 2)), Answer::Done);
    let (mut context, mut recorder, packet) = (engine.context(), Recorder::default(), packet());
    assert_eq!(sum(&packet[14..34]), 0xffff);
    let decision = engine.ingress(&mut context, &packet, &arrival(0, packet.len(), 1), &mut recorder);
    assert_eq!(decision.forward, Forward::Unicast { port: 2, priority: 0 });
    let emission = engine.egress(&mut context, &packet, &departure(2, 2), &mut recorder);
    assert!(!emission.drop);
    assert_eq!(emission.replaced, 34);
    let sent = context.headers();
    assert_eq!(sent[..22], packet[..22]);
    assert_eq!(sent[22], 63);
    assert_eq!(sent[26..], packet[26..34]);
    assert_eq!(sum(&sent[14..34]), 0xffff);
}

#[test]
fn drops_are_counted_by_table_and_action() {
    let mut engine = Engine::load(router()).unwrap();
    let (mut context, mut recorder, packet) = (engine.context(), Recorder::default(), packet());
    for _ in 0..3 {
        let decision = engine.ingress(&mut context, &packet, &arrival(0, packet.len(), 1), &mut recorder);
        assert_eq!(decision.forward, Forward::Drop);
    }
    let Answer::Totals(totals) = engine.control(&Request::Totals) else { panic!() };
    assert_eq!(totals.drops, [("table routes, action drop".to_string(), 3)]);
    assert_eq!(totals.ingress, 3);
}

#[test]
fn a_short_packet_ends_the_parser_with_its_error() {
    let mut engine = Engine::load(router()).unwrap();
    let (mut context, mut recorder, packet) = (engine.context(), Recorder::default(), packet());
    engine.ingress(&mut context, &packet[..33], &arrival(0, 33, 1), &mut recorder);
    assert_eq!(context.parsed(), 14);
    let Answer::Totals(totals) = engine.control(&Request::Totals) else { panic!() };
    assert_eq!(totals.parser_errors, 1);
}

#[test]
fn a_program_loads_from_bytes() {
    let image = postcard::to_allocvec(&router()).unwrap();
    let mut engine = Engine::from_bytes(&image).unwrap();
    assert_eq!(engine.control(&route([10, 0, 0, 0], 8, 1)), Answer::Done);
    assert!(Engine::from_bytes(&image[..image.len() / 2]).is_err());
}

#[test]
fn an_invalid_entry_is_refused_with_the_reason() {
    let mut engine = Engine::load(router()).unwrap();
    let refusal = |answer| match answer {
        Answer::Refused(refusal, _) => refusal,
        other => panic!("{other:?}"),
    };
    assert_eq!(refusal(engine.control(&route([10, 0, 0, 0], 33, 1))), Refusal::InvalidArgument);
    assert_eq!(refusal(engine.control(&route([10, 0, 0, 0], 8, 512))), Refusal::InvalidArgument);
    assert_eq!(engine.control(&route([10, 0, 0, 0], 8, 1)), Answer::Done);
    assert_eq!(refusal(engine.control(&route([10, 9, 9, 9], 8, 1))), Refusal::AlreadyExists);
    let matches = vec![Match::Lpm { value: vec![10, 0, 0, 0], length: 9 }];
    assert_eq!(
        refusal(engine.control(&Request::Delete { table: 0, matches, priority: 0 })),
        Refusal::NotFound
    );
    assert_eq!(refusal(engine.control(&Request::ResetDefault { table: 1 })), Refusal::NotFound);
}
