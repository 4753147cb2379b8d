//! `reject = { … }`: the form of a refusal.

use std::sync::Arc;

use http::StatusCode;

use super::headers::{self, field_value};
use super::templates;
use super::value::ConfigValue;
use crate::plan::Reject;

/// A refusal must be cheap, so its body is small.
const MAX_BODY: usize = 64 << 10;

/// Reads `reject`.
pub(super) fn read(value: &ConfigValue<'_>) -> Option<Arc<Reject>> {
    let mut table = value.table("`reject`")?;
    let status = table.or("status", StatusCode::TOO_MANY_REQUESTS, |value| status(&value));
    let type_given = table.take("content_type");
    let content_type = type_given.as_ref().and_then(field_value);
    let media_type = content_type.as_ref().map_or(&[][..], |value| value.as_bytes());
    let body = table.optional("body", |value| templates::body(&value, media_type, MAX_BODY));
    let headers = table.or("headers", Vec::new(), |value| {
        headers::fields_with(&value, headers::framing_or_content_type, templates::header)
    });
    if let (Some(given), true, None) = (type_given, content_type.is_some(), &body)
        && !table.is_uncertain("body")
    {
        let message = "`content_type` has no effect without `body`: the default body is problem+json";
        given.reader().warn(given.span(), message, "add `body`, or leave `content_type` out");
    }
    table.finish();
    Some(Arc::new(Reject { status, content_type, body, headers }))
}

fn status(value: &ConfigValue<'_>) -> Option<StatusCode> {
    u16::try_from(value.count(400, 599)?).ok().and_then(|code| StatusCode::from_u16(code).ok())
}
