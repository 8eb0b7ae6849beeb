// SPDX-License-Identifier: Apache-2.0
//! Layout of headers, metadata and their fields in a packet's header vector (PHV).

use std::collections::HashMap;

use qbed_p4engine::program::{
    Field, FieldId, Header, HeaderId, Program, Stack, StackId, Standard, Union, Varbit,
};
use serde_json::Value as Json;

use super::narrow;
use crate::bmv2::{Document, HeaderType};
use crate::error::{refuse, At, LoadError, Result};

/// Limit on the width of a field.
const MAX_BITS: u32 = 1 << 15;
/// Limit on the fields of a header.
const MAX_FIELDS: usize = 1 << 12;

struct FieldType<'a> {
    name: &'a str,
    /// In bits; None for a varbit.
    width: Option<u32>,
    signed: bool,
}

struct Type<'a> {
    fields: Vec<FieldType<'a>>,
    /// Maximum width of its varbit field in bits.
    varbit: u32,
}

/// Headers, stacks, unions and fields by name.
#[derive(Default)]
pub struct Layout {
    pub headers: HashMap<String, HeaderId>,
    pub stacks: HashMap<String, StackId>,
    pub unions: HashMap<String, u16>,
    /// Members of a stack's unions, in order.
    pub members: HashMap<StackId, Vec<String>>,
    fields: HashMap<(HeaderId, String), FieldId>,
    /// Name and position of each header's fields of 0 bits, which the program does not have.
    empty: HashMap<HeaderId, Vec<(String, u16)>>,
    aliases: HashMap<String, (String, String)>,
    // By their ids in the JSON.
    header_ids: HashMap<u32, HeaderId>,
    union_ids: HashMap<u32, u16>,
    /// Size of the PHV so far.
    bits: u64,
    scratch: u32,
}

impl Layout {
    pub fn new(document: &Document, program: &mut Program) -> Result<Self> {
        let mut layout =
            Self { aliases: document.field_aliases.iter().cloned().collect(), ..Self::default() };
        layout.add_headers(document, program)?;
        for index in 0..program.headers.len() {
            layout.add_hidden_fields(program, index)?;
        }
        layout.add_stacks(document, program)?;
        layout.add_unions(document, program)?;
        layout.add_union_stacks(document, program)?;
        program.standard = layout.standard();
        Ok(layout)
    }

    pub fn bytes(&self) -> u64 {
        self.bits.div_ceil(8)
    }

    pub fn field(&self, header: &str, field: &str) -> Result<FieldId> {
        let id = *self.headers.get(header).ok_or_else(|| LoadError::new(format!("no header {header}")))?;
        if self.is_empty(header, field) {
            return refuse(format!("{header}.{field} has 0 bits"));
        }
        let found = self.fields.get(&(id, field.to_owned()));
        found.copied().ok_or_else(|| LoadError::new(format!("no field {header}.{field}")))
    }

    fn empty_of(&self, header: &str) -> &[(String, u16)] {
        self.headers.get(header).and_then(|id| self.empty.get(id)).map_or(&[], Vec::as_slice)
    }

    /// Whether the field exists and has 0 bits.
    pub fn is_empty(&self, header: &str, field: &str) -> bool {
        self.empty_of(header).iter().any(|(name, _)| name == field)
    }

    /// Convert a field's position in the JSON's header type to its number in the program. None if it has 0 bits.
    pub fn position(&self, header: &str, position: u16) -> Option<u16> {
        let empty = self.empty_of(header);
        let before = empty.iter().filter(|(_, other)| *other < position).count() as u16;
        empty.iter().all(|(_, other)| *other != position).then_some(position - before)
    }

    /// Add a temporary field.
    pub fn scratch(&mut self, program: &mut Program, width: u32) -> Result<FieldId> {
        self.scratch += 1;
        self.add_field(program, format!("$scratch{}", self.scratch), width, true)
    }

