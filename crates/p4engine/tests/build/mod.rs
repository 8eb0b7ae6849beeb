// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! A builder of small programs for tests and measurements.
#![allow(dead_code)] // Each test uses a part of it.

use qbed_p4engine::control::{self, Request, Target};
use qbed_p4engine::packet::{Arrival, Departure, Instance, Shell};
use qbed_p4engine::program::*;

#[derive(Default)]
pub struct Build {
    pub program: Program,
    bits: u32,
}

impl Build {
    pub fn new() -> Build {
        let mut build = Build::default();
        build.program.registers = 64;
        build.program.wide_registers = 8;
        build.program.wide_limbs = 5;
        build.program.errors = (0..)
            .zip([
                "NoError",
                "PacketTooShort",
                "NoMatch",
                "StackOutOfBounds",
                "HeaderTooShort",
                "ParserTimeout",
            ])
            .map(|(number, name)| (name.into(), number))
            .collect();
        let end = build.code(&[Op::End]);
        build.program.entry =
            Entry { parser: end, verify: end, ingress: end, egress: end, update: end, deparser: end };
        build
    }

    fn align(&mut self) {
        self.bits = self.bits.next_multiple_of(8);
        self.program.phv_bytes = self.bits / 8;
    }

    /// Adds a field that begins at a byte.
    pub fn field(&mut self, name: &str, width: u32) -> FieldId {
        self.align();
        let at = self.bits + width.next_multiple_of(8) - width;
        self.bits = at + width;
        self.align();
        self.program.fields.push(Field { name: name.into(), at, width, signed: false });
        self.program.fields.len() as FieldId - 1
    }

    /// Adds a header with consecutive fields. Returns the header and its first field.
    pub fn header(&mut self, name: &str, widths: &[u32]) -> (HeaderId, FieldId) {
        let valid = self.field(&format!("{name}.$valid$"), 1);
        self.header_of(name, widths, valid, false, None)
    }

    pub fn metadata(&mut self, name: &str, widths: &[u32]) -> (HeaderId, FieldId) {
        let valid = self.field(&format!("{name}.$valid$"), 1);
        self.header_of(name, widths, valid, true, None)
    }

    /// Adds a header. Its field with index `varbit` is a varbit.
    pub fn varbit_header(&mut self, name: &str, widths: &[u32], varbit: u16) -> (HeaderId, FieldId) {
        let valid = self.field(&format!("{name}.$valid$"), 1);
        let width = self.field(&format!("{name}.$width$"), 32);
        self.header_of(name, widths, valid, false, Some((varbit, width)))
    }

    fn header_of(
        &mut self,
        name: &str,
        widths: &[u32],
        valid: FieldId,
        metadata: bool,
        varbit: Option<(u16, FieldId)>,
    ) -> (HeaderId, FieldId) {
        self.align();
        let (at, first) = (self.bits / 8, self.program.fields.len() as FieldId);
        for (index, width) in widths.iter().enumerate() {
            let name = format!("{name}.f{index}");
            self.program.fields.push(Field { name, at: self.bits, width: *width, signed: false });
            self.bits += width;
        }
        self.align();
        self.program.headers.push(Header {
            name: name.into(),
            at,
            bytes: self.bits / 8 - at,
            metadata,
            valid,
            first_field: first,
            fields: widths.len() as u16,
            varbit: varbit.map(|(field, width)| Varbit { field: first + field, width }),
            union_of: None,
        });
        (self.program.headers.len() as HeaderId - 1, first)
    }

    pub fn stack(&mut self, name: &str, size: usize, widths: &[u32]) -> StackId {
        let headers = (0..size).map(|index| self.header(&format!("{name}[{index}]"), widths).0).collect();
        let next = self.field(&format!("{name}.$next$"), 32);
        self.program.stacks.push(Stack { name: name.into(), headers, next, unions: vec![] });
        self.program.stacks.len() as StackId - 1
    }

    /// Adds a union of headers with one field each.
    pub fn union(&mut self, name: &str, widths: &[u32]) -> (u16, Vec<HeaderId>) {
        let union = self.program.unions.len() as u16;
        let header = |(index, width): (usize, &u32)| {
            let header = self.header(&format!("{name}.h{index}"), &[*width]).0;
            self.program.headers[usize::from(header)].union_of = Some(union);
            header
        };
        let headers: Vec<HeaderId> = widths.iter().enumerate().map(header).collect();
        self.program.unions.push(Union { name: name.into(), headers: headers.clone() });
        (union, headers)
    }

    /// Appends instructions and returns the first one's index.
    pub fn code(&mut self, ops: &[Op]) -> Pc {
        self.program.code.extend_from_slice(ops);
        (self.program.code.len() - ops.len()) as Pc
    }

