// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Headers that come and go: stacks, unions, varbits, lookahead, checksums that are verified.

mod build;

use build::{arrival, departure, Build, Notes};
use qbed_p4engine::control::{Answer, Request, SetMember};
use qbed_p4engine::program::*;
use qbed_p4engine::Engine;

/// The packet after a program's ingress, and what it logged.
fn through(program: Program, packet: &[u8]) -> (Vec<u8>, Vec<Vec<i128>>) {
    let (mut engine, mut notes) = (Engine::load(program).unwrap(), Notes::default());
    let mut context = engine.context();
    engine.ingress(&mut context, packet, &arrival(1, packet.len(), 1), &mut notes);
    let emission = engine.egress(&mut context, packet, &departure(1, 2), &mut notes);
    let sent = [context.headers(), &packet[emission.replaced as usize..]].concat();
    (sent, notes.logs.into_iter().map(|(_, values)| values).collect())
}

/// A stack of three bytes, of which the parser takes as many as say that another follows (their first bit).
fn labels(ingress: impl Fn(StackId, &[FieldId]) -> Vec<Op>) -> Program {
    let mut build = Build::new();
    let standard = build.standard();
    let stack = build.stack("labels", 3, &[1, 7]);
    build.program.messages = vec!["log".into()];
    let begin = build.here();
    let more = SelectCase { on: SelectOn::Value { value: vec![1], mask: None }, next: begin };
    let last = SelectKey::StackLast { stack, member: 0, field: 0 };
    build.program.selects =
        vec![Select { keys: vec![last], bytes: 1, cases: vec![more], default: Some(begin + 2) }];
    build.program.entry.parser =
        build.code(&[Op::ExtractNext { stack, member: 0 }, Op::Select { select: 0 }, Op::End]);
    let firsts: Vec<FieldId> =
        build.program.headers.iter().rev().take(3).rev().map(|h| h.first_field).collect();
    let mut steps = ingress(stack, &firsts);
    steps.push(Op::Load { to: 9, field: standard.parser_error.unwrap() });
    steps.extend([Op::Log { message: 0, first: 9, arguments: 1 }, Op::End]);
    build.program.entry.ingress = build.code(&steps);
    build.program.entry.deparser = build.code(&[Op::EmitStack { stack }, Op::End]);
    build.program
}

#[test]
fn a_stack_fills_and_is_sent_and_too_many_are_an_error() {
    assert_eq!(through(labels(|_, _| vec![]), &[0x81, 0x02, 7]), (vec![0x81, 0x02, 7], vec![vec![0]]));
    let (sent, logs) = through(labels(|_, _| vec![]), &[0x81, 0x82, 0x83, 0x04]);
    assert_eq!((sent, logs), (vec![0x81, 0x82, 0x83, 0x04], vec![vec![3]])); // StackOutOfBounds.
}

#[test]
fn a_push_and_a_pop_move_the_others() {
    let push = |stack, firsts: &[FieldId]| {
        let header = firsts.len() as HeaderId; // The standard metadata is header 0: the stack's first is 1.
        assert_eq!(header, 3);
        vec![
            Op::Push { stack, count: 1 },
            Op::AddHeader { header: 1 },
            Op::StoreConstant { field: firsts[0] + 1, value: 0x7f },
        ]
    };
    // The third does not fit any more.
    assert_eq!(through(labels(push), &[0x81, 0x82, 0x03, 9]).0, [0x7f, 0x81, 0x82, 9]);
    assert_eq!(
        through(labels(|stack, _| vec![Op::Pop { stack, count: 2 }]), &[0x81, 0x82, 0x03, 9]).0,
        [0x03, 9]
    );
    assert_eq!(through(labels(|stack, _| vec![Op::Pop { stack, count: 9 }]), &[0x81, 0x02, 9]).0, [9]);
}

#[test]
fn elements_are_found_by_an_index_and_from_the_end() {
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
    assert_eq!(through(labels(look), &[0x81, 0x02]).1[0], [2, 1, 0, 0, 2, 1]);
}

#[test]
fn of_a_union_one_is_valid() {
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
    assert_eq!(through(build.program, &[5, 6]).0, [1, 2, 5, 6]);
}

