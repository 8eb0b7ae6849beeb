// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! A checksum that is left to the device: a program gives the results that it gives for the completed packet.

mod build;

use build::{arrival, departure, Build, Recorder};
use prop::sample::Index;
use proptest::prelude::*;
use qbed_p4engine::control::{CloneSession, Entry as TableEntry, Replica, Request, Target};
use qbed_p4engine::packet::Arrival;
use qbed_p4engine::program::*;
use qbed_p4engine::Engine;

/// Fields of headers like those of TCP and UDP, and of one without a field where these have their checksum.
const WIDTHS: [&[u32]; 3] =
    [&[16, 16, 32, 32, 16, 16, 16, 16], &[16, 16, 16, 16], &[8, 16, 16, 16, 8, 48, 16, 32]];
/// Size of the header before. Its first byte says which of them follows.
const HEAD_BYTES: usize = 6;
const PACKET_BYTES: usize = 40;
const CHECKSUM: u16 = 0xabcd;

/// A kind of operation, its operands, and a number.
type Operation = (u8, Index, Index, u8);

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    prop::collection::vec((0..11u8, any::<Index>(), any::<Index>(), any::<u8>()), 0..5)
}

/// The headers and fields that operations access.
struct Places {
    headers: Vec<HeaderId>,
    /// A second header of the first one's type.
    spare: HeaderId,
    fields: Vec<FieldId>,
    checksums: [FieldId; 2],
    notes: Vec<FieldId>,
}

impl Places {
    fn ops(&self, operations: &[Operation]) -> Vec<Op> {
        operations.iter().flat_map(|operation| self.op(operation)).chain([Op::End]).collect()
    }

    fn op(&self, (kind, first, second, value): &Operation) -> Vec<Op> {
        let (field, other, note) =
            (*first.get(&self.fields), *second.get(&self.fields), *second.get(&self.notes));
        let (header, tcp, spare) = (*first.get(&self.headers), self.headers[0], self.spare);
        match kind {
            0 => vec![Op::Load { to: 0, field }, Op::Store { field: note, from: 0 }],
            1 => vec![Op::Set { to: 0, value: (*value).into() }, Op::Store { field, from: 0 }],
            2 => vec![Op::StoreConstant { field, value: (*value).into() }],
            3 => vec![Op::Load { to: 0, field }, Op::Store { field: other, from: 0 }],
            4 => vec![Op::AddHeader { header }],
            5 => vec![Op::RemoveHeader { header }],
            6 => vec![Op::Checksum { to: 0, hash: 0 }, Op::Store { field: note, from: 0 }],
            7 if value % 2 == 0 => vec![Op::CopyHeader { to: tcp, from: spare }],
            7 => vec![Op::CopyHeader { to: spare, from: tcp }],
            8 => vec![Op::Digest { digest: 0 }],
            9 => vec![Op::Set { to: 0, value: 1 }, Op::CloneEgress { session: 0, list: 0 }],
            _ => vec![Op::Copy { to: self.checksums[0], from: self.checksums[1] }],
        }
    }
}

/// Extracts the head, one of the headers, and a tail of variable length.
fn parser(build: &mut Build, head: HeaderId, headers: &[HeaderId], tail: HeaderId) -> Pc {
    let begin = build.next_pc();
    let case = |index: u8| SelectCase {
        on: SelectOn::Value { value: vec![index], mask: None },
        next: begin + 1 + 5 * Pc::from(index),
    };
    let (keys, cases) = (vec![SelectKey::Lookahead { at: 0, width: 8 }], (0..3).map(case).collect());
    build.program.selects.push(Select { keys, bytes: 1, cases, default: None });
    let mut ops = vec![Op::Select { select: 0 }];
    for header in headers {
        ops.extend([Op::Extract { header: head }, Op::Extract { header: *header }]);
        ops.extend([Op::Set { to: 0, value: 16 }, Op::ExtractVarbit { header: tail, width: 0 }, Op::End]);
    }
    build.code(&ops)
}

