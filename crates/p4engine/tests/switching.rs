// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Clones, multicast, resubmission, recirculation, truncation, lengths, times and drops, as in BMv2's simple_switch.

mod build;

use build::{arrival, departure, Build, Recorder};
use qbed_p4engine::control::{Answer, CloneSession, Refusal, Replica, Request, Totals};
use qbed_p4engine::packet::{Arrival, Departure, Forward, Instance};
use qbed_p4engine::program::*;
use qbed_p4engine::{Context, Engine};

struct Bench {
    engine: Engine,
    recorder: Recorder,
}

const PACKET: [u8; 6] = [1, 0, 0, 7, 8, 9];

/// Builds a program. `ingress` and `egress` get the header's two fields, a field of user metadata, and v1model's
/// metadata.
fn bench(
    ingress: impl Fn(&mut Build, HeaderId, [FieldId; 3], &Standard) -> Vec<Op>,
    egress: impl Fn(HeaderId, [FieldId; 3], &Standard) -> Vec<Op>,
) -> Bench {
    let mut build = Build::new();
    let standard = build.standard();
    let (header, first) = build.header("h", &[8, 16]);
    let (_, note) = build.metadata("meta", &[16]);
    let fields = [first, first + 1, note];
    build.program.field_lists = vec![vec![], vec![note]];
    build.program.entry.parser = build.code(&[Op::Extract { header }, Op::End]);
    let ops = ingress(&mut build, header, fields, &standard);
    build.program.entry.ingress = build.code(&ops);
    build.code(&[Op::End]);
    build.program.entry.egress = build.code(&egress(header, fields, &standard));
    build.code(&[Op::End]);
    build.program.entry.deparser = build.code(&[Op::Emit { header }, Op::End]);
    Bench { engine: Engine::load(build.program).unwrap(), recorder: Recorder::default() }
}

fn set(field: FieldId, value: i64) -> [Op; 2] {
    [Op::Set { to: 0, value }, Op::Store { field, from: 0 }]
}

fn copy(to: FieldId, from: FieldId) -> [Op; 2] {
    [Op::Load { to: 0, field: from }, Op::Store { field: to, from: 0 }]
}

impl Bench {
    fn totals(&mut self) -> Totals {
        match self.engine.control(&Request::Totals) {
            Answer::Totals(totals) => totals,
            other => panic!("{other:?}"),
        }
    }

    fn session(&mut self, session: u16) {
        let clone = CloneSession { replicas: vec![Replica { port: 4, instance: 5 }], truncate_bytes: 0 };
        assert_eq!(
            self.engine.control(&Request::SetCloneSession { session, clone: Some(clone) }),
            Answer::Done
        );
    }

    /// The headers that are sent by port 4.
    fn egress(&mut self, context: &mut Context) -> Vec<u8> {
        self.engine.egress(context, &PACKET, &departure(4, 9), &mut self.recorder);
        context.headers().to_vec()
    }
}

#[test]
fn an_ingress_clone_is_the_received_packet_with_preserved_fields() {
    let mut bench = bench(
        |_, _, [byte, _, note], _| {
            let clone = [Op::Set { to: 1, value: 0x8003 }, Op::CloneIngress { session: 1, list: 1 }];
            [set(byte, 99).to_vec(), clone.to_vec(), set(note, 0x1234).to_vec()].concat()
        },
        |_, [_, word, note], _| copy(word, note).to_vec(),
    );
    let (mut context, mut clone) = (bench.engine.context(), bench.engine.context());
    let decision = bench.engine.ingress(&mut context, &PACKET, &arrival(2, 6, 1), &mut bench.recorder);
    assert_eq!((decision.clone, bench.totals().cloned), (None, 0)); // The session does not exist.
    bench.session(3);
    let decision = bench.engine.ingress(&mut context, &PACKET, &arrival(2, 6, 1), &mut bench.recorder);
    assert_eq!(decision.clone, Some(3)); // BMv2's sessions have 15 bits.
    let preserved = context.clone_fields().clone();
    assert_eq!(preserved.values, [0x12, 0x34]); // Set after the call: fields are preserved at the end of ingress.
    let from = Arrival {
        port: 2,
        length: 6,
        now_us: 1,
        instance: Instance::IngressClone,
        preserved: Some(&preserved),
        checksum: None,
    };
    bench.engine.parse_clone(&mut clone, &PACKET, &from, &mut bench.recorder);
    assert_eq!(bench.egress(&mut clone), [1, 0x12, 0x34]);
    assert_eq!(bench.egress(&mut context), [99, 0x12, 0x34]);
    assert_eq!(bench.engine.session(3).unwrap().replicas[0].port, 4);
}

