// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Match-action tables: keys, search structures, entries.

pub(crate) mod call;
mod hash_map;
pub(crate) mod key;
mod lpm_trie;
pub(crate) mod meter;
mod table;
mod tuple_space;

pub(crate) use table::{EntryAction, Table};
