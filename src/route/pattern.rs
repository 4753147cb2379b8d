//! Patterns of hosts and paths, as written in the file.

mod host;
mod path;

pub use host::{HostPattern, bare_host};
pub use path::PathPattern;
pub(super) use path::Segment;

/// What is wrong with a pattern, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PatternFault {
    /// What is wrong.
    pub message: String,
    /// What would be right.
    pub help: String,
}

fn fault<T>(message: impl Into<String>, help: impl Into<String>) -> Result<T, PatternFault> {
    Err(PatternFault { message: message.into(), help: help.into() })
}
