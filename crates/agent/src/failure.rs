// SPDX-License-Identifier: Apache-2.0
//! The agent's error type: one sentence with the object of the plan and the cause.

use std::fmt;

/// An error that ends the lab. Its text is written to `done.json` and to the console.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure(String);

pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    pub fn new(sentence: impl Into<String>) -> Self {
        Self(sentence.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Adds the object that an error is about.
pub trait Context<T> {
    fn with_context(self, object: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: fmt::Display> Context<T> for std::result::Result<T, E> {
    fn with_context(self, object: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|cause| Failure(format!("{}: {cause}", object())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_has_object_and_cause() {
        let error: std::result::Result<(), _> = Err("File exists");
        let failure = error.with_context(|| "link h1-s1".into()).unwrap_err();
        assert_eq!(failure.to_string(), "link h1-s1: File exists");
    }
}
