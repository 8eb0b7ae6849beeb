// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! A table at run time: entries and the search structure for its match kinds.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;

use crate::control::refusal::Refused;
use crate::control::{Count, Entry, EntryState, Refusal, Target};
use crate::ir::{self, ActionId, Match, MatchKind, Next, Pc, Program, TableId};
use crate::native::cache::Lines;
use crate::tables::call::{argument_count, Call};

use crate::tables::hash_map::HashMap;
use crate::tables::key::{Encoded, Layout};
use crate::tables::lpm_trie::LpmTrie;
use crate::tables::meter::Meter;
use crate::tables::tuple_space::TupleSpace;

#[derive(Debug, Clone)]
pub(crate) enum EntryAction {
    Call(Call),
    Member(u32),
    Group(u32),
}

/// The state of an entry that a hit changes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Slot {
    pub count: Count,
    pub meter: Option<Meter>,
    /// None: the entry was never hit. Its time-out begins at the first query for idle entries.
    pub last_hit_us: Option<u64>,
    /// Time of the last report that the entry is idle. It is reported again after another time-out.
    pub reported_us: u64,
}

/// The part of an entry that only the control plane reads.
#[derive(Debug, Clone)]
struct Record {
    entry: Entry,
    encoded: Encoded,
    sequence: u64,
}

#[derive(Debug, Clone)]
enum Search {
    None,
    Exact(HashMap),
    /// The exact part of the key selects a root of the trie.
    Prefix {
        roots: HashMap,
        trie: LpmTrie,
    },
    Ternary(TupleSpace),
}

#[derive(Debug, Clone)]
pub(crate) struct Table {
    pub layout: Layout,
    search: Search,
    /// The action of each entry. It is separate from the slot because lookups in most tables access nothing else.
    pub entry_actions: Vec<EntryAction>,
    pub slots: Vec<Slot>,
    records: Vec<Option<Record>>,
    /// The entry at which the next query for idle entries begins.
    idle_cursor: usize,
    unused: Vec<u32>,
    order: BTreeMap<u64, u32>,
    sequence: u64,
    max_size: usize,
    pub default: Option<EntryAction>,
    pub actions: Vec<ActionId>,
    /// The largest number of arguments of an action.
    pub arguments: usize,
    next: Next,
    pub profile: u16,
    /// Index among the tables of the profile.
    pub profile_index: u16,
    pub has_counter: bool,
    pub has_timeout: bool,
    /// Whether a hit changes the slot.
    pub tracks_hits: bool,
    pub meter: Option<u16>,
    /// The drop reason of the first action. Those of the others follow.
    pub first_drop_reason: u32,
    /// The entry that matched last.
    pub last: Option<u32>,
    /// The table's lines in `State::blocks`. None: machine code does not look up the table.
    pub lines: Option<Lines>,
}

impl Table {
    pub fn new(program: &Program, table: &ir::Table, first_drop_reason: u32, profile_index: u16) -> Table {
        let layout = Layout::new(program, table);
        let has = |kinds: &[MatchKind]| table.keys.iter().any(|key| kinds.contains(&key.kind));
        let search = if has(&[MatchKind::Ternary, MatchKind::Range, MatchKind::Optional]) {
            Search::Ternary(TupleSpace::new())
        } else if has(&[MatchKind::Lpm]) {
            Search::Prefix { roots: HashMap::new(layout.prefix_word), trie: LpmTrie::default() }
        } else if layout.words > 0 {
            Search::Exact(HashMap::new(layout.words))
        } else {
            Search::None
        };
        let actions = table.actions.iter().filter_map(|action| program.actions.get(usize::from(*action)));
        Table {
            layout,
            search,
            entry_actions: Vec::new(),
            slots: Vec::new(),
            records: Vec::new(),
            idle_cursor: 0,
            unused: Vec::new(),
            order: BTreeMap::new(),
            sequence: 0,
            max_size: table.max_size as usize,
            default: None,
            actions: table.actions.clone(),
            arguments: actions.map(argument_count).max().unwrap_or(0),
            next: table.next.clone(),
            profile: table.profile.unwrap_or(u16::MAX),
            profile_index,
            has_counter: table.counter.is_some(),
            has_timeout: table.idle_timeout,
            tracks_hits: table.counter.is_some() || table.idle_timeout || table.meter.is_some(),
            meter: table.meter,
            first_drop_reason,
            last: None,
            lines: None,
        }
    }

    pub fn ternary(&self) -> bool {
        matches!(self.search, Search::Ternary(_))
    }

