// SPDX-License-Identifier: Apache-2.0
//! Measurements besides the flows: queues, packets, counters, routes, and the lateness of deadlines.

pub mod capture;
pub mod counters;
pub mod devices;
pub mod forwarding;
pub mod lateness;
pub mod route_log;
pub mod statistics;
pub mod taps;
pub mod windows;
