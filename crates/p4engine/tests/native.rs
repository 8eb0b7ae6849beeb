// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Machine code against the interpreter: both give the same results for every program and packet.
#![cfg(all(target_arch = "x86_64", not(miri)))]

mod build;
mod operations;

use build::{arrival, departure, Build, Recorder};
use operations::{
    operation, repeated, ARRAYS, CONSTANTS, FIELDS, HEADER_BYTES, KINDS, LONG, OBSERVED, REGISTERS, TWINS,
    WIDE_REGISTERS, WIDTHS,
};
use proptest::prelude::*;
use qbed_p4engine::control::{Entry as TableEntry, Request, Target};
use qbed_p4engine::program::*;
use qbed_p4engine::Engine;

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
    for array in 0..ARRAYS.len() as ArrayId {
        results.push(format!("{:?}", engine.control(&Request::ReadRegister { array, from: 0, count: 3 })));
    }
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

/// Makes the targets of jumps absolute. They are at most at the end.
fn placed(operations: Vec<Vec<Op>>, begin: Pc) -> Vec<Op> {
    let mut ops: Vec<Op> = operations.into_iter().flatten().collect();
    let end = begin + ops.len() as Pc;
    for (at, op) in (begin..).zip(&mut ops) {
        if let Op::Jump { to } | Op::JumpIf { to, .. } | Op::JumpUnless { to, .. } = op {
            *to = at.wrapping_add(*to).min(end);
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
    default: Default,
}

#[derive(Debug, Clone, Copy)]
enum Default {
    None,
    Forward,
    /// A jump to an earlier instruction.
    Backward,
}

fn parser() -> impl Strategy<Value = Parser> {
    let cases = prop::collection::vec((0..4u8, prop_oneof![Just(0xff), 0..4u8]), 0..4);
    let default = prop::sample::select(vec![Default::None, Default::Forward, Default::Backward]);
    ((0..40u32, 1..65u32), 0..WIDTHS.len() as u16, cases, default)
        .prop_map(|(lookahead, key, cases, default)| Parser { lookahead, key, cases, default })
}

/// Adds the parser: a header, a lookahead and a select of one of two further headers or of none.
fn add_parser(build: &mut Build, parser: &Parser, [head, next, options]: [HeaderId; 3]) {
    let begin = build.code(&[Op::End]) + 1;
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
        default: match parser.default {
            Default::None => None,
            Default::Forward => Some(begin + 7),
            Default::Backward => Some(begin - 1),
        },
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
fn program(
    parser: &Parser,
    wide_limbs: u16,
    ingress: Vec<Vec<Op>>,
    action: Vec<Vec<Op>>,
) -> (Program, Vec<Request>) {
    let mut build = Build::new();
    build.program.wide_limbs = wide_limbs;
    let standard = build.standard();
    let (head, first) = build.header("head", &WIDTHS);
    build.metadata("twins", &WIDTHS);
    build.metadata("long", &[15 * 8; 2]);
    let (next, _) = build.header("next", &[8, 24]);
    let (options, _) = build.varbit_header("options", &[8, 64], 1);
    let (_, seen) = build.metadata("meta", &[64; 2 * OBSERVED as usize]);
    build.program.counters.push(Counter { name: "c".into(), table: None, size: 3 });
    let (_, wide_seen) = build.metadata("wide", &[u32::from(wide_limbs) * 64; WIDE_REGISTERS as usize]);
    for kind in KINDS {
        build.hash(kind, vec![HashInput::Header(head)]);
        build.hash(kind, vec![HashInput::Header(next), HashInput::Field(seen)]);
        build.hash(kind, vec![HashInput::Field(first), HashInput::Field(seen), HashInput::Field(first + 2)]);
    }
    build.program.constants = CONSTANTS.map(<[u8]>::to_vec).to_vec();
    for (width, signed) in ARRAYS {
        build.program.arrays.push(Array { name: "a".into(), width, signed, size: 3 });
    }
    add_parser(&mut build, parser, [head, next, options]);
    let mut body = vec![
        Op::Argument { to: 2, argument: 0 },
        Op::Store { field: standard.egress_spec.unwrap(), from: 2 },
        Op::Argument { to: 3, argument: 1 },
        Op::Store { field: first + 3, from: 3 },
        Op::WideSet { to: 0, constant: 0 },
        Op::WideStore { field: LONG, from: 0 },
    ];
    body.extend(placed(action, build.next_pc() + body.len() as Pc));
    body.push(Op::End);
    let action = build.action("act", &[9, 48], &body);
    // The last registers are temporary: only the random operations read them.
    let temporary = (OBSERVED..REGISTERS).map(|to| vec![Op::Set { to, value: 1 }]);
    let ingress = placed(temporary.chain(ingress).collect(), build.next_pc());
    let entry = build.code(&ingress);
    let table = build.table("t", &[(first + 5, MatchKind::Exact)], &[action], 0);
    let apply = build.code(&[Op::Apply { table }]);
    build.program.tables[usize::from(table)].next = Next::ByHit { hit: apply + 1, miss: apply + 1 };
    for register in 0..OBSERVED {
        build.code(&[
            Op::Store { field: seen + 2 * register, from: register },
            Op::BinaryWith { op: Binary::ShiftRight, to: 9, left: register, value: 64 },
            Op::Store { field: seen + 2 * register + 1, from: 9 },
        ]);
    }
    for number in 0..WIDE_REGISTERS {
        build.code(&[Op::WideStore { field: wide_seen + number, from: number }]);
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
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn machine_code_equals_the_interpreter(
        parser in parser(),
        wide_limbs in 2..10u16,
        ingress in prop::collection::vec(operation(), 0..40),
        action in prop::collection::vec(prop_oneof![4 => operation(), 1 => repeated()], 0..12),
        packets in prop::collection::vec(
            prop::collection::vec(prop_oneof![2 => 0..4u8, 1 => any::<u8>()], HEADER_BYTES - 8..HEADER_BYTES + 16),
            1..4,
        ),
    ) {
        let (program, requests) = program(&parser, wide_limbs, ingress, action);
        prop_assert_eq!(&program.fields[usize::from(FIELDS)].name, "head.f0");
        prop_assert_eq!(&program.fields[usize::from(TWINS)].name, "twins.f0");
        prop_assert_eq!(&program.fields[usize::from(LONG)].name, "long.f0");
        compare(&program, &requests, &packets)?;
    }
}

/// A table with a key of some bits, and an action that stores its arguments. `width` 0: the table has no key.
fn table_program(width: u32, arguments: usize, wide: bool) -> (Program, Vec<Request>) {
    let mut build = Build::new();
    build.standard();
    let (header, key) = build.header("h", &[width.max(1), 80 - width.max(1)]);
    let widths: Vec<u32> = (0..arguments).map(|_| 64).chain(wide.then_some(100)).collect();
    let (_, seen) = build.metadata("seen", &widths);
    build.program.entry.parser = build.code(&[Op::Extract { header }, Op::End]);
    let mut body = Vec::new();
    for argument in 0..arguments as u16 {
        body.push(Op::Argument { to: 0, argument });
        body.push(Op::Store { field: seen + argument, from: 0 });
    }
    if wide {
        body.push(Op::WideArgument { to: 0, argument: arguments as u16 });
        body.push(Op::WideStore { field: seen + arguments as u16, from: 0 });
    }
    body.push(Op::End);
    let action = build.action("act", &widths, &body);
    let none = build.action("none", &[], &[Op::End]);
    let keys: &[_] = if width == 0 { &[] } else { &[(key, MatchKind::Exact)] };
    let table = build.table("t", keys, &[none, action], 0);
    let apply = build.code(&[Op::Apply { table }, Op::End]);
    build.program.tables[0].next = Next::ByHit { hit: apply + 1, miss: apply + 1 };
    build.program.entry.ingress = apply;
    let bytes = |value: u128, width: u32| value.to_be_bytes()[16 - width.div_ceil(8) as usize..].to_vec();
    let call = |entry: u128| ActionCall {
        action,
        arguments: widths.iter().zip(100 * entry..).map(|(width, value)| bytes(value, *width)).collect(),
    };
    let requests = match width {
        0 => vec![Request::SetDefault { table, target: Target::Call(call(1)) }],
        _ => (0..(1u128 << width.min(7)) / 2)
            .map(|value| {
                let (matches, target) = (vec![Match::Exact(bytes(value, width))], Target::Call(call(value)));
                Request::Insert { table, entry: TableEntry { matches, priority: 0, target, idle_us: 0 } }
            })
            .collect(),
    };
    (build.program, requests)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_repeated_lookup_calls_the_same_action(
        width in prop::sample::select(vec![0, 1, 3, 8, 20, 64, 70]),
        arguments in 0..32usize,
        wide in any::<bool>(),
        keys in prop::collection::vec(0..70u128, 1..40),
    ) {
        let (program, requests) = table_program(width, arguments, wide);
        let packet = |key: &u128| (key << (128 - width.max(1))).to_be_bytes().to_vec();
        let packets: Vec<_> = keys.iter().chain(&keys).map(packet).collect();
        compare(&program, &requests, &packets)?;
    }
}

/// Compares the value of register 0 after a parser, which ingress reads. The operations get their first position.
fn compare_parser(parser: impl FnOnce(Pc) -> Vec<Op>) {
    let mut build = Build::new();
    build.standard();
    build.program.entry.parser = build.code(&parser(build.next_pc()));
    let (_, seen) = build.metadata("meta", &[64]);
    build.program.entry.ingress = build.code(&[Op::Store { field: seen, from: 0 }, Op::End]);
    compare(&build.program, &[], &[vec![0; 60]]).unwrap();
}

/// A loop ends after the same number of backward jumps.
#[test]
fn an_endless_loop_ends_as_in_the_interpreter() {
    compare_parser(|begin| {
        vec![Op::BinaryWith { op: Binary::Add, to: 0, left: 0, value: 1 }, Op::Jump { to: begin }]
    });
}

/// The last jump of a loop compares the register that it sets.
#[test]
fn a_loop_with_a_comparison_in_place_ends_as_in_the_interpreter() {
    compare_parser(|begin| {
        vec![
            Op::Set { to: 0, value: 0 },
            Op::BinaryWith { op: Binary::Less, to: 0, left: 0, value: 1 },
            Op::JumpIf { condition: 0, to: begin },
            Op::End,
        ]
    });
}

/// Registers keep their values from one block to the next.
#[test]
fn a_block_reads_a_register_of_an_earlier_one() {
    compare_parser(|_| vec![Op::Set { to: 0, value: 7 }, Op::End]);
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
