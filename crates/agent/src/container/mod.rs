// SPDX-License-Identifier: Apache-2.0
//! A node's container (docs/formats.md §5): its entry point, and the program that speaks to it from inside.

pub mod exec;
mod relay;
pub mod supervisor;
