//! `[log]`: the form and output of the access log, and the level of the program log.

use std::path::PathBuf;

/// `[log]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// The access log's format.
    pub access: AccessLog,
    /// Where the access log goes; `None`: standard output.
    pub file: Option<PathBuf>,
    /// The share of ordinary requests that are logged.
    pub sample: Sample,
    /// The program log's filter: a level, or directives of tracing's `EnvFilter`.
    pub level: String,
}

/// The access log's format.
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
    /// JSON with the default fields.
    pub fn json() -> Self {
        Self::Json(LogField::USUAL.into())
    }
}

/// A field of the JSON format.
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
    /// The default fields of a line, in this order.
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
    /// The fields of a line only if the file names them.
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

/// Deterministic sampling of a share of requests.
///
/// The fractions of *n*·φ (φ: the golden ratio) for *n* = 1, 2, 3, … fill the range from 0 to 1 evenly, in any part of
/// the sequence, and also for every second, third, … of them. A request is sampled if its fraction is below the share.
/// So the number sampled of any part is right to within a few, and alternating requests are all sampled, which a plain
/// "every hundredth" would not do. It costs an addition and a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// In units of 2^-63, so that 1 can be represented.
    share: u64,
}

impl Sample {
    /// Every request.
    pub const ALL: Self = Self { share: 1 << 63 };
    /// The fraction of φ, in units of 2^-64.
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

    /// `share`, from 0 to 1, of all requests; values outside are clamped.
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

    /// Advances the `phase` from one request to the next, with any start value, and returns whether that request is
    /// sampled.
    pub const fn chooses(self, phase: &mut u64) -> bool {
        *phase = phase.wrapping_add(Self::STEP);
        *phase >> 1 < self.share
    }
}
