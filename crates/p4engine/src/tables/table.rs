// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! A table as it runs: entries in slots, found by what fits the kinds of its keys.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;

use crate::control::refusal::Refused;
use crate::control::{Count, Entry, EntryState, Refusal, Target};
use crate::ir::{self, ActionId, Match, MatchKind, Next, Pc, Program, TableId};
use crate::tables::call::Call;
use crate::tables::hash_map::WordMap;
use crate::tables::key::{Encoded, Layout};
use crate::tables::lpm_trie::Trie;
use crate::tables::meter::Meter;
use crate::tables::tuple_space::Tuples;

#[derive(Debug, Clone)]
pub(crate) enum Reaction {
    Call(Call),
    Member(u32),
    Group(u32),
}

/// What a hit changes, if its table counts, measures or watches.
#[derive(Debug, Clone, Default)]
pub(crate) struct Slot {
    pub count: Count,
    pub meter: Option<Meter>,
    /// None: never, and its time-out counts from the first time that somebody asks.
    pub last_hit_us: Option<u64>,
    /// When the control plane was told last that it is idle, which it is again after another time-out.
    pub told_us: u64,
}

/// What only the control plane sees.
#[derive(Debug, Clone)]
struct Record {
    entry: Entry,
    encoded: Encoded,
    sequence: u64,
}

#[derive(Debug, Clone)]
enum Search {
    None,
    Exact(WordMap),
    /// What matches exactly leads to a root.
    Prefix {
        roots: WordMap,
        trie: Trie,
    },
    Ternary(Tuples),
}

#[derive(Debug, Clone)]
pub(crate) struct Table {
    pub layout: Layout,
    search: Search,
    /// By entry, apart from the slots: of most tables a packet touches nothing else.
    pub reactions: Vec<Reaction>,
    pub slots: Vec<Slot>,
    records: Vec<Option<Record>>,
    /// Where the next look for idle entries begins: who stands behind many others has its turn, too.
    look_from: usize,
    unused: Vec<u32>,
    order: BTreeMap<u64, u32>,
    sequence: u64,
    max_size: usize,
    pub default: Option<Reaction>,
    pub actions: Vec<ActionId>,
    next: Next,
    pub profile: u16,
    /// Its index among the tables of its profile.
    pub place: u16,
    pub counted: bool,
    pub timed: bool,
    /// A hit changes its slot.
    pub watched: bool,
    pub meter: Option<u16>,
    /// The first of its actions' reasons to drop.
    pub drops: u32,
    /// The entry that matched last.
    pub last: Option<u32>,
}

impl Table {
    pub fn new(program: &Program, table: &ir::Table, drops: u32, place: u16) -> Table {
        let layout = Layout::new(program, table);
        let has = |kinds: &[MatchKind]| table.keys.iter().any(|key| kinds.contains(&key.kind));
        let search = if has(&[MatchKind::Ternary, MatchKind::Range, MatchKind::Optional]) {
            Search::Ternary(Tuples::new())
        } else if has(&[MatchKind::Lpm]) {
            Search::Prefix { roots: WordMap::new(layout.prefix_word), trie: Trie::default() }
        } else if layout.words > 0 {
            Search::Exact(WordMap::new(layout.words))
        } else {
            Search::None
        };
        Table {
            layout,
            search,
            reactions: Vec::new(),
            slots: Vec::new(),
            records: Vec::new(),
            look_from: 0,
            unused: Vec::new(),
            order: BTreeMap::new(),
            sequence: 0,
            max_size: table.max_size as usize,
            default: None,
            actions: table.actions.clone(),
            next: table.next.clone(),
            profile: table.profile.unwrap_or(u16::MAX),
            place,
            counted: table.counter.is_some(),
            timed: table.idle_timeout,
            watched: table.counter.is_some() || table.idle_timeout || table.meter.is_some(),
            meter: table.meter,
            drops,
            last: None,
        }
    }

    pub fn ternary(&self) -> bool {
        matches!(self.search, Search::Ternary(_))
    }

