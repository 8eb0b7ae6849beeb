// SPDX-License-Identifier: Apache-2.0
//! The layout of the header with the metadata of PacketIn and PacketOut (`@controller_header`).
//!
//! P4Info has the names of the fields and the widths for controllers, but not the header's type. The layout is that of
//! the program's header with these fields.

use qbed_p4engine::program::{Field, Header, Program};

use crate::bytestring::Widths;
use crate::proto::p4::config::v1::controller_packet_metadata::Metadata as InfoField;
use crate::proto::p4::config::v1::ControllerPacketMetadata;

/// A part of a pipeline, or why P4Info does not fit the program.
pub type LinkResult<T> = Result<T, String>;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ControllerHeader {
    pub fields: Vec<Metadata>,
    /// Length of the header.
    pub bytes: usize,
}

/// A field of the header between switch and controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metadata {
    pub id: u32,
    pub name: String,
    pub widths: Widths,
    /// Its first bit in the header.
    pub at: usize,
}

impl ControllerHeader {
    /// The layout of the program's header with these fields. `widths` compares a field of P4Info with its width in the
    /// program, None if the program has no such header.
    pub fn new(
        info: &ControllerPacketMetadata,
        program: &Program,
        widths: impl Fn(&InfoField, Option<u32>) -> LinkResult<Widths>,
    ) -> LinkResult<ControllerHeader> {
        let headers = program.headers.iter().filter(|header| has_these_fields(info, program, header));
        let layouts: Vec<(&str, LinkResult<ControllerHeader>)> = headers
            .map(|header| (header.name.as_str(), ControllerHeader::of_header(info, program, header, &widths)))
            .collect();
        let mut fitting = layouts.iter().filter_map(|(name, layout)| Some((name, layout.as_ref().ok()?)));
        match (fitting.next(), layouts.first()) {
            (Some((name, layout)), _) => match fitting.find(|(_, other)| *other != layout) {
                None => Ok(layout.clone()),
                Some((other, _)) => Err(format!(
                    "the headers {name} and {other} have these fields in different widths: expected one such header"
                )),
            },
            (None, Some((_, Err(why)))) => Err(why.clone()),
            (None, _) => ControllerHeader::of_info(info, &widths),
        }
    }

    /// The layout of one header.
    fn of_header(
        info: &ControllerPacketMetadata,
        program: &Program,
        header: &Header,
        widths: &impl Fn(&InfoField, Option<u32>) -> LinkResult<Widths>,
    ) -> LinkResult<ControllerHeader> {
        let mut fields = fields(program, header).map(|(_, field)| field);
        let metadata = info.metadata.iter().map(|field_info| {
            let field = if has_bits(field_info) { fields.next() } else { None };
            let (at, width) = field.map_or((0, 0), |field| (field.at - header.at * 8, field.width));
            let widths = widths(field_info, Some(width))?;
            Ok(Metadata { id: field_info.id, name: field_info.name.clone(), widths, at: at as usize })
        });
        Ok(ControllerHeader { fields: metadata.collect::<LinkResult<_>>()?, bytes: header.bytes as usize })
    }

    /// The layout according to P4Info only.
    fn of_info(
        info: &ControllerPacketMetadata,
        widths: &impl Fn(&InfoField, Option<u32>) -> LinkResult<Widths>,
    ) -> LinkResult<ControllerHeader> {
        let mut bits = 0;
        let mut fields = vec![];
        for field_info in &info.metadata {
            let widths = widths(field_info, None)?;
            fields.push(Metadata { id: field_info.id, name: field_info.name.clone(), widths, at: bits });
            bits += widths.program as usize;
        }
        match bits % 8 {
            0 => Ok(ControllerHeader { fields, bytes: bits / 8 }),
            _ => Err(format!("a header of {bits} bits: expected whole bytes")),
        }
    }
}

/// Fields of a header with their names in it.
fn fields<'a>(program: &'a Program, header: &'a Header) -> impl Iterator<Item = (&'a str, &'a Field)> {
    let first = usize::from(header.first_field);
    let all = program.fields.get(first..first + usize::from(header.fields)).unwrap_or_default();
    all.iter().map(|field| {
        let name = field.name.strip_prefix(&header.name).and_then(|rest| rest.strip_prefix('.'));
        (name.unwrap_or(&field.name), field)
    })
}

/// Whether a header has the fields of P4Info, in the same order, and no others.
fn has_these_fields(info: &ControllerPacketMetadata, program: &Program, header: &Header) -> bool {
    let expected = || info.metadata.iter().filter(|field_info| has_bits(field_info));
    !header.metadata
        && header.varbit.is_none()
        && expected().count() == usize::from(header.fields)
        && expected()
            .zip(fields(program, header))
            .all(|(field_info, (name, _))| has_name(name, &field_info.name))
}

/// Whether the program has the field: it has no fields of 0 bits.
fn has_bits(field: &InfoField) -> bool {
    field.bitwidth != 0
}

/// Whether a field of the program has a name of P4Info. p4c flattens structs in a header: P4Info's `inner.a` is
/// `_inner_a1` in the program, and the header's other fields get similar names.
fn has_name(field: &str, info: &str) -> bool {
    let flattened = field.strip_prefix('_').and_then(|rest| rest.strip_prefix(&info.replace('.', "_")));
    let numbered = |end: &str| !end.is_empty() && end.bytes().all(|byte| byte.is_ascii_digit());
    field == info || flattened.is_some_and(numbered)
}
