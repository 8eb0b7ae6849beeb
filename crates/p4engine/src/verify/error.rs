// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! The error of a program that cannot run.

use alloc::format;
use alloc::string::String;

/// The reason why a program cannot run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidProgram(pub String);

pub(crate) type CheckResult = Result<(), InvalidProgram>;

pub(crate) fn invalid<T>(text: String) -> Result<T, InvalidProgram> {
    Err(InvalidProgram(text))
}

/// Fails with the message and its subject unless the condition is true.
pub(super) fn require(condition: bool, message: &str, subject: impl core::fmt::Display) -> CheckResult {
    if condition {
        Ok(())
    } else {
        invalid(format!("{message}: {subject}"))
    }
}