#[test]
fn an_egress_clone_has_the_headers_and_no_metadata() {
    let mut bench = bench(
        |_, _, [.., note], _| set(note, 0x1234).to_vec(),
        |_, [byte, word, note], standard| {
            let instance = standard.instance_type.unwrap();
            let clone = [Op::Set { to: 1, value: 3 }, Op::CloneEgress { session: 1, list: 0 }];
            [copy(word, note).to_vec(), copy(byte, instance).to_vec(), clone.to_vec()].concat()
        },
    );
    bench.session(3);
    let (mut context, mut clone) = (bench.engine.context(), bench.engine.context());
    bench.engine.ingress(&mut context, &PACKET, &arrival(2, 6, 1), &mut bench.recorder);
    let emission = bench.engine.egress(&mut context, &PACKET, &departure(1, 2), &mut bench.recorder);
    assert_eq!((emission.clone, emission.drop, emission.replaced), (Some(3), false, 3));
    assert_eq!(context.headers(), [0, 0x12, 0x34]);
    bench.engine.copy(&context, &mut clone, Instance::EgressClone, 5);
    assert_eq!(bench.egress(&mut clone), [2, 0, 0]);
}

#[test]
fn replicas_have_an_instance_and_the_group_must_exist() {
    let mut bench = bench(
        |_, _, _, standard| set(standard.mcast_grp.unwrap(), 7).to_vec(),
        |_, [byte, word, _], standard| {
            [copy(word, standard.egress_rid.unwrap()), copy(byte, standard.instance_type.unwrap())].concat()
        },
    );
    let (mut context, mut replica) = (bench.engine.context(), bench.engine.context());
    let decision = bench.engine.ingress(&mut context, &PACKET, &arrival(2, 6, 1), &mut bench.recorder);
    assert_eq!(decision.forward, Forward::Drop);
    assert_eq!(bench.totals().drops, [("no such multicast group".to_string(), 1)]);
    let replicas = Some(vec![Replica { port: 1, instance: 8 }, Replica { port: 2, instance: 9 }]);
    assert_eq!(bench.engine.control(&Request::SetMulticastGroup { group: 7, replicas }), Answer::Done);
    let decision = bench.engine.ingress(&mut context, &PACKET, &arrival(2, 6, 1), &mut bench.recorder);
    assert_eq!(decision.forward, Forward::Multicast { group: 7 });
    for replica_spec in bench.engine.group(7).unwrap().to_vec() {
        bench.engine.copy(&context, &mut replica, Instance::Replicated, replica_spec.instance);
        assert_eq!(bench.egress(&mut replica), [5, 0, replica_spec.instance as u8]);
    }
    let missing = bench.engine.control(&Request::SetMulticastGroup { group: 8, replicas: None });
    assert!(matches!(missing, Answer::Refused(Refusal::NotFound, _)));
}

#[test]
fn a_resubmitted_packet_is_parsed_again_with_preserved_fields() {
    let mut bench = bench(
        |build, _, [byte, word, note], standard| {
            // The first pass resubmits, and the second stores what it reads.
            let found = [copy(word, note), copy(byte, standard.ingress_port.unwrap())].concat();
            let again = [set(note, 0x77).to_vec(), vec![Op::Resubmit { list: 1 }, Op::End]].concat();
            let to = build.next_pc() + 2 + again.len() as Pc;
            let choose =
                [Op::Load { to: 0, field: standard.instance_type.unwrap() }, Op::JumpIf { condition: 0, to }];
            [choose.to_vec(), again, found].concat()
        },
        |_, _, _| vec![],
    );
    let mut context = bench.engine.context();
    let decision = bench.engine.ingress(&mut context, &PACKET, &arrival(2, 6, 1), &mut bench.recorder);
    assert!(decision.resubmit);
    let preserved = context.resubmit_fields().clone();
    let again = Arrival {
        port: 2,
        length: 6,
        now_us: 1,
        instance: Instance::Resubmitted,
        preserved: Some(&preserved),
        checksum: None,
    };
    let decision = bench.engine.ingress(&mut context, &PACKET, &again, &mut bench.recorder);
    assert!(!decision.resubmit);
    // BMv2 sets the ingress port of new packets only.
    assert_eq!(bench.egress(&mut context), [0, 0, 0x77]);
    assert_eq!(bench.totals().resubmitted, 1);
}

