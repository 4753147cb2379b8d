//! Patterns of hosts and paths, and regular expressions, as written in the file.

mod host;
mod matcher;
mod path;
mod regex;

pub use host::{HostPattern, bare_host, normal_authority};
pub use matcher::PathMatcher;
pub use path::PathPattern;
pub(super) use path::Segment;
pub use regex::PathRegex;
pub(super) use regex::{MAX_COMPILED, MAX_REGEX, reason};

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
