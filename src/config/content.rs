//! The responses that the file writes: bodies with a media type, of `respond` and of `[errors]`; and the form of a
//! refusal, `reject = { … }`.

use std::sync::Arc;

use http::{HeaderValue, StatusCode};

use super::headers::{self, FIELDS, field_value};
use super::keys::{SOME, Schema, count, keys};
use super::name::Directory;
use super::report::quoted;
use super::table::ConfigTable;
use super::templates;
use super::value::ConfigValue;
use crate::plan::action::{ErrorPages, FixedResponse, ResponseContent};
use crate::plan::template::BodyTemplate;
use crate::plan::{LimitIndex, Reject};

keys! {
    /// A body with its media type.
    pub(super) CONTENT: ContentKeys = "a body" {
        /// The body, up to 1 MiB, which may have {request_id} and other values of the request. Default: none.
        body = Schema::Text;
        /// A file with the body, up to 1 MiB, read when the configuration is loaded.
        body_file = Schema::Text;
        /// Default: text/plain for `body`; by the file's name for `body_file`.
        content_type = Schema::Text;
    }
}

keys! {
    /// The answer of the gateway itself, instead of `upstream`.
    pub(super) RESPOND: RespondKeys = "respond" {
        /// 200 to 599.
        status: u16 = count(200, 599) => 200;
        /// Further fields. Default: none.
        headers = Schema::Named(&FIELDS);
        /// Names of limits: the body is JSON that tells what the caller has used of them. Instead of `body`.
        usage = Schema::Set(SOME, &Schema::Text);
        + CONTENT;
    }
}

keys! {
    /// The body of an error.
    pub(super) ERROR_PAGE: ErrorPageKeys = "errors.NNN" {
        + CONTENT;
    }
}

keys! {
    /// How a refusal looks. Default: 429 with a problem+json body.
    pub(super) REJECT: RejectKeys = "reject" {
        /// 200, for clients that read errors in bodies only, or 400 to 599. Default 429.
        status = Schema::Either(&[Schema::Numbers(&[200]), Schema::Whole(400, 599)]);
        /// The type of `body`; no effect without it. Default: none.
        content_type = Schema::Text;
        /// At most 64 KiB, with values of the request: {json:/id} is a value of its JSON body, where that was read.
        /// Default: problem+json that names the limit.
        body = Schema::Text;
        /// Further fields. Default: none.
        headers = Schema::Named(&FIELDS);
    }
}

/// Maximum bytes of `body`, and of the file that `body_file` names.
const MAX_BODY: usize = 1 << 20;
const PLAIN_TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// Media types by the ends of files' names.
const MEDIA_TYPES: [(&str, &str); 14] = [
    (".html", "text/html; charset=utf-8"),
    (".htm", "text/html; charset=utf-8"),
    (".txt", "text/plain; charset=utf-8"),
    (".css", "text/css; charset=utf-8"),
    (".js", "text/javascript; charset=utf-8"),
    (".json", "application/json"),
    (".xml", "application/xml"),
    (".svg", "image/svg+xml"),
    (".png", "image/png"),
    (".jpg", "image/jpeg"),
    (".jpeg", "image/jpeg"),
    (".gif", "image/gif"),
    (".webp", "image/webp"),
    (".ico", "image/x-icon"),
];

/// Reads `respond`.
pub(super) fn respond(value: &ConfigValue<'_>, limits: &Directory<'_>) -> Option<FixedResponse> {
    if let Some(text) = value.written() {
        let is_shown = text.len() <= 40 && !text.contains(['"', '\\']) && !text.contains(char::is_control);
        let text = if is_shown { text } else { "…" };
        return value.mismatch("a table", format!("write `respond = {{ body = \"{text}\" }}`"));
    }
    if let Some(number) = value.whole_text().filter(|text| text.len() == 3) {
        return value.mismatch("a table", format!("write `respond = {{ status = {number} }}`"));
    }
    let mut table = value.table("`respond`")?;
    let status = table.take(&RESPOND.status);
    let code = match &status {
        Some(value) => RESPOND.status.value.read(value),
        None => Some(RESPOND.status.default),
    };
    let code = code.and_then(status_code);
    let content = content(&mut table);
    let headers = table.or(&RESPOND.headers, Vec::new(), |value| {
        headers::fields_with(&value, headers::framing_or_content_type, templates::header)
    });
    // RFC 9110 §15.3.5, §15.3.6 and §15.4.5: some clients read none, and would take it for the next response.
    let has_none =
        matches!(code, Some(StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT | StatusCode::NOT_MODIFIED));
    if let (Some(status), true, Some(_)) = (&status, has_none, &content) {
        status.fault("a response with this status has no body", "leave `body` out, or write another status");
    }
    let usage_given = table.take(&RESPOND.usage);
    let usage = usage_given.as_ref().map_or(Some(Vec::new()), |value| usage(value, limits));
    if let (Some(given), true) = (&usage_given, content.is_some() || has_none) {
        given.fault("`usage` stands beside another body", "leave one of the two out");
    }
    table.finish().then_some(())?;
    Some(FixedResponse { status: code?, content, headers, usage: usage? })
}

