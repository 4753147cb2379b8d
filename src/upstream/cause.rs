//! The cause of a failed attempt at a server, as named in logs and on the dashboard; and how a connection to a server
//! ends before its response, and what that implies for the request.

use std::io::ErrorKind;

use super::Failure;
use crate::labels::labels;

labels! {
    /// Why an attempt failed: as [`Failure`], with more detail for connection failures. Copied as one byte.
    pub(super) enum Cause {
        /// Nothing failed yet.
        Unknown = "unknown failure",
        /// The server's host refuses the connection.
        Refused = "connection refused",
        /// There is no route to the server.
        Unreachable = "no route to the server",
        /// The server's name has no address.
        Unresolved = "the name does not resolve",
        /// No connection, for another reason.
        Connect = "no connection",
        /// No connection within `connect_timeout`.
        ConnectTimeout = "no connection within `connect_timeout`",
        /// The TLS handshake failed.
        Tls = "TLS handshake failed",
        /// No response head within the route's `timeout`.
        Timeout = "no response within the route's `timeout`",
        /// The connection ended before the response head was complete.
        Reset = "connection closed before the response",
        /// The response is not valid HTTP.
        Protocol = "invalid response",
        /// A response with a status that is a failure.
        Status = "a status that is a failure",
    }
}

impl Cause {
    /// The cause of a failure; `error` is the operating system's error of a failed connection.
    pub(super) fn of(failure: Failure, error: ErrorKind) -> Self {
        match (failure, error) {
            (Failure::Connect, ErrorKind::ConnectionRefused) => Self::Refused,
            (Failure::Connect, ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable) => {
                Self::Unreachable
            }
            (Failure::Connect, ErrorKind::NotFound) => Self::Unresolved,
            (Failure::Connect, _) => Self::Connect,
            (Failure::ConnectTimeout, _) => Self::ConnectTimeout,
            (Failure::Tls, _) => Self::Tls,
            (Failure::Timeout, _) => Self::Timeout,
            (Failure::Reset, _) => Self::Reset,
            (Failure::Protocol, _) => Self::Protocol,
            (
                Failure::NoneHealthy
                | Failure::BreakerOpen
                | Failure::Full
                | Failure::NoWebSocket
                | Failure::Overrun
                | Failure::Upload,
                _,
            ) => Self::Unknown,
        }
    }

    /// The cause with this number; the inverse of [`Self::code`].
    pub(super) fn from_code(code: u8) -> Self {
        Self::ALL.get(usize::from(code)).copied().unwrap_or(Self::Unknown)
    }

    /// A number for an atomic.
    pub(super) const fn code(self) -> u8 {
        // The enum's discriminants count from 0, in the order of `ALL`.
        self as u8
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_has_its_own_number() {
        for cause in Cause::ALL {
            assert_eq!(Cause::from_code(cause.code()), cause);
        }
        assert_eq!(Cause::from_code(u8::MAX), Cause::Unknown);
    }
}
