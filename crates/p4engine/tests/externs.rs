// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Registers, counters, meters, action profiles, idle entries and constant entries, from packets and the control plane.

mod build;

use build::{arrival, departure, Build, Recorder};
use qbed_p4engine::control::{Answer, Count, Entry, Rates, Refusal, Request, Target};
use qbed_p4engine::packet::Forward;
use qbed_p4engine::program::*;
use qbed_p4engine::{Context, Engine};

/// An engine with a table. The key is the packet's first byte. Action 0 drops, action 1 sends to its argument.
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

fn succeed(engine: &mut Engine, request: Request) {
    assert_eq!(engine.control(&request), Answer::Done, "{request:?}");
}

fn refusal(engine: &mut Engine, request: Request) -> Refusal {
    match engine.control(&request) {
        Answer::Refused(refusal, _) => refusal,
        other => panic!("{other:?}"),
    }
}

/// The port of a packet with this first byte.
fn port(engine: &mut Engine, context: &mut Context, byte: u8, now_us: u64) -> Option<u16> {
    let decision = engine.ingress(context, &[byte, 0], &arrival(1, 100, now_us), &mut Recorder::default());
    match decision.forward {
        Forward::Unicast { port, .. } => Some(port),
        _ => None,
    }
}

/// The number of idle entries at each of these times.
fn idle_at(engine: &mut Engine, times_us: &[u64]) -> Vec<usize> {
    let idle = |now_us: &u64| match engine.control(&Request::Idle { now_us: *now_us, limit: 9 }) {
        Answer::Idle(idle) => idle.len(),
        other => panic!("{other:?}"),
    };
    times_us.iter().map(idle).collect()
}

#[test]
fn entries_have_counters_meters_and_idle_timeouts() {
    let (mut engine, mut context) = by_byte(MatchKind::Exact, |build, first| {
        build.program.counters.push(Counter { name: "c".into(), table: Some(0), size: 0 });
        let result = Some(first + 1);
        build.program.meters.push(Meter { name: "m".into(), table: Some(0), size: 0, bytes: true, result });
        let table = &mut build.program.tables[0];
        (table.counter, table.meter, table.idle_timeout) = (Some(0), Some(0), true);
    });
    succeed(&mut engine, exact(7, Target::Call(send(3)), 1000));
    let matches = vec![Match::Exact(vec![7])];
    let rates = Some(Rates { committed: 1, committed_burst: 100, peak: 1, peak_burst: 200 });
    let (table, priority) = (0, 0);
    succeed(&mut engine, Request::SetDirectMeter { table, matches: matches.clone(), priority, rates });
    let mut colors = Vec::new();
    for _ in 0..3 {
        assert_eq!(port(&mut engine, &mut context, 7, 50), Some(3));
        engine.egress(&mut context, &[7, 0], &departure(3, 50), &mut Recorder::default());
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
        "reported again after another time-out"
    );
    port(&mut engine, &mut context, 7, 2500);
    assert_eq!(idle_at(&mut engine, &[3499, 3500, 5100]), [0, 1, 1]);
    succeed(&mut engine, Request::Delete { table, matches, priority });
    // The time-out of an entry that was never hit begins at the first query.
    succeed(&mut engine, exact(8, Target::Call(send(3)), 1000));
    assert_eq!(idle_at(&mut engine, &[9000, 9999, 10_000]), [0, 0, 1]);
}

