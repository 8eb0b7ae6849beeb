// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Measures packets per second on one core for a program like the stamp scheme's: two pipelines, three tables, some 150
//! instructions. Also measures tables with 100,000 routes and with 10,000 entries of 100 masks.
//!
//!     cargo run --release -p qbed-p4engine --example throughput

#[path = "../tests/build/mod.rs"]
mod build;

use std::time::Instant;

use build::{arrival, departure, Build, Recorder};
use qbed_p4engine::control::{Answer, Entry, Request, Target};
use qbed_p4engine::packet::Forward;
use qbed_p4engine::program::*;
use qbed_p4engine::Engine;

/// Packets of a round. The best of several rounds counts, since other programs run at the same time.
const PACKETS: u32 = 250_000;
const ROUNDS: u32 = 8;
const IPV4: [u32; 12] = [4, 4, 8, 16, 16, 3, 13, 8, 8, 16, 32, 32];

struct Fields {
    standard: Standard,
    ethernet: FieldId,
    ipv4: FieldId,
    stamp: FieldId,
    meta: FieldId,
}

fn parser(build: &mut Build, headers: [HeaderId; 3], fields: &Fields) {
    let select = |field, value: Vec<u8>, next, default| Select {
        keys: vec![SelectKey::Field(field)],
        bytes: value.len() as u16,
        cases: vec![SelectCase { on: SelectOn::Value { value, mask: None }, next }],
        default: Some(default),
    };
    let begin = build.next_pc();
    build.program.selects = vec![
        select(fields.ethernet + 2, vec![8, 0], begin + 3, begin + 2),
        select(fields.ipv4 + 8, vec![253], begin + 5, begin + 2),
    ];
    build.program.entry.parser = build.code(&[
        Op::Extract { header: headers[0] },
        Op::Select { select: 0 },
        Op::End,
        Op::Extract { header: headers[1] },
        Op::Select { select: 1 },
        Op::Extract { header: headers[2] },
        Op::End,
    ]);
}

/// Ingress: routes by destination (`forward`), then addresses by port (`rewrite`).
fn ingress(build: &mut Build, fields: &Fields, route: MatchKind) {
    let drop = build.action("drop", &[], &[Op::MarkToDrop, Op::End]);
    let less_to_live = [
        Op::Load { to: 0, field: fields.ipv4 + 7 },
        Op::Set { to: 1, value: 1 },
        Op::Binary { op: Binary::Subtract, to: 0, left: 0, right: 1 },
        Op::Store { field: fields.ipv4 + 7, from: 0 },
    ];
    let egress_spec = fields.standard.egress_spec.unwrap();
    let mut forward = vec![Op::Argument { to: 0, argument: 0 }, Op::Store { field: egress_spec, from: 0 }];
    forward.extend(less_to_live);
    forward.push(Op::End);
    let forward = build.action("forward", &[9], &forward);
    let mut rewrite: Vec<Op> = (0..2)
        .flat_map(|index| {
            let field = fields.ethernet + index;
            [Op::Argument { to: 0, argument: index }, Op::Store { field, from: 0 }]
        })
        .collect();
    rewrite.push(Op::End);
    let rewrite = build.action("rewrite", &[48, 48], &rewrite);
    let end = build.code(&[Op::End]);
    let addresses = build.table("addresses", &[(egress_spec, MatchKind::Exact)], &[drop, rewrite], end);
    let apply = build.code(&[Op::Apply { table: addresses }]);
    let routes = build.table("routes", &[(fields.ipv4 + 11, route)], &[drop, forward], apply);
    build.program.entry.ingress = build.code(&[Op::Apply { table: routes }]);
}