    fn add_headers(&mut self, document: &Document, program: &mut Program) -> Result<()> {
        let mut types = HashMap::new();
        for (index, entry) in document.header_types.iter().enumerate() {
            let read = header_type(entry).at(|| format!("header_types[{index}] {}", entry.name))?;
            types.insert(entry.name.as_str(), read);
        }
        for (index, instance) in document.headers.iter().enumerate() {
            let place = || format!("headers[{index}] {}", instance.name);
            let Some(of) = types.get(instance.header_type.as_str()) else {
                return refuse(format!("no header type {}", instance.header_type)).at(place);
            };
            let id: HeaderId = narrow(program.headers.len(), "headers")?;
            if self.headers.insert(instance.name.clone(), id).is_some() {
                return refuse("duplicate header").at(place);
            }
            self.header_ids.insert(instance.id, id);
            let header = self.add_header(program, id, &instance.name, of, instance.metadata).at(place)?;
            program.headers.push(header);
        }
        Ok(())
    }

    fn add_header(
        &mut self,
        program: &mut Program,
        id: HeaderId,
        name: &str,
        of: &Type,
        metadata: bool,
    ) -> Result<Header> {
        self.bits = self.bits.next_multiple_of(8);
        let begin = self.bits;
        let first_field = narrow(program.fields.len(), "fields")?;
        let mut varbit = None;
        for (position, field) in (0..).zip(&of.fields) {
            if field.width == Some(0) {
                self.empty.entry(id).or_default().push((field.name.to_owned(), position));
                continue;
            }
            let width = field.width.unwrap_or(of.varbit);
            let added = self.add_field(program, format!("{name}.{}", field.name), width, metadata)?;
            program.fields[added as usize].signed = field.signed;
            if field.width.is_none() {
                varbit = Some(Varbit { field: added, width: 0 });
            }
            if self.fields.insert((id, field.name.to_owned()), added).is_some() {
                return refuse(format!("duplicate field {}", field.name));
            }
        }
        let bits = self.bits - begin;
        if bits % 8 != 0 {
            return refuse(format!("{bits} bits are not whole bytes"));
        }
        Ok(Header {
            name: name.into(),
            at: (begin / 8) as u32,
            bytes: (bits / 8) as u32,
            metadata,
            valid: 0,
            first_field,
            fields: narrow(of.fields.iter().filter(|field| field.width != Some(0)).count(), "fields")?,
            varbit,
            union_of: None,
        })
    }

    /// Add a field after the others. If `byte_aligned`, it shares no byte with other fields and ends at a byte's end.
    fn add_field(
        &mut self,
        program: &mut Program,
        name: String,
        width: u32,
        byte_aligned: bool,
    ) -> Result<FieldId> {
        let at = if byte_aligned {
            self.bits.next_multiple_of(8) + u64::from(width.next_multiple_of(8) - width)
        } else {
            self.bits
        };
        self.bits = at + u64::from(width);
        if self.bits.div_ceil(8) > super::MAX_PHV_BYTES {
            return refuse(format!("headers and metadata take more than {} bytes", super::MAX_PHV_BYTES));
        }
        let id = narrow(program.fields.len(), "fields")?;
        program.fields.push(Field { name, at: at as u32, width, signed: false });
        Ok(id)
    }

    /// Add a header's validity and the current width of its varbit field.
    fn add_hidden_fields(&mut self, program: &mut Program, index: usize) -> Result<()> {
        let name = program.headers[index].name.clone();
        let valid = self.add_field(program, format!("{name}.$valid$"), 1, true)?;
        self.fields.insert((index as HeaderId, "$valid$".into()), valid);
        program.headers[index].valid = valid;
        if program.headers[index].varbit.is_some() {
            let width = self.add_field(program, format!("{name}.$width$"), 32, true)?;
            if let Some(varbit) = &mut program.headers[index].varbit {
                varbit.width = width;
            }
        }
        Ok(())
    }

