// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Random operations of a program, on these fields, arrays and constants.

use proptest::prelude::*;
use qbed_p4engine::program::*;

pub const REGISTERS: u16 = 6;
/// Registers with a result that is compared.
pub const OBSERVED: u16 = 3;
/// Widths of the header's fields: aligned and not, of one to nine bytes of the packet.
pub const WIDTHS: [u32; 12] = [8, 16, 32, 48, 64, 3, 13, 7, 1, 24, 60, 4];
pub const HEADER_BYTES: usize = 35;
/// Width and sign of the arrays' values.
pub const ARRAYS: [(u32, bool); 6] =
    [(32, false), (64, false), (9, false), (1, false), (16, true), (80, false)];
/// Constants of more than 64 bits and of fewer.
pub const CONSTANTS: [&[u8]; 4] = [&[0x12; 15], &[0xff; 8], &[7], &[1, 0, 0, 0, 0, 0, 0, 0, 5]];
/// Three of each kind.
const HASHES: u16 = 3 * KINDS.len() as u16;
pub const KINDS: [HashKind; 3] = [HashKind::Csum16, HashKind::Crc16, HashKind::Crc32];
pub const WIDE_REGISTERS: WideReg = 3;
/// The register that counts the rounds of a loop.
const ROUNDS: Reg = REGISTERS;
/// The first field of the header, after the standard metadata.
pub const FIELDS: FieldId = 19;
/// The first of the fields with the same widths.
pub const TWINS: FieldId = FIELDS + WIDTHS.len() as FieldId + 1;
/// Two fields of many bytes.
pub const LONG: FieldId = TWINS + WIDTHS.len() as FieldId + 1;

fn number() -> impl Strategy<Value = i64> {
    let edge = prop::sample::select(vec![
        0,
        1,
        -1,
        2,
        7,
        127,
        128,
        255,
        256,
        0xffff,
        0x7fff_ffff,
        0x8000_0000,
        0xffff_ffff,
        i64::MAX,
        i64::MIN,
    ]);
    prop_oneof![3 => edge, 1 => any::<i64>(), 1 => -300..300i64]
}

fn binary() -> impl Strategy<Value = Binary> {
    prop::sample::select(vec![
        Binary::Add,
        Binary::Subtract,
        Binary::Multiply,
        Binary::And,
        Binary::Or,
        Binary::Xor,
        Binary::Equal,
        Binary::NotEqual,
        Binary::Less,
        Binary::LessOrEqual,
        Binary::Greater,
        Binary::GreaterOrEqual,
    ])
}

fn register() -> std::ops::Range<Reg> {
    0..REGISTERS
}

fn field() -> impl Strategy<Value = FieldId> {
    (0..WIDTHS.len() as u16).prop_map(|field| FIELDS + field)
}

fn binary_with() -> impl Strategy<Value = Op> {
    let operands = (binary(), register(), register(), number());
    operands.prop_map(|(op, to, left, value)| Op::BinaryWith { op, to, left, value })
}

fn jump_if(when: bool, condition: Reg, to: Pc) -> Op {
    if when {
        Op::JumpIf { condition, to }
    } else {
        Op::JumpUnless { condition, to }
    }
}

/// Jumps alone and after loads and comparisons. A target is relative to its jump.
fn jump() -> impl Strategy<Value = Vec<Op>> {
    let when = any::<bool>;
    let compared = (binary_with(), 1..6u32, when()).prop_map(|(compare, to, when)| match compare {
        Op::BinaryWith { to: condition, .. } => vec![compare, jump_if(when, condition, to)],
        _ => vec![],
    });
    let two =
        (binary(), register(), register(), register(), 1..6u32).prop_map(|(op, to, left, right, jump)| {
            vec![Op::Binary { op, to, left, right }, jump_if(false, to, jump)]
        });
    let loaded = (register(), field(), 1..6u32, when())
        .prop_map(|(to, field, jump, when)| vec![Op::Load { to, field }, jump_if(when, to, jump)]);
    let byte = (field(), register(), number(), binary(), 1..6u32).prop_map(|(field, to, value, op, jump)| {
        let compare = Op::BinaryWith { op, to, left: to, value: value & 0xff };
        vec![Op::Load { to, field }, compare, jump_if(true, to, jump)]
    });
    prop_oneof![
        (1..6u32).prop_map(|to| vec![Op::Jump { to }]),
        (register(), 1..6u32, when()).prop_map(|(condition, to, when)| vec![jump_if(when, condition, to)]),
        compared,
        two,
        loaded,
        byte,
    ]
}

