// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Machine code against the interpreter: both give the same results for every program and packet.
#![cfg(all(target_arch = "x86_64", not(miri)))]

mod build;

use build::{arrival, departure, Build, Recorder};
use proptest::prelude::*;
use qbed_p4engine::control::{Entry as TableEntry, Request, Target};
use qbed_p4engine::program::*;
use qbed_p4engine::Engine;

const REGISTERS: u16 = 5;
/// Widths of the header's fields: aligned and not, of one to nine bytes of the packet.
const WIDTHS: [u32; 12] = [8, 16, 32, 48, 64, 3, 13, 7, 1, 24, 60, 4];
const HEADER_BYTES: usize = 35;
/// The first field of the header, after the standard metadata.
const FIELDS: FieldId = 19;

/// The states and outputs of an engine for packets. The engine gets as many bytes of each at first.
fn results(engine: &mut Engine, packets: &[Vec<u8>], bytes: usize) -> Vec<String> {
    let (mut context, mut recorder) = (engine.context(), Recorder::default());
    let mut results = Vec::new();
    for packet in packets {
        let first = &packet[..bytes.min(packet.len())];
        recorder.whole = (first.len() < packet.len()).then(|| packet.clone().leak() as &[u8]);
        let decision = engine.ingress(&mut context, first, &arrival(3, packet.len(), 9), &mut recorder);
        results.push(format!("{decision:?} {context:?}"));
        let emission = engine.egress(&mut context, packet, &departure(1, 10), &mut recorder);
        results.push(format!("{emission:?} {context:?} {:?}", engine.control(&Request::Totals)));
    }
    results.push(format!("{:?}", engine.control(&Request::ReadCounter { counter: 0, from: 0, count: 3 })));
    results
}

fn compare(program: &Program, requests: &[Request], packets: &[Vec<u8>]) -> Result<(), TestCaseError> {
    let mut interpreted = Engine::load(program.clone()).unwrap();
    let mut translated = Engine::load(program.clone()).unwrap();
    qbed_p4native::translate(&mut translated);
    prop_assert!(translated.is_translated() && !interpreted.is_translated());
    for request in requests {
        prop_assert_eq!(interpreted.control(request), translated.control(request));
    }
    let expected = results(&mut interpreted, packets, usize::MAX);
    prop_assert_eq!(&expected, &results(&mut translated, packets, usize::MAX));
    for bytes in [0, 3, HEADER_BYTES, HEADER_BYTES + 2, HEADER_BYTES + 6] {
        for translated in [false, true] {
            let mut engine = Engine::load(program.clone()).unwrap();
            if translated {
                qbed_p4native::translate(&mut engine);
            }
            requests.iter().for_each(|request| drop(engine.control(request)));
            prop_assert_eq!(&expected, &results(&mut engine, packets, bytes), "{} bytes at first", bytes);
        }
    }
    Ok(())
}

fn number() -> impl Strategy<Value = i64> {
    let edge = prop::sample::select(vec![
        0,
        1,
        -1,
        2,
        7,
        127,
        128,
        255,
        256,
        0xffff,
        0x7fff_ffff,
        0x8000_0000,
        0xffff_ffff,
        i64::MAX,
        i64::MIN,
    ]);
    prop_oneof![3 => edge, 1 => any::<i64>(), 1 => -300..300i64]
}

fn binary() -> impl Strategy<Value = Binary> {
    prop::sample::select(vec![
        Binary::Add,
        Binary::Subtract,
        Binary::Multiply,
        Binary::And,
        Binary::Or,
        Binary::Xor,
        Binary::Equal,
        Binary::NotEqual,
        Binary::Less,
        Binary::LessOrEqual,
        Binary::Greater,
        Binary::GreaterOrEqual,
    ])
}

fn register() -> std::ops::Range<Reg> {
    0..REGISTERS
}

fn field() -> impl Strategy<Value = FieldId> {
    (0..WIDTHS.len() as u16).prop_map(|field| FIELDS + field)
}

fn binary_with() -> impl Strategy<Value = Op> {
    let operands = (binary(), register(), register(), number());
    operands.prop_map(|(op, to, left, value)| Op::BinaryWith { op, to, left, value })
}

