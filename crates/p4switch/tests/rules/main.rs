// SPDX-License-Identifier: Apache-2.0
//! The schemes' programs against models of the kernel's switch or of the paper, packet by packet. The test controls
//! queues, time and random numbers.
//!
//! Tests that do not depend on a queue are in schemes/*/p4/tests/*.stf.

mod abq;
mod balance;
mod bench;
mod codel;
mod qcn;
mod rpm;
