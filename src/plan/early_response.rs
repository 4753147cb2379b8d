//! Responses before any limit is charged.

use std::sync::Arc;

use http::StatusCode;

use super::auth::AuthFailure;
use super::reject_reason::RejectReason;

/// The response to a request that is not forwarded or charged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EarlyResponse {
    /// A refusal.
    Reject(RejectReason),
    /// A refusal because of the credential.
    Unauthenticated(AuthFailure),
    /// A redirect to this URL.
    Redirect(String),
    /// A response to a browser's preflight, on a route with `cors`.
    Preflight,
    /// A response to `OPTIONS *`, which concerns the server as a whole (RFC 9110 §9.3.7): routes are about paths.
    Options,
    /// The answer to a challenge of the authority that issues certificates.
    KeyAuthorization(Arc<str>),
}

impl EarlyResponse {
    /// The status of the response.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Reject(reason) => reason.status,
            Self::Unauthenticated(failure) => failure.status(),
            Self::Redirect(_) => StatusCode::PERMANENT_REDIRECT,
            Self::Preflight => StatusCode::NO_CONTENT,
            Self::Options | Self::KeyAuthorization(_) => StatusCode::OK,
        }
    }

    /// The error for the access log, if the request is refused.
    pub fn error(&self) -> Option<&'static str> {
        match self {
            Self::Reject(reason) => Some(reason.error),
            Self::Unauthenticated(failure) => Some(failure.fault.error()),
            Self::Redirect(_) | Self::Preflight | Self::Options | Self::KeyAuthorization(_) => None,
        }
    }
}

impl From<RejectReason> for EarlyResponse {
    fn from(reason: RejectReason) -> Self {
        Self::Reject(reason)
    }
}
