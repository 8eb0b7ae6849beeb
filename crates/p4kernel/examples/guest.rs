// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Writes files for the kernel's tests in a guest (kernel/tests/guest/p4_scenarios.py): a program, its entries,
//! packets, and the packets that the engine sends in this process.
//!
//!     cargo run --package qbed-p4kernel --example guest FOLDER
//!
//! `image` is the program, and `large` is a program with 480 MB of registers. `requests`, `packets` and `sent` are
//! lists of items: u32 length (little endian) and bytes. An item of `sent` begins with the port (u16), or is empty if
//! the packet was dropped.

#[path = "../../p4engine/tests/build/mod.rs"]
mod build;

use std::fs;
use std::path::Path;

use build::{Build, Recorder};
use qbed_p4engine::control::{Answer, CloneSession, Entry, Replica, Request, Target};
use qbed_p4engine::packet::{Arrival, Departure, Forward, Instance};
use qbed_p4engine::program::*;
use qbed_p4engine::Engine;

const PACKETS: u32 = 1000;
const PORTS: u16 = 3;
const CPU_PORT: u16 = 510;

/// The program of the kernel's tests. The destination address selects an action in table 0:
///
/// * `drop`, `forward(port)`, `flood(group)`
/// * `mirror(port, session)`, `shadow(port, session)`: clone at ingress, at egress
/// * `resubmit(port)`, `recirculate(port)`: once
/// * `spin`, `whirl(port)`: resubmit always, recirculate always
/// * `cut(port, bytes)`: truncate
/// * `report`: send a digest of the addresses and drop
/// * `swell(port)`: recirculate always, and add a header each time
/// * `bounce`: send to the ingress port
/// * `strip(port, bytes)`: truncate, and remove the header at egress
///
/// Egress replaces the source address: 16 bits each of the queue's length at enqueue and at dequeue, 8 bits of the
/// replica's instance, 8 bits of `instance_type`. It replaces the Ethernet type with the time in the queue in us.
fn commands() -> Program {
    let mut build = Build::new();
    build.program.name = "commands".into();
    let standard = build.standard();
    let (swelling, front) = build.header("swelling", &[48, 16]);
    let (ethernet, mac) = build.header("ethernet", &[48, 16, 16, 8, 8, 16]);
    let (_, flags) = build.metadata("meta", &[8, 8, 16, 8]);
    let (recirculate, swell, session, strip) = (flags, flags + 1, flags + 2, flags + 3);
    let field_id = |field: Option<FieldId>| field.unwrap_or_default();
    let argument = |number: u16, field: FieldId| {
        [Op::Argument { to: 0, argument: number }, Op::Store { field, from: 0 }]
    };
    let set = |value: i64, field: FieldId| [Op::Set { to: 0, value }, Op::Store { field, from: 0 }];
    let port = argument(0, field_id(standard.egress_spec));
    let with = |parts: &[&[Op]]| [parts.concat(), vec![Op::End]].concat();

    build.program.entry.parser = build.code(&[Op::Extract { header: ethernet }, Op::End]);
    build.program.field_lists = vec![vec![]];
    build.program.digests = vec![Digest { name: "seen".into(), id: 7, fields: vec![mac] }];
    // A resubmitted or recirculated packet is only forwarded.
    let once = |build: &Build, ops: &[Op]| {
        let after = build.next_pc() + (port.len() + 2 + ops.len()) as Pc;
        let again = [
            Op::Load { to: 1, field: field_id(standard.instance_type) },
            Op::JumpIf { condition: 1, to: after },
        ];
        with(&[&port, &again, ops])
    };
    let drop = build.action("drop", &[], &[Op::MarkToDrop, Op::End]);
    let forward = build.action("forward", &[9], &with(&[&port]));
    let flood = build.action("flood", &[16], &with(&[&argument(0, field_id(standard.mcast_grp))]));
    let mirror = build.action(
        "mirror",
        &[9, 16],
        &with(&[&port, &[Op::Argument { to: 1, argument: 1 }, Op::CloneIngress { session: 1, list: 0 }]]),
    );
    let shadow = build.action("shadow", &[9, 16], &with(&[&port, &argument(1, session)]));
    let ops = once(&build, &[Op::Resubmit { list: 0 }]);
    let resubmit = build.action("resubmit", &[9], &ops);
    let ops = once(&build, &set(1, recirculate));
    let round = build.action("recirculate", &[9], &ops);
    let spin = build.action("spin", &[], &with(&[&[Op::Resubmit { list: 0 }]]));
    let whirl = build.action("whirl", &[9], &with(&[&port, &set(1, recirculate)]));
    let shorten = [Op::Argument { to: 1, argument: 1 }, Op::Truncate { bytes: 1 }];
    let cut = build.action("cut", &[9, 16], &with(&[&port, &shorten]));
    let report = build.action("report", &[], &[Op::Digest { digest: 0 }, Op::MarkToDrop, Op::End]);
    let swells = build.action("swell", &[9], &with(&[&port, &set(1, recirculate), &set(1, swell)]));
    let back = copy(standard.ingress_port, field_id(standard.egress_spec));
    let bounce = build.action("bounce", &[], &with(&[&back]));
    let strips = build.action("strip", &[9, 16], &with(&[&port, &shorten, &set(1, strip)]));
    let end = build.code(&[Op::End]);
    let actions = [
        drop, forward, flood, mirror, shadow, resubmit, round, spin, whirl, cut, report, swells, bounce,
        strips,
    ];
    let table = build.table("commands", &[(mac, MatchKind::Exact)], &actions, end);
    build.program.entry.ingress = build.code(&[Op::Apply { table }]);
    build.code(&[Op::End]);
    egress(&mut build, (ethernet, mac), [recirculate, swell, session, strip], (swelling, front));
    build.program.entry.deparser =
        build.code(&[Op::Emit { header: swelling }, Op::Emit { header: ethernet }, Op::End]);
    build.program
}

