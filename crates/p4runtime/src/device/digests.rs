// SPDX-License-Identifier: Apache-2.0
//! Digests: which are wanted, gathered into lists, and not told twice before the controller has acknowledged them
//! (section "DigestEntry").

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use super::arrays::lookup;
use super::{Entities, Session};
use crate::clock::since_epoch_ns;
use crate::error::{already_exists, invalid, not_found, Result};
use crate::pipeline::{Digest, Pipeline};
use crate::proto::p4::v1::digest_entry::Config;
use crate::proto::p4::v1::entity::Entity as Kind;
use crate::proto::p4::v1::update::Type;
use crate::proto::p4::v1::{DigestEntry, DigestList, DigestListAck};

/// Of a list, where the controller does not limit it.
const MAX_LIST_SIZE: usize = 1024;
/// Of messages that were told and not acknowledged; of more, the oldest lists are forgotten.
const MAX_UNACKNOWLEDGED: usize = 1 << 16;

#[derive(Default)]
pub struct Digests {
    wanted: BTreeMap<u32, Wanted>,
    last_list: u64,
}

struct Wanted {
    config: Config,
    /// Distinct, none of them told and unacknowledged.
    buffer: Vec<Vec<u8>>,
    /// When the first of them came.
    since: Option<Instant>,
    told: VecDeque<Told>,
    /// All that `buffer` and `told` hold.
    seen: HashSet<Vec<u8>>,
}

struct Told {
    list: u64,
    at: Instant,
    messages: Vec<Vec<u8>>,
}

fn nanoseconds(value: i64) -> Duration {
    Duration::from_nanos(value.try_into().unwrap_or(0))
}

impl Wanted {
    fn new(config: Config) -> Wanted {
        Wanted { config, buffer: vec![], since: None, told: VecDeque::new(), seen: HashSet::new() }
    }

    fn is_full(&self) -> bool {
        let most = match usize::try_from(self.config.max_list_size) {
            Ok(most @ 1..=MAX_LIST_SIZE) => most,
            _ => MAX_LIST_SIZE,
        };
        self.buffer.len() >= most
    }

    /// When its buffer is told, however full it is.
    fn due(&self) -> Option<Instant> {
        self.since.map(|since| since + nanoseconds(self.config.max_timeout_ns))
    }

    fn forget(&mut self, forgotten: impl Fn(&Told) -> bool) {
        let seen = &mut self.seen;
        self.told.retain(|told| {
            let gone = forgotten(told);
            if gone {
                told.messages.iter().for_each(|message| drop(seen.take(message)));
            }
            !gone
        });
    }

    fn tell(&mut self, id: u32, digest: &Digest, list: u64, now: Instant) -> DigestList {
        let messages = std::mem::take(&mut self.buffer);
        self.since = None;
        let data = messages.iter().filter_map(|message| digest.of.encode(&mut message.as_slice())).collect();
        if self.config.ack_timeout_ns > 0 {
            self.told.push_back(Told { list, at: now, messages });
            while self.seen.len() > MAX_UNACKNOWLEDGED {
                let Some(oldest) = self.told.front().map(|told| told.list) else { break };
                self.forget(|told| told.list == oldest);
            }
        } else {
            messages.iter().for_each(|message| drop(self.seen.take(message)));
        }
        DigestList { digest_id: id, list_id: list, data, timestamp: since_epoch_ns() }
    }
}

impl Digests {
    /// A message from the switch: maybe a list is ready now.
    pub fn add(
        &mut self,
        pipeline: &Pipeline,
        engine_id: u32,
        values: Vec<u8>,
        now: Instant,
    ) -> Option<DigestList> {
        let (id, digest) = pipeline.digests.iter().find(|(_, digest)| digest.engine_id == engine_id)?;
        let wanted = self.wanted.get_mut(id)?;
        let ack_timeout = nanoseconds(wanted.config.ack_timeout_ns);
        wanted.forget(|told| now >= told.at + ack_timeout);
        if !wanted.seen.insert(values.clone()) {
            return None;
        }
        wanted.buffer.push(values);
        wanted.since.get_or_insert(now);
        if !wanted.is_full() && wanted.config.max_timeout_ns > 0 {
            return None;
        }
        self.last_list += 1;
        Some(wanted.tell(*id, digest, self.last_list, now))
    }

    /// Lists that have waited long enough.
    pub fn due(&mut self, pipeline: &Pipeline, now: Instant) -> Vec<DigestList> {
        let mut lists = vec![];
        for (id, wanted) in &mut self.wanted {
            if let (true, Some(digest)) =
                (wanted.due().is_some_and(|due| due <= now), pipeline.digests.get(id))
            {
                self.last_list += 1;
                lists.push(wanted.tell(*id, digest, self.last_list, now));
            }
        }
        lists
    }

    /// When `due` has something next.
    pub fn next(&self) -> Option<Instant> {
        self.wanted.values().filter_map(Wanted::due).min()
    }

    pub fn acknowledge(&mut self, pipeline: &Pipeline, ack: &DigestListAck) -> Result<()> {
        if !pipeline.digests.contains_key(&ack.digest_id) {
            return Err(invalid(format!("there is no digest {:#x}", ack.digest_id)));
        }
        if let Some(wanted) = self.wanted.get_mut(&ack.digest_id) {
            wanted.forget(|told| told.list == ack.list_id);
        }
        Ok(())
    }
}

pub fn write(session: &mut Session, kind: Type, given: &DigestEntry) -> Result<()> {
    let id = given.digest_id;
    let name = &lookup(&session.pipeline.digests, id, "digest")?.name;
    let wanted = &mut session.state.digests.wanted;
    let config = given.config.unwrap_or_default();
    if config.max_timeout_ns < 0 || config.max_list_size < 0 || config.ack_timeout_ns < 0 {
        return Err(invalid(format!("{name}: a time-out or size below 0")));
    }
    match (kind, wanted.get_mut(&id)) {
        (Type::Insert, Some(_)) => return Err(already_exists(format!("{name} is wanted already"))),
        (Type::Insert, None) => drop(wanted.insert(id, Wanted::new(config))),
        (_, None) => return Err(not_found(format!("{name} is not wanted"))),
        (Type::Delete, Some(_)) => drop(wanted.remove(&id)),
        (_, Some(subscription)) => subscription.config = config,
    }
    Ok(())
}

pub fn read(session: &mut Session, filter: &DigestEntry, found: &mut Entities) -> Result<()> {
    if filter.digest_id != 0 {
        lookup(&session.pipeline.digests, filter.digest_id, "digest")?;
    }
    for (id, wanted) in &session.state.digests.wanted {
        if filter.digest_id == 0 || filter.digest_id == *id {
            found.push(Kind::DigestEntry(DigestEntry { digest_id: *id, config: Some(wanted.config) }))?;
        }
    }
    Ok(())
}
