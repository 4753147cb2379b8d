//! The JSON lines of Caddy (<https://caddyserver.com/docs/logging>), and those of `format console`, which have the time,
//! the level, the name of the logger and the message before the object. They have the end of a request.

use std::ops::ControlFlow::Continue;

use memchr::{memchr, memmem};

use super::fields::{LineFields, number, status};
use super::json::{JsonValue, first_text, members};
use super::problems::ProblemKind;
use super::text::LoggedText;
use super::time::{any_time, client, go_span, span};

/// What Caddy writes for the values of headers that hold credentials.
const REDACTED: &[u8] = b"REDACTED";
/// How the names of the loggers of access logs begin. Others, such as `http.log.error`, log the same requests once more.
const LOGGER: &[u8] = b"http.log.access";

/// Reads a line.
pub(super) fn read<'l>(line: &'l [u8], fields: &mut LineFields<'l>) -> Result<(), ProblemKind> {
    let (columns, object) = split_console(line).ok_or(ProblemKind::NotReadable)?;
    let (mut request, mut logger) = (None, None);
    let mut has_time = false;
    if let Some(columns) = columns {
        has_time = true;
        fields.time = any_time(columns.time);
        logger = columns.logger;
    }
    members(object, |key, value| {
        let text = value.text();
        match (key, value) {
            (b"ts", _) => {
                has_time = true;
                fields.time = text.and_then(|text| any_time(text.raw()));
            }
            (b"logger", _) => logger = text.map(LoggedText::raw),
            (b"request", JsonValue::Object(object)) => request = Some(object),
            (b"duration", JsonValue::Number(seconds)) => fields.duration = span(seconds, 6),
            (b"duration", JsonValue::Text(text)) => fields.duration = go_span(text.raw()),
            (b"size", _) => fields.bytes_out = text.and_then(number),
            (b"bytes_read", _) => fields.bytes_in = text.and_then(number),
            (b"user_id", _) => fields.consumer = text,
            (b"status", _) => fields.status = text.and_then(status),
            _ => (),
        }
        Continue(())
    })
    .ok_or(ProblemKind::NotReadable)?;
    fields.is_end = true;
    let is_access_log = logger.is_none_or(|name| name.starts_with(LOGGER));
    match request {
        Some(request) if has_time && is_access_log => read_request(request, fields),
        _ => Err(ProblemKind::NotReadable),
    }
}

/// What `format console` writes before the object.
struct ConsoleColumns<'l> {
    time: &'l [u8],
    logger: Option<&'l [u8]>,
}

/// The columns before the object if there are any, and the object. Columns end with a tab.
fn split_console(line: &[u8]) -> Option<(Option<ConsoleColumns<'_>>, &[u8])> {
    if line.trim_ascii_start().starts_with(b"{") {
        return Some((None, line));
    }
    let (columns, object) = line.split_at_checked(memmem::find(line, b"\t{")?)?;
    let (time, others) = columns.split_at_checked(memchr(b'\t', columns)?)?;
    let logger = others.split(|byte| *byte == b'\t').find(|column| column.starts_with(b"http."));
    Some((Some(ConsoleColumns { time, logger }), object))
}

/// `client_ip` is the client behind trusted proxies; Caddy 2.6 and earlier have only `remote_ip`.
fn read_request<'l>(request: &'l [u8], fields: &mut LineFields<'l>) -> Result<(), ProblemKind> {
    let (mut remote, mut headers) = (None, None);
    members(request, |key, value| {
        let text = value.text();
        match (key, value) {
            (b"client_ip", _) => fields.client = text.and_then(|text| client(text.raw())),
            (b"remote_ip" | b"remote_addr", _) => remote = text.and_then(|text| client(text.raw())),
            (b"method", _) => fields.method = text,
            (b"host", _) => fields.host = text.and_then(LoggedText::known),
            (b"uri", _) => fields.target = text,
            (b"headers", JsonValue::Object(object)) => headers = Some(object),
            _ => (),
        }
        Continue(())
    })
    .ok_or(ProblemKind::NotReadable)?;
    fields.client = fields.client.or(remote);
    let Some(headers) = headers else { return Ok(()) };
    members(headers, |name, values| {
        let value = match values {
            JsonValue::Array(values) => first_text(values),
            other => other.text(),
        };
        if value.is_some_and(|value| value.raw() != REDACTED) {
            fields.headers.push((LoggedText::plain(name), value));
        }
        Continue(())
    })
    .ok_or(ProblemKind::NotReadable)
}
