//! What is kept of a request, and its line of text. Whatever bytes a client sends, they can neither end the line nor the field.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr};

use http::{Method, StatusCode, Version};
use serde::Serializer as _;
use serde::ser::SerializeMap;
use serde_json::ser::{CompactFormatter, Formatter, Serializer};
use time::OffsetDateTime;

use crate::limit::units::{Micros, Timestamp};
use crate::plan::log::{AccessLog, LogField};
use crate::telemetry::metrics::DecisionLabel;
use crate::telemetry::trace::context::TraceId;

/// One answered request. What is empty or `None` is not known, or there is nothing to say. Its texts are strings so that a
/// record that nobody wants can be used again with their memory.
#[derive(Clone, Debug)]
pub struct Record {
    /// When its head had come.
    pub time: Timestamp,
    /// The method as sent.
    pub method: Method,
    /// The protocol version.
    pub version: Version,
    /// The host as routed.
    pub host: String,
    /// Path and query as sent.
    pub path: String,
    /// The matched route's name.
    pub route: String,
    /// The answer's status.
    pub status: StatusCode,
    /// Request body bytes that came.
    pub bytes_in: u64,
    /// Response body bytes that went.
    pub bytes_out: u64,
    /// Head of the request to end of the response.
    pub duration: Micros,
    /// `NAME/HOST:PORT` of the server that answered last.
    pub upstream: String,
    /// Until its response head.
    pub upstream_duration: Option<Micros>,
    /// The client as identified.
    pub client: IpAddr,
    /// `x-request-id`.
    pub request_id: String,
    /// The limit that decided: the one that refused, or the tightest.
    pub limit: String,
    /// What it said.
    pub decision: Option<DecisionLabel>,
    /// What remains there.
    pub remaining: Option<u64>,
    /// What the request cost there.
    pub cost: Option<u32>,
    /// Why tollgate itself answered, in one word: `connect`, `timeout`, …
    pub error: Option<&'static str>,
    /// The trace that the request belongs to, if requests are traced.
    pub trace_id: Option<TraceId>,
    /// `referer`, for the combined format.
    pub referer: Vec<u8>,
    /// `user-agent`, for the combined format.
    pub user_agent: Vec<u8>,
}

impl Default for Record {
    /// `GET` of nothing from nobody, answered with 200.
    fn default() -> Self {
        Self {
            time: Timestamp(0),
            method: Method::GET,
            version: Version::HTTP_11,
            host: String::new(),
            path: String::new(),
            route: String::new(),
            status: StatusCode::OK,
            bytes_in: 0,
            bytes_out: 0,
            duration: Micros(0),
            upstream: String::new(),
            upstream_duration: None,
            client: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            request_id: String::new(),
            limit: String::new(),
            decision: None,
            remaining: None,
            cost: None,
            error: None,
            trace_id: None,
            referer: Vec::new(),
            user_agent: Vec::new(),
        }
    }
}

impl Record {
    /// The same as [`Self::default`], with the memory of the texts that stand here now.
    #[must_use]
    pub fn emptied(mut self) -> Self {
        let Self { host, path, route, upstream, request_id, limit, referer, user_agent, .. } = &mut self;
        [host, path, route, upstream, request_id, limit].into_iter().for_each(String::clear);
        [referer, user_agent].into_iter().for_each(Vec::clear);
        let Self { host, path, route, upstream, request_id, limit, referer, user_agent, .. } = self;
        Self { host, path, route, upstream, request_id, limit, referer, user_agent, ..Self::default() }
    }

    /// Whether the log tells of the request even where it tells only of a sample: a limit said anything but "allowed",
    /// tollgate itself answered or broke off, or the answer is a 5xx.
    pub fn is_notable(&self) -> bool {
        let let_through = matches!(self.decision, None | Some(DecisionLabel::Allowed));
        !let_through || self.error.is_some() || self.status.is_server_error()
    }
}

/// Appends the record and a line feed; nothing if the log is off.
pub(super) fn append(batch: &mut Vec<u8>, record: &Record, form: &AccessLog) {
    let start = batch.len();
    let written = match form {
        AccessLog::Off => return,
        AccessLog::Json(fields) => json(batch, record, fields),
        AccessLog::Combined => combined(batch, record),
    };
    match written {
        Ok(()) => batch.push(b'\n'),
        // Nothing in a record can fail to be written to memory; if it did, half a line would be worse than none.
        Err(_) => batch.truncate(start),
    }
}

/// All chosen fields are on every line: `null` where there is nothing to say.
fn json(batch: &mut Vec<u8>, record: &Record, fields: &[LogField]) -> io::Result<()> {
    let mut serializer = Serializer::with_formatter(batch, Plain);
    let mut line = serializer.serialize_map(None)?;
    for field in fields {
        put(&mut line, *field, record)?;
    }
    Ok(line.end()?)
}