fn jump_if(when: bool, condition: Reg, to: Pc) -> Op {
    if when {
        Op::JumpIf { condition, to }
    } else {
        Op::JumpUnless { condition, to }
    }
}

/// Jumps alone and after loads and comparisons. A target is relative to its jump.
fn jump() -> impl Strategy<Value = Vec<Op>> {
    let when = any::<bool>;
    let compared = (binary_with(), 1..6u32, when()).prop_map(|(compare, to, when)| match compare {
        Op::BinaryWith { to: condition, .. } => vec![compare, jump_if(when, condition, to)],
        _ => vec![],
    });
    let two =
        (binary(), register(), register(), register(), 1..6u32).prop_map(|(op, to, left, right, jump)| {
            vec![Op::Binary { op, to, left, right }, jump_if(false, to, jump)]
        });
    let loaded = (register(), field(), 1..6u32, when())
        .prop_map(|(to, field, jump, when)| vec![Op::Load { to, field }, jump_if(when, to, jump)]);
    let byte = (field(), register(), number(), binary(), 1..6u32).prop_map(|(field, to, value, op, jump)| {
        let compare = Op::BinaryWith { op, to, left: to, value: value & 0xff };
        vec![Op::Load { to, field }, compare, jump_if(true, to, jump)]
    });
    prop_oneof![
        (1..6u32).prop_map(|to| vec![Op::Jump { to }]),
        (register(), 1..6u32, when()).prop_map(|(condition, to, when)| vec![jump_if(when, condition, to)]),
        compared,
        two,
        loaded,
        byte,
    ]
}

/// Operations on registers.
fn arithmetic() -> impl Strategy<Value = Vec<Op>> {
    let shift = (any::<bool>(), register(), register(), 0..128i64).prop_map(|(left, to, from, value)| {
        let op = if left { Binary::ShiftLeft } else { Binary::ShiftRight };
        Op::BinaryWith { op, to, left: from, value }
    });
    let two = (binary(), register(), register(), register()).prop_map(|(op, to, left, right)| Op::Binary {
        op,
        to,
        left,
        right,
    });
    let operation = prop_oneof![
        (register(), number()).prop_map(|(to, value)| Op::Set { to, value }),
        (register(), register()).prop_map(|(to, from)| Op::Move { to, from }),
        (register(), register()).prop_map(|(to, from)| Op::Unary { op: Unary::Invert, to, from }),
        (register(), register(), 1..128u16).prop_map(|(to, from, bits)| Op::Cut { to, from, bits }),
        (register(), 0..2u16).prop_map(|(to, hash)| Op::Checksum { to, hash }),
        register().prop_map(|index| Op::Count { counter: 0, index }),
        two,
        binary_with(),
        shift,
    ];
    operation.prop_map(|operation| vec![operation])
}

/// Loads and stores of the header's fields.
fn access() -> impl Strategy<Value = Vec<Op>> {
    let copied = (register(), field(), field())
        .prop_map(|(to, from, field)| vec![Op::Load { to, field: from }, Op::Store { field, from: to }]);
    let stored = (binary_with(), field()).prop_map(|(operation, field)| match operation {
        Op::BinaryWith { to, .. } => vec![operation, Op::Store { field, from: to }],
        _ => vec![],
    });
    let incremented = (field(), register(), number()).prop_map(|(field, to, value)| {
        let add = Op::BinaryWith { op: Binary::Add, to, left: to, value };
        vec![Op::Load { to, field }, add, Op::Store { field, from: to }]
    });
    prop_oneof![
        (register(), field()).prop_map(|(to, field)| vec![Op::Load { to, field }]),
        (register(), field()).prop_map(|(from, field)| vec![Op::Store { field, from }]),
        (field(), number()).prop_map(|(field, value)| vec![Op::StoreConstant { field, value }]),
        copied,
        stored,
        incremented,
    ]
}

fn operation() -> impl Strategy<Value = Vec<Op>> {
    prop_oneof![arithmetic(), access(), jump()]
}

