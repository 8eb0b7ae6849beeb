// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! The error of a program that cannot run.

use alloc::format;
use alloc::string::String;

/// A program that cannot run, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unfit(pub String);

pub(crate) type Checked = Result<(), Unfit>;

pub(crate) fn unfit<T>(text: alloc::string::String) -> Result<T, Unfit> {
    Err(Unfit(text))
}

pub(super) fn must(fits: bool, what: &str, number: impl core::fmt::Display) -> Checked {
    if fits {
        Ok(())
    } else {
        unfit(format!("{what}: {number}"))
    }
}
