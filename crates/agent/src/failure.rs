// SPDX-License-Identifier: Apache-2.0
//! The agent's error: one sentence that names the plan's object and what went wrong with it.

use std::fmt;

/// A failure that ends the lab. It goes to `done.json` and to the console as it is displayed.
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

/// Names the object to which an error belongs.
pub trait Of<T> {
    fn of(self, object: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: fmt::Display> Of<T> for std::result::Result<T, E> {
    fn of(self, object: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|cause| Failure(format!("{}: {cause}", object())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_object_and_cause() {
        let error: std::result::Result<(), _> = Err("File exists");
        let failure = error.of(|| "link h1-s1".into()).unwrap_err();
        assert_eq!(failure.to_string(), "link h1-s1: File exists");
    }
}
