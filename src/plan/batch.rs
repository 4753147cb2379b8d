//! What a JSON list in the body of a request is to its route.

use std::fmt;

use super::reject_reason::RejectReason;
use crate::route::content::{RequestContent, UnreadableBody};

/// What a JSON list in the body of a request is to its route.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BatchRule {
    /// A document: its limits count by none of its values, or by items of it. Where conditions on the body find the route,
    /// it is [`Self::Reject`].
    #[default]
    Document,
    /// Several calls where one is expected: 400.
    Reject,
    /// `batch = "each"`: several calls, each of which is charged.
    Each,
}

impl fmt::Display for BatchRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Document => "none",
            Self::Reject => "refused",
            Self::Each => "each",
        })
    }
}

impl BatchRule {
    /// The rule for a request whose route was found by its body: conditions look at one call.
    pub(super) fn of_body_route(self) -> Self {
        if self == Self::Document { Self::Reject } else { self }
    }

    /// Whether a request with this body can be charged.
    #[cold]
    pub(super) fn check(self, content: &RequestContent) -> Result<(), RejectReason> {
        match (self, content) {
            (Self::Reject, RequestContent::Batch(_)) => {
                Err(RejectReason::unreadable_body(UnreadableBody::Batch))
            }
            (Self::Each, RequestContent::Batch(batch)) if batch.calls().is_empty() => {
                Err(RejectReason::batch_size())
            }
            // Else calls could be hidden in it.
            (Self::Each, RequestContent::Unreadable(fault)) => Err(RejectReason::unreadable_body(*fault)),
            _ => Ok(()),
        }
    }
}
