// SPDX-License-Identifier: Apache-2.0
//! The control channel between the host and the agent: JSON lines over the gate (docs/formats.md §2).

pub mod gate;
pub mod message;