    pub fn next_pc(&self) -> Pc {
        self.program.code.len() as Pc
    }

    pub fn action(&mut self, name: &str, widths: &[u32], ops: &[Op]) -> ActionId {
        let begin = self.code(ops);
        let parameters = widths.iter().map(|width| Parameter { name: "p".into(), width: *width }).collect();
        self.program.actions.push(Action { name: name.into(), parameters, begin });
        self.program.actions.len() as ActionId - 1
    }

    /// Adds a table. The first action is the default action if it has no parameters.
    pub fn table(
        &mut self,
        name: &str,
        keys: &[(FieldId, MatchKind)],
        actions: &[ActionId],
        next: Pc,
    ) -> TableId {
        let key = |(field, kind): &(FieldId, MatchKind)| Key {
            name: "k".into(),
            field: *field,
            kind: *kind,
            mask: None,
        };
        let default = self.program.actions[usize::from(actions[0])].parameters.is_empty();
        self.program.tables.push(Table {
            name: name.into(),
            keys: keys.iter().map(key).collect(),
            max_size: 1 << 20,
            actions: actions.to_vec(),
            profile: None,
            default: default.then(|| ActionCall { action: actions[0], arguments: vec![] }),
            constant_default: false,
            constant_entries: false,
            entries: vec![],
            next: Next::ByHit { hit: next, miss: next },
            counter: None,
            meter: None,
            idle_timeout: false,
        });
        self.program.tables.len() as TableId - 1
    }

    pub fn hash(&mut self, kind: HashKind, input: Vec<HashInput>) -> u16 {
        self.program.hashes.push(Hash { name: "hash".into(), kind, input });
        self.program.hashes.len() as u16 - 1
    }

    pub fn array(&mut self, width: u32, size: u32) -> ArrayId {
        self.program.arrays.push(Array { name: "array".into(), width, signed: false, size });
        self.program.arrays.len() as ArrayId - 1
    }

    /// Adds v1model's standard metadata with p4c's widths.
    pub fn standard(&mut self) -> Standard {
        let widths = [9, 9, 9, 32, 32, 32, 19, 32, 19, 48, 48, 16, 16, 3, 5, 8, 1];
        let widths: Vec<u32> =
            widths.iter().flat_map(|width: &u32| [width.next_multiple_of(8) - width, *width]).collect();
        // Padding before each field aligns its end to a byte.
        let mut fields = Vec::new();
        let valid = self.field("standard.$valid$", 1);
        self.align();
        let (at, first) = (self.bits / 8, self.program.fields.len() as FieldId);
        for pair in widths.chunks(2) {
            self.bits += pair[0];
            self.program.fields.push(Field {
                name: "standard".into(),
                at: self.bits,
                width: pair[1],
                signed: false,
            });
            fields.push(self.program.fields.len() as FieldId - 1);
            self.bits += pair[1];
        }
        self.align();
        self.program.headers.push(Header {
            name: "standard".into(),
            at,
            bytes: self.bits / 8 - at,
            metadata: true,
            valid,
            first_field: first,
            fields: fields.len() as u16,
            varbit: None,
            union_of: None,
        });
        let mut next = fields.into_iter().map(Some);
        let mut next = || next.next().flatten();
        self.program.standard = Standard {
            ingress_port: next(),
            egress_spec: next(),
            egress_port: next(),
            instance_type: next(),
            packet_length: next(),
            enq_timestamp: next(),
            enq_qdepth: next(),
            deq_timedelta: next(),
            deq_qdepth: next(),
            ingress_global_timestamp: next(),
            egress_global_timestamp: next(),
            mcast_grp: next(),
            egress_rid: next(),
            priority: next(),
            qid: next(),
            parser_error: next(),
            checksum_error: next(),
        };
        self.program.standard
    }
}

/// A request for an entry of the table of `everything` that matches packets of ones.
pub fn entry_of_everything() -> Request {
    let matches = vec![
        Match::Exact(vec![1]),
        Match::Ternary { value: vec![0, 0], mask: vec![0, 0] },
        Match::Range { low: vec![0; 9], high: vec![0x3f, 255, 255, 255, 255, 255, 255, 255, 255] },
    ];
    let call = ActionCall { action: 0, arguments: vec![vec![0, 3], vec![3; 13], vec![0; 4]] };
    Request::Insert {
        table: 0,
        entry: control::Entry { matches, priority: 1, target: Target::Call(call), idle_us: 5 },
    }
}

