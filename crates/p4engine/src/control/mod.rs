// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Requests of the control plane to a running program. Each has one answer.
//!
//! User space passes them by a call, and the engine in the guest's kernel gets them as bytes (postcard). They refer to
//! objects by their index in the program. A request is executed completely or not at all.

mod messages;
pub(crate) mod refusal;

pub use messages::*;
