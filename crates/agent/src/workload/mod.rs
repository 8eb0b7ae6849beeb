// SPDX-License-Identifier: Apache-2.0
//! From workloads to flows: who sends how much to whom and when, and what of it is here.

pub mod draws;
pub mod ports;
pub mod schedule;
