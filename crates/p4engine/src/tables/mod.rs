// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Tables at run time.

pub(crate) mod call;
mod hash_map;
pub(crate) mod key;
mod lpm_trie;
pub(crate) mod meter;
mod table;
mod tuple_space;

pub(crate) use table::{Reaction, Table};
