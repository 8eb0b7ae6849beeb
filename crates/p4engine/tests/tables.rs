// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Compares each kind of table with a linear search, under random inserts, modifications and deletes.

mod build;

use build::{arrival, Build, Recorder};
use proptest::prelude::*;
use qbed_p4engine::control::{Answer, Entry, Refusal, Request, Target};
use qbed_p4engine::packet::Forward;
use qbed_p4engine::program::*;
use qbed_p4engine::{Context, Engine};

/// An engine with a table with keys of 8, 12 and 70 bits of the packet. The action's argument is the port.
fn engine(kinds: [MatchKind; 3]) -> Engine {
    let mut build = Build::new();
    let standard = build.standard();
    let (header, first) = build.header("h", &[8, 12, 4, 70, 2]);
    build.program.entry.parser = build.code(&[Op::Extract { header }, Op::End]);
    let drop = build.action("drop", &[], &[Op::MarkToDrop, Op::End]);
    let store = Op::Store { field: standard.egress_spec.unwrap(), from: 0 };
    let send = build.action("send", &[9], &[Op::Argument { to: 0, argument: 0 }, store, Op::End]);
    let end = build.code(&[Op::End]);
    let keys = [(first, kinds[0]), (first + 1, kinds[1]), (first + 3, kinds[2])];
    let table = build.table("t", &keys, &[drop, send], end);
    build.program.entry.ingress = build.code(&[Op::Apply { table }]);
    Engine::load(build.program).unwrap()
}

const WIDTHS: [u32; 3] = [8, 12, 70];

fn bytes(value: u128, width: u32) -> Vec<u8> {
    let all = value.to_be_bytes();
    all[16 - width.div_ceil(8) as usize..].to_vec()
}

fn number(bytes: &[u8]) -> u128 {
    bytes.iter().fold(0, |value, byte| value << 8 | u128::from(*byte))
}

fn ones(width: u32) -> u128 {
    (1 << width) - 1
}

/// A match of a kind from two numbers.
fn one_match(kind: MatchKind, width: u32, a: u128, b: u128) -> Match {
    let value = |number: u128| bytes(number & ones(width), width);
    match kind {
        MatchKind::Exact => Match::Exact(value(a)),
        MatchKind::Lpm => Match::Lpm { value: value(a), length: (b % u128::from(width + 1)) as u16 },
        MatchKind::Ternary => Match::Ternary { value: value(a), mask: value(b) },
        MatchKind::Range => {
            let (a, b) = (a & ones(width), b & ones(width));
            Match::Range { low: value(a.min(b)), high: value(a.max(b)) }
        }
        MatchKind::Optional => Match::Optional((b % 2 == 0).then(|| value(a))),
    }
}

fn mask(length: u16, width: u32) -> u128 {
    ones(width) & !(ones(width) >> length)
}

fn fits(field_match: &Match, width: u32, key: u128) -> bool {
    match field_match {
        Match::Exact(value) => number(value) == key,
        Match::Lpm { value, length } => (number(value) ^ key) & mask(*length, width) == 0,
        Match::Ternary { value, mask } => (number(value) ^ key) & number(mask) == 0,
        Match::Range { low, high } => (number(low)..=number(high)).contains(&key),
        Match::Optional(value) => value.as_ref().is_none_or(|value| number(value) == key),
    }
}

/// A match with ignored bits 0.
fn canonical_match(field_match: &Match, width: u32) -> Match {
    match field_match {
        Match::Lpm { value, length } => {
            Match::Lpm { value: bytes(number(value) & mask(*length, width), width), length: *length }
        }
        Match::Ternary { value, mask } => {
            Match::Ternary { value: bytes(number(value) & number(mask), width), mask: mask.clone() }
        }
        other => other.clone(),
    }
}

#[derive(Default)]
struct Model(Vec<(Vec<Match>, u32, u16)>);

impl Model {
    fn position(&self, matches: &[Match], priority: u32) -> Option<usize> {
        self.0.iter().position(|(other, rank, _)| other == matches && *rank == priority)
    }

