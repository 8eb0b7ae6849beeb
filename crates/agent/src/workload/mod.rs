// SPDX-License-Identifier: Apache-2.0
//! Expands workloads to flows: source, destination, size and start of each, and which of them are local.

pub mod draws;
pub mod ports;
pub mod schedule;
