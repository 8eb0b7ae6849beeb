// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Results of requests inside the engine.

use alloc::format;
use alloc::string::String;

use crate::control::{Answer, Refusal};

pub(crate) type Refused = (Refusal, String);

pub(crate) type RequestResult = Result<Answer, Refused>;

pub(crate) fn refuse<T>(refusal: Refusal, text: &str) -> Result<T, Refused> {
    Err((refusal, text.into()))
}

pub(crate) fn not_found<T>(what: &str, number: impl core::fmt::Display) -> Result<T, Refused> {
    Err((Refusal::NotFound, format!("there is no {what} {number}")))
}