fn copy(from: Option<FieldId>, to: FieldId) -> [Op; 2] {
    [Op::Load { to: 0, field: from.unwrap_or_default() }, Op::Store { field: to, from: 0 }]
}

fn egress(
    build: &mut Build,
    (ethernet, mac): (HeaderId, FieldId),
    [recirculate, swell, session, strip]: [FieldId; 4],
    (swelling, front): (HeaderId, FieldId),
) {
    let standard = build.program.standard;
    let mut ops = [
        copy(standard.enq_qdepth, mac + 1),
        copy(standard.deq_qdepth, mac + 2),
        copy(standard.egress_rid, mac + 3),
        copy(standard.instance_type, mac + 4),
        copy(standard.deq_timedelta, mac + 5),
    ]
    .concat();
    let at = build.next_pc();
    let begin = at + ops.len() as Pc;
    ops.extend([
        Op::Load { to: 1, field: session },
        Op::JumpUnless { condition: 1, to: begin + 3 },
        Op::CloneEgress { session: 1, list: 0 },
        Op::Load { to: 1, field: swell },
        Op::JumpUnless { condition: 1, to: begin + 7 },
        Op::AddHeader { header: swelling },
        Op::Copy { to: front, from: mac },
        Op::Load { to: 1, field: recirculate },
        Op::JumpUnless { condition: 1, to: begin + 10 },
        Op::Recirculate { list: 0 },
        Op::Load { to: 1, field: strip },
        Op::JumpUnless { condition: 1, to: begin + 13 },
        Op::RemoveHeader { header: ethernet },
        Op::End,
    ]);
    build.program.entry.egress = build.code(&ops);
}

fn mac(last: u8) -> Vec<u8> {
    vec![2, 0, 0, 0, 0, last]
}

fn entry(destination: u8, action: ActionId, arguments: &[u16]) -> Request {
    let arguments = arguments.iter().map(|value| value.to_be_bytes().to_vec()).collect();
    let target = Target::Call(ActionCall { action, arguments });
    let matches = vec![Match::Exact(mac(destination))];
    Request::Insert { table: 0, entry: Entry { matches, priority: 0, target, idle_us: 0 } }
}

