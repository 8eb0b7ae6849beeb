// SPDX-License-Identifier: Apache-2.0
//! Programs of the machine that run in the lab's nodes.

pub mod children;
pub mod exec;
pub mod resident;
