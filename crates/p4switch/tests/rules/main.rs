// SPDX-License-Identifier: Apache-2.0
//! The schemes' programs against their rules: queues, times and random numbers are the test's, packet by packet.
//!
//! Each rule is written once more, as the kernel's switch or the paper has it. What a queue's length does not matter for
//! is in schemes/*/p4/tests/*.stf.

mod abq;
mod balance;
mod bench;
mod codel;
mod qcn;
mod rpm;