    /// The port of the matching entry with the highest priority or the longest prefix, then the earliest insertion.
    fn find(&self, key: [u128; 3]) -> Option<u16> {
        let fit = |matches: &[Match]| {
            matches
                .iter()
                .zip(WIDTHS)
                .zip(key)
                .all(|((field_match, width), key)| fits(field_match, width, key))
        };
        let length = |matches: &[Match]| {
            matches
                .iter()
                .map(|field_match| if let Match::Lpm { length, .. } = field_match { *length } else { 0 })
                .max()
        };
        let ternary = |matches: &[Match]| {
            matches.iter().any(|field_match| !matches!(field_match, Match::Lpm { .. } | Match::Exact(_)))
        };
        let rank = |(matches, priority, _): &&(Vec<Match>, u32, u16)| {
            if ternary(matches) {
                *priority
            } else {
                u32::from(length(matches).unwrap_or(0))
            }
        };
        self.0.iter().rev().filter(|(matches, ..)| fit(matches)).max_by_key(rank).map(|(.., port)| *port)
    }
}

/// Translates the program where machine code runs.
fn translate(engine: &mut Engine) {
    if !cfg!(miri) {
        qbed_p4native::translate(engine);
    }
}

fn look_up(engine: &mut Engine, context: &mut Context, key: [u128; 3]) -> Option<u16> {
    let packed = key[0] << 88 | key[1] << 76 | key[2] << 2;
    let packet = &packed.to_be_bytes()[4..];
    match engine.ingress(context, packet, &arrival(0, 12, 0), &mut Recorder::default()).forward {
        Forward::Unicast { port, .. } => Some(port),
        _ => None,
    }
}

fn kinds() -> impl Strategy<Value = [MatchKind; 3]> {
    use MatchKind::{Exact, Lpm, Optional, Range, Ternary};
    let known = [[Exact; 3], [Exact, Lpm, Exact], [Lpm, Exact, Exact], [Exact, Exact, Lpm]];
    let any_kind = || prop::sample::select(vec![Exact, Lpm, Ternary, Range, Optional]);
    let ternary = [any_kind(), any_kind(), any_kind()].prop_filter("priorities", |kinds| {
        kinds.iter().any(|kind| matches!(kind, Ternary | Range | Optional))
    });
    prop_oneof![prop::sample::select(known.to_vec()), ternary]
}

/// One of a few values, so that packets match entries.
fn value() -> impl Strategy<Value = u128> {
    prop_oneof![
        prop::sample::select(vec![
            0,
            1,
            2,
            3,
            0x80,
            0xff,
            0x800,
            0xfff,
            1 << 69,
            (1 << 69) + 1,
            ones(70),
            ones(70) - 1
        ]),
        0..16u128,
    ]
}

type Step = (u8, [(u128, u128); 3], u32, u16);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let pair = || (value(), value());
    prop::collection::vec((0..10u8, [pair(), pair(), pair()], 0..4u32, 0..511u16), 1..80)
}