/// A program with every match kind and almost every extern, with a varbit field and a stack.
pub fn everything() -> Program {
    let mut build = Build::new();
    let standard = build.standard();
    let (head, first) = build.varbit_header("head", &[8, 16, 256, 70, 2], 2);
    let stack = build.stack("labels", 3, &[32]);
    let (meta, note) = build.metadata("meta", &[32, 128]);
    build.program.field_lists = vec![vec![note, note + 1, standard.ingress_port.unwrap()]];
    build.program.digests = vec![Digest { name: "d".into(), id: 9, fields: vec![note + 1, first + 3] }];
    build.program.messages = vec!["seen".into()];
    let array = build.array(100, 16);
    let hash = build
        .hash(HashKind::Crc32, vec![HashInput::Header(head), HashInput::Field(note + 1), HashInput::Payload]);
    build.program.counters.push(Counter { name: "c".into(), table: None, size: 4 });
    let next = build.next_pc() + 3;
    let lookahead = SelectKey::Lookahead { at: 0, width: 72 };
    let case = SelectCase { on: SelectOn::Value { value: vec![0xff; 9], mask: None }, next };
    build.program.selects.push(Select {
        keys: vec![lookahead],
        bytes: 9,
        cases: vec![case],
        default: Some(next),
    });
    build.program.entry.parser = build.code(&[
        Op::Set { to: 0, value: 64 },
        Op::ExtractVarbit { header: head, width: 0 },
        Op::Select { select: 0 },
        Op::ExtractNext { stack, member: 0 },
        Op::ExtractNext { stack, member: 0 },
        Op::End,
    ]);
    let act = build.action(
        "act",
        &[9, 100, 32],
        &[
            Op::Argument { to: 1, argument: 0 },
            Op::Store { field: standard.egress_spec.unwrap(), from: 1 },
            Op::WideArgument { to: 0, argument: 1 },
            Op::WideStore { field: note + 1, from: 0 },
            Op::WideRegisterWrite { array, index: 1, from: 0 },
            Op::RegisterRead { to: note + 1, array, index: 1 },
            Op::HashTo { field: note, hash, base: 1, size: 0 },
            Op::Count { counter: 0, index: 1 },
            Op::Random { field: note, low: 1, high: 0 },
            Op::Log { message: 0, first: 0, arguments: 3 },
            Op::Digest { digest: 0 },
            Op::CloneIngress { session: 1, list: 0 },
            Op::Push { stack, count: 1 },
            Op::CopyHeader { to: meta, from: meta },
            Op::End,
        ],
    );
    let end = build.code(&[Op::End]);
    let keys = [(first, MatchKind::Exact), (first + 1, MatchKind::Ternary), (first + 3, MatchKind::Range)];
    let table = build.table("t", &keys, &[act], end);
    build.program.entry.ingress = build.code(&[Op::Apply { table }]);
    let again =
        [Op::CloneEgress { session: 1, list: 0 }, Op::Recirculate { list: 0 }, Op::Truncate { bytes: 0 }];
    build.program.entry.egress = build.code(&again);
    build.code(&[Op::End]);
    build.program.entry.deparser = build.code(&[Op::Emit { header: head }, Op::EmitStack { stack }, Op::End]);
    build.program
}

/// A shell that records digests and messages.
#[derive(Debug, Default)]
pub struct Recorder {
    pub random: u64,
    pub digests: Vec<(u32, Vec<u8>)>,
    pub logs: Vec<(String, Vec<i128>)>,
    pub failed: Vec<String>,
    /// The whole packet, if the engine gets only its first bytes.
    pub whole: Option<&'static [u8]>,
    /// The checksum that the packet's sender left to its device, and how often it was completed.
    pub checksum: u16,
    pub completed: u32,
}

impl Shell for Recorder {
    fn random(&mut self) -> u64 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.random
    }

    fn digest(&mut self, id: u32, values: &[u8]) {
        self.digests.push((id, values.to_vec()));
    }

    fn log(&mut self, message: &str, values: &[i128]) {
        self.logs.push((message.into(), values.to_vec()));
    }

    fn failed(&mut self, message: &str) {
        self.failed.push(message.into());
    }

    fn extend<'a>(&mut self, packet: &'a [u8]) -> &'a [u8] {
        let whole = self.whole.take().expect("a packet is extended once, and only if it is cut");
        assert!(whole.len() >= packet.len());
        whole
    }

    fn checksum(&mut self) -> u16 {
        self.completed += 1;
        self.checksum
    }
}

pub fn arrival(port: u16, length: usize, now_us: u64) -> Arrival<'static> {
    Arrival {
        port,
        length: length as u32,
        now_us,
        instance: Instance::Normal,
        preserved: None,
        checksum: None,
    }
}

pub fn departure(port: u16, now_us: u64) -> Departure {
    Departure { port, now_us, enqueued_us: now_us, enqueued_depth: 0, dequeued_depth: 0 }
}
