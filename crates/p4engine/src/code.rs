// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! A program as it runs: each field's place in its step, what belongs together in one piece. Made of what `check` passed.

use alloc::string::String;
use alloc::vec::Vec;

use crate::bits::{peek, Place, Window};
use crate::program::{
    Binary, Entry, FieldId, HashInput, HashKind, HeaderId, Op, Pc, Program, Reg, SelectKey, SelectOn, Unary,
};
use crate::steps::{join, Runs, Step, Test};

/// The byte and the bit of the area that say whether a header is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Validity {
    at: u32,
    bit: u8,
}

impl Validity {
    /// The validity of a field's header. None: metadata, or a field that the program does not name, which are always valid.
    pub fn of_field(program: &Program, field: FieldId) -> Option<Validity> {
        let header = program.headers.get(owner(program, field)?).filter(|header| !header.metadata)?;
        let at = program.fields.get(usize::from(header.valid))?.at;
        Some(Validity { at: at / 8, bit: valid_bit(at) })
    }

    #[inline(always)]
    pub fn holds(self, area: &[u8]) -> bool {
        area.get(self.at as usize).is_some_and(|byte| byte & self.bit != 0)
    }
}

fn valid_bit(at: u32) -> u8 {
    0x80 >> (at % 8)
}

/// The index of the header that a field belongs to.
fn owner(program: &Program, field: FieldId) -> Option<usize> {
    let has = |header: &crate::program::Header| {
        (header.first_field..header.first_field.saturating_add(header.fields)).contains(&field)
    };
    program.headers.iter().position(has)
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Header {
    pub at: u32,
    pub bytes: u32,
    pub metadata: bool,
    /// Its validity's byte and bit.
    pub valid_at: u32,
    pub valid_bit: u8,
    pub union_of: Option<u16>,
    pub varbit: Option<Varbit>,
    pub first_field: FieldId,
    pub fields: u16,
}

impl Header {
    /// None: it is always valid.
    fn validity(&self) -> Option<Validity> {
        (!self.metadata).then_some(Validity { at: self.valid_at, bit: self.valid_bit })
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Varbit {
    /// Of the header: its first byte, and how many there can be.
    pub at: u32,
    pub bytes: u32,
    /// Where its width in bits is kept.
    pub width: Place,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Field {
    pub at: u32,
    pub width: u32,
    pub signed: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Stack {
    pub headers: Vec<HeaderId>,
    pub unions: Vec<u16>,
    pub next: Place,
}

impl Stack {
    pub fn size(&self) -> usize {
        self.headers.len().max(self.unions.len())
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Select {
    pub keys: Vec<Part>,
    pub cases: Vec<Case>,
    pub default: Option<Pc>,
    /// Its key fits a number, and each case is a value and a mask.
    pub short: Option<Vec<(u64, u64, Pc)>>,
}

/// A part of a select's key, in so many bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    pub key: SelectKey,
    pub width: u32,
    /// Of a field of up to 64 bits.
    pub place: Option<Place>,
}

#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub on: SelectOn,
    pub next: Pc,
}

#[derive(Debug, Clone)]
pub(crate) struct Hash {
    pub kind: HashKind,
    pub parts: Vec<HashPart>,
    pub payload: bool,
    /// Each part is words of 16 bits of the area.
    pub words: bool,
}

#[derive(Debug, Clone)]
pub(crate) enum HashPart {
    /// Fields of a header that stand together, if it is valid.
    Area {
        at: u32,
        width: u32,
        valid: Option<Validity>,
    },
    Varbit {
        at: u32,
        width: Place,
        most: u32,
        valid: Validity,
    },
    Constant {
        value: Vec<u8>,
        width: u32,
    },
    Register {
        register: Reg,
        width: u32,
    },
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Errors {
    pub none: u32,
    pub packet_too_short: u32,
    pub no_match: u32,
    pub stack_out_of_bounds: u32,
    pub header_too_short: u32,
    pub parser_timeout: u32,
    pub parser_invalid_argument: u32,
}

/// v1model's metadata: a place each.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Standard {
    pub ingress_port: Option<Place>,
    pub egress_spec: Option<Place>,
    pub egress_port: Option<Place>,
    pub instance_type: Option<Place>,
    pub packet_length: Option<Place>,
    pub enq_timestamp: Option<Place>,
    pub enq_qdepth: Option<Place>,
    pub deq_timedelta: Option<Place>,
    pub deq_qdepth: Option<Place>,
    pub ingress_global_timestamp: Option<Place>,
    pub egress_global_timestamp: Option<Place>,
    pub mcast_grp: Option<Place>,
    pub egress_rid: Option<Place>,
    pub priority: Option<Place>,
    pub qid: Option<Place>,
    pub parser_error: Option<Place>,
    pub checksum_error: Option<Place>,
}

#[derive(Debug, Clone)]
pub(crate) struct Code {
    pub steps: Vec<Step>,
    pub runs: Runs,
    pub rare: Vec<Op>,
    pub entry: Entry,
    pub area_bytes: usize,
    pub headers: Vec<Header>,
    pub fields: Vec<Field>,
    pub stacks: Vec<Stack>,
    pub unions: Vec<Vec<HeaderId>>,
    pub selects: Vec<Select>,
    pub hashes: Vec<Hash>,
    pub constants: Vec<Vec<u8>>,
    pub lists: Vec<Vec<FieldId>>,
    pub digests: Vec<(u32, Vec<FieldId>)>,
    pub messages: Vec<String>,
    pub errors: Errors,
    pub standard: Standard,
    pub limbs: usize,
    /// The metadata, which a clone loses: byte, length.
    pub metadata: Vec<(u32, u32)>,
}

impl Code {
    pub fn new(program: &Program) -> Code {
        let fields = program.fields.iter().map(|field| Field {
            at: field.at,
            width: field.width,
            signed: field.signed,
        });
        let mut code = Code {
            steps: Vec::new(),
            runs: Runs::default(),
            rare: Vec::new(),
            entry: program.entry,
            area_bytes: program.area_bytes as usize,
            headers: Vec::new(),
            fields: fields.collect(),
            stacks: Vec::new(),
            unions: program.unions.iter().map(|union| union.headers.clone()).collect(),
            selects: Vec::new(),
            hashes: Vec::new(),
            constants: program.constants.clone(),
            lists: program.field_lists.clone(),
            digests: program.digests.iter().map(|digest| (digest.id, digest.fields.clone())).collect(),
            messages: program.messages.clone(),
            errors: errors(program),
            standard: Standard::default(),
            limbs: usize::from(program.wide_limbs),
            metadata: Vec::new(),
        };
        code.headers = program.headers.iter().map(|header| code.header(header)).collect();
        code.hashes = program.hashes.iter().map(|hash| code.hash(program, hash)).collect();
        let metadata = code.headers.iter().filter(|header| header.metadata);
        code.metadata = metadata.map(|header| (header.at, header.bytes)).collect();
        let stack = |stack: &crate::program::Stack| Stack {
            headers: stack.headers.clone(),
            unions: stack.unions.clone(),
            next: code.place(stack.next),
        };
        code.stacks = program.stacks.iter().map(stack).collect();
        code.selects = program.selects.iter().map(|select| code.select(program, select)).collect();
        for op in &program.code {
            let step = code.step(op).unwrap_or_else(|| {
                code.rare.push(*op);
                Step::Rare { op: code.rare.len() as u32 - 1 }
            });
            code.steps.push(step);
        }
        code.runs = join(&mut code.steps, &code.headers);
        code.standard = code.standard(&program.standard);
        code
    }

    pub fn field(&self, field: FieldId) -> Field {
        self.fields.get(usize::from(field)).copied().unwrap_or(Field { at: 0, width: 1, signed: false })
    }

    pub fn place(&self, field: FieldId) -> Place {
        let field = self.field(field);
        Place::of(field.at, field.width.clamp(1, 64))
    }

    fn header(&self, header: &crate::program::Header) -> Header {
        let valid = self.field(header.valid);
        let varbit = header.varbit.map(|varbit| {
            let field = self.field(varbit.field);
            let at = (field.at / 8).saturating_sub(header.at);
            Varbit { at, bytes: field.width / 8, width: self.place(varbit.width) }
        });
        Header {
            at: header.at,
            bytes: header.bytes,
            metadata: header.metadata,
            valid_at: valid.at / 8,
            valid_bit: valid_bit(valid.at),
            union_of: header.union_of,
            varbit,
            first_field: header.first_field,
            fields: header.fields,
        }
    }

    fn select(&self, program: &Program, select: &crate::program::Select) -> Select {
        let part = |key: &SelectKey| {
            let width = select_width(program, key);
            let place = match key {
                SelectKey::Field(field) if width <= 64 => Some(self.place(*field)),
                _ => None,
            };
            Part { key: *key, width, place }
        };
        let keys = select.keys.iter().map(part).collect();
        let cases = select.cases.iter().map(|case| Case { on: case.on.clone(), next: case.next }).collect();
        let number = |bytes: &[u8]| peek(bytes, 0, bytes.len() as u32 * 8);
        let short = |case: &crate::program::SelectCase| match &case.on {
            SelectOn::Value { value, mask } => {
                let mask = mask.as_ref().map_or(u64::MAX, |mask| number(mask));
                Some((number(value) & mask, mask, case.next))
            }
            SelectOn::Set { .. } => None,
        };
        let short =
            if (1..=8).contains(&select.bytes) { select.cases.iter().map(short).collect() } else { None };
        Select { keys, cases, default: select.default, short }
    }

    fn hash(&self, program: &Program, hash: &crate::program::Hash) -> Hash {
        let (mut parts, mut payload) = (Vec::new(), false);
        for input in &hash.input {
            match input {
                HashInput::Field(field) => self.hash_field(program, *field, &mut parts),
                HashInput::Header(header) => self.hash_header(*header, &mut parts),
                HashInput::Constant { value, width } => {
                    parts.push(HashPart::Constant { value: value.clone(), width: *width });
                }
                HashInput::Register { register, width } => {
                    parts.push(HashPart::Register { register: *register, width: *width });
                }
                HashInput::Payload => payload = true,
            }
        }
        let words = !payload
            && parts.iter().all(|part| match part {
                HashPart::Area { at, width, .. } => at % 8 == 0 && width % 16 == 0,
                _ => false,
            });
        Hash { kind: hash.kind, parts, payload, words }
    }

    fn hash_field(&self, program: &Program, field: FieldId, parts: &mut Vec<HashPart>) {
        let owner = owner(program, field).and_then(|header| self.headers.get(header));
        let field = self.field(field);
        let valid = owner.and_then(Header::validity);
        if let (Some(header), Some(valid)) = (owner, valid) {
            if let Some(varbit) = header.varbit.filter(|varbit| (header.at + varbit.at) * 8 == field.at) {
                let (at, most) = (field.at, field.width);
                parts.push(HashPart::Varbit { at, width: varbit.width, most, valid });
                return;
            }
        }
        match parts.last_mut() {
            Some(HashPart::Area { at, width, valid: other })
                if *at + *width == field.at && *other == valid =>
            {
                *width += field.width;
            }
            _ => parts.push(HashPart::Area { at: field.at, width: field.width, valid }),
        }
    }

    fn hash_header(&self, header: HeaderId, parts: &mut Vec<HashPart>) {
        let Some(header) = self.headers.get(usize::from(header)) else { return };
        let valid = header.validity();
        let (at, width) = (header.at * 8, header.bytes * 8);
        match (header.varbit, valid) {
            (Some(varbit), Some(validity)) => {
                let (first, most) = (varbit.at * 8, varbit.bytes * 8);
                parts.push(HashPart::Area { at, width: first, valid });
                parts.push(HashPart::Varbit { at: at + first, width: varbit.width, most, valid: validity });
                parts.push(HashPart::Area { at: at + first + most, width: width - first - most, valid });
            }
            _ => parts.push(HashPart::Area { at, width, valid }),
        }
    }

    /// None: a rare one.
    fn step(&self, op: &Op) -> Option<Step> {
        Some(match *op {
            Op::Load { to, field } => self.load(to, field),
            Op::Store { field, from } => self.store(field, from),
            Op::Set { to, value } => Step::Set { to, value },
            Op::Move { to, from } => Step::Move { to, from },
            Op::Argument { to, argument } => Step::Argument { to, argument },
            Op::Binary { op: Binary::Add, to, left, right } => Step::Add { to, left, right },
            Op::Binary { op: Binary::Subtract, to, left, right } => Step::Subtract { to, left, right },
            Op::Binary { op: Binary::And, to, left, right } => Step::And { to, left, right },
            Op::Binary { op: Binary::Or, to, left, right } => Step::Or { to, left, right },
            Op::Binary { op: Binary::Multiply, to, left, right } => Step::Multiply { to, left, right },
            Op::Binary { op, to, left, right } => match Test::of(op) {
                Some(test) => Step::Compare { test, to, left, right },
                None => Step::Binary { op, to, left, right },
            },
            Op::Unary { op: Unary::Invert, to, from } => Step::Invert { to, from },
            Op::Unary { op, to, from } => Step::Unary { op, to, from },
            Op::Copy { to, from } => return self.copy(to, from),
            Op::BinaryWith { op: Binary::Add, to, left, value } => Step::AddWith { to, left, value },
            Op::BinaryWith { op: Binary::And, to, left, value } => Step::AndWith { to, left, value },
            Op::BinaryWith { op, to, left, value } => match (op, Test::of(op), value) {
                (_, Some(test), _) => Step::CompareWith { test, to, left, value },
                (Binary::ShiftLeft, _, 0..128) => Step::ShiftLeftWith { to, left, bits: value as u8 },
                (Binary::ShiftRight, _, 0..128) => Step::ShiftRightWith { to, left, bits: value as u8 },
                _ => Step::BinaryWith { op, to, left, value },
            },
            Op::StoreConstant { field, value } if self.field(field).width <= 64 => {
                Step::StoreConstant { place: self.place(field), value: value as u64 }
            }
            Op::Lookahead { to, at, width } => Step::Lookahead { to, at, width },
            Op::Cut { to, from, bits } => Step::Cut { to, from, bits },
            Op::Jump { to } => Step::Jump { to },
            Op::JumpIf { condition, to } => Step::JumpIf { condition, to },
            Op::JumpUnless { condition, to } => Step::JumpUnless { condition, to },
            Op::Select { select } => Step::Select { select },
            Op::Apply { table } => Step::Apply { table },
            Op::Extract { header } => Step::Extract { header },
            Op::Verify { condition, error } => Step::Verify { condition, error },
            Op::Emit { header } => Step::Emit { header },
            Op::Checksum { to, hash } => Step::Checksum { to, hash },
            Op::Count { counter, index } => Step::Count { counter, index },
            Op::RegisterRead { to, array, index } => Step::RegisterRead { to, array, index },
            Op::RegisterWrite { array, index, from } => Step::RegisterWrite { array, index, from },
            Op::End => Step::End,
            _ => return None,
        })
    }

    fn load(&self, to: Reg, field: FieldId) -> Step {
        let place = self.place(field);
        match place.window {
            _ if self.field(field).signed => Step::LoadSigned { to, place },
            Window::Byte if place.whole() => Step::LoadByte { to, at: place.at },
            Window::Short if place.whole() => Step::LoadShort { to, at: place.at },
            Window::Word if place.whole() => Step::LoadWord { to, at: place.at },
            Window::Long if place.whole() => Step::LoadLong { to, at: place.at },
            _ => Step::LoadBits { to, place },
        }
    }

    fn store(&self, field: FieldId, from: Reg) -> Step {
        let place = self.place(field);
        match place.window {
            Window::Byte if place.whole() => Step::StoreByte { at: place.at, from },
            Window::Short if place.whole() => Step::StoreShort { at: place.at, from },
            Window::Word if place.whole() => Step::StoreWord { at: place.at, from },
            Window::Long if place.whole() => Step::StoreLong { at: place.at, from },
            _ => Step::StoreBits { place, from },
        }
    }

    fn copy(&self, to: FieldId, from: FieldId) -> Option<Step> {
        let (target, source) = (self.field(to), self.field(from));
        if (target.at | source.at | target.width) % 8 != 0 {
            return None;
        }
        let (to, from) = (u16::try_from(target.at / 8).ok()?, u16::try_from(source.at / 8).ok()?);
        Some(match u16::try_from(target.width / 8).ok()? {
            1 => Step::CopyByte { to, from },
            2 => Step::CopyShort { to, from },
            4 => Step::CopyWord { to, from },
            8 => Step::CopyLong { to, from },
            bytes => Step::CopyBytes { to: to.into(), from: from.into(), bytes },
        })
    }

    fn standard(&self, standard: &crate::program::Standard) -> Standard {
        let place = |field: Option<FieldId>| field.map(|field| self.place(field));
        Standard {
            ingress_port: place(standard.ingress_port),
            egress_spec: place(standard.egress_spec),
            egress_port: place(standard.egress_port),
            instance_type: place(standard.instance_type),
            packet_length: place(standard.packet_length),
            enq_timestamp: place(standard.enq_timestamp),
            enq_qdepth: place(standard.enq_qdepth),
            deq_timedelta: place(standard.deq_timedelta),
            deq_qdepth: place(standard.deq_qdepth),
            ingress_global_timestamp: place(standard.ingress_global_timestamp),
            egress_global_timestamp: place(standard.egress_global_timestamp),
            mcast_grp: place(standard.mcast_grp),
            egress_rid: place(standard.egress_rid),
            priority: place(standard.priority),
            qid: place(standard.qid),
            parser_error: place(standard.parser_error),
            checksum_error: place(standard.checksum_error),
        }
    }
}

/// How wide a part of a select's key is; of a stack, its first element's field.
pub fn select_width(program: &Program, key: &SelectKey) -> u32 {
    let field = match *key {
        SelectKey::Lookahead { width, .. } => return width,
        SelectKey::Field(field) => Some(usize::from(field)),
        SelectKey::StackLast { stack, member, field } => {
            program.stacks.get(usize::from(stack)).and_then(|stack| {
                let header = match stack.unions.first() {
                    Some(union) => {
                        *program.unions.get(usize::from(*union))?.headers.get(usize::from(member))?
                    }
                    None => *stack.headers.first()?,
                };
                Some(usize::from(program.headers.get(usize::from(header))?.first_field) + usize::from(field))
            })
        }
    };
    field.and_then(|field| program.fields.get(field)).map_or(0, |field| field.width)
}

/// By their names in core.p4; where a program does not say, by their usual numbers.
fn errors(program: &Program) -> Errors {
    let number = |name: &str, usual: u32| {
        program.errors.iter().find(|(known, _)| known == name).map_or(usual, |(_, number)| *number)
    };
    Errors {
        none: number("NoError", 0),
        packet_too_short: number("PacketTooShort", 1),
        no_match: number("NoMatch", 2),
        stack_out_of_bounds: number("StackOutOfBounds", 3),
        header_too_short: number("HeaderTooShort", 4),
        parser_timeout: number("ParserTimeout", 5),
        parser_invalid_argument: number("ParserInvalidArgument", 6),
    }
}
