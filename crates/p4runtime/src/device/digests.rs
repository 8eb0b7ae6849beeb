// SPDX-License-Identifier: Apache-2.0
//! Digests: collects messages into lists and suppresses duplicates until the controller acknowledges a list (section
//! "DigestEntry").

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

/// Size of a list if the controller does not limit it.
const MAX_LIST_SIZE: usize = 1024;
/// Limit on messages in lists that are not acknowledged. Beyond it, the oldest lists are dropped.
const MAX_UNACKNOWLEDGED: usize = 1 << 16;

#[derive(Default)]
pub struct Digests {
    subscriptions: BTreeMap<u32, Subscription>,
    last_list: u64,
}

/// A digest with a DigestEntry.
struct Subscription {
    config: Config,
    /// Messages of the next list.
    buffer: Vec<Vec<u8>>,
    /// Arrival of the first message in `buffer`.
    since: Option<Instant>,
    unacknowledged: VecDeque<SentList>,
    /// Messages in `buffer` and `unacknowledged`.
    seen: HashSet<Vec<u8>>,
}

struct SentList {
    id: u64,
    sent_at: Instant,
    messages: Vec<Vec<u8>>,
}

fn nanoseconds(value: i64) -> Duration {
    Duration::from_nanos(value.try_into().unwrap_or(0))
}

impl Subscription {
    fn new(config: Config) -> Subscription {
        Subscription {
            config,
            buffer: vec![],
            since: None,
            unacknowledged: VecDeque::new(),
            seen: HashSet::new(),
        }
    }

    fn is_full(&self) -> bool {
        let max_size = match usize::try_from(self.config.max_list_size) {
            Ok(max_size @ 1..=MAX_LIST_SIZE) => max_size,
            _ => MAX_LIST_SIZE,
        };
        self.buffer.len() >= max_size
    }

    /// When the buffer must be sent.
    fn due(&self) -> Option<Instant> {
        self.since.map(|since| since + nanoseconds(self.config.max_timeout_ns))
    }

    /// Drop sent lists, so that their messages are no longer suppressed.
    fn drop_lists(&mut self, is_dropped: impl Fn(&SentList) -> bool) {
        let seen = &mut self.seen;
        self.unacknowledged.retain(|list| {
            let dropped = is_dropped(list);
            if dropped {
                list.messages.iter().for_each(|message| drop(seen.take(message)));
            }
            !dropped
        });
    }

    /// Make a list of the buffer.
    fn make_list(&mut self, id: u32, digest: &Digest, list: u64, now: Instant) -> DigestList {
        let messages = std::mem::take(&mut self.buffer);
        self.since = None;
        let data =
            messages.iter().filter_map(|message| digest.data_type.encode(&mut message.as_slice())).collect();
        if self.config.ack_timeout_ns > 0 {
            self.unacknowledged.push_back(SentList { id: list, sent_at: now, messages });
            while self.seen.len() > MAX_UNACKNOWLEDGED {
                let Some(oldest) = self.unacknowledged.front().map(|list| list.id) else { break };
                self.drop_lists(|list| list.id == oldest);
            }
        } else {
            messages.iter().for_each(|message| drop(self.seen.take(message)));
        }
        DigestList { digest_id: id, list_id: list, data, timestamp: since_epoch_ns() }
    }
}

impl Digests {
    /// Add a message of the switch. Returns a list if one is ready.
    pub fn add(
        &mut self,
        pipeline: &Pipeline,
        engine_id: u32,
        values: Vec<u8>,
        now: Instant,
    ) -> Option<DigestList> {
        let (id, digest) = pipeline.digests.iter().find(|(_, digest)| digest.engine_id == engine_id)?;
        let subscription = self.subscriptions.get_mut(id)?;
        let ack_timeout = nanoseconds(subscription.config.ack_timeout_ns);
        subscription.drop_lists(|list| now >= list.sent_at + ack_timeout);
        if !subscription.seen.insert(values.clone()) {
            return None;
        }
        subscription.buffer.push(values);
        subscription.since.get_or_insert(now);
        if !subscription.is_full() && subscription.config.max_timeout_ns > 0 {
            return None;
        }
        self.last_list += 1;
        Some(subscription.make_list(*id, digest, self.last_list, now))
    }

    /// Lists with an expired timeout.
    pub fn due(&mut self, pipeline: &Pipeline, now: Instant) -> Vec<DigestList> {
        let mut lists = vec![];
        for (id, subscription) in &mut self.subscriptions {
            if let (true, Some(digest)) =
                (subscription.due().is_some_and(|due| due <= now), pipeline.digests.get(id))
            {
                self.last_list += 1;
                lists.push(subscription.make_list(*id, digest, self.last_list, now));
            }
        }
        lists
    }

    /// When the next list is due.
    pub fn next(&self) -> Option<Instant> {
        self.subscriptions.values().filter_map(Subscription::due).min()
    }

    pub fn acknowledge(&mut self, pipeline: &Pipeline, ack: &DigestListAck) -> Result<()> {
        if !pipeline.digests.contains_key(&ack.digest_id) {
            return Err(invalid(format!("there is no digest {:#x}", ack.digest_id)));
        }
        if let Some(subscription) = self.subscriptions.get_mut(&ack.digest_id) {
            subscription.drop_lists(|list| list.id == ack.list_id);
        }
        Ok(())
    }
}

pub fn write(session: &mut Session, kind: Type, given: &DigestEntry) -> Result<()> {
    let id = given.digest_id;
    let name = &lookup(&session.pipeline.digests, id, "digest")?.name;
    let subscriptions = &mut session.state.digests.subscriptions;
    let config = given.config.unwrap_or_default();
    if config.max_timeout_ns < 0 || config.max_list_size < 0 || config.ack_timeout_ns < 0 {
        return Err(invalid(format!("{name}: a negative timeout or size")));
    }
    match (kind, subscriptions.get_mut(&id)) {
        (Type::Insert, Some(_)) => return Err(already_exists(format!("{name} is configured already"))),
        (Type::Insert, None) => drop(subscriptions.insert(id, Subscription::new(config))),
        (_, None) => return Err(not_found(format!("{name} is not configured"))),
        (Type::Delete, Some(_)) => drop(subscriptions.remove(&id)),
        (_, Some(subscription)) => subscription.config = config,
    }
    Ok(())
}

pub fn read(session: &mut Session, filter: &DigestEntry, found: &mut Entities) -> Result<()> {
    if filter.digest_id != 0 {
        lookup(&session.pipeline.digests, filter.digest_id, "digest")?;
    }
    for (id, subscription) in &session.state.digests.subscriptions {
        if filter.digest_id == 0 || filter.digest_id == *id {
            found
                .push(Kind::DigestEntry(DigestEntry { digest_id: *id, config: Some(subscription.config) }))?;
        }
    }
    Ok(())
}
