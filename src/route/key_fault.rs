//! What is wrong with a key or an exemption.

/// What is wrong with a key or an exemption, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct KeyFault {
    /// What is wrong.
    pub message: String,
    /// What would be right.
    pub help: String,
}

impl KeyFault {
    pub(super) fn new<T>(message: impl Into<String>, help: impl Into<String>) -> Result<T, Self> {
        Err(Self { message: message.into(), help: help.into() })
    }
}