fn put<M: SerializeMap>(line: &mut M, field: LogField, record: &Record) -> Result<(), M::Error> {
    let name = field.name();
    match field {
        LogField::Time => line.serialize_entry(name, &rfc3339(record.time)),
        LogField::Method => line.serialize_entry(name, record.method.as_str()),
        LogField::Host => line.serialize_entry(name, &record.host),
        LogField::Path => line.serialize_entry(name, &record.path),
        LogField::Route => line.serialize_entry(name, &said(&record.route)),
        LogField::Status => line.serialize_entry(name, &record.status.as_u16()),
        LogField::BytesIn => line.serialize_entry(name, &record.bytes_in),
        LogField::BytesOut => line.serialize_entry(name, &record.bytes_out),
        LogField::DurationMs => line.serialize_entry(name, &milliseconds(record.duration)),
        LogField::Upstream => line.serialize_entry(name, &said(&record.upstream)),
        LogField::UpstreamMs => line.serialize_entry(name, &record.upstream_duration.map(milliseconds)),
        LogField::Client => line.serialize_entry(name, &record.client),
        LogField::RequestId => line.serialize_entry(name, &record.request_id),
        LogField::Limit => line.serialize_entry(name, &said(&record.limit)),
        LogField::Decision => line.serialize_entry(name, &record.decision.map(DecisionLabel::as_str)),
        LogField::Remaining => line.serialize_entry(name, &record.remaining),
        LogField::Cost => line.serialize_entry(name, &record.cost),
        LogField::Error => line.serialize_entry(name, &record.error),
        LogField::TraceId => line.serialize_entry(name, &record.trace_id.map(|id| id.to_string())),
    }
}

/// A name, unless there is none.
fn said(name: &str) -> Option<&str> {
    Some(name).filter(|name| !name.is_empty())
}

/// Compact JSON without any control character: serde's own leaves DEL, C1 and Unicode's line separators as they are,
/// which some readers take for ends of lines and some terminals for commands.
struct Plain;

impl Formatter for Plain {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let mut rest = fragment;
        while let Some(at) =
            rest.find(|char: char| char.is_control() || matches!(char, '\u{2028}' | '\u{2029}'))
        {
            let (clean, tail) = rest.split_at(at);
            CompactFormatter.write_string_fragment(writer, clean)?;
            let mut chars = tail.chars();
            if let Some(char) = chars.next() {
                write!(writer, "\\u{:04x}", u32::from(char))?;
            }
            rest = chars.as_str();
        }
        CompactFormatter.write_string_fragment(writer, rest)
    }
}

/// Apache's combined format: `client - - [time] "request" status bytes "referer" "user-agent"`.
fn combined(batch: &mut Vec<u8>, record: &Record) -> io::Result<()> {
    write!(batch, "{} - - [{}] \"", record.client, common_time(record.time))?;
    escape(batch, record.method.as_str().as_bytes());
    batch.push(b' ');
    escape(batch, record.path.as_bytes());
    write!(batch, " {}\" {} {} \"", version(record.version), record.status.as_u16(), record.bytes_out)?;
    escape(batch, or_dash(&record.referer));
    batch.extend_from_slice(b"\" \"");
    escape(batch, or_dash(&record.user_agent));
    batch.push(b'"');
    Ok(())
}

fn or_dash(value: &[u8]) -> &[u8] {
    if value.is_empty() { b"-" } else { value }
}

/// As Apache does: quotes and backslashes behind a backslash, everything but printable ASCII as `\xHH`.
fn escape(batch: &mut Vec<u8>, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for &byte in bytes {
        match byte {
            b'"' | b'\\' => batch.extend_from_slice(&[b'\\', byte]),
            b' '..=b'~' => batch.push(byte),
            _ => {
                let (high, low) = (usize::from(byte >> 4), usize::from(byte & 0xf));
                batch.extend_from_slice(&[b'\\', b'x', DIGITS[high], DIGITS[low]]);
            }
        }
    }
}

fn version(version: Version) -> &'static str {
    match version {
        Version::HTTP_09 => "HTTP/0.9",
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_2 => "HTTP/2.0",
        Version::HTTP_3 => "HTTP/3.0",
        _ => "HTTP/1.1",
    }
}

/// Milliseconds, exact to the microsecond: below 2^53 a double holds the number.
#[expect(clippy::cast_precision_loss, reason = "spans lie below 2^53")]
fn milliseconds(span: Micros) -> f64 {
    span.0 as f64 / 1_000.0
}

/// `2026-01-31T23:59:59.999Z` (RFC 3339).
fn rfc3339(time: Timestamp) -> String {
    let utc = utc(time);
    let (date, month) = (utc.date(), u8::from(utc.month()));
    let (hour, minute, second, millisecond) = utc.time().as_hms_milli();
    format!(
        "{:04}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}.{millisecond:03}Z",
        date.year(),
        date.day()
    )
}

/// `31/Jan/2026:23:59:59 +0000`, as in the common log format.
fn common_time(time: Timestamp) -> String {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let utc = utc(time);
    let month = MONTHS[usize::from(u8::from(utc.month())) - 1];
    let (hour, minute, second) = utc.time().as_hms();
    format!("{:02}/{month}/{:04}:{hour:02}:{minute:02}:{second:02} +0000", utc.day(), utc.year())
}

/// Moments beyond the year 9999, which no clock of ours gives, are shown as 1970.
fn utc(time: Timestamp) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(time.0) * 1_000)
        .unwrap_or(OffsetDateTime::UNIX_EPOCH)
}