    /// The entry that fits the packet in `area`; `keys` is twice as long as the longest key.
    #[inline]
    pub fn find(&self, area: &[u8], keys: &mut [u64]) -> Option<u32> {
        let (key, masked) = keys.split_at_mut_checked(keys.len() / 2)?;
        let key = key.get_mut(..self.layout.words)?;
        match &self.search {
            Search::None => None,
            Search::Exact(map) => {
                self.layout.read(area, key);
                map.get(key)
            }
            Search::Prefix { roots, trie } => {
                self.layout.read(area, key);
                let (exact, prefix) = key.split_at_checked(self.layout.prefix_word)?;
                trie.find(roots.get(exact)?, prefix)
            }
            Search::Ternary(tuples) => {
                self.layout.read(area, key);
                tuples.find(&self.layout, key, masked)
            }
        }
    }

    /// Where an action's `next` stands, and its reason to drop.
    #[inline]
    pub fn position(&self, action: ActionId) -> usize {
        self.actions.iter().position(|other| *other == action).unwrap_or(0)
    }

    /// Where the control goes on after an action (by its position; None: there was none).
    #[inline]
    pub fn next(&self, position: Option<usize>, hit: bool) -> Pc {
        match &self.next {
            Next::ByAction { to, none } => {
                position.and_then(|position| to.get(position)).copied().unwrap_or(*none)
            }
            Next::ByHit { hit: to, .. } if hit => *to,
            Next::ByHit { miss, .. } => *miss,
        }
    }

    fn locate(&self, encoded: &Encoded, priority: u32) -> Option<u32> {
        let prefix_word = self.layout.prefix_word;
        match &self.search {
            Search::None => None,
            Search::Exact(map) => map.get(&encoded.key),
            Search::Prefix { roots, trie } => {
                let (exact, prefix) = encoded.key.split_at_checked(prefix_word)?;
                trie.get(roots.get(exact)?, prefix, encoded.prefix)
            }
            Search::Ternary(tuples) => tuples.get(encoded, priority),
        }
    }

    pub fn encode(&self, matches: &[Match], priority: u32) -> Result<Encoded, Refused> {
        if priority != 0 && !self.ternary() {
            return Err((Refusal::InvalidArgument, "its table knows no priorities".into()));
        }
        if matches!(self.search, Search::None) {
            return Err((Refusal::InvalidArgument, "its table has no key".into()));
        }
        self.layout.encode(matches)
    }

    /// The slot of an entry.
    pub fn entry(&self, matches: &[Match], priority: u32) -> Result<u32, Refused> {
        let encoded = self.encode(matches, priority)?;
        self.locate(&encoded, priority).ok_or_else(|| (Refusal::NotFound, "no such entry".into()))
    }

    pub fn insert(&mut self, entry: &Entry, reaction: Reaction) -> Result<(), Refused> {
        let encoded = self.encode(&entry.matches, entry.priority)?;
        if self.locate(&encoded, entry.priority).is_some() {
            return Err((Refusal::AlreadyExists, "an entry with these matches exists".into()));
        }
        if self.order.len() >= self.max_size {
            let text = format!("the table is full: {} entries", self.max_size);
            return Err((Refusal::ResourceExhausted, text));
        }
        let number = match self.unused.pop() {
            Some(number) => number,
            None => {
                self.slots.push(Slot::default());
                self.reactions.push(reaction.clone());
                self.records.push(None);
                self.slots.len() as u32 - 1
            }
        };
        self.sequence += 1;
        self.index(&encoded, entry.priority, number);
        self.order.insert(self.sequence, number);
        let entry = Entry { matches: encoded.matches.clone(), ..entry.clone() };
        let record = Record { entry, encoded, sequence: self.sequence };
        self.put(number, reaction);
        self.slots.get_mut(number as usize).into_iter().for_each(|slot| *slot = Slot::default());
        if let Some(place) = self.records.get_mut(number as usize) {
            *place = Some(record);
        }
        Ok(())
    }

    fn put(&mut self, number: u32, reaction: Reaction) {
        if let Some(place) = self.reactions.get_mut(number as usize) {
            *place = reaction;
        }
    }

