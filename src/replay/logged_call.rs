//! Lines of a log of tollgate that are about a call of another proxy or an application, not about a request.

use crate::log_reader::request::LoggedRequest;
use crate::plan::decision::{CALL_OF_DESCRIPTORS, CALL_OF_LIMITS};

/// What a line is about.
pub(super) enum LoggedCall {
    /// The head of a call on descriptors, with a method that requests have.
    OfDescriptors(Vec<u8>),
    OfLimits,
}

impl LoggedCall {
    /// `None`: it is about a request.
    pub(super) fn of(logged: &LoggedRequest) -> Option<Self> {
        let after = |method: &str| logged.head.strip_prefix(method.as_bytes())?.strip_prefix(b" ");
        match (after(CALL_OF_DESCRIPTORS), after(CALL_OF_LIMITS)) {
            (Some(rest), _) => Some(Self::OfDescriptors([b"POST ", rest].concat())),
            (None, Some(_)) => Some(Self::OfLimits),
            (None, None) => None,
        }
    }
}
