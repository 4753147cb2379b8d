//! `[log]`: the form and output of the access log, and the form and level of the program log.

mod fields;
mod secret_headers;

pub use fields::{HeaderColumn, LogColumn, LogFields, MAX_HEADER_COLUMNS};
pub use secret_headers::SecretHeaders;

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
    /// The program log's format.
    pub program: ProgramFormat,
    /// Headers that are never logged.
    pub secrets: SecretHeaders,
}

/// The access log's format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessLog {
    /// One JSON object a line, with these fields in this order.
    Json(LogFields),
    /// Aligned lines for a reader at a terminal, with those of these fields that the line does not show anyway.
    Pretty(LogFields),
    /// [`Self::Pretty`] if the output is a terminal, else [`Self::Json`].
    Auto(LogFields),
    /// Apache's combined format.
    Combined,
    /// None.
    Off,
}

impl AccessLog {
    /// JSON with the default fields.
    pub fn json() -> Self {
        Self::Json(LogFields::default())
    }

    /// The fields of a record; `None`: the format has its own.
    pub const fn fields(&self) -> Option<&LogFields> {
        match self {
            Self::Json(fields) | Self::Pretty(fields) | Self::Auto(fields) => Some(fields),
            Self::Combined | Self::Off => None,
        }
    }

    /// With the default fields, those of costs that are settled and of limits in shadow are there, too.
    pub(super) fn add(&mut self, settled: bool, shadow: bool) {
        let (Self::Json(fields) | Self::Pretty(fields) | Self::Auto(fields)) = self else { return };
        if *fields == LogFields::default() {
            *fields = LogFields::default_with(settled, shadow);
        }
    }

    /// As the file has it: fields that `Self::add` adds are not in the file.
    pub fn as_written(&self) -> Self {
        let mut written = self.clone();
        let (Self::Json(fields) | Self::Pretty(fields) | Self::Auto(fields)) = &mut written else {
            return written;
        };
        if LogFields::defaults().contains(fields) {
            *fields = LogFields::default();
        }
        written
    }

    /// Whether records need `user-agent` and `referer`.
    pub fn needs_agent(&self) -> bool {
        matches!(self, Self::Combined) || self.fields().is_some_and(|fields| fields.needs_agent)
    }

    /// Whether records need the key of the limit that decided.
    pub fn needs_key(&self) -> bool {
        self.fields().is_some_and(|fields| fields.needs_key)
    }
}

labels! {
    /// The program log's format.
    pub enum ProgramFormat {
        /// Lines of text.
        Text = "text",
        /// One JSON object a line.
        Json = "json",
    }
}

labels! {
    /// A field of a record.
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
        Reserved = "reserved",
        Settled = "settled",
        Settlement = "settlement",
        Shadow = "shadow",
        Error = "error",
        TraceId = "trace_id",
        UserAgent = "user_agent",
        Referer = "referer",
        Protocol = "protocol",
        Key = "key",
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