/// Makes the targets of jumps absolute. They are after the jump and at most at the end.
fn placed(operations: Vec<Vec<Op>>, begin: Pc) -> Vec<Op> {
    let mut ops: Vec<Op> = operations.into_iter().flatten().collect();
    let end = begin + ops.len() as Pc;
    for (at, op) in (begin..).zip(&mut ops) {
        if let Op::Jump { to } | Op::JumpIf { to, .. } | Op::JumpUnless { to, .. } = op {
            *to = (at + *to).min(end);
        }
    }
    ops
}

/// The parser after the header.
#[derive(Debug, Clone)]
struct Parser {
    lookahead: (u32, u32),
    key: u16,
    cases: Vec<(u8, u8)>,
    default: bool,
}

fn parser() -> impl Strategy<Value = Parser> {
    let cases = prop::collection::vec((0..4u8, prop_oneof![Just(0xff), 0..4u8]), 0..4);
    ((0..40u32, 1..65u32), 0..WIDTHS.len() as u16, cases, any::<bool>())
        .prop_map(|(lookahead, key, cases, default)| Parser { lookahead, key, cases, default })
}

/// Adds the parser: a header, a lookahead and a select of one of two further headers or of none.
fn add_parser(build: &mut Build, parser: &Parser, [head, next, options]: [HeaderId; 3]) {
    let begin = build.next_pc();
    let bytes = WIDTHS[usize::from(parser.key)].div_ceil(8) as u16;
    let padded = |byte: u8| {
        let mut value = vec![0; bytes.into()];
        *value.last_mut().unwrap() = byte;
        value
    };
    let case = |(index, (value, mask)): (usize, &(u8, u8))| SelectCase {
        on: SelectOn::Value { value: padded(*value), mask: (*mask != 0xff).then(|| padded(*mask)) },
        next: begin + 4 + (index % 2) as Pc * 2,
    };
    build.program.selects.push(Select {
        keys: vec![SelectKey::Field(FIELDS + parser.key)],
        bytes,
        cases: parser.cases.iter().enumerate().map(case).collect(),
        default: parser.default.then_some(begin + 7),
    });
    let (at, width) = parser.lookahead;
    build.program.entry.parser = build.code(&[
        Op::Extract { header: head },
        Op::Lookahead { to: 1, at, width },
        Op::Verify { condition: 1, error: 2 },
        Op::Select { select: 0 },
        Op::Extract { header: next },
        Op::End,
        Op::Set { to: 0, value: 24 },
        Op::ExtractVarbit { header: options, width: 0 },
        Op::End,
    ]);
}

