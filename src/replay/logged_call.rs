//! Lines of a log of tollgate that are about a call of another proxy or an application, not about a request.

use crate::log_reader::request::LoggedRequest;
use crate::plan::decision::{CALL_OF_DESCRIPTORS, CALL_OF_LIMITS};

/// What a line is about.
pub(super) enum LoggedCall {
    /// The head of a call on descriptors, with a method that requests have.
    OfDescriptors(Vec<u8>),
    /// The limits of a call that names them, as text.
    OfLimits(String),
}

impl LoggedCall {
    /// `None`: it is about a request.
    pub(super) fn of(logged: &LoggedRequest) -> Option<Self> {
        let after = |method: &str| logged.head.strip_prefix(method.as_bytes())?.strip_prefix(b" ");
        if let Some(rest) = after(CALL_OF_DESCRIPTORS) {
            return Some(Self::OfDescriptors([b"POST ", rest].concat()));
        }
        let path = after(CALL_OF_LIMITS)?.split(|byte| *byte == b' ').next()?;
        Some(Self::OfLimits(String::from_utf8_lossy(path).into_owned()))
    }
}