    fn by_ids(&self, ids: &[u32]) -> Result<Vec<HeaderId>> {
        let find = |id: &u32| {
            self.header_ids.get(id).copied().ok_or_else(|| LoadError::new(format!("no header of id {id}")))
        };
        ids.iter().map(find).collect()
    }

    fn add_stacks(&mut self, document: &Document, program: &mut Program) -> Result<()> {
        for (index, stack) in document.header_stacks.iter().enumerate() {
            let place = || format!("header_stacks[{index}] {}", stack.name);
            let headers = self.by_ids(&stack.header_ids).at(place)?;
            if headers.is_empty() {
                return refuse("a stack without headers").at(place);
            }
            same_layout(program, &headers).at(place)?;
            let next = self.add_field(program, format!("{}.$next$", stack.name), 32, true)?;
            self.stacks.insert(stack.name.clone(), narrow(program.stacks.len(), "stacks")?);
            program.stacks.push(Stack { name: stack.name.clone(), headers, next, unions: Vec::new() });
        }
        Ok(())
    }

    fn add_unions(&mut self, document: &Document, program: &mut Program) -> Result<()> {
        for (index, union) in document.header_unions.iter().enumerate() {
            let place = || format!("header_unions[{index}] {}", union.name);
            let headers = self.by_ids(&union.header_ids).at(place)?;
            let id: u16 = narrow(program.unions.len(), "unions")?;
            for header in &headers {
                program.headers[*header as usize].union_of = Some(id);
            }
            let known = document.header_union_types.iter().find(|of| of.name == union.union_type);
            if known.is_some_and(|of| of.headers.len() != headers.len()) {
                return refuse(format!(
                    "{} headers: its type {} has another number",
                    headers.len(),
                    union.union_type
                ))
                .at(place);
            }
            self.unions.insert(union.name.clone(), id);
            self.union_ids.insert(union.id, id);
            program.unions.push(Union { name: union.name.clone(), headers });
        }
        Ok(())
    }

    fn add_union_stacks(&mut self, document: &Document, program: &mut Program) -> Result<()> {
        for (index, stack) in document.header_union_stacks.iter().enumerate() {
            let place = || format!("header_union_stacks[{index}] {}", stack.name);
            let find = |id: &u32| {
                let found = self.union_ids.get(id).copied();
                found.ok_or_else(|| LoadError::new(format!("no header union of id {id}")))
            };
            let unions = stack.header_union_ids.iter().map(find).collect::<Result<Vec<u16>>>().at(place)?;
            let Some(first) = unions.first().map(|first| program.unions[*first as usize].headers.len())
            else {
                return refuse("a stack without unions").at(place);
            };
            if unions.iter().any(|union| program.unions[*union as usize].headers.len() != first) {
                return refuse("the unions have several types").at(place);
            }
            for member in 0..first {
                let headers: Vec<_> =
                    unions.iter().map(|of| program.unions[*of as usize].headers[member]).collect();
                same_layout(program, &headers).at(place)?;
            }
            let Some(of) = document.header_union_types.iter().find(|of| of.name == stack.union_type) else {
                return refuse(format!("no header union type {}", stack.union_type)).at(place);
            };
            let next = self.add_field(program, format!("{}.$next$", stack.name), 32, true)?;
            let id = narrow(program.stacks.len(), "stacks")?;
            self.members.insert(id, of.headers.iter().map(|(name, _)| name.clone()).collect());
            self.stacks.insert(stack.name.clone(), id);
            program.stacks.push(Stack { name: stack.name.clone(), headers: Vec::new(), next, unions });
        }
        Ok(())
    }

