// SPDX-License-Identifier: Apache-2.0
//! `P4Data`: values of registers and digests.

use crate::bytestring::{bytes_of, decode, decode_signed, encode, encode_signed, Widths};
use crate::error::{invalid, Result};
use crate::proto::p4::config::v1::p4_bitstring_like_type_spec::TypeSpec as Bits;
use crate::proto::p4::config::v1::p4_data_type_spec::TypeSpec;
use crate::proto::p4::config::v1::p4_new_type_spec::Representation;
use crate::proto::p4::config::v1::p4_new_type_translation::SdnType;
use crate::proto::p4::config::v1::{P4BitstringLikeTypeSpec, P4DataTypeSpec, P4TypeInfo};
use crate::proto::p4::v1::p4_data::Data;
use crate::proto::p4::v1::{P4Data, P4Header, P4StructLike};

/// Limit on nested types, since types can refer to each other.
const MAX_DEPTH: u32 = 16;

/// A type of P4Info. In the engine's form, a value is the sequence of its leaves, each in whole bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Type {
    Bits(u32),
    Signed(u32),
    /// A number that P4Info translates to another width. The program's width is 0 until `match_widths`.
    Translated(Widths),
    Bool,
    /// A serializable enum of this width.
    Enum(u32),
    Tuple(Vec<Type>),
    Struct(Vec<Type>),
    Header(Vec<Type>),
}

impl Type {
    /// Resolve a type of P4Info. The error names a type that is not supported.
    pub fn new(spec: Option<&P4DataTypeSpec>, types: &P4TypeInfo) -> std::result::Result<Type, String> {
        Type::nested(spec, types, 0)
    }

    fn nested(
        spec: Option<&P4DataTypeSpec>,
        types: &P4TypeInfo,
        depth: u32,
    ) -> std::result::Result<Type, String> {
        let spec = spec.and_then(|spec| spec.type_spec.as_ref()).ok_or("no type")?;
        if depth > MAX_DEPTH {
            return Err(format!("types more than {MAX_DEPTH} deep"));
        }
        let below = |spec: Option<&P4DataTypeSpec>| Type::nested(spec, types, depth + 1);
        let unknown = |name: &str| format!("an unknown type {name}");
        Ok(match spec {
            TypeSpec::Bitstring(bits) => Type::bits(Some(bits))?,
            TypeSpec::Bool(_) => Type::Bool,
            TypeSpec::Tuple(tuple) => Type::Tuple(
                tuple
                    .members
                    .iter()
                    .map(|member| below(Some(member)))
                    .collect::<std::result::Result<_, _>>()?,
            ),
            TypeSpec::Struct(named) => {
                let found = types.structs.get(&named.name).ok_or_else(|| unknown(&named.name))?;
                let members = found.members.iter().map(|member| below(member.type_spec.as_ref()));
                Type::Struct(members.collect::<std::result::Result<_, _>>()?)
            }
            TypeSpec::Header(named) => {
                let found = types.headers.get(&named.name).ok_or_else(|| unknown(&named.name))?;
                let members = found.members.iter().map(|member| Type::bits(member.type_spec.as_ref()));
                Type::Header(members.collect::<std::result::Result<_, _>>()?)
            }
            TypeSpec::SerializableEnum(named) => {
                let found = types.serializable_enums.get(&named.name).ok_or_else(|| unknown(&named.name))?;
                Type::Enum(width(found.underlying_type.map_or(0, |bits| bits.bitwidth))?)
            }
            TypeSpec::NewType(named) => {
                let found = types.new_types.get(&named.name).ok_or_else(|| unknown(&named.name))?;
                match &found.representation {
                    Some(Representation::OriginalType(spec)) => below(Some(spec))?,
                    Some(Representation::TranslatedType(to)) => match to.sdn_type {
                        Some(SdnType::SdnBitwidth(bits)) => {
                            let controller = width(bits)?;
                            Type::Translated(Widths { program: 0, controller })
                        }
                        _ => {
                            return Err(format!(
                                "{} is translated to a string, which is not supported",
                                named.name
                            ))
                        }
                    },
                    None => return Err(format!("the type {} without a representation", named.name)),
                }
            }
            TypeSpec::HeaderUnion(named) => return Err(format!("the header union {}", named.name)),
            TypeSpec::Enum(named) => {
                return Err(format!("the enum {} without an underlying type", named.name));
            }
            TypeSpec::HeaderStack(_) | TypeSpec::HeaderUnionStack(_) => {
                return Err("a stack of headers".into())
            }
            TypeSpec::Error(_) => return Err("an error".into()),
        })
    }

