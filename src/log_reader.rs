//! Reads access logs: of tollgate and of other servers, plain or compressed, several files in the order of time.
//!
//! A line is written when its request ends, so lines are not in the order of arrival. A file is read twice. The first
//! pass reads only times and keeps the least one of each block of lines (`line_times.rs`). The second pass holds each
//! line until nothing earlier can come (`held.rs`): the order is exact, and memory is bounded by the disorder, of which
//! what does not fit is sorted in a temporary file (`spill.rs`). A stream is read once, with a window.

mod caddy;
mod combined;
mod decoder;
mod envoy;
mod field_map;
mod fields;
mod format;
mod head;
mod held;
mod input;
mod json;
mod line_times;
pub mod lines;
mod options;
mod problems;
mod reader;
pub mod request;
mod source;
mod spill;
mod text;
mod time;
mod tollgate;
mod traefik;

pub use field_map::FieldMap;
pub use fields::KnownFields;
pub use options::{LogCounts, LogFormat, LogInput, LogOptions, LogPhase, LogProgress};
pub use problems::{FirstProblem, LogFault, LogProblems, ProblemKind};
pub use reader::{LogReader, read_line};
pub use time::parse_time;
