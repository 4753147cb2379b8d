//! `[log]`: what is told of requests and of the program, in which form, and where.

use std::path::PathBuf;

/// `[log]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// The access log's form.
    pub access: AccessLog,
    /// Where the access log goes; `None`: standard output.
    pub file: Option<PathBuf>,
    /// How many ordinary requests it tells of.
    pub sample: Sample,
    /// The program log's filter: a level, or directives of tracing's `EnvFilter`.
    pub level: String,
}

/// The access log's form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessLog {
    /// One JSON object a line, with these fields in this order; none is named twice.
    Json(Box<[LogField]>),
    /// Apache's combined format.
    Combined,
    /// None.
    Off,
}

impl AccessLog {
    /// JSON with the usual fields.
    pub fn json() -> Self {
        Self::Json(LogField::USUAL.into())
    }
}

/// A field of the JSON form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the file, and the record says what they hold")]
pub enum LogField {
    Time,
    Method,
    Host,
    Path,
    Route,
    Status,
    BytesIn,
    BytesOut,
    DurationMs,
    Upstream,
    UpstreamMs,
    Client,
    RequestId,
    Limit,
    Decision,
    Remaining,
    Cost,
    Error,
    TraceId,
}

impl LogField {
    /// Those that stand on a line unless the file says otherwise, in this order.
    pub const USUAL: [Self; 18] = [
        Self::Time,
        Self::Method,
        Self::Host,
        Self::Path,
        Self::Route,
        Self::Status,
        Self::BytesIn,
        Self::BytesOut,
        Self::DurationMs,
        Self::Upstream,
        Self::UpstreamMs,
        Self::Client,
        Self::RequestId,
        Self::Limit,
        Self::Decision,
        Self::Remaining,
        Self::Cost,
        Self::Error,
    ];
    /// Those that stand on a line only where the file names them.
    pub const FURTHER: [Self; 1] = [Self::TraceId];

    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::USUAL.into_iter().chain(Self::FURTHER)
    }

    /// Its name on a line and in the file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Method => "method",
            Self::Host => "host",
            Self::Path => "path",
            Self::Route => "route",
            Self::Status => "status",
            Self::BytesIn => "bytes_in",
            Self::BytesOut => "bytes_out",
            Self::DurationMs => "duration_ms",
            Self::Upstream => "upstream",
            Self::UpstreamMs => "upstream_ms",
            Self::Client => "client",
            Self::RequestId => "request_id",
            Self::Limit => "limit",
            Self::Decision => "decision",
            Self::Remaining => "remaining",
            Self::Cost => "cost",
            Self::Error => "error",
            Self::TraceId => "trace_id",
        }
    }
}

/// Which share of requests is chosen.
///
/// The fractions of *n*·φ (φ: the golden ratio) for *n* = 1, 2, 3, … fill the span from 0 to 1 evenly, whichever stretch of
/// them is looked at, and also every second, third, … of them. A request is chosen if its fraction lies below the share. So
/// the number chosen of any stretch is right to within a few, and requests that take turns are all chosen from, which a
/// plain "every hundredth" would not do. It costs an addition and a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Of 2^63, so that the whole is a number, too.
    share: u64,
}

impl Sample {
    /// Every request.
    pub const ALL: Self = Self { share: 1 << 63 };
    /// The fraction of φ, of 2^64.
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

    /// `share`, which is from 0 to 1, of all requests; what lies outside is taken for the nearer end.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a number from 0 to 2^63"
    )]
    pub fn new(share: f64) -> Self {
        Self { share: (share.clamp(0.0, 1.0) * Self::ALL.share as f64) as u64 }
    }

    /// The share, from 0 to 1.
    #[expect(clippy::cast_precision_loss, reason = "a double was what it was made of")]
    pub const fn share(self) -> f64 {
        self.share as f64 / Self::ALL.share as f64
    }

    /// Takes the `phase` of one request to the next, whatever it was at first, and says whether that is chosen.
    pub const fn chooses(self, phase: &mut u64) -> bool {
        *phase = phase.wrapping_add(Self::STEP);
        *phase >> 1 < self.share
    }
}