    /// The fields of the architecture, by BMv2's names or the program's aliases.
    fn standard(&self) -> Standard {
        let find = |header: &str, field: &str| {
            let alias = self.aliases.get(&format!("{header}.{field}"));
            let (header, field) =
                alias.map_or((header, field), |(header, field)| (header.as_str(), field.as_str()));
            self.field(header, field).ok()
        };
        let standard = |field| find("standard_metadata", field);
        let queueing = |field| find("queueing_metadata", field);
        let intrinsic = |field| find("intrinsic_metadata", field);
        Standard {
            ingress_port: standard("ingress_port"),
            egress_spec: standard("egress_spec"),
            egress_port: standard("egress_port"),
            instance_type: standard("instance_type"),
            packet_length: standard("packet_length"),
            enq_timestamp: queueing("enq_timestamp"),
            enq_qdepth: queueing("enq_qdepth"),
            deq_timedelta: queueing("deq_timedelta"),
            deq_qdepth: queueing("deq_qdepth"),
            ingress_global_timestamp: intrinsic("ingress_global_timestamp"),
            egress_global_timestamp: intrinsic("egress_global_timestamp"),
            mcast_grp: intrinsic("mcast_grp"),
            egress_rid: intrinsic("egress_rid"),
            priority: intrinsic("priority"),
            qid: queueing("qid"),
            parser_error: standard("parser_error"),
            checksum_error: standard("checksum_error"),
        }
    }
}

/// Check that headers have the same fields: elements of a stack are read and moved as one type.
pub fn same_layout(program: &Program, headers: &[HeaderId]) -> Result<()> {
    let layout = |id: &HeaderId| {
        let header = &program.headers[*id as usize];
        let fields = &program.fields[header.first_field as usize..][..header.fields as usize];
        (header.bytes, fields.iter().map(|field| (field.width, field.signed)).collect::<Vec<_>>())
    };
    match headers.split_first() {
        Some((first, rest)) if rest.iter().any(|other| layout(other) != layout(first)) => {
            refuse("the headers have several types")
        }
        _ => Ok(()),
    }
}

fn header_type(of: &HeaderType) -> Result<Type<'_>> {
    if of.fields.len() > MAX_FIELDS {
        return refuse(format!("{} fields: at most {MAX_FIELDS} are supported", of.fields.len()));
    }
    let mut fields = Vec::new();
    let mut fixed = 0;
    for (index, entry) in of.fields.iter().enumerate() {
        let field = field_type(entry).at(|| format!("field {index}"))?;
        fixed = u32::saturating_add(fixed, field.width.unwrap_or(0));
        fields.push(field);
    }
    let varbit = match fields.iter().filter(|field| field.width.is_none()).count() {
        0 => 0,
        1 => {
            let max_length = of.max_length.filter(|max_length| *max_length <= MAX_BITS / 8);
            let max_length = max_length
                .ok_or_else(|| LoadError::new("a header with a varbit field needs max_length"))?
                * 8;
            max_length
                .checked_sub(fixed)
                .ok_or_else(|| LoadError::new("max_length is smaller than the other fields"))?
        }
        _ => return refuse("more than one varbit field"),
    };
    Ok(Type { fields, varbit })
}

fn field_type(entry: &[Json]) -> Result<FieldType<'_>> {
    let (Some(Json::String(name)), Some(width)) = (entry.first(), entry.get(1)) else {
        return refuse("expected [name, width] or [name, width, signed]");
    };
    let width = match width {
        Json::String(star) if star == "*" => None,
        Json::Number(width) => match width.as_u64() {
            Some(bits) if bits <= u64::from(MAX_BITS) => Some(bits as u32),
            _ => return refuse(format!("{name} of {width} bits: at most {MAX_BITS} are supported")),
        },
        other => return refuse(format!("{name}: invalid width {other}")),
    };
    let signed = match entry.get(2) {
        None => false,
        Some(Json::Bool(signed)) => *signed,
        Some(Json::Number(signed)) => signed.as_u64() == Some(1),
        Some(other) => return refuse(format!("{name}: invalid sign flag {other}")),
    };
    Ok(FieldType { name, width, signed })
}
