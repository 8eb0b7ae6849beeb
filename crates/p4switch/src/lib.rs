// SPDX-License-Identifier: Apache-2.0
//! The P4 engine's front end: compiles BMv2's JSON and runs it as a switch.
//!
//! `load` compiles the JSON to the engine's program; its errors name the object and its place. `check` prints a summary
//! of a program.

pub mod bench;
pub mod bmv2;
pub mod check;
pub mod error;
pub mod load;
pub mod printable;
pub mod replay;
#[cfg(feature = "command")]
pub mod serve;
pub mod stf;
pub mod switch;
