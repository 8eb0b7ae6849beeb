// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Registers, counters, meters, action profiles, idle entries and the program's own: from packets and from the control plane.

mod build;

use build::{arrival, departure, Build, Notes};
use qbed_p4engine::control::{Answer, Count, Entry, Rates, Refusal, Request, Target};
use qbed_p4engine::packet::Forward;
use qbed_p4engine::program::*;
use qbed_p4engine::{Context, Engine};

/// A table by the packet's first byte, of the kind; action 0 drops, 1 sends to its argument.
fn by_byte(kind: MatchKind, change: impl Fn(&mut Build, FieldId)) -> (Engine, Context) {
    let mut build = Build::new();
    let standard = build.standard();
    let (header, first) = build.header("h", &[8, 8]);
    build.program.entry.parser = build.code(&[Op::Extract { header }, Op::End]);
    let drop = build.action("drop", &[], &[Op::MarkToDrop, Op::End]);
    let store = Op::Store { field: standard.egress_spec.unwrap(), from: 0 };
    let send = build.action("send", &[9], &[Op::Argument { to: 0, argument: 0 }, store, Op::End]);
    let end = build.code(&[Op::End]);
    let table = build.table("t", &[(first, kind)], &[drop, send], end);
    build.program.entry.ingress = build.code(&[Op::Apply { table }, Op::End]);
    build.program.entry.deparser = build.code(&[Op::Emit { header }, Op::End]);
    change(&mut build, first);
    let engine = Engine::load(build.program).unwrap();
    let context = engine.context();
    (engine, context)
}

fn send(port: u8) -> ActionCall {
    ActionCall { action: 1, arguments: vec![vec![0, port]] }
}

fn exact(byte: u8, target: Target, idle_us: u64) -> Request {
    Request::Insert {
        table: 0,
        entry: Entry { matches: vec![Match::Exact(vec![byte])], priority: 0, target, idle_us },
    }
}

fn done(engine: &mut Engine, request: Request) {
    assert_eq!(engine.control(&request), Answer::Done, "{request:?}");
}

fn refusal(engine: &mut Engine, request: Request) -> Refusal {
    match engine.control(&request) {
        Answer::Refused(refusal, _) => refusal,
        other => panic!("{other:?}"),
    }
}

/// Where a packet of this first byte goes.
fn port(engine: &mut Engine, context: &mut Context, byte: u8, now_us: u64) -> Option<u16> {
    let decision = engine.ingress(context, &[byte, 0], &arrival(1, 100, now_us), &mut Notes::default());
    match decision.forward {
        Forward::Unicast { port, .. } => Some(port),
        _ => None,
    }
}

/// How many entries are, at each of these times.
fn idle_at(engine: &mut Engine, times_us: &[u64]) -> Vec<usize> {
    let idle = |now_us: &u64| match engine.control(&Request::Idle { now_us: *now_us, most: 9 }) {
        Answer::Idle(idle) => idle.len(),
        other => panic!("{other:?}"),
    };
    times_us.iter().map(idle).collect()
}

#[test]
fn entries_count_are_metered_and_fall_idle() {
    let (mut engine, mut context) = by_byte(MatchKind::Exact, |build, first| {
        build.program.counters.push(Counter { name: "c".into(), table: Some(0), size: 0 });
        let result = Some(first + 1);
        build.program.meters.push(Meter { name: "m".into(), table: Some(0), size: 0, bytes: true, result });
        let table = &mut build.program.tables[0];
        (table.counter, table.meter, table.idle_timeout) = (Some(0), Some(0), true);
    });
    done(&mut engine, exact(7, Target::Call(send(3)), 1000));
    let matches = vec![Match::Exact(vec![7])];
    let rates = Some(Rates { committed: 1, committed_burst: 100, peak: 1, peak_burst: 200 });
    let (table, priority) = (0, 0);
    done(&mut engine, Request::SetDirectMeter { table, matches: matches.clone(), priority, rates });
    let mut colors = Vec::new();
    for _ in 0..3 {
        assert_eq!(port(&mut engine, &mut context, 7, 50), Some(3));
        engine.egress(&mut context, &[7, 0], &departure(3, 50), &mut Notes::default());
        colors.push(context.headers()[1]);
    }
    assert_eq!(colors, [0, 1, 2]);
    let Answer::Entries(entries) =
        engine.control(&Request::Entry { table, matches: matches.clone(), priority })
    else {
        panic!()
    };
    assert_eq!(entries[0].count, Some(Count { packets: 3, bytes: 300 }));
    assert_eq!((entries[0].rates, entries[0].last_hit_us), (rates, 50));
    assert_eq!(
        idle_at(&mut engine, &[1049, 1050, 1051, 2049, 2050, 2051]),
        [0, 1, 0, 0, 1, 0],
        "again after another time-out"
    );
    port(&mut engine, &mut context, 7, 2500);
    assert_eq!(idle_at(&mut engine, &[3499, 3500, 5100]), [0, 1, 1]);
    done(&mut engine, Request::Delete { table, matches, priority });
    // One that never matched: from when it was first asked for.
    done(&mut engine, exact(8, Target::Call(send(3)), 1000));
    assert_eq!(idle_at(&mut engine, &[9000, 9999, 10_000]), [0, 0, 1]);
}