/// Egress: adds the queue's length to the header's sums, truncated and saturated, by port.
fn egress(build: &mut Build, fields: &Fields) {
    let (stamp, depth) = (fields.stamp, fields.standard.deq_qdepth.unwrap());
    let binary = |op, to, left, right| Op::Binary { op, to, left, right };
    let mut code = vec![Op::Load { to: 0, field: depth }, Op::Argument { to: 1, argument: 0 }];
    code.extend([binary(Binary::ShiftRight, 0, 0, 1), Op::Store { field: fields.meta, from: 0 }]);
    for field in 0..4 {
        for round in 0..3 {
            code.extend([
                Op::Load { to: 2, field: stamp + field },
                Op::Load { to: 3, field: fields.meta },
                binary(Binary::Multiply, 4, 3, 3),
                binary(Binary::Add, 2, 2, if round == 0 { 3 } else { 4 }),
                Op::Set { to: 5, value: 0xffff_ffff },
                binary(Binary::And, 2, 2, 5),
                Op::Set { to: 6, value: 16 },
                binary(Binary::SaturateUnsigned, 2, 2, 6),
                binary(Binary::Greater, 7, 2, 3),
            ]);
            let after = build.next_pc() + code.len() as u32 + 2;
            code.extend([Op::JumpIf { condition: 7, to: after }, Op::Move { to: 2, from: 3 }]);
            code.push(Op::Store { field: stamp + field, from: 2 });
        }
    }
    code.push(Op::End);
    let none = build.action("none", &[], &[Op::End]);
    // The instructions of `none` move the jumps' targets.
    let moved = build.next_pc() - build.program.actions[usize::from(none)].begin;
    for op in &mut code {
        if let Op::JumpIf { to, .. } = op {
            *to += moved;
        }
    }
    let add = build.action("add", &[8], &code);
    let end = build.code(&[Op::End]);
    let port = fields.standard.egress_port.unwrap();
    let stamps = build.table("stamps", &[(port, MatchKind::Exact)], &[none, add], end);
    build.program.entry.egress = build.code(&[Op::Apply { table: stamps }]);
}

fn program(route: MatchKind) -> Program {
    let mut build = Build::new();
    let standard = build.standard();
    let (ethernet, first_ethernet) = build.header("ethernet", &[48, 48, 16]);
    let (ipv4, first_ipv4) = build.header("ipv4", &IPV4);
    let (stamp, first_stamp) = build.header("stamp", &[32, 32, 32, 32]);
    let meta = build.field("meta", 32);
    let fields = Fields { standard, ethernet: first_ethernet, ipv4: first_ipv4, stamp: first_stamp, meta };
    parser(&mut build, [ethernet, ipv4, stamp], &fields);
    ingress(&mut build, &fields, route);
    egress(&mut build, &fields);
    let input =
        (0..12).filter(|field| *field != 9).map(|field| HashInput::Field(first_ipv4 + field)).collect();
    let hash = build.hash(HashKind::Csum16, input);
    let checksum = first_ipv4 + 9;
    build.program.entry.update =
        build.code(&[Op::Checksum { to: 0, hash }, Op::Store { field: checksum, from: 0 }, Op::End]);
    let emit = [ethernet, ipv4, stamp].map(|header| Op::Emit { header });
    build.program.entry.deparser = build.code(&emit);
    build.code(&[Op::End]);
    build.program
}

fn insert(
    engine: &mut Engine,
    table: TableId,
    matches: Match,
    priority: u32,
    action: ActionId,
    arguments: Vec<Vec<u8>>,
) {
    let target = Target::Call(ActionCall { action, arguments });
    let entry = Entry { matches: vec![matches], priority, target, idle_us: 0 };
    let answer = engine.control(&Request::Insert { table, entry });
    assert_eq!(answer, Answer::Done);
}

/// A deterministic pseudo-random number.
fn scatter(index: u32) -> u32 {
    index.wrapping_mul(0x9e37_79b9) ^ index.wrapping_mul(0x85eb_ca6b) >> 15
}