/// Operations on registers.
fn arithmetic() -> impl Strategy<Value = Vec<Op>> {
    let shift = (any::<bool>(), register(), register(), 0..128i64).prop_map(|(left, to, from, value)| {
        let op = if left { Binary::ShiftLeft } else { Binary::ShiftRight };
        Op::BinaryWith { op, to, left: from, value }
    });
    let two = (binary(), register(), register(), register()).prop_map(|(op, to, left, right)| Op::Binary {
        op,
        to,
        left,
        right,
    });
    let saturated = (register(), register(), -1..130i64).prop_map(|(to, left, value)| Op::BinaryWith {
        op: Binary::SaturateUnsigned,
        to,
        left,
        value,
    });
    let operation = prop_oneof![
        (register(), number()).prop_map(|(to, value)| Op::Set { to, value }),
        (register(), register()).prop_map(|(to, from)| Op::Move { to, from }),
        (register(), register()).prop_map(|(to, from)| Op::Unary { op: Unary::Invert, to, from }),
        (register(), register(), 1..128u16).prop_map(|(to, from, bits)| Op::Cut { to, from, bits }),
        (register(), 0..HASHES).prop_map(|(to, hash)| Op::Checksum { to, hash }),
        (field(), 0..HASHES, register(), register()).prop_map(|(field, hash, base, size)| Op::HashTo {
            field,
            hash,
            base,
            size
        }),
        register().prop_map(|index| Op::Count { counter: 0, index }),
        (register(), 0..CONSTANTS.len() as u16).prop_map(|(to, constant)| Op::SetLong { to, constant }),
        two,
        binary_with(),
        saturated,
        shift,
    ];
    prop_oneof![10 => operation.prop_map(|operation| vec![operation]), 1 => shift_by_register(), 1 => hash_of_its_size()]
}

/// Shifts by numbers that are mostly less than 128.
fn shift_by_register() -> impl Strategy<Value = Vec<Op>> {
    let bits = prop_oneof![
        4 => (0..64i64).prop_map(Ok),
        2 => (60..132i64).prop_map(Ok),
        1 => number().prop_map(Ok),
        1 => (0..CONSTANTS.len() as u16).prop_map(Err),
    ];
    (any::<bool>(), register(), register(), register(), bits).prop_map(|(left, to, from, bits, amount)| {
        let op = if left { Binary::ShiftLeft } else { Binary::ShiftRight };
        let set = match amount {
            Ok(value) => Op::Set { to: bits, value },
            Err(constant) => Op::SetLong { to: bits, constant },
        };
        vec![set, Op::Binary { op, to, left: from, right: bits }]
    })
}

/// A hash with its value as the size.
fn hash_of_its_size() -> impl Strategy<Value = Vec<Op>> {
    (field(), 0..HASHES, register(), register()).prop_map(|(field, hash, base, size)| {
        vec![Op::Checksum { to: size, hash }, Op::HashTo { field, hash, base, size }]
    })
}

/// Reads and writes of arrays, of which some have the index. What is written is read, too.
fn array() -> impl Strategy<Value = Vec<Op>> {
    let index = prop_oneof![5 => (0..3i64).boxed(), 1 => number().boxed()];
    (any::<bool>(), 0..ARRAYS.len() as ArrayId, register(), index, register(), field()).prop_map(
        |(reads, array, index, value, from, to)| {
            let read = Op::RegisterRead { to, array, index };
            let mut ops = vec![Op::Set { to: index, value }];
            if !reads {
                ops.push(Op::RegisterWrite { array, index, from });
            }
            ops.push(read);
            ops
        },
    )
}