fn apply_step(
    engine: &mut Engine,
    model: &mut Model,
    kinds: [MatchKind; 3],
    step: Step,
) -> Result<(), TestCaseError> {
    let (kind, pairs, priority, port) = step;
    let matches: Vec<Match> =
        (0..3).map(|index| one_match(kinds[index], WIDTHS[index], pairs[index].0, pairs[index].1)).collect();
    let canonical: Vec<Match> =
        matches.iter().zip(WIDTHS).map(|(field_match, width)| canonical_match(field_match, width)).collect();
    let ternary = kinds.iter().any(|kind| !matches!(kind, MatchKind::Exact | MatchKind::Lpm));
    let priority = if ternary { priority } else { 0 };
    let target = Target::Call(ActionCall { action: 1, arguments: vec![port.to_be_bytes().to_vec()] });
    let entry = Entry { matches: matches.clone(), priority, target, idle_us: 0 };
    let position = model.position(&canonical, priority);
    let (request, refusal) = match kind {
        0..6 => (Request::Insert { table: 0, entry }, position.map(|_| Refusal::AlreadyExists)),
        6 => (Request::Modify { table: 0, entry }, position.map_or(Some(Refusal::NotFound), |_| None)),
        _ => (
            Request::Delete { table: 0, matches, priority },
            position.map_or(Some(Refusal::NotFound), |_| None),
        ),
    };
    match (engine.control(&request), refusal) {
        (Answer::Done, None) => {}
        (Answer::Refused(refusal, _), expected) => prop_assert_eq!(Some(refusal), expected),
        other => prop_assert!(false, "{:?}", other),
    }
    match (kind, position) {
        (0..6, None) => model.0.push((canonical, priority, port)),
        (6, Some(position)) => model.0[position].2 = port,
        (7.., Some(position)) => drop(model.0.remove(position)),
        _ => {}
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 300 }))]
    #[test]
    fn a_table_finds_what_a_list_finds(
        kinds in kinds(),
        translated in any::<bool>(),
        steps in steps(),
        keys in prop::collection::vec([value(), value(), value()], 10),
    ) {
        let (mut engine, mut model) = (engine(kinds), Model::default());
        // Machine code repeats the lookups of keys that were looked up before.
        if translated {
            translate(&mut engine);
        }
        let mut context = engine.context();
        for step in steps {
            apply_step(&mut engine, &mut model, kinds, step)?;
            let step_key = step.1.map(|(value, _)| value);
            for key in keys.iter().chain([&step_key]) {
                let key = [key[0] & ones(8), key[1] & ones(12), key[2] & ones(70)];
                prop_assert_eq!(look_up(&mut engine, &mut context, key), model.find(key), "{:?} {:?}", kinds, key);
            }
        }
        let Answer::Entries(entries) = engine.control(&Request::Entries { table: 0, from: 0, limit: 1000 }) else {
            return Err(TestCaseError::fail("no entries"));
        };
        let entries: Vec<_> = entries.into_iter().map(|state| (state.entry.matches, state.entry.priority)).collect();
        let expected: Vec<_> = model.0.into_iter().map(|(matches, priority, _)| (matches, priority)).collect();
        prop_assert_eq!(entries, expected);
    }
}

/// The port of a packet with byte 7 if the header is valid or invalid when the table is applied.
fn port_of(
    valid: bool,
    keys: impl Fn([FieldId; 3]) -> Vec<(FieldId, MatchKind)>,
    entry: &[Match],
) -> Option<u16> {
    let mut build = Build::new();
    let standard = build.standard();
    let (header, first) = build.header("h", &[8, 70, 2]);
    let (_, note) = build.metadata("m", &[8]);
    let hidden = build.program.headers[usize::from(header)].valid;
    build.program.entry.parser = build.code(&[
        Op::Extract { header },
        Op::Load { to: 0, field: first },
        Op::Store { field: note, from: 0 },
        Op::End,
    ]);
    let drop = build.action("drop", &[], &[Op::MarkToDrop, Op::End]);
    let send = Op::StoreConstant { field: standard.egress_spec.unwrap(), value: 1 };
    let send = build.action("send", &[], &[send, Op::End]);
    let end = build.code(&[Op::End]);
    let table = build.table("t", &keys([first, note, hidden]), &[drop, send], end);
    let remove = if valid { Op::None } else { Op::RemoveHeader { header } };
    build.program.entry.ingress = build.code(&[remove, Op::Apply { table }]);
    let mut engine = Engine::load(build.program).unwrap();
    let target = Target::Call(ActionCall { action: send, arguments: vec![] });
    let priority = u32::from(
        entry.iter().any(|field_match| matches!(field_match, Match::Ternary { .. } | Match::Range { .. })),
    );
    let entry = Entry { matches: entry.to_vec(), priority, target, idle_us: 0 };
    assert_eq!(engine.control(&Request::Insert { table, entry }), Answer::Done);
    translate(&mut engine);
    let mut context = engine.context();
    let packet = [7, 0, 0, 0, 0, 0, 0, 0, 0, 4];
    let mut port = || match engine
        .ingress(&mut context, &packet, &arrival(0, 10, 0), &mut Recorder::default())
        .forward
    {
        Forward::Unicast { port, .. } => Some(port),
        _ => None,
    };
    let first = port();
    assert_eq!(port(), first, "the lookup is repeated");
    first
}

