// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! The state of a program across packets, and its registers.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;

use crate::arith::bits::Place;
use crate::control::{CloneSession, Count, Replica, SetMember, Totals};
use crate::exec::context::Context;
use crate::ir::{ActionCall, Program, MAX_REGISTERS};
use crate::lower::metadata::METADATA_ARGUMENTS;
use crate::lower::Code;
use crate::native::cache::Block;
use crate::native::Span;
use crate::tables::call::{argument_count, Call, FEW};
use crate::tables::key::KEY_WORDS;
use crate::tables::meter::Meter;
use crate::tables::Table;
use crate::verify::InvalidProgram;

pub(crate) type Registers = Box<[i128; MAX_REGISTERS]>;

/// Limit on the memory of all arrays, counters and meters of a program.
const STATE_BYTES: u64 = 1 << 28;

/// Drop reasons outside of actions, as indices into `State::drops`.
pub(crate) const INGRESS: u32 = 0;
pub(crate) const EGRESS: u32 = 1;
pub(crate) const NO_GROUP: u32 = 2;
pub(crate) const LOOP_LIMIT: u32 = 3;
pub(crate) const FIRST_ACTION: u32 = 4;

#[derive(Debug)]
pub(crate) struct Array {
    pub width: u32,
    pub signed: bool,
    pub size: u32,
    /// Limbs of one value.
    pub limbs: usize,
    pub values: Vec<u64>,
}

impl Array {
    #[inline(always)]
    pub fn value(&self, index: i128) -> Option<&[u64]> {
        let index = u32::try_from(index).ok().filter(|index| *index < self.size)? as usize;
        self.values.get(index * self.limbs..(index + 1) * self.limbs)
    }

    #[inline(always)]
    pub fn value_mut(&mut self, index: i128) -> Option<&mut [u64]> {
        let index = u32::try_from(index).ok().filter(|index| *index < self.size)? as usize;
        self.values.get_mut(index * self.limbs..(index + 1) * self.limbs)
    }
}

#[derive(Debug)]
pub(crate) struct Meters {
    pub bytes: bool,
    pub table: Option<u16>,
    pub result: Option<Place>,
    pub meters: Vec<Option<Meter>>,
    /// Packets by color: green, yellow, red. An element without rates is green.
    pub colors: Vec<[u64; 3]>,
}

impl Meters {
    pub fn units(&self, context: &Context) -> u64 {
        if self.bytes {
            u64::from(context.arrived)
        } else {
            1
        }
    }
}

#[derive(Debug)]
pub(crate) struct Profile {
    pub selector: Option<u16>,
    pub members: BTreeMap<u32, Member>,
    /// Members of each group in ascending order, each repeated by its weight.
    pub groups: BTreeMap<u32, Vec<u32>>,
}

/// A member of an action profile.
#[derive(Debug)]
pub(crate) struct Member {
    /// The call that the control plane set.
    pub call: ActionCall,
    /// The call for each table of the profile, by `Table::profile_index`. None: the table does not have the action.
    pub calls: Vec<Option<Call>>,
}

impl Profile {
    /// A member's call in the table with this index.
    #[inline]
    pub fn call(&self, member: u32, profile_index: u16) -> Option<&Call> {
        self.members.get(&member)?.calls.get(usize::from(profile_index))?.as_ref()
    }

    /// The call of the member that a hash selects from a group.
    pub fn choose(&self, group: u32, hash: u64, profile_index: u16) -> Option<&Call> {
        let members = self.groups.get(&group)?;
        let index = hash.checked_rem(members.len() as u64)?;
        self.call(*members.get(index as usize)?, profile_index)
    }
}

#[derive(Debug)]
pub(crate) struct State {
    pub tables: Vec<Table>,
    pub profiles: Vec<Profile>,
    pub arrays: Vec<Array>,
    /// The arrays as machine code accesses them.
    pub array_spans: Vec<Span>,
    pub counters: Vec<Vec<Count>>,
    /// The counters as machine code accesses them.
    pub counter_spans: Vec<Span>,
    pub meters: Vec<Meters>,
    pub sets: Vec<Vec<SetMember>>,
    pub groups: BTreeMap<u16, Vec<Replica>>,
    pub sessions: BTreeMap<u16, CloneSession>,
    pub totals: Totals,
    /// Dropped packets by reason.
    pub drops: Vec<u64>,
    /// Calls of each round robin hash.
    pub round_robin: Vec<u64>,
    /// The latest time of a packet or of a request.
    pub now_us: u64,

    pub registers: Registers,
    pub wide: Vec<u64>,
    /// Arguments of the running action.
    pub arguments: Vec<u64>,
    /// Buffers for a key and a masked key.
    pub keys: Vec<u64>,
    pub buffer: Vec<u8>,
    /// Cached lookups of the tables.
    pub blocks: Vec<Block>,
}

