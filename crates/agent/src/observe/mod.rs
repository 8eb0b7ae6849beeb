// SPDX-License-Identifier: Apache-2.0
//! What is measured beside the flows: queues, packets, counters, routes, and how late the clock ran.

pub mod capture;
pub mod counters;
pub mod devices;
pub mod forwarding;
pub mod lateness;
pub mod routelog;
pub mod statistics;
pub mod taps;
pub mod windows;
