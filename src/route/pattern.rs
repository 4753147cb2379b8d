//! Patterns of hosts and paths, as written in the file.

mod host;
mod path;

pub use host::{HostPattern, bare_host};
pub use path::PathPattern;
pub(super) use path::Segment;

/// The fault of a pattern, and its remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PatternFault {
    /// The fault.
    pub message: String,
    /// The remedy.
    pub help: String,
}

fn fault<T>(message: impl Into<String>, help: impl Into<String>) -> Result<T, PatternFault> {
    Err(PatternFault { message: message.into(), help: help.into() })
}