/// A new default action runs for a key that was looked up before.
#[test]
fn a_lookup_follows_the_default_action() {
    let mut engine = engine([MatchKind::Exact; 3]);
    translate(&mut engine);
    let mut context = engine.context();
    for port in [3u16, 4] {
        let target = Target::Call(ActionCall { action: 1, arguments: vec![port.to_be_bytes().to_vec()] });
        assert_eq!(engine.control(&Request::SetDefault { table: 0, target }), Answer::Done);
        assert_eq!([(); 3].map(|()| look_up(&mut engine, &mut context, [1, 2, 3])), [Some(port); 3]);
    }
    assert_eq!(engine.control(&Request::ResetDefault { table: 0 }), Answer::Done);
    assert_eq!(look_up(&mut engine, &mut context, [1, 2, 3]), None);
}

/// A lookup with a valid header is not repeated for an invalid one with the same bytes.
#[test]
fn a_lookup_depends_on_the_validity() {
    let mut build = Build::new();
    let standard = build.standard();
    let (header, first) = build.header("h", &[8, 8]);
    build.program.entry.parser = build.code(&[Op::Extract { header }, Op::End]);
    let drop = build.action("drop", &[], &[Op::MarkToDrop, Op::End]);
    let send = Op::StoreConstant { field: standard.egress_spec.unwrap(), value: 1 };
    let send = build.action("send", &[], &[send, Op::End]);
    let end = build.code(&[Op::End]);
    let table = build.table("t", &[(first, MatchKind::Exact)], &[drop, send], end);
    let begin = build.next_pc();
    build.program.entry.ingress = build.code(&[
        Op::Load { to: 0, field: first + 1 },
        Op::JumpUnless { condition: 0, to: begin + 3 },
        Op::RemoveHeader { header },
        Op::Apply { table },
    ]);
    let mut engine = Engine::load(build.program).unwrap();
    translate(&mut engine);
    let target = Target::Call(ActionCall { action: send, arguments: vec![] });
    let entry = Entry { matches: vec![Match::Exact(vec![7])], priority: 0, target, idle_us: 0 };
    assert_eq!(engine.control(&Request::Insert { table, entry }), Answer::Done);
    let mut context = engine.context();
    let mut sends = |removed| {
        let arrival = arrival(0, 2, 0);
        let decision = engine.ingress(&mut context, &[7, removed], &arrival, &mut Recorder::default());
        decision.forward != Forward::Drop
    };
    assert_eq!([0, 1, 0, 1].map(&mut sends), [true, false, true, false]);
}

/// BMv2 also matches zeros for fields of an invalid header. Metadata and validity bits are matched with their values.
#[test]
fn a_key_in_an_invalid_header_is_0() {
    let exact = |value| Match::Exact(vec![value]);
    let ternary = |value| Match::Ternary { value: vec![value], mask: vec![0xff] };
    let range = |value| Match::Range { low: vec![value], high: vec![value] };
    let lpm = |value| Match::Lpm { value: vec![value], length: 8 };
    let kinds: [(MatchKind, &dyn Fn(u8) -> Match); 4] = [
        (MatchKind::Exact, &exact),
        (MatchKind::Ternary, &ternary),
        (MatchKind::Range, &range),
        (MatchKind::Lpm, &lpm),
    ];
    for (kind, to_match) in kinds {
        for (valid, seen) in [(true, 7), (false, 0)] {
            let alone = |value| port_of(valid, |[first, ..]| vec![(first, kind)], &[to_match(value)]);
            assert_eq!((alone(seen), alone(7 - seen)), (Some(1), None), "{kind:?}, valid: {valid}");
            let exact_and = |value| {
                let keys = |[first, note, hidden]: [FieldId; 3]| {
                    vec![(note, MatchKind::Exact), (hidden, MatchKind::Exact), (first, kind)]
                };
                port_of(valid, keys, &[exact(7), exact(valid.into()), to_match(value)])
            };
            assert_eq!((exact_and(seen), exact_and(7 - seen)), (Some(1), None), "{kind:?}, valid: {valid}");
        }
    }
    let wide = |valid, last| {
        let keys =
            |[first, note, _]: [FieldId; 3]| vec![(first + 1, MatchKind::Exact), (note, MatchKind::Exact)];
        port_of(valid, keys, &[Match::Exact(vec![0, 0, 0, 0, 0, 0, 0, 0, last]), exact(7)])
    };
    assert_eq!(
        [wide(true, 1), wide(true, 0), wide(false, 1), wide(false, 0)],
        [Some(1), None, None, Some(1)]
    );
}
