// SPDX-License-Identifier: Apache-2.0
//! Result files: flows, exchanges and the status of the lab. The files of measurements are written in `observe`.

pub mod exchanges;
pub mod files;
pub mod flows;
