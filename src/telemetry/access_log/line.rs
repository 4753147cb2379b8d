//! The record of a request, and its line of text. No bytes of a client can end the line or the field.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr};

use http::{Method, StatusCode, Version};
use serde::Serializer as _;
use serde::ser::SerializeMap;
use serde_json::ser::{CompactFormatter, Formatter, Serializer};
use time::OffsetDateTime;

use super::captured_headers::{CapturedHeaders, HeaderOrigin, shown};
use crate::limit::units::Micros;
use crate::limit::wall_clock::WallTime;
use crate::plan::log::{LogColumn, LogField, LogFields};
use crate::route::key::LABEL_END;
use crate::telemetry::metrics::{DecisionLabel, SettledUnits};
use crate::telemetry::trace::context::TraceId;

/// The record of one completed request. Empty or `None`: unknown, or not applicable. Its texts are strings so that an
/// unlogged record can be reused with their memory.
#[derive(Clone, Debug)]
pub struct Record {
    /// When the request head was complete.
    pub time: WallTime,
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
    /// The response's status.
    pub status: StatusCode,
    /// Request body bytes received.
    pub bytes_in: u64,
    /// Response body bytes sent.
    pub bytes_out: u64,
    /// From the request head to the end of the response.
    pub duration: Micros,
    /// `NAME/HOST:PORT` of the last server that responded.
    pub upstream: String,
    /// The time until its response head.
    pub upstream_duration: Option<Micros>,
    /// The client as identified.
    pub client: IpAddr,
    /// The consumer that its credential named.
    pub consumer: String,
    /// The consumer's tier.
    pub tier: String,
    /// `x-request-id`.
    pub request_id: String,
    /// The limit that decided: the one that refused, or the binding one.
    pub limit: String,
    /// Its decision.
    pub decision: Option<DecisionLabel>,
    /// The remaining units of that limit.
    pub remaining: Option<u64>,
    /// The request's cost for that limit.
    pub cost: Option<u32>,
    /// The units reserved and settled, if the cost was settled after the response.
    pub settled: Option<SettledUnits>,
    /// The limits in shadow that would have refused it, joined by commas.
    pub shadow: String,
    /// Why tollgate itself responded, as one word: `connect`, `timeout`, …
    pub error: Option<&'static str>,
    /// The trace that the request belongs to, if requests are traced.
    pub trace_id: Option<TraceId>,
    /// The masked key of that limit, in the form of [`Key::write_label`](crate::route::key::Key::write_label), if the log
    /// names it.
    pub key: String,
    /// `referer`, if the log names it.
    pub referer: Vec<u8>,
    /// `user-agent`, if the log names it.
    pub user_agent: Vec<u8>,
    /// Other headers that the log names.
    pub headers: CapturedHeaders,
}

impl Default for Record {
    /// An empty `GET`, answered with 200.
    fn default() -> Self {
        Self {
            time: WallTime(0),
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
            consumer: String::new(),
            tier: String::new(),
            request_id: String::new(),
            limit: String::new(),
            decision: None,
            remaining: None,
            cost: None,
            settled: None,
            shadow: String::new(),
            error: None,
            trace_id: None,
            key: String::new(),
            referer: Vec::new(),
            user_agent: Vec::new(),
            headers: CapturedHeaders::default(),
        }
    }
}

impl Record {
    /// A default record with the memory of this one's texts.
    #[must_use]
    pub fn emptied(mut self) -> Self {
        let Self { host, path, route, upstream, consumer, tier, request_id, limit, shadow, key, .. } =
            &mut self;
        [host, path, route, upstream, consumer, tier, request_id, limit, shadow, key]
            .into_iter()
            .for_each(String::clear);
        let Self { referer, user_agent, headers, .. } = &mut self;
        [referer, user_agent].into_iter().for_each(Vec::clear);
        headers.clear();
        let Self { host, path, route, upstream, consumer, tier, request_id, .. } = self;
        let texts = Self { host, path, route, upstream, consumer, tier, request_id, ..Self::default() };
        let Self { limit, shadow, key, referer, user_agent, headers, .. } = self;
        Self { limit, shadow, key, referer, user_agent, headers, ..texts }
    }

    /// Whether the request is logged even if only a sample is: a limit's decision other than "allowed", also in shadow, a
    /// response of tollgate itself or a truncated one, or a 5xx.
    pub fn is_notable(&self) -> bool {
        let let_through = matches!(self.decision, None | Some(DecisionLabel::Allowed));
        !let_through || self.error.is_some() || self.status.is_server_error() || !self.shadow.is_empty()
    }
}

/// All chosen fields are on every line: `null` if unknown or not applicable.
pub(super) fn json(batch: &mut Vec<u8>, record: &Record, fields: &LogFields) -> io::Result<()> {
    let mut serializer = Serializer::with_formatter(batch, Plain);
    let mut line = serializer.serialize_map(None)?;
    for column in fields.columns() {
        match column {
            LogColumn::Field(field) => put(&mut line, *field, record)?,
            header => line.serialize_entry(header.label(), &header_value(header, record))?,
        }
    }
    Ok(line.end()?)
}

