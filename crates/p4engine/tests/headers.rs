// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Stacks, unions, varbit fields, lookahead and value sets.

mod build;

use build::{arrival, departure, Build, Recorder};
use qbed_p4engine::control::{Answer, Request, SetMember};
use qbed_p4engine::program::*;
use qbed_p4engine::Engine;

/// The sent packet, and the logged values.
fn run(program: Program, packet: &[u8]) -> (Vec<u8>, Vec<Vec<i128>>) {
    let (mut engine, mut recorder) = (Engine::load(program).unwrap(), Recorder::default());
    let mut context = engine.context();
    engine.ingress(&mut context, packet, &arrival(1, packet.len(), 1), &mut recorder);
    let emission = engine.egress(&mut context, packet, &departure(1, 2), &mut recorder);
    let sent = [context.headers(), &packet[emission.replaced as usize..]].concat();
    (sent, recorder.logs.into_iter().map(|(_, values)| values).collect())
}

/// A program with a stack of three one-byte headers. The first bit of each says whether another follows.
fn labels(ingress: impl Fn(StackId, &[FieldId]) -> Vec<Op>) -> Program {
    let mut build = Build::new();
    let standard = build.standard();
    let stack = build.stack("labels", 3, &[1, 7]);
    build.program.messages = vec!["log".into()];
    let begin = build.next_pc();
    let more = SelectCase { on: SelectOn::Value { value: vec![1], mask: None }, next: begin };
    let last = SelectKey::StackLast { stack, member: 0, field: 0 };
    build.program.selects =
        vec![Select { keys: vec![last], bytes: 1, cases: vec![more], default: Some(begin + 2) }];
    build.program.entry.parser =
        build.code(&[Op::ExtractNext { stack, member: 0 }, Op::Select { select: 0 }, Op::End]);
    let firsts: Vec<FieldId> =
        build.program.headers.iter().rev().take(3).rev().map(|h| h.first_field).collect();
    let mut ops = ingress(stack, &firsts);
    ops.push(Op::Load { to: 9, field: standard.parser_error.unwrap() });
    ops.extend([Op::Log { message: 0, first: 9, arguments: 1 }, Op::End]);
    build.program.entry.ingress = build.code(&ops);
    build.program.entry.deparser = build.code(&[Op::EmitStack { stack }, Op::End]);
    build.program
}

#[test]
fn a_stack_is_parsed_and_sent_and_an_overflow_is_an_error() {
    assert_eq!(run(labels(|_, _| vec![]), &[0x81, 0x02, 7]), (vec![0x81, 0x02, 7], vec![vec![0]]));
    let (sent, logs) = run(labels(|_, _| vec![]), &[0x81, 0x82, 0x83, 0x04]);
    assert_eq!((sent, logs), (vec![0x81, 0x82, 0x83, 0x04], vec![vec![3]])); // StackOutOfBounds.
}

#[test]
fn push_and_pop_move_the_elements() {
    let push = |stack, firsts: &[FieldId]| {
        let header = firsts.len() as HeaderId; // Header 0 is the standard metadata, header 1 the stack's first.
        assert_eq!(header, 3);
        vec![
            Op::Push { stack, count: 1 },
            Op::AddHeader { header: 1 },
            Op::StoreConstant { field: firsts[0] + 1, value: 0x7f },
        ]
    };
    // The third element is shifted out.
    assert_eq!(run(labels(push), &[0x81, 0x82, 0x03, 9]).0, [0x7f, 0x81, 0x82, 9]);
    assert_eq!(
        run(labels(|stack, _| vec![Op::Pop { stack, count: 2 }]), &[0x81, 0x82, 0x03, 9]).0,
        [0x03, 9]
    );
    assert_eq!(run(labels(|stack, _| vec![Op::Pop { stack, count: 9 }]), &[0x81, 0x02, 9]).0, [9]);
}

