//! The line of text of a record. No bytes of a client can end the line or the field.

use std::io::{self, Write};

use http::Version;
use serde::Serializer as _;
use serde::ser::SerializeMap;
use serde_json::ser::{CompactFormatter, Formatter, Serializer};
use time::OffsetDateTime;

use super::captured_headers::{HeaderOrigin, shown};
use super::record::Record;
use crate::limit::units::Micros;
use crate::limit::wall_clock::WallTime;
use crate::plan::log::{LogColumn, LogField, LogFields};
use crate::route::key::LABEL_END;
use crate::telemetry::metrics::DecisionLabel;

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
    let parts: Vec<_> = record.decision.key.split_terminator(LABEL_END).collect();
    said(&parts.join(", ")).map(str::to_owned)
}

fn put<M: SerializeMap>(line: &mut M, field: LogField, record: &Record) -> Result<(), M::Error> {
    let name = field.as_str();
    match field {
        LogField::Time => {
            let text = rfc3339(record.time);
            line.serialize_entry(name, std::str::from_utf8(&text).unwrap_or_default())
        }
        LogField::Method => line.serialize_entry(name, record.request.method.as_str()),
        LogField::Host => line.serialize_entry(name, &record.request.host),
        LogField::Path => line.serialize_entry(name, &record.request.path),
        LogField::Route => line.serialize_entry(name, &said(&record.route)),
        LogField::Status => line.serialize_entry(name, &record.response.status.as_u16()),
        LogField::BytesIn => line.serialize_entry(name, &record.request.bytes_in),
        LogField::BytesOut => line.serialize_entry(name, &record.response.bytes_out),
        LogField::DurationMs => line.serialize_entry(name, &milliseconds(record.duration)),
        LogField::Upstream => line.serialize_entry(name, &said(&record.upstream.server)),
        LogField::UpstreamMs => line.serialize_entry(name, &record.upstream.duration.map(milliseconds)),
        LogField::Client => line.serialize_entry(name, &record.client),
        LogField::Consumer => line.serialize_entry(name, &said(&record.consumer.name)),
        LogField::Tier => line.serialize_entry(name, &said(&record.consumer.tier)),
        LogField::RequestId => line.serialize_entry(name, &record.request_id),
        LogField::Limit => line.serialize_entry(name, &said(&record.decision.limit)),
        LogField::Decision => line.serialize_entry(name, &record.decision.label.map(DecisionLabel::as_str)),
        LogField::Remaining => line.serialize_entry(name, &record.decision.remaining),
        LogField::Cost => line.serialize_entry(name, &record.decision.cost),
        LogField::Reserved => {
            line.serialize_entry(name, &record.decision.settled.map(|settled| settled.reserved))
        }
        LogField::Settled => {
            line.serialize_entry(name, &record.decision.settled.map(|settled| settled.units))
        }
        LogField::Settlement => {
            line.serialize_entry(name, &record.decision.settled.map(|settled| settled.result.as_str()))
        }
        LogField::Shadow => line.serialize_entry(name, &said(&record.decision.shadow)),
        LogField::Error => line.serialize_entry(name, &record.response.error),
        LogField::TraceId => line.serialize_entry(name, &record.trace_id.map(|id| id.to_string())),
        LogField::UserAgent => line.serialize_entry(name, &own_header(&record.request.user_agent)),
        LogField::Referer => line.serialize_entry(name, &own_header(&record.request.referer)),
        LogField::Protocol => line.serialize_entry(name, version(record.request.version)),
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
    escape(batch, record.request.method.as_str().as_bytes());
    batch.push(b' ');
    escape(batch, record.request.path.as_bytes());
    write!(
        batch,
        " {}\" {} {} \"",
        version(record.request.version),
        record.response.status.as_u16(),
        record.response.bytes_out
    )?;
    escape(batch, or_dash(&record.request.referer));
    batch.extend_from_slice(b"\" \"");
    escape(batch, or_dash(&record.request.user_agent));
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
