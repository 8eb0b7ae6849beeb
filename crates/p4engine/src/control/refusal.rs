// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Results of requests inside the engine.

use alloc::format;
use alloc::string::String;

use crate::control::{Answer, Refusal};

/// A refusal with its message.
pub(crate) type Refused = (Refusal, String);

pub(crate) type RequestResult = Result<Answer, Refused>;

/// Refuses a request with a message.
pub(crate) fn refuse<T>(refusal: Refusal, text: &str) -> Result<T, Refused> {
    Err((refusal, text.into()))
}

/// Refuses a request for an object that does not exist.
pub(crate) fn not_found<T>(object: &str, index: impl core::fmt::Display) -> Result<T, Refused> {
    Err((Refusal::NotFound, format!("there is no {object} {index}")))
}
