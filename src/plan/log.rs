//! `[log]`: the form and output of the access log, and the level of the program log.

use std::path::PathBuf;

use crate::labels::labels;

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
        // The others are written only if the file names them.
        Self::Json(LogField::ALL.into_iter().filter(|field| *field != LogField::TraceId).collect())
    }
}

labels! {
    /// A field of the JSON format.
    #[expect(missing_docs, reason = "the names are those of the file, and the record says what they hold")]
    pub enum LogField {
        Time = "time",
        Method = "method",
        Host = "host",
        Path = "path",
        Route = "route",
        Status = "status",
        BytesIn = "bytes_in",
        BytesOut = "bytes_out",
        DurationMs = "duration_ms",
        Upstream = "upstream",
        UpstreamMs = "upstream_ms",
        Client = "client",
        Consumer = "consumer",
        Tier = "tier",
        RequestId = "request_id",
        Limit = "limit",
        Decision = "decision",
        Remaining = "remaining",
        Cost = "cost",
        Error = "error",
        TraceId = "trace_id",
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