/// Entries: destination N calls action N; from 100 on, it is forwarded to port N - 100; 20 to 22 are sent to the CPU
/// port, some also to other ports.
fn requests() -> Vec<Request> {
    let copies =
        |ports: &[u16]| ports.iter().map(|port| Replica { port: *port, instance: port + 40 }).collect();
    let mut requests = vec![
        Request::SetMulticastGroup { group: 5, replicas: Some(copies(&[1, 2])) },
        Request::SetCloneSession {
            session: 9,
            clone: Some(CloneSession { replicas: copies(&[2]), truncate_bytes: 40 }),
        },
        entry(0, 0, &[]),
        entry(1, 1, &[1]),
        entry(2, 2, &[5]),
        entry(3, 3, &[1, 9]),
        entry(4, 4, &[1, 9]),
        entry(5, 5, &[1]),
        entry(6, 6, &[1]),
        entry(7, 7, &[]),
        entry(8, 8, &[1]),
        entry(9, 9, &[1, 64]),
        entry(10, 10, &[]),
        entry(11, 11, &[1]),
        entry(12, 12, &[]),
        entry(13, 13, &[1, 64]),
        Request::SetMulticastGroup { group: 6, replicas: Some(copies(&[1, CPU_PORT])) },
        Request::SetCloneSession {
            session: 10,
            clone: Some(CloneSession { replicas: copies(&[CPU_PORT]), truncate_bytes: 0 }),
        },
        entry(20, 1, &[CPU_PORT]),
        entry(21, 2, &[6]),
        entry(22, 3, &[1, 10]),
    ];
    requests.extend((0..PORTS).map(|port| entry(100 + port as u8, 1, &[port])));
    requests
}

/// Packets of 14 to 1514 bytes, to ports, to the action `drop` and to addresses without an entry.
fn packets() -> Vec<Vec<u8>> {
    let mut recorder = Recorder { random: 1, ..Recorder::default() };
    let mut draw = |bound: u64| (qbed_p4engine::packet::Shell::random(&mut recorder) >> 33) % bound;
    let mut packet = |_| {
        let destination = [100, 101, 102, 0, 77][draw(5) as usize];
        let length = 8 + draw(1501);
        mac(destination).into_iter().chain((0..length).map(|_| draw(256) as u8)).collect()
    };
    (0..PACKETS).map(&mut packet).collect()
}

/// The port and the bytes of a sent packet, if the queue is empty. None: the packet is dropped.
fn pass(engine: &mut Engine, packet: &[u8]) -> Option<Vec<u8>> {
    let mut context = engine.context();
    let arrival = Arrival {
        port: 0,
        length: packet.len() as u32,
        now_us: 0,
        instance: Instance::Normal,
        preserved: None,
        checksum: None,
    };
    let decision = engine.ingress(&mut context, packet, &arrival, &mut Recorder::default());
    let Forward::Unicast { port, .. } = decision.forward else { return None };
    let departure = Departure { port, now_us: 0, enqueued_us: 0, enqueued_depth: 0, dequeued_depth: 0 };
    let emission = engine.egress(&mut context, packet, &departure, &mut Recorder::default());
    assert!(!emission.drop && !emission.recirculate && emission.clone.is_none());
    let rest = &packet[emission.replaced as usize..];
    Some([&port.to_le_bytes(), context.headers(), rest].concat())
}

fn list(items: impl IntoIterator<Item = Vec<u8>>) -> Vec<u8> {
    items.into_iter().flat_map(|item| [(item.len() as u32).to_le_bytes().to_vec(), item].concat()).collect()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args().nth(1).ok_or("expected a folder")?;
    let folder = Path::new(&folder);
    let program = commands();
    let image = postcard::to_allocvec(&program)?;
    let mut engine = Engine::from_bytes(&image).map_err(|invalid| invalid.0)?;
    let requests = requests();
    for request in &requests {
        let answer = engine.control(request);
        assert_eq!(answer, Answer::Done, "{request:?}");
    }
    let packets = packets();
    let sent: Vec<Vec<u8>> =
        packets.iter().map(|packet| pass(&mut engine, packet).unwrap_or_default()).collect();
    let requests: Result<Vec<Vec<u8>>, _> = requests.iter().map(postcard::to_allocvec).collect();
    // The registers are below the engine's limit and exceed the memory of the tests' guest.
    let mut large = program;
    large.arrays.push(Array { name: "large".into(), width: 64, signed: false, size: 60_000_000 });
    fs::write(folder.join("large"), postcard::to_allocvec(&large)?)?;
    fs::write(folder.join("image"), image)?;
    fs::write(folder.join("requests"), list(requests?))?;
    fs::write(folder.join("packets"), list(packets))?;
    fs::write(folder.join("sent"), list(sent))?;
    Ok(())
}
