// SPDX-License-Identifier: Apache-2.0
//! Lab time: the clock, the queue of deadlines, and the timer that wakes the engine.

pub mod agenda;
pub mod lab_clock;
pub mod page;
pub mod timer;
