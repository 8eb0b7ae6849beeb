// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Fuzzing: a program that `check` accepts executes packets and requests without a panic and terminates.

mod build;

use build::{arrival, departure, entry_of_everything, everything, Recorder};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use qbed_p4engine::control::Request;
use qbed_p4engine::packet::{Arrival, Forward, Instance};
use qbed_p4engine::program::*;
use qbed_p4engine::Engine;

/// An instruction from random bytes, mostly small numbers.
fn op() -> impl Strategy<Value = Op> {
    let small = prop_oneof![4 => 0..4u8, 2 => 0..40u8, 1 => any::<u8>()];
    (0..75u8, prop::collection::vec(small, 12)).prop_map(|(tag, rest)| {
        let bytes: Vec<u8> = std::iter::once(tag).chain(rest).collect();
        postcard::take_from_bytes(&bytes).map_or(Op::None, |(op, _)| op)
    })
}

fn field() -> impl Strategy<Value = Field> {
    (0..2000u32, prop_oneof![1..70u32, 0..300u32], any::<bool>()).prop_map(|(at, width, signed)| Field {
        name: "f".into(),
        at,
        width,
        signed,
    })
}

/// Changes the first instruction of one of a program's blocks.
fn change_entry(program: &mut Program, block: u8, at: Pc) {
    let entry = &mut program.entry;
    match block {
        0 => entry.parser = at,
        1 => entry.verify = at,
        2 => entry.ingress = at,
        3 => entry.egress = at,
        4 => entry.update = at,
        _ => entry.deparser = at,
    }
}

#[derive(Debug, Clone)]
enum Change {
    Instruction(prop::sample::Index, Op),
    Field(prop::sample::Index, Field),
    Entry(u8, Pc),
}

/// `everything` with random changes that `check` accepts.
fn program() -> impl Strategy<Value = Program> {
    let index = any::<prop::sample::Index>;
    let change = prop_oneof![
        20 => (index(), op()).prop_map(|(index, op)| Change::Instruction(index, op)),
        2 => (index(), field()).prop_map(|(index, field)| Change::Field(index, field)),
        1 => (0..6u8, 0..40u32).prop_map(|(block, at)| Change::Entry(block, at)),
    ];
    prop::collection::vec(change, 0..40).prop_map(|changes| {
        let mut program = everything();
        for change in changes {
            let before = program.clone();
            match change {
                Change::Instruction(index, op) => *index.get_mut(&mut program.code) = op,
                Change::Field(index, field) => *index.get_mut(&mut program.fields) = field,
                Change::Entry(block, at) => change_entry(&mut program, block, at),
            }
            if program.check().is_err() {
                program = before;
            }
        }
        program
    })
}

/// A request from random bytes.
fn request() -> impl Strategy<Value = Request> {
    (0..30u8, prop::collection::vec(0..6u8, 60)).prop_map(|(tag, rest)| {
        let bytes: Vec<u8> = std::iter::once(tag).chain(rest).collect();
        postcard::take_from_bytes(&bytes).map_or(Request::Totals, |(request, _)| request)
    })
}

/// Runs packets and returns the results of each.
fn run(engine: &mut Engine, packets: &[Vec<u8>]) -> Vec<String> {
    let mut results = Vec::new();
    let (mut context, mut other, mut recorder) = (engine.context(), engine.context(), Recorder::default());
    for packet in packets {
        let decision = engine.ingress(&mut context, packet, &arrival(1, packet.len(), 9), &mut recorder);
        if decision.clone.is_some() {
            let (port, length, instance) = (1, packet.len() as u32, Instance::IngressClone);
            let clone = Arrival {
                port,
                length,
                now_us: 9,
                instance,
                preserved: Some(context.clone_fields()),
                checksum: None,
            };
            engine.parse_clone(&mut other, packet, &clone, &mut recorder);
        }
        let port = match decision.forward {
            Forward::Unicast { port, .. } => port,
            _ => 1,
        };
        let emission = engine.egress(&mut context, packet, &departure(port, 10), &mut recorder);
        assert!(emission.replaced as usize <= packet.len());
        engine.copy(&context, &mut other, Instance::EgressClone, 1);
        let copied = engine.egress(&mut other, packet, &departure(port, 10), &mut recorder);
        results.push(format!("{decision:?} {emission:?} {context:?} {copied:?} {other:?}"));
    }
    results.push(format!("{recorder:?} {:?}", engine.control(&Request::Totals)));
    results
}

proptest! {
    #[test]
    fn fuzz_programs(
        program in program(),
        requests in prop::collection::vec(request(), 0..10),
        packets in prop::collection::vec(prop::collection::vec(prop_oneof![Just(1u8), any::<u8>()], 0..70), 1..4),
    ) {
        if let (Ok(mut engine), Ok(mut translated)) = (Engine::load(program.clone()), Engine::load(program)) {
            qbed_p4native::translate(&mut translated);
            for request in std::iter::once(&entry_of_everything()).chain(&requests) {
                prop_assert_eq!(engine.control(request), translated.control(request));
            }
            prop_assert_eq!(run(&mut engine, &packets), run(&mut translated, &packets));
        }
    }

    #[test]
    fn fuzz_images(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        length in any::<prop::sample::Index>(),
    ) {
        let mut image = postcard::to_allocvec(&everything()).unwrap();
        for (index, byte) in flips {
            *index.get_mut(&mut image) = byte;
        }
        if let Ok(mut engine) = Engine::from_bytes(&image) {
            run(&mut engine, &[vec![1; 64]]);
        }
        image.truncate(length.index(image.len()));
        prop_assert!(Engine::from_bytes(&image).is_err());
    }
}

/// Checks that `check` accepts enough of the fuzzer's changes.
#[cfg_attr(miri, ignore = "tests the fuzzer, not the engine")]
#[test]
fn fuzzed_programs_differ_from_the_original() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let known = everything().code;
    let mut changed = 0;
    for _ in 0..100 {
        let program = program().new_tree(&mut runner).unwrap().current();
        changed +=
            program.code.iter().zip(&known).filter(|(instruction, original)| instruction != original).count();
    }
    assert!(changed > 300, "{changed} instructions of 100 programs");
}