#[test]
fn elements_are_accessed_by_an_index_and_from_the_end() {
    let look = |stack, _: &[FieldId]| {
        vec![
            Op::Set { to: 0, value: 1 },
            Op::LoadIndexed { to: 1, stack, member: 0, index: 0, field: 1 },
            Op::ValidIndexed { to: 2, stack, member: 0, index: 0 },
            Op::Set { to: 0, value: 2 },
            Op::ValidIndexed { to: 3, stack, member: 0, index: 0 },
            Op::Set { to: 0, value: 77 },
            Op::LoadIndexed { to: 4, stack, member: 0, index: 0, field: 1 },
            Op::LoadLast { to: 5, stack, member: 0, field: 1 },
            Op::StackLastIndex { to: 6, stack },
            Op::Log { message: 0, first: 1, arguments: 6 },
        ]
    };
    assert_eq!(run(labels(look), &[0x81, 0x02]).1[0], [2, 1, 0, 0, 2, 1]);
}

#[test]
fn one_header_of_a_union_is_valid() {
    let mut build = Build::new();
    build.standard();
    let (union, headers) = build.union("u", &[8, 16]);
    let (other, others) = build.union("v", &[8, 16]);
    let first = |program: &Program, header: HeaderId| program.headers[usize::from(header)].first_field;
    build.program.entry.parser = build.code(&[Op::Extract { header: headers[0] }, Op::End]);
    let word = first(&build.program, headers[1]);
    build.program.entry.ingress = build.code(&[
        Op::CopyUnion { to: other, from: union },
        Op::AddHeader { header: headers[1] },
        Op::StoreConstant { field: word, value: 0x0102 },
        Op::End,
    ]);
    build.program.entry.deparser =
        build.code(&[Op::EmitUnion { of: union }, Op::EmitUnion { of: other }, Op::End]);
    assert_eq!(others.len(), 2);
    assert_eq!(run(build.program, &[5, 6]).0, [1, 2, 5, 6]);
}

/// A program with a header of a length byte, as many bytes of options, and one more byte.
fn options(ingress: &[Op]) -> Program {
    let mut build = Build::new();
    let standard = build.standard();
    let (header, first) = build.varbit_header("o", &[8, 32, 8], 1);
    let (copy, _) = build.varbit_header("copy", &[8, 32, 8], 1);
    assert_eq!((header, copy), (1, 2));
    build.program.messages = vec!["log".into()];
    build.program.entry.parser = build.code(&[
        Op::Lookahead { to: 0, at: 0, width: 8 },
        Op::BinaryWith { op: Binary::Multiply, to: 0, left: 0, value: 8 },
        Op::ExtractVarbit { header, width: 0 },
        Op::End,
    ]);
    let mut ops = ingress.to_vec();
    ops.push(Op::Load { to: 1, field: standard.parser_error.unwrap() });
    ops.push(Op::Load { to: 2, field: first + 2 });
    ops.extend([Op::Log { message: 0, first: 1, arguments: 2 }, Op::End]);
    build.program.entry.ingress = build.code(&ops);
    build.program.entry.deparser = build.code(&[Op::Emit { header }, Op::Emit { header: copy }, Op::End]);
    build.program
}

#[test]
fn a_varbit_field_has_the_extracted_length() {
    assert_eq!(run(options(&[]), &[2, 11, 12, 99, 7]), (vec![2, 11, 12, 99, 7], vec![vec![0, 99]]));
    assert_eq!(run(options(&[]), &[0, 99]).0, [0, 99]);
    assert_eq!(run(options(&[]), &[5, 1, 2, 3, 4, 5, 99]).1, [vec![4, 0]]); // HeaderTooShort.
    assert_eq!(run(options(&[]), &[3, 1, 2, 3]).1, [vec![1, 0]]); // PacketTooShort.
    let copy = Op::CopyHeader { to: 2, from: 1 };
    assert_eq!(run(options(&[copy]), &[1, 5, 99]).0, [1, 5, 99, 1, 5, 99]);
    assert_eq!(run(options(&[copy, Op::RemoveHeader { header: 1 }]), &[1, 5, 99, 3]).0, [1, 5, 99, 3]);
    let emptied =
        [Op::AddHeader { header: 2 }, Op::CopyVarbit { to: 1, from: 2 }, Op::RemoveHeader { header: 2 }];
    assert_eq!(run(options(&emptied), &[1, 5, 99]).0, [1, 99]);
}

