// SPDX-License-Identifier: Apache-2.0
//! Time: what the lab's clock says, what has to happen when, and the timer that wakes for it.

pub mod agenda;
pub mod page;
pub mod paper;
pub mod timer;
