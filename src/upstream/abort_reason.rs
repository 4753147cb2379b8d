//! How a connection to a backend ends before its response, and what that implies for the request.

/// How a connection ended before its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AbortReason {
    /// The connection was lost for any reason.
    Lost,
    /// The backend aborted this one request.
    Aborted,
    /// The backend closes the connection, and has not processed the request.
    Closing,
    /// The backend has too many requests, and has not processed this one.
    Busy,
}

impl AbortReason {
    /// Whether the backend has not processed the request.
    pub(super) fn is_refusal(self) -> bool {
        matches!(self, Self::Closing | Self::Busy)
    }
}