/// Operations on wide numbers.
fn wide() -> impl Strategy<Value = Vec<Op>> {
    let number = 0..WIDE_REGISTERS;
    let long = prop_oneof![Just(LONG), Just(LONG + 1), field()];
    let three = (binary(), number.clone(), number.clone(), number.clone());
    let operation = prop_oneof![
        (number.clone(), 0..CONSTANTS.len() as u16).prop_map(|(to, constant)| Op::WideSet { to, constant }),
        (number.clone(), long.clone()).prop_map(|(to, field)| Op::WideLoad { to, field }),
        (number.clone(), long).prop_map(|(from, field)| Op::WideStore { field, from }),
        (number.clone(), register()).prop_map(|(to, from)| Op::Widen { to, from }),
        (number.clone(), register()).prop_map(|(from, to)| Op::Narrow { to, from }),
        (three, register()).prop_map(|((op, to, left, right), flag)| match op {
            Binary::Add | Binary::Subtract | Binary::Multiply | Binary::And | Binary::Or | Binary::Xor => {
                Op::WideBinary { op, to, left, right }
            }
            _ => Op::WideCompare { op, to: flag, left, right },
        }),
    ];
    let constant = 0..CONSTANTS.len() as u16;
    prop_oneof![
        3 => operation.clone().prop_map(|operation| vec![operation]),
        1 => (constant.clone(), constant, operation).prop_map(|(first, second, operation)| match operation {
            Op::WideBinary { left, right, .. } | Op::WideCompare { left, right, .. } => vec![
                Op::WideSet { to: left, constant: first },
                Op::WideSet { to: right, constant: second },
                operation,
            ],
            _ => vec![operation],
        }),
    ]
}

/// One to three rounds of an operation, which an action may have. Targets are relative to their jumps.
pub fn repeated() -> impl Strategy<Value = Vec<Op>> {
    let body = prop_oneof![arithmetic(), access(), array()];
    (1..4i64, body, any::<bool>()).prop_map(|(rounds, body, compares)| {
        let back = |ops: usize| (ops as Pc).wrapping_neg();
        let mut ops = vec![Op::Set { to: ROUNDS, value: rounds }];
        ops.extend(&body);
        ops.push(Op::BinaryWith { op: Binary::Add, to: ROUNDS, left: ROUNDS, value: -1 });
        if compares {
            ops.push(Op::BinaryWith { op: Binary::Greater, to: 0, left: ROUNDS, value: 0 });
            ops.push(jump_if(true, 0, back(body.len() + 2)));
        } else {
            ops.push(jump_if(true, ROUNDS, back(body.len() + 1)));
        }
        ops
    })
}

/// Loads and stores of the header's fields.
fn access() -> impl Strategy<Value = Vec<Op>> {
    let copied = (register(), field(), field())
        .prop_map(|(to, from, field)| vec![Op::Load { to, field: from }, Op::Store { field, from: to }]);
    let stored = (binary_with(), field()).prop_map(|(operation, field)| match operation {
        Op::BinaryWith { to, .. } => vec![operation, Op::Store { field, from: to }],
        _ => vec![],
    });
    let incremented = (field(), register(), number()).prop_map(|(field, to, value)| {
        let add = Op::BinaryWith { op: Binary::Add, to, left: to, value };
        vec![Op::Load { to, field }, add, Op::Store { field, from: to }]
    });
    let twin = (any::<bool>(), 0..WIDTHS.len() as u16).prop_map(|(there, field)| {
        match (FIELDS + field, TWINS + field) {
            (from, to) if there => vec![Op::Copy { to, from }],
            (to, from) => vec![Op::Copy { to, from }],
        }
    });
    let long = any::<bool>().prop_map(|there| match there {
        true => vec![Op::Copy { to: LONG, from: LONG + 1 }],
        false => vec![Op::Copy { to: LONG + 1, from: LONG }],
    });
    prop_oneof![
        long,
        twin,
        (register(), field()).prop_map(|(to, field)| vec![Op::Load { to, field }]),
        (register(), field()).prop_map(|(from, field)| vec![Op::Store { field, from }]),
        (field(), number()).prop_map(|(field, value)| vec![Op::StoreConstant { field, value }]),
        copied,
        stored,
        incremented,
    ]
}

pub fn operation() -> impl Strategy<Value = Vec<Op>> {
    prop_oneof![3 => arithmetic(), 3 => access(), 3 => jump(), 1 => array(), 1 => wide()]
}