#[test]
fn a_value_set_matches_its_members() {
    let mut build = Build::new();
    let standard = build.standard();
    let begin = build.next_pc();
    let case = |on, next| SelectCase { on, next };
    build.program.value_sets = vec![ValueSet { name: "vs".into(), bytes: 2, max_size: 2 }];
    build.program.selects = vec![Select {
        keys: vec![SelectKey::Lookahead { at: 4, width: 12 }],
        bytes: 2,
        cases: vec![
            case(SelectOn::Value { value: vec![0, 7], mask: Some(vec![0, 0xff]) }, begin + 1),
            case(SelectOn::Set { set: 0, mask: None }, begin + 2),
        ],
        default: None,
    }];
    build.program.messages = vec!["error".into()];
    build.program.entry.parser =
        build.code(&[Op::Select { select: 0 }, Op::Reject { error: 21 }, Op::Reject { error: 22 }]);
    let error = standard.parser_error.unwrap();
    build.program.entry.ingress = build.code(&[
        Op::Load { to: 0, field: error },
        Op::Log { message: 0, first: 0, arguments: 1 },
        Op::End,
    ]);
    let mut engine = Engine::load(build.program).unwrap();
    let error = |engine: &mut Engine, packet: &[u8]| {
        let mut recorder = Recorder::default();
        engine.ingress(&mut engine.context(), packet, &arrival(1, packet.len(), 1), &mut recorder);
        recorder.logs[0].1[0]
    };
    assert_eq!(error(&mut engine, &[0xf3, 7]), 21);
    assert_eq!(error(&mut engine, &[0xf3, 8]), 2); // NoMatch.
    assert_eq!(error(&mut engine, &[0xf3]), 1); // PacketTooShort.
    let member = |value: [u8; 2]| SetMember { value: value.to_vec(), mask: None };
    let members = vec![member([3, 8]), member([3, 9])];
    assert_eq!(engine.control(&Request::SetValueSet { set: 0, members }), Answer::Done);
    assert_eq!(error(&mut engine, &[0xf3, 9]), 22);
    let too_many = vec![member([0, 0]); 3];
    assert!(matches!(
        engine.control(&Request::SetValueSet { set: 0, members: too_many }),
        Answer::Refused(..)
    ));
    assert_eq!(error(&mut engine, &[0xf3, 9]), 22);
}

/// The bytes of a packet that a parser accesses.
fn lookahead(parser: impl Fn(&mut Build) -> Vec<Op>) -> Option<u32> {
    let mut build = Build::new();
    build.standard();
    let ops = parser(&mut build);
    build.program.entry.parser = build.code(&ops);
    Engine::load(build.program).unwrap().lookahead_bytes()
}

#[test]
fn a_program_accesses_its_headers_and_lookahead() {
    assert_eq!(lookahead(|_| vec![Op::End]), Some(0));
    assert_eq!(
        Engine::load(labels(|_, _| vec![])).unwrap().lookahead_bytes(),
        Some(3),
        "all elements of the stack"
    );
    assert_eq!(
        Engine::load(options(&[])).unwrap().lookahead_bytes(),
        Some(1 + 6),
        "one byte of lookahead and the longest varbit"
    );
    let ahead = |build: &mut Build| {
        let (header, _) = build.header("h", &[16]);
        vec![Op::Extract { header }, Op::Lookahead { to: 0, at: 4, width: 13 }, Op::End]
    };
    assert_eq!(lookahead(ahead), Some(2 + 3));
    let other = |build: &mut Build| {
        let (header, _) = build.header("h", &[16]);
        let begin = build.next_pc();
        vec![
            Op::Set { to: 0, value: 1 },
            Op::JumpIf { condition: 0, to: begin + 3 },
            Op::Extract { header },
            Op::End,
            Op::Extract { header },
        ]
    };
    assert_eq!(lookahead(other), Some(2), "unreachable instructions do not count");
}

#[test]
fn a_program_without_a_bound_needs_the_whole_packet() {
    let round = |build: &mut Build| {
        let (header, _) = build.header("h", &[16]);
        let begin = build.next_pc();
        vec![Op::Extract { header }, Op::Jump { to: begin }]
    };
    assert_eq!(lookahead(round), None, "a header in a loop");
    let further = |_: &mut Build| vec![Op::Set { to: 0, value: 80 }, Op::Advance { bits: 0 }, Op::End];
    assert_eq!(lookahead(further), None);
    let payload = |build: &mut Build| {
        let input = vec![HashInput::Payload];
        build.program.hashes = vec![Hash { name: "sum".into(), kind: HashKind::Csum16, input }];
        vec![Op::End]
    };
    assert_eq!(lookahead(payload), None);
}