/// A program that runs the operations in ingress and in an action. The fields and both halves of the registers are
/// visible.
fn program(parser: &Parser, ingress: Vec<Vec<Op>>, action: Vec<Vec<Op>>) -> (Program, Vec<Request>) {
    let mut build = Build::new();
    let standard = build.standard();
    let (head, first) = build.header("head", &WIDTHS);
    let (next, _) = build.header("next", &[8, 24]);
    let (options, _) = build.varbit_header("options", &[8, 64], 1);
    let (_, seen) = build.metadata("meta", &[64; 2 * REGISTERS as usize]);
    build.program.counters.push(Counter { name: "c".into(), table: None, size: 3 });
    build.hash(HashKind::Csum16, vec![HashInput::Header(head)]);
    build.hash(HashKind::Csum16, vec![HashInput::Header(next), HashInput::Field(seen)]);
    add_parser(&mut build, parser, [head, next, options]);
    let mut body = vec![
        Op::Argument { to: 2, argument: 0 },
        Op::Store { field: standard.egress_spec.unwrap(), from: 2 },
        Op::Argument { to: 3, argument: 1 },
        Op::Store { field: first + 3, from: 3 },
    ];
    body.extend(placed(action, build.next_pc() + 4));
    body.push(Op::End);
    let action = build.action("act", &[9, 48], &body);
    let ingress = placed(ingress, build.next_pc());
    let entry = build.code(&ingress);
    let table = build.table("t", &[(first + 5, MatchKind::Exact)], &[action], 0);
    let apply = build.code(&[Op::Apply { table }]);
    build.program.tables[usize::from(table)].next = Next::ByHit { hit: apply + 1, miss: apply + 1 };
    for register in 0..REGISTERS {
        build.code(&[
            Op::Store { field: seen + 2 * register, from: register },
            Op::BinaryWith { op: Binary::ShiftRight, to: 9, left: register, value: 64 },
            Op::Store { field: seen + 2 * register + 1, from: 9 },
        ]);
    }
    build.code(&[Op::End]);
    build.program.entry.ingress = entry;
    let emitted = [head, options, next].map(|header| Op::Emit { header });
    build.program.entry.deparser = build.code(&emitted);
    build.code(&[Op::End]);
    let call = ActionCall { action, arguments: vec![vec![0, 5], vec![1, 2, 3, 4, 5, 6]] };
    let entries = (0..4u8).map(|value| {
        let matches = vec![Match::Exact(vec![value])];
        let target = Target::Call(call.clone());
        Request::Insert { table, entry: TableEntry { matches, priority: 0, target, idle_us: 0 } }
    });
    (build.program, entries.collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn machine_code_equals_the_interpreter(
        parser in parser(),
        ingress in prop::collection::vec(operation(), 0..40),
        action in prop::collection::vec(operation(), 0..12),
        packets in prop::collection::vec(
            prop::collection::vec(prop_oneof![2 => 0..4u8, 1 => any::<u8>()], HEADER_BYTES - 8..HEADER_BYTES + 16),
            1..4,
        ),
    ) {
        let (program, requests) = program(&parser, ingress, action);
        prop_assert_eq!(&program.fields[usize::from(FIELDS)].name, "head.f0");
        compare(&program, &requests, &packets)?;
    }
}

/// A loop ends after the same number of backward jumps.
#[test]
fn an_endless_loop_ends_as_in_the_interpreter() {
    let mut build = Build::new();
    build.standard();
    let begin = build.next_pc();
    build.program.entry.parser =
        build.code(&[Op::BinaryWith { op: Binary::Add, to: 0, left: 0, value: 1 }, Op::Jump { to: begin }]);
    let (_, seen) = build.metadata("meta", &[64]);
    build.program.entry.ingress = build.code(&[Op::Store { field: seen, from: 0 }, Op::End]);
    compare(&build.program, &[], &[vec![0; 60]]).unwrap();
}

/// A context of another engine, with a smaller PHV, is not passed to machine code.
#[test]
fn a_context_of_another_engine_is_interpreted() {
    let mut small = Build::new();
    small.standard();
    let other = Engine::load(small.program).unwrap();
    let mut build = Build::new();
    build.standard();
    let (head, _) = build.header("head", &[2000]);
    build.program.entry.parser = build.code(&[Op::Extract { header: head }, Op::End]);
    let mut engine = Engine::load(build.program).unwrap();
    qbed_p4native::translate(&mut engine);
    let (packet, mut context) = (vec![7; 300], other.context());
    engine.ingress(&mut context, &packet, &arrival(1, packet.len(), 1), &mut Recorder::default());
    assert_eq!(context.parsed(), 250);
}

/// An action counts its drops, and the control counts the others after the action returned.
#[test]
fn drops_are_counted_with_their_reasons() {
    for dropping_action in [true, false] {
        let mut build = Build::new();
        build.standard();
        let (_, field) = build.metadata("meta", &[8]);
        let body: &[Op] = if dropping_action { &[Op::MarkToDrop, Op::End] } else { &[Op::End] };
        let action = build.action("act", &[], body);
        let table = build.table("t", &[(field, MatchKind::Exact)], &[action], 0);
        let apply = build.code(&[Op::Apply { table }, Op::StoreConstant { field, value: 1 }]);
        build.program.tables[0].next = Next::ByHit { hit: apply + 1, miss: apply + 1 };
        if !dropping_action {
            build.code(&[Op::MarkToDrop]);
        }
        build.code(&[Op::End]);
        build.program.entry.ingress = apply;
        compare(&build.program, &[], &[vec![0; 60]]).unwrap();
    }
}
