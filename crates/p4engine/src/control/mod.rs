// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! What the control plane asks of a running program, and what it is told: one request, one answer.
//!
//! The same in user space (a call) and of the engine in the guest's kernel (bytes, postcard). Objects go by their number in the
//! program: the front end knows names. A request is carried out whole or not at all.

mod messages;
pub(crate) mod refusal;

pub use messages::*;
