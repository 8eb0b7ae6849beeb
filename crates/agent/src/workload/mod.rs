// SPDX-License-Identifier: Apache-2.0
//! From workloads to flows.

pub mod draws;
pub mod schedule;