/// With more idle entries than an answer holds, each has its turn.
#[test]
fn no_idle_entry_waits_for_ever() {
    let (mut engine, _) = by_byte(MatchKind::Exact, |build, _| build.program.tables[0].idle_timeout = true);
    (0..10).for_each(|byte| done(&mut engine, exact(byte, Target::Call(send(3)), 100)));
    let mut told = |now_us, most| match engine.control(&Request::Idle { now_us, most }) {
        Answer::Idle(idle) => idle.into_iter().map(|(_, matches, _)| matches).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    assert!(told(0, 4).is_empty());
    let of = |bytes: &[u8]| bytes.iter().map(|byte| vec![Match::Exact(vec![*byte])]).collect::<Vec<_>>();
    assert_eq!(told(1000, 4), of(&[0, 1, 2, 3]));
    assert_eq!(told(2000, 4), of(&[4, 5, 6, 7]), "those that are idle again stand behind them");
    assert_eq!(told(2000, 9), of(&[8, 9, 0, 1, 2, 3]));
    assert!(told(2000, 9).is_empty());
}

#[test]
fn a_group_spreads_over_its_members_as_often_as_they_weigh() {
    let (mut engine, mut context) = by_byte(MatchKind::Exact, |build, first| {
        let hash = build.hash(HashKind::Identity, vec![HashInput::Field(first + 1)]);
        build.program.hashes[usize::from(hash)].kind = HashKind::RoundRobin;
        build.program.profiles.push(Profile { name: "p".into(), max_size: 2, selector: Some(hash) });
        build.program.tables[0].profile = Some(0);
    });
    let profile = 0;
    assert_eq!(refusal(&mut engine, exact(1, Target::Call(send(1)), 0)), Refusal::InvalidArgument);
    assert_eq!(refusal(&mut engine, exact(1, Target::Group(1), 0)), Refusal::NotFound);
    done(&mut engine, Request::InsertMember { profile, member: 10, call: send(1) });
    done(&mut engine, Request::InsertMember { profile, member: 20, call: send(2) });
    let third = Request::InsertMember { profile, member: 30, call: send(2) };
    assert_eq!(refusal(&mut engine, third), Refusal::ResourceExhausted);
    done(&mut engine, Request::SetGroup { profile, group: 5, members: vec![10, 20, 20] });
    done(&mut engine, exact(1, Target::Group(5), 0));
    done(&mut engine, exact(2, Target::Member(20), 0));
    let ports: Vec<_> = (0..6).map(|_| port(&mut engine, &mut context, 1, 0).unwrap()).collect();
    assert_eq!(ports, [1, 2, 2, 1, 2, 2]);
    assert_eq!(
        refusal(&mut engine, Request::DeleteMember { profile, member: 20 }),
        Refusal::FailedPrecondition
    );
    assert_eq!(refusal(&mut engine, Request::DeleteGroup { profile, group: 5 }), Refusal::FailedPrecondition);
    done(&mut engine, Request::ModifyMember { profile, member: 20, call: send(9) });
    assert_eq!(port(&mut engine, &mut context, 2, 0), Some(9));
    done(&mut engine, Request::SetGroup { profile, group: 5, members: vec![] });
    assert_eq!(port(&mut engine, &mut context, 1, 0), Some(0)); // An empty group: no action.
    let Answer::Profile { members, groups } = engine.control(&Request::Profile { profile }) else { panic!() };
    assert_eq!((members, groups), (vec![(10, send(1)), (20, send(9))], vec![(5, vec![])]));
}

/// Two tables of one profile, each with its own copy of `send`; the second has `mark` besides. The first table's copy sends to
/// its argument, the second one's writes it into the header.
fn shared_profile() -> (Engine, ActionCall, ActionCall) {
    let mut build = Build::new();
    let standard = build.standard();
    let (header, first) = build.header("h", &[8, 8]);
    build.program.entry.parser = build.code(&[Op::Extract { header }, Op::End]);
    let into = |field| [Op::Argument { to: 0, argument: 0 }, Op::Store { field, from: 0 }, Op::End];
    let send = build.action("send", &[8], &into(standard.egress_spec.unwrap()));
    let copy = build.action("send", &[8], &into(first + 1));
    let mark = build.action("mark", &[8], &into(first + 1));
    let hash = build.hash(HashKind::Identity, vec![HashInput::Field(first)]);
    build.program.profiles.push(Profile { name: "p".into(), max_size: 9, selector: Some(hash) });
    let key = [(first, MatchKind::Exact)];
    let begin = build.here();
    build.table("t", &key, &[send], begin + 1);
    build.table("u", &key, &[copy, mark], begin + 2);
    build.program.tables.iter_mut().for_each(|table| table.profile = Some(0));
    build.program.entry.ingress = build.code(&[Op::Apply { table: 0 }, Op::Apply { table: 1 }, Op::End]);
    build.program.entry.deparser = build.code(&[Op::Emit { header }, Op::End]);
    let call = |action, argument| ActionCall { action, arguments: vec![vec![argument]] };
    (Engine::load(build.program).unwrap(), call(send, 3), call(mark, 4))
}

fn entry_of(table: TableId, byte: u8, target: Target) -> Request {
    let entry = Entry { matches: vec![Match::Exact(vec![byte])], priority: 0, target, idle_us: 0 };
    Request::Insert { table, entry }
}

#[test]
fn tables_that_share_a_profile_call_their_own_copies_of_its_actions() {
    let (mut engine, send, _) = shared_profile();
    let mut context = engine.context();
    done(&mut engine, Request::InsertMember { profile: 0, member: 5, call: send.clone() });
    done(&mut engine, Request::SetGroup { profile: 0, group: 1, members: vec![5] });
    for (byte, target) in [(1, Target::Member(5)), (2, Target::Group(1))] {
        (0..2).for_each(|table| done(&mut engine, entry_of(table, byte, target.clone())));
        assert_eq!(port(&mut engine, &mut context, byte, 0), Some(3));
        engine.egress(&mut context, &[byte, 0], &departure(3, 0), &mut Notes::default());
        assert_eq!(context.headers(), [byte, 3], "the second table calls its own copy");
    }
    let Answer::Profile { members, .. } = engine.control(&Request::Profile { profile: 0 }) else { panic!() };
    assert_eq!(members, [(5, send)], "read as it was written");
}

#[test]
fn a_table_refuses_members_whose_action_it_does_not_have() {
    let (mut engine, send, mark) = shared_profile();
    let profile = 0;
    let none = ActionCall { action: 9, arguments: vec![] };
    assert_eq!(
        refusal(&mut engine, Request::InsertMember { profile, member: 1, call: none }),
        Refusal::InvalidArgument
    );
    done(&mut engine, Request::InsertMember { profile, member: 1, call: send.clone() });
    done(&mut engine, Request::InsertMember { profile, member: 2, call: mark.clone() });
    done(&mut engine, entry_of(1, 1, Target::Member(2)));
    let Answer::Refused(Refusal::InvalidArgument, text) = engine.control(&entry_of(0, 1, Target::Member(2)))
    else {
        panic!()
    };
    assert_eq!(text, "member 2 calls mark, which table t does not have");
    // In a group, and as a change of what an entry names already.
    done(&mut engine, Request::SetGroup { profile, group: 1, members: vec![1, 2] });
    assert_eq!(refusal(&mut engine, entry_of(0, 1, Target::Group(1))), Refusal::InvalidArgument);
    done(&mut engine, Request::SetGroup { profile, group: 1, members: vec![1] });
    done(&mut engine, entry_of(0, 1, Target::Group(1)));
    let group = Request::SetGroup { profile, group: 1, members: vec![1, 2] };
    assert_eq!(refusal(&mut engine, group), Refusal::InvalidArgument);
    let change = Request::ModifyMember { profile, member: 1, call: mark.clone() };
    assert_eq!(refusal(&mut engine, change), Refusal::InvalidArgument);
    done(&mut engine, Request::ModifyMember { profile, member: 2, call: send });
    done(&mut engine, entry_of(0, 2, Target::Member(2)));
    assert_eq!(
        refusal(&mut engine, Request::ModifyMember { profile, member: 2, call: mark }),
        Refusal::InvalidArgument
    );
}

/// `by_byte` with an action profile, whose groups choose by the same byte.
fn by_byte_with_profile() -> (Engine, Context) {
    by_byte(MatchKind::Exact, |build, first| {
        let hash = build.hash(HashKind::Identity, vec![HashInput::Field(first)]);
        build.program.profiles.push(Profile { name: "p".into(), max_size: 9, selector: Some(hash) });
        build.program.tables[0].profile = Some(0);
    })
}

#[test]
fn a_member_that_a_default_names_stays() {
    let (mut engine, _) = by_byte_with_profile();
    done(&mut engine, Request::InsertMember { profile: 0, member: 5, call: send(1) });
    done(&mut engine, Request::SetDefault { table: 0, target: Target::Member(5) });
    let delete = Request::DeleteMember { profile: 0, member: 5 };
    assert_eq!(refusal(&mut engine, delete.clone()), Refusal::FailedPrecondition);
    done(&mut engine, Request::ResetDefault { table: 0 });
    done(&mut engine, delete);
}

/// As in BMv2, so that both choose alike: a group is counted in ascending order of its members' numbers.
#[test]
fn a_group_has_its_members_in_ascending_order() {
    let (mut engine, mut context) = by_byte_with_profile();
    for member in [10, 30, 20] {
        done(&mut engine, Request::InsertMember { profile: 0, member, call: send(member as u8) });
    }
    done(&mut engine, Request::SetGroup { profile: 0, group: 1, members: vec![30, 30, 10, 20] });
    let ports = [0, 1, 2, 3, 4].map(|byte| {
        done(&mut engine, exact(byte, Target::Group(1), 0));
        port(&mut engine, &mut context, byte, 0).unwrap()
    });
    assert_eq!(ports, [10, 20, 30, 30, 10]);
}

#[test]
fn of_the_programs_own_entries_the_lowest_priority_wins_and_they_stay() {
    let (mut engine, mut context) = by_byte(MatchKind::Ternary, |build, _| {
        let one = |value, mask, priority, port| ConstEntry {
            matches: vec![Match::Ternary { value: vec![value], mask: vec![mask] }],
            priority,
            call: send(port),
        };
        let table = &mut build.program.tables[0];
        table.entries = vec![one(0, 0, 30, 3), one(0x10, 0xf0, 10, 1), one(0x11, 0xff, 20, 2)];
        (table.constant_entries, table.constant_default) = (true, true);
    });
    assert_eq!(
        [0x11, 0x1f, 0x20].map(|byte| port(&mut engine, &mut context, byte, 0)),
        [Some(1), Some(1), Some(3)]
    );
    let matches = vec![Match::Ternary { value: vec![0], mask: vec![0] }];
    let delete = Request::Delete { table: 0, matches, priority: 1 };
    assert_eq!(refusal(&mut engine, delete), Refusal::PermissionDenied);
    let default = Request::SetDefault { table: 0, target: Target::Call(send(1)) };
    assert_eq!(refusal(&mut engine, default), Refusal::PermissionDenied);
    let Answer::Entries(entries) = engine.control(&Request::Entries { table: 0, from: 1, most: 1 }) else {
        panic!()
    };
    assert_eq!((entries.len(), entries[0].entry.priority), (1, 21));
}

#[test]
fn a_default_changes_and_comes_back_and_a_table_gets_full() {
    let (mut engine, mut context) =
        by_byte(MatchKind::Exact, |build, _| build.program.tables[0].max_size = 1);
    assert_eq!(port(&mut engine, &mut context, 1, 0), None);
    done(&mut engine, Request::SetDefault { table: 0, target: Target::Call(send(4)) });
    assert_eq!(port(&mut engine, &mut context, 1, 0), Some(4));
    done(&mut engine, Request::ResetDefault { table: 0 });
    assert_eq!(port(&mut engine, &mut context, 1, 0), None);
    done(&mut engine, exact(1, Target::Call(send(1)), 0));
    assert_eq!(refusal(&mut engine, exact(2, Target::Call(send(1)), 0)), Refusal::ResourceExhausted);
}

#[test]
fn registers_counters_and_meters_by_index() {
    let (mut engine, mut context) = by_byte(MatchKind::Exact, |build, first| {
        let (narrow, wide) = (build.array(12, 4), build.array(100, 2));
        build.program.arrays[usize::from(narrow)].signed = true;
        build.program.counters.push(Counter { name: "c".into(), table: None, size: 2 });
        build.program.meters.push(Meter {
            name: "m".into(),
            table: None,
            size: 2,
            bytes: false,
            result: None,
        });
        let result = build.field("result", 32);
        build.program.messages = vec!["read".into()];
        build.program.entry.ingress = build.code(&[
            Op::Load { to: 1, field: first },
            Op::RegisterRead { to: result, array: narrow, index: 1 },
            Op::Load { to: 2, field: result },
            Op::BinaryWith { op: Binary::Add, to: 3, left: 2, value: 1 },
            Op::RegisterWrite { array: narrow, index: 1, from: 3 },
            Op::RegisterWrite { array: wide, index: 1, from: 3 },
            Op::Count { counter: 0, index: 1 },
            Op::Execute { meter: 0, index: 1, to: first + 1 },
            Op::Load { to: 3, field: first + 1 },
            Op::Log { message: 0, first: 2, arguments: 2 },
            Op::End,
        ]);
    });
    let value = vec![0x0f, 0xfe];
    done(&mut engine, Request::WriteRegister { array: 0, index: 1, value });
    let wrong = Request::WriteRegister { array: 0, index: 1, value: vec![0x10, 0] };
    assert_eq!(refusal(&mut engine, wrong), Refusal::InvalidArgument);
    let rates = Rates { committed: 1, committed_burst: 1, peak: 1, peak_burst: 2 };
    done(&mut engine, Request::SetMeter { meter: 0, index: 1, rates: Some(rates) });
    let slow = Rates { peak: 0, ..rates };
    assert_eq!(
        refusal(&mut engine, Request::SetMeter { meter: 0, index: 1, rates: Some(slow) }),
        Refusal::InvalidArgument
    );
    let mut notes = Notes::default();
    for byte in [1, 1, 1, 200] {
        engine.ingress(&mut context, &[byte, 9], &arrival(1, 100, 5), &mut notes);
    }
    // Signed: -2, -1, 0 as 32 bits; beyond the array nothing is read, written or metered.
    let read: Vec<_> = notes.logs.into_iter().map(|(_, values)| values).collect();
    assert_eq!(read, [[0xffff_fffe, 0], [0xffff_ffff, 1], [0, 2], [0, 9]]);
    let values =
        |engine: &mut Engine, array| engine.control(&Request::ReadRegister { array, from: 1, count: 1 });
    assert_eq!(values(&mut engine, 0), Answer::Values(vec![vec![0, 1]]));
    assert_eq!(values(&mut engine, 1), Answer::Values(vec![[vec![0; 12], vec![1]].concat()]));
    assert_eq!(
        refusal(&mut engine, Request::ReadRegister { array: 0, from: 4, count: 1 }),
        Refusal::OutOfRange
    );
    let counts = engine.control(&Request::ReadCounter { counter: 0, from: 0, count: 2 });
    assert_eq!(counts, Answer::Counts(vec![Count::default(), Count { packets: 3, bytes: 300 }]));
    done(&mut engine, Request::WriteCounter { counter: 0, index: 0, value: Count { packets: 1, bytes: 2 } });
    assert_eq!(engine.control(&Request::ReadMeter { meter: 0, index: 1 }), Answer::Meter(Some(rates)));
    assert_eq!(engine.control(&Request::ReadMeter { meter: 0, index: 0 }), Answer::Meter(None));
}
