// SPDX-License-Identifier: Apache-2.0
//! The error of a program that cannot be loaded.

use std::fmt;

/// Why a program cannot be loaded, and the place in its JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadError {
    /// Outermost first.
    place: Vec<String>,
    reason: String,
}

pub type Result<T> = std::result::Result<T, LoadError>;

impl LoadError {
    pub fn new(reason: impl Into<String>) -> Self {
        Self { place: Vec::new(), reason: reason.into() }
    }

    #[must_use]
    pub fn within(mut self, place: impl Into<String>) -> Self {
        self.place.insert(0, place.into());
        self
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        for place in &self.place {
            write!(to, "{place}: ")?;
        }
        write!(to, "{}", self.reason)
    }
}

impl std::error::Error for LoadError {}

/// Adds a place to an error.
pub(crate) trait At<T> {
    fn at(self, place: impl FnOnce() -> String) -> Result<T>;
}

impl<T> At<T> for Result<T> {
    fn at(self, place: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| error.within(place()))
    }
}

/// A `LoadError` as a result.
pub(crate) fn refuse<T>(reason: impl Into<String>) -> Result<T> {
    Err(LoadError::new(reason))
}
