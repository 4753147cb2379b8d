//! How a connection to a backend ends before its answer, and what that says of the request.

/// How a connection ended before its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AbortReason {
    /// Whatever the reason.
    Lost,
    /// The backend gave up this very request.
    Aborted,
    /// It closes the connection, and has done nothing with the request.
    Closing,
    /// It has done nothing with the request, since it has too many of them.
    Busy,
}

impl AbortReason {
    /// Whether the backend has done nothing with the request.
    pub(super) fn is_refusal(self) -> bool {
        matches!(self, Self::Closing | Self::Busy)
    }
}
