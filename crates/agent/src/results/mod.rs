// SPDX-License-Identifier: Apache-2.0
//! Result files: flows with their samples, exchanges and the status of the lab. The files of measurements are written
//! in `observe`.

pub mod exchanges;
pub mod files;
pub mod flow_samples;
pub mod flows;