/// A program with the operations, and in ingress a table with a checksum as its key.
fn program(ingress: &[Operation], egress: &[Operation], uses_table: bool) -> (Program, [Request; 2]) {
    let mut build = Build::new();
    build.standard();
    let (head, _) = build.header("head", &[8, 40]);
    let made = WIDTHS.map(|widths| build.header("h", widths));
    let (notes, note) = build.header("notes", &[16, 32, 64]);
    let (tail, _) = build.varbit_header("tail", &[8, 64], 1);
    let fields = made.iter().zip(WIDTHS).flat_map(|((_, first), widths)| (*first..).take(widths.len()));
    let places = Places {
        headers: made.iter().map(|(header, _)| *header).collect(),
        spare: build.header("spare", WIDTHS[0]).0,
        fields: fields.collect(),
        checksums: [made[0].1 + 6, made[1].1 + 3],
        notes: (note..note + 3).collect(),
    };
    let [tcp_checksum, udp_checksum] = places.checksums;
    build.hash(HashKind::Csum16, vec![HashInput::Header(made[0].0), HashInput::Field(udp_checksum)]);
    build.program.digests.push(Digest { name: "d".into(), id: 1, fields: vec![tcp_checksum, udp_checksum] });
    build.program.field_lists.push(vec![udp_checksum, note]);
    build.program.entry.parser = parser(&mut build, head, &places.headers, tail);
    let body = [Op::Argument { to: 0, argument: 0 }, Op::Store { field: note + 1, from: 0 }, Op::End];
    let action = build.action("act", &[16], &body);
    let after = build.code(&places.ops(ingress));
    let table = build.table("t", &[(tcp_checksum, MatchKind::Exact)], &[action], after);
    let next = if uses_table { Op::Apply { table } } else { Op::Jump { to: after } };
    build.program.entry.ingress = build.code(&[Op::AddHeader { header: notes }, next]);
    build.program.entry.egress = build.code(&places.ops(egress));
    build.program.entry.deparser = build.next_pc();
    let emitted =
        [head, notes, places.spare, tail].into_iter().chain(places.headers).map(|header| Op::Emit { header });
    build.code(&emitted.chain([Op::End]).collect::<Vec<_>>());
    let target = Target::Call(ActionCall { action, arguments: vec![vec![3, 4]] });
    let matches = vec![Match::Exact(CHECKSUM.to_be_bytes().to_vec())];
    let insert = Request::Insert { table, entry: TableEntry { matches, priority: 0, target, idle_us: 0 } };
    let clone = CloneSession { replicas: vec![Replica { port: 1, instance: 1 }], truncate_bytes: 0 };
    (build.program, [insert, Request::SetCloneSession { session: 1, clone: Some(clone) }])
}

/// Decision, emission and their effects. `head`: what the engine gets at first of a packet with its checksum left to
/// the device.
fn results(engine: &mut Engine, packet: &[u8], head: Option<(&[u8], u32)>) -> String {
    let (mut context, mut recorder) = (engine.context(), Recorder::default());
    recorder.whole = Some(packet.to_vec().leak());
    recorder.checksum = CHECKSUM;
    let (first, checksum) = head.map_or((packet, None), |(first, checksum)| (first, Some(checksum)));
    let arrival = Arrival { checksum, ..arrival(3, packet.len(), 9) };
    let decision = engine.ingress(&mut context, first, &arrival, &mut recorder);
    assert!(!context.defers_checksum() || recorder.whole.is_some(), "the packet was extended, so completed");
    let emission = engine.egress(&mut context, first, &departure(1, 10), &mut recorder);
    let cloned = context.clone_fields().clone();
    if context.defers_checksum() {
        engine.complete_checksum(&mut context, CHECKSUM, &mut recorder);
    }
    assert!(!context.defers_checksum());
    let totals = engine.control(&Request::Totals);
    format!("{decision:?} {emission:?} {cloned:?} {:?} {:?} {totals:?}", context.headers(), recorder.digests)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 2000 }))]

    #[test]
    fn a_deferred_checksum_has_no_effect(
        ingress in operations(),
        egress in operations(),
        uses_table in any::<bool>(),
        translated in any::<bool>(),
        kind in 0..3u8,
        at in prop_oneof![3 => Just(16), 3 => Just(6), 1 => 0..20usize],
        bytes in prop_oneof![3 => Just(PACKET_BYTES), 1 => 0..PACKET_BYTES],
    ) {
        let (program, requests) = program(&ingress, &egress, uses_table);
        let mut packet: Vec<u8> = (0..PACKET_BYTES as u8).collect();
        packet[0] = kind;
        let at = HEAD_BYTES + at;
        let partial = packet.clone();
        packet[at..at + 2].copy_from_slice(&CHECKSUM.to_be_bytes());
        let mut engines = [(); 2].map(|()| Engine::load(program.clone()).unwrap());
        for engine in &mut engines {
            if translated && !cfg!(miri) {
                qbed_p4native::translate(engine);
            }
            assert!(engine.defers_checksums());
            requests.iter().for_each(|request| drop(engine.control(request)));
        }
        let [complete, deferring] = &mut engines;
        let expected = results(complete, &packet, None);
        // The engine does not read beyond the bytes that it gets.
        let mut first = [0xee; PACKET_BYTES];
        first[..bytes].copy_from_slice(&partial[..bytes]);
        prop_assert_eq!(expected, results(deferring, &packet, Some((&first[..bytes], at as u32))));
    }
}

/// A program that only forwards leaves the checksum to the device, in the interpreter and in machine code.
#[test]
fn forwarding_completes_no_checksum() {
    for translated in [false, true] {
        for (kind, offset) in [(0, 16), (1, 6)] {
            let mut engine = Engine::load(program(&[], &[], false).0).unwrap();
            if translated && !cfg!(miri) {
                qbed_p4native::translate(&mut engine);
            }
            let (mut context, mut recorder) = (engine.context(), Recorder::default());
            let arrival =
                Arrival { checksum: Some(HEAD_BYTES as u32 + offset), ..arrival(3, PACKET_BYTES, 9) };
            let mut packet = [7; PACKET_BYTES];
            packet[0] = kind;
            engine.ingress(&mut context, &packet, &arrival, &mut recorder);
            engine.egress(&mut context, &packet, &departure(1, 10), &mut recorder);
            assert!(context.defers_checksum() && recorder.completed == 0);
            assert!(context.headers().starts_with(&packet[..HEAD_BYTES]));
        }
    }
}