/// Packets per second, to the destinations of the routes one after the other.
fn measure(engine: &mut Engine, destinations: &[[u8; 4]], length: usize) -> f64 {
    let mut packet = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    packet.extend([0x45, 0, 0, 50, 0, 1, 0, 0, 64, 253, 0, 0, 10, 0, 0, 1, 10, 1, 2, 3]);
    packet.resize(length, 0);
    let mut best = 0f64;
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        round(engine, destinations, &mut packet);
        best = best.max(f64::from(PACKETS) / begin.elapsed().as_secs_f64());
    }
    best
}

fn round(engine: &mut Engine, destinations: &[[u8; 4]], packet: &mut [u8]) {
    let (mut context, mut recorder) = (engine.context(), Recorder::default());
    let mut sent = 0;
    for number in 0..PACKETS {
        let now_us = u64::from(number);
        packet[30..34].copy_from_slice(&destinations[number as usize % destinations.len()]);
        let decision = engine.ingress(&mut context, packet, &arrival(1, packet.len(), now_us), &mut recorder);
        let Forward::Unicast { port, .. } = decision.forward else { continue };
        let emission = engine.egress(&mut context, packet, &departure(port, now_us), &mut recorder);
        sent += u32::from(!emission.drop && context.headers().len() == 50);
    }
    assert_eq!(sent, PACKETS);
}

fn prepared(route: MatchKind) -> Engine {
    let mut engine = Engine::load(program(route)).unwrap();
    for port in 0..4u16 {
        let address = vec![2, 0, 0, 0, 0, port as u8];
        insert(
            &mut engine,
            0,
            Match::Exact(port.to_be_bytes().to_vec()),
            0,
            2,
            vec![address.clone(), address],
        );
        insert(&mut engine, 2, Match::Exact(port.to_be_bytes().to_vec()), 0, 4, vec![vec![1]]);
    }
    engine
}

fn with_routes(count: u32, length: usize) -> f64 {
    let mut engine = prepared(MatchKind::Lpm);
    let mut destinations = Vec::new();
    let begin = Instant::now();
    for index in 0..count {
        // Half are /24, the others have all lengths from 8 to 32. Duplicates are refused.
        let length = if index % 2 == 0 { 24 } else { 8 + (index % 25) as u16 };
        let value = (scatter(index) >> (32 - length) << (32 - length)).to_be_bytes();
        let matches = Match::Lpm { value: value.to_vec(), length };
        let target = Target::Call(ActionCall { action: 1, arguments: vec![vec![0, (index % 4) as u8]] });
        let entry = Entry { matches: vec![matches], priority: 0, target, idle_us: 0 };
        engine.control(&Request::Insert { table: 1, entry });
        destinations.push(value);
    }
    println!("  {count} routes inserted: {:.0} a second", f64::from(count) / begin.elapsed().as_secs_f64());
    measure(&mut engine, &destinations, length)
}

fn with_masks(count: u32, masks: u32) -> f64 {
    let mut engine = prepared(MatchKind::Ternary);
    let mut destinations = Vec::new();
    for index in 0..count {
        // The low 24 bits, in which all entries differ, and some of the upper eight.
        let mask = 0x00ff_ffff | (index % masks + 1) << 24;
        let value = (scatter(index) & 0xff00_0000 | index) & mask;
        let matches =
            Match::Ternary { value: value.to_be_bytes().to_vec(), mask: mask.to_be_bytes().to_vec() };
        insert(&mut engine, 1, matches, 1 + index % 1000, 1, vec![vec![0, (index % 4) as u8]]);
        destinations.push(value.to_be_bytes());
    }
    measure(&mut engine, &destinations, 64)
}

fn main() {
    let instructions = program(MatchKind::Lpm).code.len();
    for length in [64, 1500] {
        println!(
            "{instructions} instructions, 10 routes, {length} bytes: {:.0} packets/s",
            with_routes(10, length)
        );
    }
    println!("100,000 routes: {:.0} packets/s", with_routes(100_000, 64));
    println!("100 ternary entries of 1 mask: {:.0} packets/s", with_masks(100, 1));
    println!("10,000 ternary entries of 100 masks: {:.0} packets/s", with_masks(10_000, 100));
}