#[test]
fn a_dropped_packet_is_cloned_but_not_recirculated() {
    let mut bench = bench(
        |_, _, _, _| vec![],
        |_, _, _| {
            let clone = [Op::Set { to: 1, value: 3 }, Op::CloneEgress { session: 1, list: 0 }];
            [clone.to_vec(), vec![Op::Recirculate { list: 1 }, Op::MarkToDrop]].concat()
        },
    );
    bench.session(3);
    let mut context = bench.engine.context();
    bench.engine.ingress(&mut context, &PACKET, &arrival(2, 6, 1), &mut bench.recorder);
    let emission = bench.engine.egress(&mut context, &PACKET, &departure(1, 2), &mut bench.recorder);
    assert_eq!((emission.clone, emission.drop, emission.recirculate), (Some(3), true, false));
    assert_eq!(bench.totals().drops, [("marked in egress, outside of tables".to_string(), 1)]);
}

/// p4c compiles an `inout` parameter in this way: the metadata is copied before the call and copied back after it.
#[test]
fn a_marked_copy_of_the_metadata_drops_the_packet_when_it_is_copied_back() {
    let mut bench = bench(
        |build, _, [byte, ..], standard| {
            let (_, marked) = build.metadata("copy", &[9, 7, 16]);
            let mark = Op::MarkCopyToDrop { egress_spec: marked, mcast_grp: Some(marked + 2) };
            let refuse = build.action("refuse", &[], &[mark, Op::End]);
            let before = [set(marked, 3), set(marked + 2, 7)].concat();
            let table = build.table("t", &[], &[refuse], build.next_pc() + before.len() as Pc + 1);
            let back =
                [copy(standard.egress_spec.unwrap(), marked), copy(standard.mcast_grp.unwrap(), marked + 2)];
            let end = build.next_pc() + before.len() as Pc + 3 + back.concat().len() as Pc;
            let choose = [Op::Load { to: 0, field: byte }, Op::JumpUnless { condition: 0, to: end }];
            [before, vec![Op::Apply { table }], choose.to_vec(), back.concat()].concat()
        },
        |_, _, _| vec![],
    );
    let mut context = bench.engine.context();
    let decision = bench.engine.ingress(&mut context, &PACKET, &arrival(2, 6, 1), &mut bench.recorder);
    assert_eq!(decision.forward, Forward::Drop);
    assert_eq!(bench.totals().drops, [("table t, action refuse".to_string(), 1)]);
    let decision = bench.engine.ingress(&mut context, &[0; 6], &arrival(2, 6, 1), &mut bench.recorder);
    assert_eq!(decision.forward, Forward::Unicast { port: 0, priority: 0 });
}

#[test]
fn egress_has_the_queue_depths_the_times_and_the_length_with_changed_headers() {
    let mut bench = bench(
        |build, header, _, _| {
            build.program.messages = vec!["egress".into()];
            vec![Op::RemoveHeader { header }, Op::RemoveHeader { header }]
        },
        |_, _, standard| {
            let fields = [
                standard.enq_qdepth,
                standard.deq_qdepth,
                standard.deq_timedelta,
                standard.packet_length,
                standard.egress_port,
                standard.egress_global_timestamp,
            ];
            let load = (0..).zip(fields).map(|(to, field)| Op::Load { to, field: field.unwrap() });
            load.chain([Op::Log { message: 0, first: 0, arguments: 6 }]).collect()
        },
    );
    let mut context = bench.engine.context();
    bench.engine.ingress(&mut context, &PACKET, &arrival(2, 60, 1), &mut bench.recorder);
    let queue = Departure { port: 1, now_us: 30, enqueued_us: 10, enqueued_depth: 3, dequeued_depth: 2 };
    bench.engine.egress(&mut context, &PACKET, &queue, &mut bench.recorder);
    assert_eq!(bench.recorder.logs, [("egress".to_string(), vec![3, 2, 20, 57, 1, 30])]);
    assert_eq!(context.headers(), []);
}

