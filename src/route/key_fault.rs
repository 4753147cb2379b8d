//! The fault of a key or an exemption.

/// The fault of a key or an exemption, and its remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct KeyFault {
    /// The fault.
    pub message: String,
    /// The remedy.
    pub help: String,
}

impl KeyFault {
    pub(super) fn new<T>(message: impl Into<String>, help: impl Into<String>) -> Result<T, Self> {
        Err(Self { message: message.into(), help: help.into() })
    }
}
