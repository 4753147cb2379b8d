//! The result of a replay, for people and for programs.

pub mod html;
pub mod json;
pub mod number;
pub mod text;

use crate::limit::units::Timestamp;

/// What is known of the log itself.
#[derive(Clone, Debug, Default)]
pub struct LogSummary {
    /// The files, as the command line names them.
    pub files: Vec<String>,
    /// Their lines.
    pub lines: u64,
    /// Lines that are no request.
    pub skipped: u64,
    /// Why: a sentence for each reason, with the first such line.
    pub problems: Vec<LogProblem>,
    /// What the log lacks, and what follows from that.
    pub notes: Vec<String>,
    /// The first and the last time of its requests, if all of them are outside of `--from` and `--to`.
    pub outside_times: Option<(Timestamp, Timestamp)>,
    /// Reading was interrupted: the rest is unknown.
    pub interrupted: bool,
}

/// Lines that are no request for one reason.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct LogProblem {
    /// The reason.
    pub reason: String,
    /// The number of lines.
    pub lines: u64,
    /// The first: `access.log:17`.
    pub first: String,
    /// The beginning of its text.
    pub text: String,
}
