//! Why a request is refused before any limit is checked, as the client and the access log are told.

use std::borrow::Cow;
use std::num::NonZeroU16;
use std::time::Duration;

use http::StatusCode;

use super::Limit;
use crate::route::client::AddressRefusal;
use crate::route::condition::UndecidedCondition;
use crate::route::content::{MAX_CALLS, UnreadableBody};
use crate::route::path::PathFault;

/// Why a request is refused before any limit is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejectReason {
    /// The status of the response.
    pub status: StatusCode,
    /// For the client.
    pub detail: Cow<'static, str>,
    /// For the access log.
    pub error: &'static str,
    /// The seconds after which the request may succeed, of a 503; `None`: it is not known.
    pub retry_after: Option<NonZeroU16>,
}

impl RejectReason {
    pub(super) fn new(status: u16, detail: impl Into<Cow<'static, str>>, error: &'static str) -> Self {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST);
        Self { status, detail: detail.into(), error, retry_after: None }
    }

    /// The reason where a credential could not be verified, which is not the client's fault.
    pub fn unverified() -> Self {
        Self::new(503, "the credential cannot be verified at the moment", "credential_unverified")
    }

    /// The same, where that may be otherwise after this time: whole seconds, rounded up, at least 1.
    pub fn unverified_for(span: Duration) -> Self {
        let seconds = u16::try_from(span.as_millis().div_ceil(1_000)).unwrap_or(u16::MAX);
        let retry_after = NonZeroU16::new(seconds).or(Some(NonZeroU16::MIN));
        Self { retry_after, ..Self::unverified() }
    }

    /// The reason where a limit with `on_error = "deny"` could not be checked.
    pub fn unavailable() -> Self {
        Self::new(503, "the limits of this route cannot be looked up at the moment", "store")
    }

    /// The reason where requests that are not decided hold more than `max_buffered`.
    pub fn overloaded() -> Self {
        Self::new(503, "the gateway holds too many undecided requests of this client", "overloaded")
    }

    #[cold]
    pub(super) fn looped() -> Self {
        let detail = "the request has passed this gateway three times already: an upstream leads back to it";
        Self::new(508, detail, "loop")
    }

    /// The reason of a request whose wait before its decision has failed, with this status, detail and error: the body, by
    /// which a limit counts, did not come, or `max_duration` has passed.
    pub fn wait_failed((status, detail, error): (StatusCode, &'static str, &'static str)) -> Self {
        Self { status, detail: detail.into(), error, retry_after: None }
    }

    /// The body, by which a limit counts, cannot be read.
    pub fn unreadable_body(fault: UnreadableBody) -> Self {
        match fault {
            UnreadableBody::TooLarge => {
                Self::new(413, "the body is larger than this route reads", "body_too_large")
            }
            UnreadableBody::Type => {
                let detail = "this route reads forms or JSON, as UTF-8 and without a content coding";
                Self::new(415, detail, "unreadable_body")
            }
            UnreadableBody::Broken => {
                let detail = "the body is no valid form or JSON document, or a value that this route reads is a list or an object";
                Self::new(400, detail, "unreadable_body")
            }
            UnreadableBody::Batch => {
                Self::new(400, "the request body is a list: send each call in a request of its own", "batch")
            }
        }
    }

    /// The body is no batch of calls that can be charged one by one.
    pub(super) fn batch_size() -> Self {
        Self::new(400, format!("a batch has 1 to {MAX_CALLS} calls, as JSON objects"), "batch")
    }

    /// The calls of a batch have too many keys.
    pub(super) fn batch_keys() -> Self {
        Self::new(400, "the calls of this batch count by too many different keys: send fewer", "batch")
    }

    /// The calls of a batch have different routes.
    pub(super) fn mixed_batch() -> Self {
        let detail = "the calls of this batch have different routes: send each in a request of its own";
        Self::new(400, detail, "batch")
    }

    /// The route depends on the body, which does not say what it asks for.
    pub(super) fn undecided(condition: &UndecidedCondition) -> Self {
        match condition {
            UndecidedCondition::Unread => Self::unreadable_body(UnreadableBody::Broken),
            UndecidedCondition::Unreadable(fault) => Self::unreadable_body(*fault),
            UndecidedCondition::Repeated(pointer) => {
                let detail =
                    format!("`{pointer}` is given more than once in the body, with different values");
                Self::new(400, detail, "repeated_value")
            }
        }
    }

    /// A part of the limit's key has several values.
    pub fn repeated_key(limit: &Limit) -> Self {
        let detail =
            format!("the key of limit `{}` is given more than once, with different values", limit.name);
        Self::new(400, detail, "repeated_key")
    }

    pub(super) fn address(refusal: AddressRefusal) -> Self {
        Self::new(403, "requests from this address are not admitted", refusal.error())
    }

    pub(super) fn ambiguous_target() -> Self {
        Self::new(400, "the parts of this path cannot be put together again", "malformed_path")
    }

    pub(super) fn malformed_path(fault: PathFault) -> Self {
        Self::new(400, fault.to_string(), "malformed_path")
    }

    pub(super) fn encoded_dots() -> Self {
        Self::new(400, "the path contains an encoded dot segment, such as `..%2F` or `..;`", "malformed_path")
    }

    pub(super) fn no_route() -> Self {
        Self::new(404, "no route matches", "no_route")
    }
}
