//! A fault for people.

use thiserror::Error;

/// Why logs cannot be read at all: what is wrong, and the remedy.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{what}; {remedy}")]
pub struct LogFault {
    /// What is wrong, and where.
    pub what: String,
    /// What to do.
    pub remedy: String,
}

impl LogFault {
    pub(super) fn new(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { what: what.into(), remedy: remedy.into() }
    }
}