/// Allocates zeroes. Fails if they exceed the memory that is left.
fn zeroes<T: Clone>(zero: T, count: u64, left: &mut u64) -> Result<Vec<T>, InvalidProgram> {
    let invalid =
        || InvalidProgram("registers, counters and meters need more memory than is available".into());
    let bytes = count.saturating_mul(size_of::<T>() as u64);
    *left = left.checked_sub(bytes).ok_or_else(invalid)?;
    let mut values = Vec::new();
    values.try_reserve_exact(count as usize).map_err(|_| invalid())?;
    values.resize(count as usize, zero);
    Ok(values)
}

impl State {
    pub fn new(program: &Program, code: &Code, buffer: usize) -> Result<State, InvalidProgram> {
        let mut left = STATE_BYTES;
        let mut arrays = Vec::new();
        for array in &program.arrays {
            let limbs = array.width.div_ceil(64);
            let values = zeroes(0u64, u64::from(array.size) * u64::from(limbs), &mut left)?;
            let (width, signed, size) = (array.width, array.signed, array.size);
            arrays.push(Array { width, signed, size, limbs: limbs as usize, values });
        }
        let mut counters = Vec::new();
        for counter in &program.counters {
            let size = if counter.table.is_some() { 0 } else { counter.size };
            counters.push(zeroes(Count::default(), size.into(), &mut left)?);
        }
        let mut meters = Vec::new();
        for meter in &program.meters {
            let size = if meter.table.is_some() { 0 } else { meter.size };
            let meters_ = zeroes(None, size.into(), &mut left)?;
            let colors = zeroes([0; 3], size.into(), &mut left)?;
            let result = meter.result.map(|field| code.place(field));
            meters.push(Meters { bytes: meter.bytes, table: meter.table, result, meters: meters_, colors });
        }
        let mut drops = FIRST_ACTION;
        let mut tables = Vec::new();
        for table in &program.tables {
            let profile = table.profile.unwrap_or(u16::MAX);
            let profile_index =
                tables.iter().filter(|other: &&Table| other.profile == profile).count() as u16;
            tables.push(Table::new(program, table, drops, profile_index));
            drops += table.actions.len() as u32;
        }
        let arguments = program.actions.iter().map(argument_count);
        let profiles = program.profiles.iter().map(|profile| Profile {
            selector: profile.selector,
            members: BTreeMap::new(),
            groups: BTreeMap::new(),
        });
        Ok(State {
            tables,
            profiles: profiles.collect(),
            array_spans: arrays.iter().map(|array: &Array| Span::new(&array.values)).collect(),
            arrays,
            counter_spans: counters.iter().map(|counts: &Vec<Count>| Span::new(counts)).collect(),
            counters,
            meters,
            sets: program.value_sets.iter().map(|_| Vec::new()).collect(),
            groups: BTreeMap::new(),
            sessions: BTreeMap::new(),
            totals: Totals::default(),
            drops: alloc::vec![0; drops as usize],
            round_robin: alloc::vec![0; program.hashes.len()],
            now_us: 0,
            registers: registers(),
            wide: alloc::vec![0; usize::from(program.wide_registers) * usize::from(program.wide_limbs)],
            arguments: alloc::vec![0; arguments.max().unwrap_or(0).max(FEW).max(METADATA_ARGUMENTS)],
            keys: alloc::vec![0; 2 * KEY_WORDS],
            buffer: Vec::with_capacity(buffer),
            blocks: Vec::new(),
        })
    }

    /// Sets the first arguments. There is space for `METADATA_ARGUMENTS`.
    #[inline(always)]
    pub fn set_arguments<const N: usize>(&mut self, arguments: [u64; N]) {
        self.arguments.first_chunk_mut().into_iter().for_each(|first| *first = arguments);
    }

    pub fn count_drop(&mut self, reason: u32) {
        if let Some(count) = self.drops.get_mut(reason as usize) {
            *count = count.wrapping_add(1);
        }
    }

    /// The counters with the drop reasons by name.
    pub fn totals(&self, program: &Program) -> Totals {
        let mut totals = self.totals.clone();
        let mut names = alloc::vec![
            "marked in ingress, outside of tables".into(),
            "marked in egress, outside of tables".into(),
            "no such multicast group".into(),
            "an action that looped too often".into()
        ];
        for table in &program.tables {
            for action in &table.actions {
                let action = program.actions.get(usize::from(*action)).map_or("", |action| &action.name);
                names.push(format!("table {}, action {action}", table.name));
            }
        }
        let drops = names.into_iter().zip(&self.drops).filter(|(_, count)| **count > 0);
        totals.drops = drops.map(|(name, count)| (name, *count)).collect();
        totals
    }
}

fn registers() -> Registers {
    let zeroes = alloc::vec![0; MAX_REGISTERS].into_boxed_slice();
    zeroes.try_into().unwrap_or_else(|_| Box::new([0; MAX_REGISTERS]))
}