    /// The entry that matches the packet in `phv`. `keys` has twice the size of the longest key.
    #[inline]
    pub fn find(&self, phv: &[u8], keys: &mut [u64]) -> Option<u32> {
        let (key, masked) = keys.split_at_mut_checked(keys.len() / 2)?;
        let key = key.get_mut(..self.layout.words)?;
        match &self.search {
            Search::None => None,
            Search::Exact(map) => {
                self.layout.read(phv, key);
                map.get(key)
            }
            Search::Prefix { roots, trie } => {
                self.layout.read(phv, key);
                let (exact, prefix) = key.split_at_checked(self.layout.prefix_word)?;
                trie.find(roots.get(exact)?, prefix)
            }
            Search::Ternary(tuples) => {
                self.layout.read(phv, key);
                tuples.find(&self.layout, key, masked)
            }
        }
    }

    /// The index of an action in the lists of targets and of drop reasons.
    #[inline]
    pub fn position(&self, action: ActionId) -> usize {
        self.actions.iter().position(|other| *other == action).unwrap_or(0)
    }

    /// The instruction after the table. `position` is the action's. None: no action ran.
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
            return Err((Refusal::InvalidArgument, "the table has no priorities".into()));
        }
        if matches!(self.search, Search::None) {
            return Err((Refusal::InvalidArgument, "the table has no key".into()));
        }
        self.layout.encode(matches)
    }

    /// The index of an entry.
    pub fn entry(&self, matches: &[Match], priority: u32) -> Result<u32, Refused> {
        let encoded = self.encode(matches, priority)?;
        self.locate(&encoded, priority).ok_or_else(|| (Refusal::NotFound, "no such entry".into()))
    }

    pub fn insert(&mut self, entry: &Entry, action: EntryAction) -> Result<(), Refused> {
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
                self.entry_actions.push(action.clone());
                self.records.push(None);
                self.slots.len() as u32 - 1
            }
        };
        self.sequence += 1;
        self.index_entry(&encoded, entry.priority, number);
        self.order.insert(self.sequence, number);
        let entry = Entry { matches: encoded.matches.clone(), ..entry.clone() };
        let record = Record { entry, encoded, sequence: self.sequence };
        self.set_action(number, action);
        self.slots.get_mut(number as usize).into_iter().for_each(|slot| *slot = Slot::default());
        if let Some(old) = self.records.get_mut(number as usize) {
            *old = Some(record);
        }
        Ok(())
    }

    fn set_action(&mut self, number: u32, action: EntryAction) {
        if let Some(old) = self.entry_actions.get_mut(number as usize) {
            *old = action;
        }
    }

    fn index_entry(&mut self, encoded: &Encoded, priority: u32, number: u32) {
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

    pub fn modify(&mut self, entry: &Entry, action: EntryAction) -> Result<(), Refused> {
        let number = self.entry(&entry.matches, entry.priority)?;
        self.set_action(number, action);
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
                    trie.free_root(root);
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
            count: self.has_counter.then_some(slot.count),
            rates: slot.meter.map(|meter| meter.rates()),
            last_hit_us: slot.last_hit_us.unwrap_or(0),
        })
    }

    /// The entries in the order of insertion.
    pub fn entries(&self) -> impl Iterator<Item = EntryState> + '_ {
        self.order.values().filter_map(|number| self.state(*number))
    }

    /// Whether an entry or the default refers to a member or group.
    pub fn uses(&self, target: &Target) -> bool {
        let default = match (&self.default, target) {
            (Some(EntryAction::Member(member)), Target::Member(other)) => member == other,
            (Some(EntryAction::Group(group)), Target::Group(other)) => group == other,
            _ => false,
        };
        default || self.records.iter().flatten().any(|record| record.entry.target == *target)
    }

    /// Appends entries that were neither hit nor reported for their time-out, and restarts the time-outs.
    pub fn idle(
        &mut self,
        now_us: u64,
        table: TableId,
        max_entries: usize,
        found: &mut Vec<(TableId, Vec<Match>, u32)>,
    ) {
        if !self.has_timeout {
            return;
        }
        let begin = core::mem::take(&mut self.idle_cursor).min(self.slots.len());
        for number in (begin..self.slots.len()).chain(0..begin) {
            let (Some(slot), Some(Some(record))) = (self.slots.get_mut(number), self.records.get(number))
            else {
                continue;
            };
            let since = (*slot.last_hit_us.get_or_insert(now_us)).max(slot.reported_us);
            if record.entry.idle_us == 0 || now_us.saturating_sub(since) < record.entry.idle_us {
                continue;
            }
            if found.len() >= max_entries {
                self.idle_cursor = number;
                return;
            }
            slot.reported_us = now_us;
            found.push((table, record.entry.matches.clone(), record.entry.priority));
        }
    }
}
