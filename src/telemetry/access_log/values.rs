//! The value of each field of a log: one list for all formats.

use std::borrow::Cow;
use std::fmt::{self, Display, Formatter};
use std::net::IpAddr;

use http::Version;
use serde::{Serialize, Serializer};

use super::captured_headers::{HeaderOrigin, shown};
use super::record::Record;
use super::timestamps::rfc3339;
use crate::limit::units::Micros;
use crate::limit::wall_clock::WallTime;
use crate::plan::log::{LogColumn, LogField};
use crate::route::key::LABEL_END;
use crate::telemetry::metrics::DecisionLabel;

/// The value of a field.
#[derive(Clone, Debug)]
pub(super) enum FieldValue<'r> {
    /// Unknown, or not applicable.
    Absent,
    Text(Cow<'r, str>),
    Number(u64),
    Milliseconds(Micros),
    Time(WallTime),
    Address(IpAddr),
}

impl<'r> FieldValue<'r> {
    /// Of a field or a header.
    pub(super) fn of_column(column: &LogColumn, record: &'r Record) -> Self {
        let (origin, header) = match column {
            LogColumn::Field(field) => return Self::of(*field, record),
            LogColumn::RequestHeader(header) => (HeaderOrigin::Request, header),
            LogColumn::ResponseHeader(header) => (HeaderOrigin::Response, header),
        };
        match record.headers.find(origin, &header.name) {
            Some((value, is_cut)) => Self::Text(shown(value, is_cut).into()),
            None => Self::Absent,
        }
    }

    fn of(field: LogField, record: &'r Record) -> Self {
        let Record { request, response, upstream, consumer, decision, .. } = record;
        let settled = decision.settled;
        match field {
            LogField::Time => Self::Time(record.time),
            LogField::Method => Self::Text(request.method.as_str().into()),
            LogField::Host => Self::Text((&*request.host).into()),
            LogField::Path => Self::Text((&*request.path).into()),
            LogField::Route => Self::name(&record.route),
            LogField::Status => Self::Number(response.status.as_u16().into()),
            LogField::BytesIn => Self::Number(request.bytes_in),
            LogField::BytesOut => Self::Number(response.bytes_out),
            LogField::DurationMs => Self::Milliseconds(record.duration),
            LogField::Upstream => Self::name(&upstream.server),
            LogField::UpstreamMs => upstream.duration.map_or(Self::Absent, Self::Milliseconds),
            LogField::Client => Self::Address(record.client),
            LogField::Consumer => Self::name(&consumer.name),
            LogField::Tier => Self::name(&consumer.tier),
            LogField::RequestId => Self::Text((&*record.request_id).into()),
            LogField::Limit => Self::name(&decision.limit),
            LogField::Decision => Self::word(decision.label.map(DecisionLabel::as_str)),
            LogField::Remaining => Self::number(decision.remaining),
            LogField::Cost => Self::number(decision.cost),
            LogField::Reserved => Self::number(settled.map(|settled| settled.reserved)),
            LogField::Settled => Self::number(settled.map(|settled| settled.units)),
            LogField::Settlement => Self::word(settled.map(|settled| settled.result.as_str())),
            LogField::Shadow => Self::name(&decision.shadow),
            LogField::Error => Self::word(response.error),
            LogField::TraceId => record.trace_id.map_or(Self::Absent, |id| Self::Text(id.to_string().into())),
            LogField::UserAgent => Self::header(&request.user_agent),
            LogField::Referer => Self::header(&request.referer),
            LogField::Protocol => Self::word(Some(protocol(request.version))),
            LogField::Key => Self::key(&decision.key),
        }
    }

    /// A name, unless it is empty.
    fn name(name: &'r str) -> Self {
        if name.is_empty() { Self::Absent } else { Self::Text(name.into()) }
    }

    fn word(word: Option<&'static str>) -> Self {
        word.map_or(Self::Absent, |word| Self::Text(word.into()))
    }

    fn number(number: Option<impl Into<u64>>) -> Self {
        number.map_or(Self::Absent, |number| Self::Number(number.into()))
    }

    /// A header with a field of its own.
    fn header(value: &[u8]) -> Self {
        if value.is_empty() { Self::Absent } else { Self::Text(shown(value, false).into()) }
    }

    /// The parts of a key.
    fn key(label: &'r str) -> Self {
        let parts: Vec<_> = label.split_terminator(LABEL_END).collect();
        match &*parts {
            [] => Self::Absent,
            [part] => Self::name(part),
            parts => Self::Text(parts.join(", ").into()),
        }
    }
}

impl Serialize for FieldValue<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Absent => serializer.serialize_none(),
            Self::Text(text) => serializer.serialize_str(text),
            Self::Number(number) => serializer.serialize_u64(*number),
            Self::Milliseconds(span) => serializer.serialize_f64(milliseconds(*span)),
            Self::Time(time) => {
                serializer.serialize_str(std::str::from_utf8(&rfc3339(*time)).unwrap_or_default())
            }
            Self::Address(address) => address.serialize(serializer),
        }
    }
}

impl Display for FieldValue<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => Ok(()),
            Self::Text(text) => text.fmt(f),
            Self::Number(number) => number.fmt(f),
            Self::Milliseconds(span) => milliseconds(*span).fmt(f),
            Self::Time(time) => f.write_str(std::str::from_utf8(&rfc3339(*time)).unwrap_or_default()),
            Self::Address(address) => address.fmt(f),
        }
    }
}

/// `HTTP/1.1`.
pub(super) fn protocol(version: Version) -> &'static str {
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