/// The value of a header column.
pub(super) fn header_value(column: &LogColumn, record: &Record) -> Option<String> {
    let (origin, header) = match column {
        LogColumn::RequestHeader(header) => (HeaderOrigin::Request, header),
        LogColumn::ResponseHeader(header) => (HeaderOrigin::Response, header),
        LogColumn::Field(_) => return None,
    };
    let (value, is_cut) = record.headers.find(origin, &header.name)?;
    Some(shown(value, is_cut))
}

/// A header with a field of its own.
pub(super) fn own_header(value: &[u8]) -> Option<String> {
    (!value.is_empty()).then(|| shown(value, false))
}

/// The values of a key; `None`: the record has no key.
pub(super) fn key(record: &Record) -> Option<String> {
    let parts: Vec<_> = record.key.split_terminator(LABEL_END).collect();
    said(&parts.join(", ")).map(str::to_owned)
}

fn put<M: SerializeMap>(line: &mut M, field: LogField, record: &Record) -> Result<(), M::Error> {
    let name = field.as_str();
    match field {
        LogField::Time => {
            let text = rfc3339(record.time);
            line.serialize_entry(name, std::str::from_utf8(&text).unwrap_or_default())
        }
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
        LogField::Consumer => line.serialize_entry(name, &said(&record.consumer)),
        LogField::Tier => line.serialize_entry(name, &said(&record.tier)),
        LogField::RequestId => line.serialize_entry(name, &record.request_id),
        LogField::Limit => line.serialize_entry(name, &said(&record.limit)),
        LogField::Decision => line.serialize_entry(name, &record.decision.map(DecisionLabel::as_str)),
        LogField::Remaining => line.serialize_entry(name, &record.remaining),
        LogField::Cost => line.serialize_entry(name, &record.cost),
        LogField::Reserved => line.serialize_entry(name, &record.settled.map(|settled| settled.reserved)),
        LogField::Settled => line.serialize_entry(name, &record.settled.map(|settled| settled.units)),
        LogField::Settlement => {
            line.serialize_entry(name, &record.settled.map(|settled| settled.result.as_str()))
        }
        LogField::Shadow => line.serialize_entry(name, &said(&record.shadow)),
        LogField::Error => line.serialize_entry(name, &record.error),
        LogField::TraceId => line.serialize_entry(name, &record.trace_id.map(|id| id.to_string())),
        LogField::UserAgent => line.serialize_entry(name, &own_header(&record.user_agent)),
        LogField::Referer => line.serialize_entry(name, &own_header(&record.referer)),
        LogField::Protocol => line.serialize_entry(name, version(record.version)),
        LogField::Key => line.serialize_entry(name, &key(record)),
    }
}

/// A name, unless it is empty.
pub(super) fn said(name: &str) -> Option<&str> {
    Some(name).filter(|name| !name.is_empty())
}

/// Compact JSON without any control character: serde's own format leaves DEL, C1 and Unicode's line separators
/// unescaped, which some readers take for line ends and some terminals for commands.
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
pub(super) fn combined(batch: &mut Vec<u8>, record: &Record) -> io::Result<()> {
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

/// As Apache does: quotes and backslashes are escaped by a backslash, everything but printable ASCII as `\xHH`.
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

pub(super) fn version(version: Version) -> &'static str {
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
pub(super) fn milliseconds(span: Micros) -> f64 {
    span.0 as f64 / 1_000.0
}

/// `2026-01-31T23:59:59.999999Z` (RFC 3339). Its digits are set one by one: with the formatter of the standard library a
/// line costs a fifth more.
pub fn rfc3339(time: WallTime) -> [u8; 27] {
    let utc = utc(time);
    let (hour, minute, second, microsecond) = utc.time().as_hms_micro();
    let mut text = *b"0000-00-00T00:00:00.000000Z";
    put_digits(&mut text[..4], utc.year().unsigned_abs());
    put_digits(&mut text[5..7], u8::from(utc.month()).into());
    put_digits(&mut text[8..10], utc.day().into());
    put_digits(&mut text[11..13], hour.into());
    put_digits(&mut text[14..16], minute.into());
    put_digits(&mut text[17..19], second.into());
    put_digits(&mut text[20..26], microsecond);
    text
}

/// The last digits of a number, with zeros in front.
fn put_digits(digits: &mut [u8], mut number: u32) {
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + u8::try_from(number % 10).unwrap_or_default();
        number /= 10;
    }
}

/// `31/Jan/2026:23:59:59 +0000`, as in the common log format.
fn common_time(time: WallTime) -> String {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let utc = utc(time);
    let month = MONTHS[usize::from(u8::from(utc.month())) - 1];
    let (hour, minute, second) = utc.time().as_hms();
    format!("{:02}/{month}/{:04}:{hour:02}:{minute:02}:{second:02} +0000", utc.day(), utc.year())
}

/// Times beyond the year 9999, which the clock never returns, are shown as 1970.
pub(super) fn utc(time: WallTime) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(time.0) * 1_000)
        .unwrap_or(OffsetDateTime::UNIX_EPOCH)
}
