//! `reject = { … }`: the form of a refusal.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;

use super::headers::{self, field_value};
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
    let body = table.optional("body", |value| body(&value));
    let headers =
        table.or("headers", Vec::new(), |value| headers::fields(&value, headers::framing_or_content_type));
    if let (Some(given), true, None) = (type_given, content_type.is_some(), &body) {
        let message = "`content_type` has no effect without `body`: the default body is problem+json";
        given.reader().warn(given.span(), message, "add `body`, or leave `content_type` out");
    }
    table.finish();
    Some(Arc::new(Reject { status, content_type, body, headers }))
}

fn status(value: &ConfigValue<'_>) -> Option<StatusCode> {
    u16::try_from(value.count(400, 599)?).ok().and_then(|code| StatusCode::from_u16(code).ok())
}

fn body(value: &ConfigValue<'_>) -> Option<Bytes> {
    let text = value.text()?;
    if text.as_str().len() > MAX_BODY {
        value.fault("`body` is longer than 64 KiB", "shorten it: a refusal has to be cheap");
        return None;
    }
    Some(Bytes::from(text.into_string()))
}