#[test]
fn a_truncation_applies_from_its_call_on() {
    let mut bench = bench(
        |_, _, _, _| vec![Op::Set { to: 0, value: 60 }, Op::Truncate { bytes: 0 }],
        |_, _, _| vec![Op::Set { to: 0, value: 40 }, Op::Truncate { bytes: 0 }],
    );
    let mut context = bench.engine.context();
    let decision = bench.engine.ingress(&mut context, &PACKET, &arrival(2, 6, 1), &mut bench.recorder);
    assert_eq!(decision.truncate_bytes, Some(60));
    let emission = bench.engine.egress(&mut context, &PACKET, &departure(1, 2), &mut bench.recorder);
    assert_eq!(emission.truncate_bytes, Some(40));
}

#[test]
fn an_endless_loop_drops_the_packet_with_a_reason() {
    let mut build = Build::new();
    build.standard();
    let start = build.next_pc();
    let action = build.action("spin", &[], &[Op::Jump { to: start }]);
    let end = build.code(&[Op::End]);
    let table = build.table("t", &[], &[action], end);
    build.program.entry.ingress = build.code(&[Op::Apply { table }, Op::End]);
    let mut engine = Engine::load(build.program.clone()).unwrap();
    let decision =
        engine.ingress(&mut engine.context(), &PACKET, &arrival(0, 6, 0), &mut Recorder::default());
    assert_eq!(decision.forward, Forward::Drop);
    let Answer::Totals(totals) = engine.control(&Request::Totals) else { panic!() };
    assert_eq!(totals.drops, [("an action that looped too often".to_string(), 1)]);
    // In a parser, the loop ends with an error. In a control, the program is rejected.
    build.program.entry.parser = start;
    let mut engine = Engine::load(build.program.clone()).unwrap();
    engine.ingress(&mut engine.context(), &PACKET, &arrival(0, 6, 0), &mut Recorder::default());
    let Answer::Totals(totals) = engine.control(&Request::Totals) else { panic!() };
    assert_eq!(totals.parser_errors, 1);
    build.program.entry.egress = start;
    assert!(Engine::load(build.program).unwrap_err().0.contains("egress: instruction"));
}

#[test]
fn instructions_with_a_constant_equal_separate_instructions() {
    let values = [0, 1, -1, 5, 63, i64::MAX, i64::MIN].into_iter().take(if cfg!(miri) { 3 } else { 7 });
    let ops = [
        Binary::Add,
        Binary::Subtract,
        Binary::Multiply,
        Binary::And,
        Binary::ShiftLeft,
        Binary::ShiftRight,
        Binary::Equal,
        Binary::Less,
        Binary::SaturateSigned,
    ];
    let mut bench = bench(
        |build, _, [byte, word, _], _| {
            build.program.messages = vec!["two".into(), "one".into(), "stored".into(), "cut".into()];
            let mut code = Vec::new();
            for (op, value, left) in ops
                .into_iter()
                .flat_map(|op| values.clone().map(move |value| (op, value)))
                .flat_map(|(op, value)| values.clone().map(move |left| (op, value, left)))
            {
                code.extend([
                    Op::Set { to: 0, value: left },
                    Op::Set { to: 1, value },
                    Op::Binary { op, to: 2, left: 0, right: 1 },
                    Op::Log { message: 0, first: 2, arguments: 1 },
                    Op::BinaryWith { op, to: 2, left: 0, value },
                    Op::Log { message: 1, first: 2, arguments: 1 },
                ]);
            }
            code.extend([
                Op::StoreConstant { field: byte, value: 0x1ff },
                Op::StoreConstant { field: word, value: -2 },
                Op::Load { to: 0, field: byte },
                Op::Load { to: 1, field: word },
                Op::Log { message: 2, first: 0, arguments: 2 },
                Op::Set { to: 0, value: -1 },
                Op::Cut { to: 0, from: 0, bits: 127 },
                Op::Cut { to: 1, from: 0, bits: 3 },
                Op::Log { message: 3, first: 0, arguments: 2 },
            ]);
            code
        },
        |_, _, _| vec![],
    );
    let mut context = bench.engine.context();
    bench.engine.ingress(&mut context, &PACKET, &arrival(2, 6, 1), &mut bench.recorder);
    let cut = bench.recorder.logs.pop().unwrap();
    assert_eq!(cut.1, [i128::MAX, 7]);
    assert_eq!(bench.recorder.logs.pop().unwrap().1, [0xff, 0xfffe]);
    assert_eq!(bench.recorder.logs.len(), 2 * ops.len() * values.len() * values.len());
    for pair in bench.recorder.logs.chunks(2) {
        assert_eq!(pair[0].1, pair[1].1);
    }
}
