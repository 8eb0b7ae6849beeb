// SPDX-License-Identifier: Apache-2.0
//! The P4 engine's front end: BMv2's JSON in, a running switch out.
//!
//! `load` compiles the JSON to the engine's program, or says by name and place what cannot run. `check` tells people what a
//! program has.

pub mod bench;
pub mod bmv2;
pub mod check;
pub mod device;
pub mod error;
pub mod load;
pub mod replay;
#[cfg(feature = "command")]
pub mod serve;
pub mod stf;
pub mod switch;