/// Names of limits, each once.
fn usage(value: &ConfigValue<'_>, limits: &Directory<'_>) -> Option<Vec<LimitIndex>> {
    let mut found: Vec<LimitIndex> = Vec::new();
    value.some_of(|item| {
        let limit = LimitIndex(limits.find(&item.text()?)?);
        if found.contains(&limit) {
            item.fault("`usage` names this limit twice", "leave one of the two out");
        }
        found.push(limit);
        Some(())
    })?;
    Some(found)
}

/// Reads `[errors]`.
pub(super) fn errors(value: &ConfigValue<'_>) -> Option<ErrorPages> {
    let mut pages = Vec::new();
    for entry in value.entries()? {
        let code = entry.key.parse().ok().filter(|code| (400..600).contains(code));
        let Some(status) = code.and_then(status_code) else {
            let message = format!("{} is not the status of an error", quoted(entry.key));
            let help = "write a number from 400 to 599: `502 = { body_file = \"sorry.html\" }`";
            value.diagnostics().fault(entry.key_span, message, help);
            continue;
        };
        let title = quoted(&format!("errors.{}", entry.key));
        let table = match entry.value.written() {
            Some(text) => {
                let is_path = text.contains(['/', '.']);
                let page = if is_path { "body_file = \"sorry.html\"" } else { "body = \"…\"" };
                entry.value.mismatch("a table", format!("write `{code} = {{ {page} }}`", code = entry.key))
            }
            None => entry.value.table(&title),
        };
        let Some(mut table) = table else { continue };
        let is_empty = table.given("body").is_none() && table.given("body_file").is_none();
        let (content, span) = (content(&mut table), table.span());
        if table.finish() {
            pages.extend(content.map(|content| (status, content)));
            if is_empty {
                let message = format!("the error {} has no body", status.as_str());
                value.diagnostics().fault(
                    span,
                    message,
                    "add `body = \"…\"` or `body_file = \"sorry.html\"`",
                );
            }
        }
    }
    Some(ErrorPages::new(pages))
}

fn status_code(code: u16) -> Option<StatusCode> {
    StatusCode::from_u16(code).ok()
}

/// Reads `body` or `body_file`, and `content_type`. `None`: neither is given, or both are faulty.
fn content(table: &mut ConfigTable<'_>) -> Option<ResponseContent> {
    let (text, file) = (table.take(&CONTENT.body), table.take(&CONTENT.body_file));
    let type_given = table.take(&CONTENT.content_type);
    if let (Some(_), Some(file)) = (&text, &file) {
        file.fault("`body_file` stands beside `body`", "leave one of the two out");
        return None;
    }
    let content_type = type_given.as_ref().and_then(field_value);
    if let Some(text) = text {
        let content_type = content_type.unwrap_or(PLAIN_TEXT);
        let body = templates::body(&text, content_type.as_bytes(), MAX_BODY)?;
        return Some(ResponseContent { body, content_type });
    }
    let Some(file) = file else {
        if let Some(given) = type_given {
            let help = "add `body` or `body_file`, or leave `content_type` out";
            given.diagnostics().warn(given.span(), "`content_type` has no effect without a body", help);
        }
        return None;
    };
    let path = file.text()?;
    let bytes = file.file_at(&path, MAX_BODY as u64)?;
    let name = path.as_str().to_ascii_lowercase();
    let by_name = || {
        let known = MEDIA_TYPES.iter().find(|(end, _)| name.ends_with(end));
        HeaderValue::from_static(known.map_or("application/octet-stream", |(_, media_type)| media_type))
    };
    Some(ResponseContent {
        body: BodyTemplate::Fixed(bytes.into()),
        content_type: content_type.unwrap_or_else(by_name),
    })
}

/// A refusal must be cheap, so its body is small.
const MAX_REJECT_BODY: usize = 64 << 10;

/// Reads `reject`.
pub(super) fn reject(value: &ConfigValue<'_>) -> Option<Arc<Reject>> {
    if let Some(number) = value.whole_text().filter(|text| text.len() == 3) {
        return value.mismatch("a table", format!("write `reject = {{ status = {number} }}`"));
    }
    let mut table = value.table("`reject`")?;
    let status = table.or(&REJECT.status, StatusCode::TOO_MANY_REQUESTS, |value| {
        let status = value.count(200, 599)?;
        if (201..400).contains(&status) {
            value.fault(format!("{status} is not the status of a refusal"), "write 200, or 400 to 599");
            return None;
        }
        u16::try_from(status).ok().and_then(status_code)
    });
    let type_given = table.take(&REJECT.content_type);
    let content_type = type_given.as_ref().and_then(field_value);
    let media_type = content_type.as_ref().map_or(&[][..], |value| value.as_bytes());
    let body =
        table.optional(&REJECT.body, |value| templates::body_of_refusal(&value, media_type, MAX_REJECT_BODY));
    let headers = table.or(&REJECT.headers, Vec::new(), |value| {
        headers::fields_with(&value, headers::framing_or_content_type, templates::header)
    });
    if let (Some(given), true, None) = (type_given, content_type.is_some(), &body)
        && !table.is_uncertain("body")
    {
        let message = "`content_type` has no effect without `body`: the default body is problem+json";
        given.diagnostics().warn(given.span(), message, "add `body`, or leave `content_type` out");
    }
    table.finish();
    Some(Arc::new(Reject { status, content_type, body, headers }))
}
