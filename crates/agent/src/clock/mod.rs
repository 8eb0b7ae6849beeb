// SPDX-License-Identifier: Apache-2.0
//! Time: what has to happen when.

pub mod agenda;
