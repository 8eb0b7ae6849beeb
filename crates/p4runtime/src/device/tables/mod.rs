// SPDX-License-Identifier: Apache-2.0
//! Table entries, default entries, and their counters and meters (section "TableEntry").

mod read;
mod write;

use qbed_p4engine::control::{Answer, EntryState, Request};
use qbed_p4engine::program::{Match, TableId};

use super::{profiles, Session, PAGE};
use crate::error::{accepted, invalid, not_found, unexpected, RequestError, Result};
use crate::matches::decode_key;
use crate::pipeline::Table;
use crate::proto::p4::v1::TableEntry;

pub use read::{idle_entries, read, read_counters, read_meters};
pub use write::{clear, write, write_counter, write_meter};

/// Limit on an entry's metadata.
const MAX_METADATA: usize = 4096;

/// Properties of an entry that the engine does not have.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Annotations {
    metadata: Vec<u8>,
    controller_metadata: u64,
    /// As written by the controller. The engine has it in microseconds.
    idle_timeout_ns: i64,
    pub one_shot: Option<profiles::OneShot>,
}

pub fn table<'a>(session: &Session<'a>, id: u32) -> Result<&'a Table> {
    session.pipeline.tables.get(&id).ok_or_else(|| match id {
        0 => invalid("expected the id of a table"),
        id => not_found(format!("there is no table {id:#x}")),
    })
}

/// Key of an entry.
struct Key {
    matches: Vec<Match>,
    priority: u32,
}

fn key_of(table: &Table, entry: &TableEntry) -> Result<Key> {
    let matches = decode_key(&table.keys, &entry.r#match, &table.name)?;
    match (table.has_priorities(), u32::try_from(entry.priority)) {
        (true, Ok(priority @ 1..)) | (false, Ok(priority @ 0)) => Ok(Key { matches, priority }),
        (true, _) => Err(invalid(format!("{}: expected a priority of 1 or more", table.name))),
        (false, _) => Err(invalid(format!("{}: entries have no priority", table.name))),
    }
}

fn find(session: &mut Session, table: &Table, key: &Key) -> Result<Option<EntryState>> {
    let (matches, priority) = (key.matches.clone(), key.priority);
    match accepted(session.control.request(Request::Entry { table: table.number, matches, priority })) {
        Ok(Answer::Entries(mut entries)) => Ok(entries.pop()),
        Ok(other) => Err(unexpected(&other)),
        Err(RequestError { code: tonic::Code::NotFound, .. }) => Ok(None),
        Err(refused) => Err(refused),
    }
}

fn for_each(
    session: &mut Session,
    table: TableId,
    mut each: impl FnMut(&mut Session, EntryState) -> Result<()>,
) -> Result<()> {
    for from in (0..).step_by(PAGE as usize) {
        let page = match accepted(session.control.request(Request::Entries { table, from, limit: PAGE }))? {
            Answer::Entries(page) => page,
            other => return Err(unexpected(&other)),
        };
        let last = page.len() < PAGE as usize;
        page.into_iter().try_for_each(|state| each(session, state))?;
        if last {
            break;
        }
    }
    Ok(())
}