/// A byte that says how many bytes of options follow, the options, a byte behind them.
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
    let mut steps = ingress.to_vec();
    steps.push(Op::Load { to: 1, field: standard.parser_error.unwrap() });
    steps.push(Op::Load { to: 2, field: first + 2 });
    steps.extend([Op::Log { message: 0, first: 1, arguments: 2 }, Op::End]);
    build.program.entry.ingress = build.code(&steps);
    build.program.entry.deparser = build.code(&[Op::Emit { header }, Op::Emit { header: copy }, Op::End]);
    build.program
}

#[test]
fn a_varbit_is_as_long_as_it_says() {
    assert_eq!(through(options(&[]), &[2, 11, 12, 99, 7]), (vec![2, 11, 12, 99, 7], vec![vec![0, 99]]));
    assert_eq!(through(options(&[]), &[0, 99]).0, [0, 99]);
    assert_eq!(through(options(&[]), &[5, 1, 2, 3, 4, 5, 99]).1, [vec![4, 0]]); // HeaderTooShort.
    assert_eq!(through(options(&[]), &[3, 1, 2, 3]).1, [vec![1, 0]]); // PacketTooShort.
    let copy = Op::CopyHeader { to: 2, from: 1 };
    assert_eq!(through(options(&[copy]), &[1, 5, 99]).0, [1, 5, 99, 1, 5, 99]);
    assert_eq!(through(options(&[copy, Op::RemoveHeader { header: 1 }]), &[1, 5, 99, 3]).0, [1, 5, 99, 3]);
    let emptied =
        [Op::AddHeader { header: 2 }, Op::CopyVarbit { to: 1, from: 2 }, Op::RemoveHeader { header: 2 }];
    assert_eq!(through(options(&emptied), &[1, 5, 99]).0, [1, 99]);
}

#[test]
fn a_value_set_leads_where_its_members_say() {
    let mut build = Build::new();
    let standard = build.standard();
    let begin = build.here();
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
        let mut notes = Notes::default();
        engine.ingress(&mut engine.context(), packet, &arrival(1, packet.len(), 1), &mut notes);
        notes.logs[0].1[0]
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

/// What a parser of these steps, and a deparser of those, needs to be shown.
fn reach(parser: impl Fn(&mut Build) -> Vec<Op>) -> Option<u32> {
    let mut build = Build::new();
    build.standard();
    let steps = parser(&mut build);
    build.program.entry.parser = build.code(&steps);
    Engine::load(build.program).unwrap().reach()
}

#[test]
fn a_program_looks_no_further_than_its_headers() {
    assert_eq!(reach(|_| vec![Op::End]), Some(0));
    assert_eq!(Engine::load(labels(|_, _| vec![])).unwrap().reach(), Some(3), "a stack, whole");
    assert_eq!(Engine::load(options(&[])).unwrap().reach(), Some(1 + 6), "a byte ahead, the longest varbit");
    let ahead = |build: &mut Build| {
        let (header, _) = build.header("h", &[16]);
        vec![Op::Extract { header }, Op::Lookahead { to: 0, at: 4, width: 13 }, Op::End]
    };
    assert_eq!(reach(ahead), Some(2 + 3));
    let other = |build: &mut Build| {
        let (header, _) = build.header("h", &[16]);
        let begin = build.here();
        vec![
            Op::Set { to: 0, value: 1 },
            Op::JumpIf { condition: 0, to: begin + 3 },
            Op::Extract { header },
            Op::End,
            Op::Extract { header },
        ]
    };
    assert_eq!(reach(other), Some(2), "what is never reached does not count");
}

#[test]
fn of_a_program_that_may_look_anywhere_all_must_be_shown() {
    let round = |build: &mut Build| {
        let (header, _) = build.header("h", &[16]);
        let begin = build.here();
        vec![Op::Extract { header }, Op::Jump { to: begin }]
    };
    assert_eq!(reach(round), None, "a header again and again");
    let further = |_: &mut Build| vec![Op::Set { to: 0, value: 80 }, Op::Advance { bits: 0 }, Op::End];
    assert_eq!(reach(further), None);
    let payload = |build: &mut Build| {
        let input = vec![HashInput::Payload];
        build.program.hashes = vec![Hash { name: "sum".into(), kind: HashKind::Csum16, input }];
        vec![Op::End]
    };
    assert_eq!(reach(payload), None);
}
