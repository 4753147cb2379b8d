//! Patterns of hosts and paths.

/// `api.example.com` or `*.example.com`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPattern {}

/// `/a` exact · `/a/{id}` one segment · `/a/*` this and all below.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPattern {}

/// What is wrong with a pattern, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PatternFault {
    /// What is wrong.
    pub message: String,
    /// What would be right.
    pub help: String,
}

impl HostPattern {
    /// Parses a host as written in the file; compared lower-case, without final dot.
    pub fn parse(_text: &str) -> Result<Self, PatternFault> {
        Ok(Self {})
    }
}

impl PathPattern {
    /// Parses a path pattern as written in the file. The pattern is normalised as requests are.
    pub fn parse(_text: &str) -> Result<Self, PatternFault> {
        Ok(Self {})
    }

    /// Whether a normalised path matches.
    pub fn matches(&self, _path: &str) -> bool {
        false
    }
}
