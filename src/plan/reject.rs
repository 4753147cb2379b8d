//! The form of a refusal.

use http::{HeaderName, HeaderValue, StatusCode};

use super::template::{BodyTemplate, HeaderTemplate};
use crate::measure::JsonPointer;

/// The form of a refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reject {
    /// 200, or 400 to 599.
    pub status: StatusCode,
    /// `content-type` of `body`.
    pub content_type: Option<HeaderValue>,
    /// The body; `None`: the default problem+json.
    pub body: Option<BodyTemplate>,
    /// Further headers.
    pub headers: Vec<(HeaderName, HeaderTemplate)>,
}

impl Reject {
    /// The status where a success would admit the request: to a proxy that asks, and of a gRPC call.
    pub fn failure_status(&self) -> StatusCode {
        if self.status.is_success() { StatusCode::TOO_MANY_REQUESTS } else { self.status }
    }

    /// The members of a JSON body that the refusal repeats.
    pub fn json_pointers(&self) -> impl Iterator<Item = &JsonPointer> {
        self.body.iter().flat_map(BodyTemplate::json_pointers)
    }
}
