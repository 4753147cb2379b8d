//! The data of a request that only some access logs name: headers, and the key of the limit that decided.
//!
//! A log without such fields costs a comparison or two here: nothing is looked up or copied.

use std::borrow::Cow;

use http::{HeaderName, header};

use super::request_context::RequestContext;
use crate::http1::request::RequestHead;
use crate::plan::log::LogFields;
use crate::plan::resolve::RoutedRequest;
use crate::plan::{Limit, Plan};
use crate::route::MatchedRequest;
use crate::route::mask::Masking;
use crate::telemetry::access_log::{HeaderOrigin, Record};

/// Notes the request's headers that the log names.
pub(crate) fn note_request(record: &mut Record, plan: &Plan, head: &RequestHead<'_>) {
    let access = &plan.log.access;
    if access.needs_agent() {
        let field = |name| head.fields.first(name).unwrap_or_default();
        without_credentials(plan, field(&header::REFERER)).as_ref().clone_into(&mut record.request.referer);
        field(&header::USER_AGENT).clone_into(&mut record.request.user_agent);
    }
    for name in access.fields().map(LogFields::request_headers).unwrap_or_default() {
        capture(record, plan, HeaderOrigin::Request, name, head.fields.all(name).iter());
    }
}

impl RequestContext {
    /// Whether the log names headers of responses.
    #[inline]
    pub(crate) fn notes_response_head(&self) -> bool {
        self.plan.log.access.fields().is_some_and(|fields| !fields.response_headers().is_empty())
    }

    /// Notes the headers of the response that the log names. `text` begins with the head, as it is written for the
    /// client.
    #[inline]
    pub(crate) fn note_response_head(&mut self, text: &[u8]) {
        let names = self.plan.log.access.fields().map(LogFields::response_headers).unwrap_or_default();
        if !names.is_empty()
            && let Some(record) = &mut self.log.record
        {
            note_response(record, &self.plan, names, text);
        }
    }

    /// Notes the key under the limit that the record names.
    #[inline]
    pub(crate) fn note_key(&mut self, routed: &RoutedRequest<'_, '_>, (limit, call): (&Limit, u8)) {
        if self.log.record.is_some() && self.plan.log.access.needs_key() {
            self.note_key_of(routed.route.matched(&routed.request_of_call(call)), limit);
        }
    }

    /// The same without a routed request.
    pub(crate) fn note_key_of(&mut self, matched: MatchedRequest<'_>, limit: &Limit) {
        let plan = &self.plan;
        let (true, Some(record)) = (plan.log.access.needs_key(), &mut self.log.record) else { return };
        let credential = || limit.key.parts.iter().any(|part| plan.log.secrets.has_part(part));
        let masking = Masking::of(limit.reveal && !credential(), &plan.short_ids);
        record.decision.key.clear();
        limit.key.write_label(matched, masking, &mut record.decision.key);
    }
}

/// The response replaces one that was noted, but not sent.
fn note_response(record: &mut Record, plan: &Plan, names: &[HeaderName], text: &[u8]) {
    record.headers.remove_response();
    for name in names {
        capture(record, plan, HeaderOrigin::Response, name, values(text, name));
    }
}

fn capture<'v>(
    record: &mut Record,
    plan: &Plan,
    origin: HeaderOrigin,
    name: &HeaderName,
    values: impl Iterator<Item = &'v [u8]>,
) {
    if plan.hides_queries() {
        let values: Vec<_> = values.map(|value| without_credentials(plan, value)).collect();
        record.headers.add(origin, name, values.iter().map(AsRef::as_ref));
    } else {
        record.headers.add(origin, name, values);
    }
}

/// A header that may be a URL of this site, without the credentials in its query. Where the value holds more than one
/// URL, only the text before the first query is left.
fn without_credentials<'v>(plan: &Plan, value: &'v [u8]) -> Cow<'v, [u8]> {
    let Some(query) = value.iter().position(|&byte| byte == b'?').filter(|_| plan.hides_queries()) else {
        return Cow::Borrowed(value);
    };
    let (before, rest) = value.split_at(query);
    if rest.iter().any(|byte| byte.is_ascii_whitespace() || b",;<>\"'".contains(byte)) {
        return Cow::Borrowed(before);
    }
    let mut text = String::from_utf8_lossy(value).into_owned();
    plan.cut_credentials(&mut text);
    Cow::Owned(text.into_bytes())
}

/// The values of a header in a head that the gateway has written.
fn values<'h>(text: &'h [u8], name: &HeaderName) -> impl Iterator<Item = &'h [u8]> {
    let lines = text.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii_end);
    lines.skip(1).take_while(|line| !line.is_empty()).filter_map(move |line| {
        let colon = line.iter().position(|&byte| byte == b':')?;
        let (found, value) = line.split_at(colon);
        let is_it = found.eq_ignore_ascii_case(name.as_str().as_bytes());
        is_it.then(|| value.get(1..).unwrap_or_default().trim_ascii())
    })
}