    fn index(&mut self, encoded: &Encoded, priority: u32, number: u32) {
        let prefix_word = self.layout.prefix_word;
        match &mut self.search {
            Search::None => {}
            Search::Exact(map) => map.insert(&encoded.key, number),
            Search::Prefix { roots, trie } => {
                let (exact, prefix) = encoded.key.split_at(prefix_word.min(encoded.key.len()));
                let root = roots.get(exact).unwrap_or_else(|| {
                    let root = trie.root();
                    roots.insert(exact, root);
                    root
                });
                trie.insert(root, prefix, encoded.prefix, number);
            }
            Search::Ternary(tuples) => tuples.insert(encoded, priority, self.sequence, number),
        }
    }

    pub fn modify(&mut self, entry: &Entry, reaction: Reaction) -> Result<(), Refused> {
        let number = self.entry(&entry.matches, entry.priority)?;
        self.put(number, reaction);
        if let Some(Some(record)) = self.records.get_mut(number as usize) {
            record.entry.target = entry.target.clone();
            record.entry.idle_us = entry.idle_us;
        }
        Ok(())
    }

    pub fn delete(&mut self, matches: &[Match], priority: u32) -> Result<(), Refused> {
        let number = self.entry(matches, priority)?;
        let Some(record) = self.records.get_mut(number as usize).and_then(Option::take) else {
            return Ok(());
        };
        let prefix_word = self.layout.prefix_word;
        match &mut self.search {
            Search::None => {}
            Search::Exact(map) => drop(map.remove(&record.encoded.key)),
            Search::Prefix { roots, trie } => {
                let (exact, prefix) = record.encoded.key.split_at(prefix_word.min(record.encoded.key.len()));
                let root = roots.get(exact).unwrap_or(u32::MAX);
                if trie.remove(root, prefix, record.encoded.prefix) {
                    roots.remove(exact);
                    trie.give_back(root);
                }
            }
            Search::Ternary(tuples) => tuples.remove(&record.encoded, number),
        }
        self.order.remove(&record.sequence);
        self.unused.push(number);
        self.last = self.last.filter(|last| *last != number);
        Ok(())
    }

    pub fn state(&self, number: u32) -> Option<EntryState> {
        let (slot, record) = (self.slots.get(number as usize)?, self.records.get(number as usize)?.as_ref()?);
        Some(EntryState {
            entry: record.entry.clone(),
            count: self.counted.then_some(slot.count),
            rates: slot.meter.map(|meter| meter.rates()),
            last_hit_us: slot.last_hit_us.unwrap_or(0),
        })
    }

    /// In the order in which they were inserted.
    pub fn entries(&self) -> impl Iterator<Item = EntryState> + '_ {
        self.order.values().filter_map(|number| self.state(*number))
    }

    /// Whether an entry, or the default, names it.
    pub fn uses(&self, target: &Target) -> bool {
        let default = match (&self.default, target) {
            (Some(Reaction::Member(one)), Target::Member(other)) => one == other,
            (Some(Reaction::Group(one)), Target::Group(other)) => one == other,
            _ => false,
        };
        default || self.records.iter().flatten().any(|record| record.entry.target == *target)
    }

    /// Entries that neither matched nor were told for as long as they may: their timers begin anew.
    pub fn idle(
        &mut self,
        now_us: u64,
        table: TableId,
        most: usize,
        found: &mut Vec<(TableId, Vec<Match>, u32)>,
    ) {
        if !self.timed {
            return;
        }
        let begin = core::mem::take(&mut self.look_from).min(self.slots.len());
        for number in (begin..self.slots.len()).chain(0..begin) {
            let (Some(slot), Some(Some(record))) = (self.slots.get_mut(number), self.records.get(number))
            else {
                continue;
            };
            let since = (*slot.last_hit_us.get_or_insert(now_us)).max(slot.told_us);
            if record.entry.idle_us == 0 || now_us.saturating_sub(since) < record.entry.idle_us {
                continue;
            }
            if found.len() >= most {
                self.look_from = number;
                return;
            }
            slot.told_us = now_us;
            found.push((table, record.entry.matches.clone(), record.entry.priority));
        }
    }
}
