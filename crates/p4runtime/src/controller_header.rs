// SPDX-License-Identifier: Apache-2.0
//! Where the metadata of PacketIn and PacketOut are in the header in front of the packet (`@controller_header`).
//!
//! P4Info has the fields by name and with the widths that controllers see; it does not name the type of the header. The
//! layout is that of the program's header with fields of these names.

use qbed_p4engine::program::{Field, Header, Program};

use crate::bytestring::Widths;
use crate::proto::p4::config::v1::controller_packet_metadata::Metadata as InfoField;
use crate::proto::p4::config::v1::ControllerPacketMetadata;

type Fit<T> = Result<T, String>;

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
    /// The layout of the program's header that has these fields. `widths` compares a field of P4Info with its width in
    /// the program, None where the program has no such header.
    pub fn of(
        info: &ControllerPacketMetadata,
        program: &Program,
        widths: impl Fn(&InfoField, Option<u32>) -> Fit<Widths>,
    ) -> Fit<ControllerHeader> {
        let headers = program.headers.iter().filter(|header| has_these_fields(info, program, header));
        let layouts: Vec<(&str, Fit<ControllerHeader>)> = headers
            .map(|header| (header.name.as_str(), ControllerHeader::like(info, program, header, &widths)))
            .collect();
        let mut fitting = layouts.iter().filter_map(|(name, layout)| Some((name, layout.as_ref().ok()?)));
        match (fitting.next(), layouts.first()) {
            (Some((name, layout)), _) => match fitting.find(|(_, other)| *other != layout) {
                None => Ok(layout.clone()),
                Some((other, _)) => Err(format!(
                    "the headers {name} and {other} have its fields in different widths: expected one such header"
                )),
            },
            (None, Some((_, Err(why)))) => Err(why.clone()),
            (None, _) => ControllerHeader::alone(info, &widths),
        }
    }

    fn like(
        info: &ControllerPacketMetadata,
        program: &Program,
        header: &Header,
        widths: &impl Fn(&InfoField, Option<u32>) -> Fit<Widths>,
    ) -> Fit<ControllerHeader> {
        let fields = info.metadata.iter().map(|one| {
            let field = fields(program, header).find(|(name, _)| *name == one.name);
            let (at, width) = field.map_or((0, 0), |(_, field)| (field.at - header.at * 8, field.width));
            let widths = widths(one, Some(width))?;
            Ok(Metadata { id: one.id, name: one.name.clone(), widths, at: at as usize })
        });
        Ok(ControllerHeader { fields: fields.collect::<Fit<_>>()?, bytes: header.bytes as usize })
    }

    /// The layout by P4Info alone.
    fn alone(
        info: &ControllerPacketMetadata,
        widths: &impl Fn(&InfoField, Option<u32>) -> Fit<Widths>,
    ) -> Fit<ControllerHeader> {
        let mut bits = 0;
        let mut fields = vec![];
        for one in &info.metadata {
            let widths = widths(one, None)?;
            fields.push(Metadata { id: one.id, name: one.name.clone(), widths, at: bits });
            bits += widths.program as usize;
        }
        match bits % 8 {
            0 => Ok(ControllerHeader { fields, bytes: bits / 8 }),
            _ => Err(format!("a header of {bits} bits: expected whole bytes")),
        }
    }
}

/// Fields of a header, by their names in it.
fn fields<'a>(program: &'a Program, header: &'a Header) -> impl Iterator<Item = (&'a str, &'a Field)> {
    let first = usize::from(header.first_field);
    let all = program.fields.get(first..first + usize::from(header.fields)).unwrap_or_default();
    all.iter().map(|field| {
        let name = field.name.strip_prefix(&header.name).and_then(|rest| rest.strip_prefix('.'));
        (name.unwrap_or(&field.name), field)
    })
}

/// Whether a header has the fields of P4Info and no others. The program has none of 0 bits.
fn has_these_fields(info: &ControllerPacketMetadata, program: &Program, header: &Header) -> bool {
    let known = |name: &str| info.metadata.iter().any(|one| one.name == name);
    let found = |name: &str| fields(program, header).any(|(known, _)| known == name);
    !header.metadata
        && header.varbit.is_none()
        && fields(program, header).all(|(name, _)| known(name))
        && info.metadata.iter().all(|one| one.bitwidth == 0 || found(&one.name))
}
