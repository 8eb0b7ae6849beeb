// SPDX-License-Identifier: Apache-2.0
//! Value sets of the parser (section "ValueSetEntry").

use std::collections::HashSet;

use qbed_p4engine::control::{Request, SetMember};
use qbed_p4engine::program::Match;

use super::arrays::lookup;
use super::{Entities, Session};
use crate::error::{already_exists, exhausted, invalid, Result};
use crate::matches::{decode_key, encode_key};
use crate::proto::p4::v1::entity::Entity as Kind;
use crate::proto::p4::v1::update::Type;
use crate::proto::p4::v1::{ValueSetEntry, ValueSetMember};

/// A member in the engine's form: the concatenated values and masks of its fields.
fn engine_member(key: &[Match]) -> SetMember {
    let (mut value, mut mask, mut masked) = (vec![], vec![], false);
    for field in key {
        match field {
            Match::Ternary { value: bits, mask: of } => {
                value.extend_from_slice(bits);
                mask.extend_from_slice(of);
                masked = true;
            }
            Match::Exact(bits) => {
                value.extend_from_slice(bits);
                mask.resize(value.len(), 0xff);
            }
            Match::Lpm { .. } | Match::Range { .. } | Match::Optional(_) => {
                unreachable!("the linker refuses these kinds")
            }
        }
    }
    SetMember { value, mask: masked.then_some(mask) }
}

pub fn write(session: &mut Session, kind: Type, given: &ValueSetEntry) -> Result<()> {
    if kind != Type::Modify {
        return Err(invalid("value sets can only be modified"));
    }
    let id = given.value_set_id;
    let set = lookup(&session.pipeline.value_sets, id, "value set")?;
    if given.members.len() > set.size as usize {
        return Err(exhausted(format!("{}: at most {} members", set.name, set.size)));
    }
    let keys = given.members.iter().map(|member| decode_key(&set.keys, &member.r#match, &set.name));
    let keys = keys.collect::<Result<Vec<_>>>()?;
    let mut seen = HashSet::new();
    let members: Vec<SetMember> = keys.iter().map(|key| engine_member(key)).collect();
    if !members.iter().all(|member| seen.insert((&member.value, &member.mask))) {
        return Err(already_exists(format!("{}: a member twice", set.name)));
    }
    session.execute(Request::SetValueSet { set: set.number, members: members.clone() })?;
    session.state.value_sets.insert(id, keys);
    Ok(())
}

pub fn read(session: &mut Session, filter: &ValueSetEntry, found: &mut Entities) -> Result<()> {
    if filter.value_set_id != 0 {
        lookup(&session.pipeline.value_sets, filter.value_set_id, "value set")?;
    }
    for (id, set) in &session.pipeline.value_sets {
        if filter.value_set_id == 0 || filter.value_set_id == *id {
            let keys = session.state.value_sets.get(id).map_or(&[][..], Vec::as_slice);
            let members = keys.iter().map(|key| ValueSetMember { r#match: encode_key(&set.keys, key) });
            found
                .push(Kind::ValueSetEntry(ValueSetEntry { value_set_id: *id, members: members.collect() }))?;
        }
    }
    Ok(())
}