/// If an answer cannot contain all idle entries, the next query continues with the others.
#[test]
fn every_idle_entry_is_reported() {
    let (mut engine, _) = by_byte(MatchKind::Exact, |build, _| build.program.tables[0].idle_timeout = true);
    (0..10).for_each(|byte| succeed(&mut engine, exact(byte, Target::Call(send(3)), 100)));
    let mut idle = |now_us, limit| match engine.control(&Request::Idle { now_us, limit }) {
        Answer::Idle(idle) => idle.into_iter().map(|(_, matches, _)| matches).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    assert!(idle(0, 4).is_empty());
    let entries = |bytes: &[u8]| bytes.iter().map(|byte| vec![Match::Exact(vec![*byte])]).collect::<Vec<_>>();
    assert_eq!(idle(1000, 4), entries(&[0, 1, 2, 3]));
    assert_eq!(idle(2000, 4), entries(&[4, 5, 6, 7]), "entries that are idle again follow later");
    assert_eq!(idle(2000, 9), entries(&[8, 9, 0, 1, 2, 3]));
    assert!(idle(2000, 9).is_empty());
}

#[test]
fn a_group_selects_members_by_their_weights() {
    let (mut engine, mut context) = by_byte(MatchKind::Exact, |build, first| {
        let hash = build.hash(HashKind::Identity, vec![HashInput::Field(first + 1)]);
        build.program.hashes[usize::from(hash)].kind = HashKind::RoundRobin;
        build.program.profiles.push(Profile { name: "p".into(), max_size: 2, selector: Some(hash) });
        build.program.tables[0].profile = Some(0);
    });
    let profile = 0;
    assert_eq!(refusal(&mut engine, exact(1, Target::Call(send(1)), 0)), Refusal::InvalidArgument);
    assert_eq!(refusal(&mut engine, exact(1, Target::Group(1), 0)), Refusal::NotFound);
    succeed(&mut engine, Request::InsertMember { profile, member: 10, call: send(1) });
    succeed(&mut engine, Request::InsertMember { profile, member: 20, call: send(2) });
    let third = Request::InsertMember { profile, member: 30, call: send(2) };
    assert_eq!(refusal(&mut engine, third), Refusal::ResourceExhausted);
    succeed(&mut engine, Request::SetGroup { profile, group: 5, members: vec![10, 20, 20] });
    succeed(&mut engine, exact(1, Target::Group(5), 0));
    succeed(&mut engine, exact(2, Target::Member(20), 0));
    let ports: Vec<_> = (0..6).map(|_| port(&mut engine, &mut context, 1, 0).unwrap()).collect();
    assert_eq!(ports, [1, 2, 2, 1, 2, 2]);
    assert_eq!(
        refusal(&mut engine, Request::DeleteMember { profile, member: 20 }),
        Refusal::FailedPrecondition
    );
    assert_eq!(refusal(&mut engine, Request::DeleteGroup { profile, group: 5 }), Refusal::FailedPrecondition);
    succeed(&mut engine, Request::ModifyMember { profile, member: 20, call: send(9) });
    assert_eq!(port(&mut engine, &mut context, 2, 0), Some(9));
    succeed(&mut engine, Request::SetGroup { profile, group: 5, members: vec![] });
    assert_eq!(port(&mut engine, &mut context, 1, 0), Some(0)); // An empty group: no action.
    let Answer::Profile { members, groups } = engine.control(&Request::Profile { profile }) else { panic!() };
    assert_eq!((members, groups), (vec![(10, send(1)), (20, send(9))], vec![(5, vec![])]));
}

/// An engine with two tables of one profile, each with a copy of `send`. The second table also has `mark`. The first
/// table's copy sends to its argument, the second one's writes it into the header.
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
    let begin = build.next_pc();
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
fn tables_that_share_a_profile_call_their_copies_of_its_actions() {
    let (mut engine, send, _) = shared_profile();
    let mut context = engine.context();
    succeed(&mut engine, Request::InsertMember { profile: 0, member: 5, call: send.clone() });
    succeed(&mut engine, Request::SetGroup { profile: 0, group: 1, members: vec![5] });
    for (byte, target) in [(1, Target::Member(5)), (2, Target::Group(1))] {
        (0..2).for_each(|table| succeed(&mut engine, entry_of(table, byte, target.clone())));
        assert_eq!(port(&mut engine, &mut context, byte, 0), Some(3));
        engine.egress(&mut context, &[byte, 0], &departure(3, 0), &mut Recorder::default());
        assert_eq!(context.headers(), [byte, 3], "the second table calls its copy");
    }
    let Answer::Profile { members, .. } = engine.control(&Request::Profile { profile: 0 }) else { panic!() };
    assert_eq!(members, [(5, send)], "read in the form in which it was written");
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
    succeed(&mut engine, Request::InsertMember { profile, member: 1, call: send.clone() });
    succeed(&mut engine, Request::InsertMember { profile, member: 2, call: mark.clone() });
    succeed(&mut engine, entry_of(1, 1, Target::Member(2)));
    let Answer::Refused(Refusal::InvalidArgument, text) = engine.control(&entry_of(0, 1, Target::Member(2)))
    else {
        panic!()
    };
    assert_eq!(text, "member 2 calls mark, which table t does not have");
    // Also in a group, and after a change of a member or group that an entry refers to.
    succeed(&mut engine, Request::SetGroup { profile, group: 1, members: vec![1, 2] });
    assert_eq!(refusal(&mut engine, entry_of(0, 1, Target::Group(1))), Refusal::InvalidArgument);
    succeed(&mut engine, Request::SetGroup { profile, group: 1, members: vec![1] });
    succeed(&mut engine, entry_of(0, 1, Target::Group(1)));
    let group = Request::SetGroup { profile, group: 1, members: vec![1, 2] };
    assert_eq!(refusal(&mut engine, group), Refusal::InvalidArgument);
    let change = Request::ModifyMember { profile, member: 1, call: mark.clone() };
    assert_eq!(refusal(&mut engine, change), Refusal::InvalidArgument);
    succeed(&mut engine, Request::ModifyMember { profile, member: 2, call: send });
    succeed(&mut engine, entry_of(0, 2, Target::Member(2)));
    assert_eq!(
        refusal(&mut engine, Request::ModifyMember { profile, member: 2, call: mark }),
        Refusal::InvalidArgument
    );
}

/// `by_byte` with an action profile. Its groups select by the same byte.
fn by_byte_with_profile() -> (Engine, Context) {
    by_byte(MatchKind::Exact, |build, first| {
        let hash = build.hash(HashKind::Identity, vec![HashInput::Field(first)]);
        build.program.profiles.push(Profile { name: "p".into(), max_size: 9, selector: Some(hash) });
        build.program.tables[0].profile = Some(0);
    })
}

#[test]
fn a_member_that_a_default_refers_to_cannot_be_deleted() {
    let (mut engine, _) = by_byte_with_profile();
    succeed(&mut engine, Request::InsertMember { profile: 0, member: 5, call: send(1) });
    succeed(&mut engine, Request::SetDefault { table: 0, target: Target::Member(5) });
    let delete = Request::DeleteMember { profile: 0, member: 5 };
    assert_eq!(refusal(&mut engine, delete.clone()), Refusal::FailedPrecondition);
    succeed(&mut engine, Request::ResetDefault { table: 0 });
    succeed(&mut engine, delete);
}

/// BMv2 has the same order, so that both select the same member.
#[test]
fn a_group_has_its_members_in_ascending_order() {
    let (mut engine, mut context) = by_byte_with_profile();
    for member in [10, 30, 20] {
        succeed(&mut engine, Request::InsertMember { profile: 0, member, call: send(member as u8) });
    }
    succeed(&mut engine, Request::SetGroup { profile: 0, group: 1, members: vec![30, 30, 10, 20] });
    let ports = [0, 1, 2, 3, 4].map(|byte| {
        succeed(&mut engine, exact(byte, Target::Group(1), 0));
        port(&mut engine, &mut context, byte, 0).unwrap()
    });
    assert_eq!(ports, [10, 20, 30, 30, 10]);
}

#[test]
fn constant_entries_have_precedence_by_the_lowest_priority_and_cannot_change() {
    let (mut engine, mut context) = by_byte(MatchKind::Ternary, |build, _| {
        let entry = |value, mask, priority, port| ConstEntry {
            matches: vec![Match::Ternary { value: vec![value], mask: vec![mask] }],
            priority,
            call: send(port),
        };
        let table = &mut build.program.tables[0];
        table.entries = vec![entry(0, 0, 30, 3), entry(0x10, 0xf0, 10, 1), entry(0x11, 0xff, 20, 2)];
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
    let Answer::Entries(entries) = engine.control(&Request::Entries { table: 0, from: 1, limit: 1 }) else {
        panic!()
    };
    assert_eq!((entries.len(), entries[0].entry.priority), (1, 21));
}

#[test]
fn a_default_is_set_and_reset_and_a_table_gets_full() {
    let (mut engine, mut context) =
        by_byte(MatchKind::Exact, |build, _| build.program.tables[0].max_size = 1);
    assert_eq!(port(&mut engine, &mut context, 1, 0), None);
    succeed(&mut engine, Request::SetDefault { table: 0, target: Target::Call(send(4)) });
    assert_eq!(port(&mut engine, &mut context, 1, 0), Some(4));
    succeed(&mut engine, Request::ResetDefault { table: 0 });
    assert_eq!(port(&mut engine, &mut context, 1, 0), None);
    succeed(&mut engine, exact(1, Target::Call(send(1)), 0));
    assert_eq!(refusal(&mut engine, exact(2, Target::Call(send(1)), 0)), Refusal::ResourceExhausted);
}

#[test]
fn a_meter_counts_packets_by_color() {
    let (mut engine, mut context) = by_byte(MatchKind::Exact, |build, first| {
        let meter = Meter { name: "m".into(), table: None, size: 2, bytes: false, result: None };
        build.program.meters.push(meter);
        build.program.entry.ingress = build.code(&[
            Op::Load { to: 1, field: first },
            Op::Execute { meter: 0, index: 1, to: first + 1 },
            Op::End,
        ]);
    });
    let colors =
        |engine: &mut Engine, from| engine.control(&Request::ReadColors { meter: 0, from, count: 0 });
    let mut execute = |engine: &mut Engine, index: u8| {
        engine.ingress(&mut context, &[index, 9], &arrival(1, 100, 5), &mut Recorder::default());
    };
    let rates = Rates { committed: 1, committed_burst: 1, peak: 1, peak_burst: 2 };
    succeed(&mut engine, Request::SetMeter { meter: 0, index: 1, rates: Some(rates) });
    // The third index is beyond the end.
    for index in [1, 1, 2, 1, 1] {
        execute(&mut engine, index);
    }
    assert_eq!(colors(&mut engine, 0), Answer::Colors(vec![[0; 3], [1, 1, 2]]));
    succeed(&mut engine, Request::SetMeter { meter: 0, index: 1, rates: None });
    execute(&mut engine, 1);
    assert_eq!(colors(&mut engine, 1), Answer::Colors(vec![[2, 1, 2]]));
    let beyond = Request::ReadColors { meter: 1, from: 0, count: 1 };
    assert_eq!(refusal(&mut engine, beyond), Refusal::NotFound);
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
    succeed(&mut engine, Request::WriteRegister { array: 0, index: 1, value });
    let too_wide = Request::WriteRegister { array: 0, index: 1, value: vec![0x10, 0] };
    assert_eq!(refusal(&mut engine, too_wide), Refusal::InvalidArgument);
    let rates = Rates { committed: 1, committed_burst: 1, peak: 1, peak_burst: 2 };
    succeed(&mut engine, Request::SetMeter { meter: 0, index: 1, rates: Some(rates) });
    let slow = Rates { peak: 0, ..rates };
    assert_eq!(
        refusal(&mut engine, Request::SetMeter { meter: 0, index: 1, rates: Some(slow) }),
        Refusal::InvalidArgument
    );
    let mut recorder = Recorder::default();
    for byte in [1, 1, 1, 200] {
        engine.ingress(&mut context, &[byte, 9], &arrival(1, 100, 5), &mut recorder);
    }
    // Signed values -2, -1, 0 as 32 bits. An index outside the array reads, writes and meters nothing.
    let read: Vec<_> = recorder.logs.into_iter().map(|(_, values)| values).collect();
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
    succeed(
        &mut engine,
        Request::WriteCounter { counter: 0, index: 0, value: Count { packets: 1, bytes: 2 } },
    );
    assert_eq!(engine.control(&Request::ReadMeter { meter: 0, index: 1 }), Answer::Meter(Some(rates)));
    assert_eq!(engine.control(&Request::ReadMeter { meter: 0, index: 0 }), Answer::Meter(None));
}
