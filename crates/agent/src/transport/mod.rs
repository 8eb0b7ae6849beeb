// SPDX-License-Identifier: Apache-2.0
//! How flows cross the network.

pub mod cbr;
pub mod tcp;
