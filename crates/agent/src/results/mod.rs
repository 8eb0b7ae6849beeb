// SPDX-License-Identifier: Apache-2.0
//! What the agent leaves: the results of flows here, all else where it is measured (`observe`).

pub mod exchanges;
pub mod files;
pub mod flows;