    fn bits(spec: Option<&P4BitstringLikeTypeSpec>) -> std::result::Result<Type, String> {
        match spec.and_then(|spec| spec.type_spec.as_ref()) {
            Some(Bits::Bit(bits)) => Ok(Type::Bits(width(bits.bitwidth)?)),
            Some(Bits::Int(bits)) => Ok(Type::Signed(width(bits.bitwidth)?)),
            Some(Bits::Varbit(_)) => Err("a varbit".into()),
            None => Err("a number without a width".into()),
        }
    }

    /// Widths of the leaves in P4Info, in order. Values of the program have no leaves of 0 bits.
    pub fn widths(&self) -> Vec<u32> {
        match self {
            Type::Bits(0) => vec![],
            Type::Bits(width) | Type::Signed(width) | Type::Enum(width) => vec![*width],
            Type::Translated(widths) => vec![widths.controller],
            Type::Bool => vec![1],
            Type::Tuple(members) | Type::Struct(members) | Type::Header(members) => {
                members.iter().flat_map(Type::widths).collect()
            }
        }
    }

    /// Set the program's widths of translated leaves. False if the widths of other leaves differ.
    pub fn match_widths(&mut self, program: &[u32]) -> bool {
        let mut program = program.iter().copied();
        self.match_next(&mut program) && program.next().is_none()
    }

    fn match_next(&mut self, program: &mut impl Iterator<Item = u32>) -> bool {
        match self {
            Type::Bits(0) => true,
            Type::Bits(width) | Type::Signed(width) | Type::Enum(width) => program.next() == Some(*width),
            Type::Bool => program.next() == Some(1),
            Type::Translated(widths) => {
                widths.program = program.next().unwrap_or(0);
                widths.program > 0
            }
            Type::Tuple(members) | Type::Struct(members) | Type::Header(members) => {
                members.iter_mut().all(|member| member.match_next(program))
            }
        }
    }

    /// Remove a value from the front of `values`. None if they are too short.
    pub fn encode(&self, values: &mut &[u8]) -> Option<P4Data> {
        let all = |values: &mut &[u8], members: &[Type]| {
            let members = members.iter().map(|member| member.encode(values)).collect::<Option<_>>()?;
            Some(P4StructLike { members })
        };
        let data = match self {
            Type::Bits(width) => Data::Bitstring(encode(take(values, bytes_of(*width))?)),
            Type::Translated(widths) => Data::Bitstring(encode(take(values, bytes_of(widths.program))?)),
            Type::Signed(width) => Data::Bitstring(encode_signed(take(values, bytes_of(*width))?, *width)),
            Type::Enum(width) => Data::EnumValue(encode(take(values, bytes_of(*width))?)),
            Type::Bool => Data::Bool(take(values, 1)? != [0]),
            Type::Tuple(members) => Data::Tuple(all(values, members)?),
            Type::Struct(members) => Data::Struct(all(values, members)?),
            Type::Header(members) => {
                let bitstrings = members.iter().map(|member| match member.encode(values)?.data? {
                    Data::Bitstring(bits) => Some(bits),
                    _ => None,
                });
                Data::Header(P4Header { is_valid: true, bitstrings: bitstrings.collect::<Option<_>>()? })
            }
        };
        Some(P4Data { data: Some(data) })
    }

    /// Convert a value of a register, which has one leaf.
    pub fn decode(&self, given: &P4Data, what: &str) -> Result<Vec<u8>> {
        match (self, &given.data) {
            (Type::Bits(width), Some(Data::Bitstring(value))) => decode(value, *width, what),
            (Type::Translated(widths), Some(Data::Bitstring(value))) => widths.decode(value, what),
            (Type::Signed(width), Some(Data::Bitstring(value))) => decode_signed(value, *width, what),
            (Type::Enum(width), Some(Data::EnumValue(value))) => decode(value, *width, what),
            (Type::Bool, Some(Data::Bool(value))) => Ok(vec![u8::from(*value)]),
            _ => Err(invalid(format!("{what}: expected a value of type {self:?}"))),
        }
    }
}

fn width(bits: i32) -> std::result::Result<u32, String> {
    match u32::try_from(bits) {
        Ok(width @ 0..=0xffff) => Ok(width),
        _ => Err(format!("a number of {bits} bits")),
    }
}

fn take<'a>(values: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (front, rest) = values.split_at_checked(count)?;
    *values = rest;
    Some(front)
}
