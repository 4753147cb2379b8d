//! Reads access logs: of tollgate and of other servers, plain or compressed, several files in the order of time.
//!
//! A line is written when its request ends, so lines are not in the order of arrival. A file is read twice. The first
//! pass reads only times and keeps the least one of each block of lines (`line_times.rs`). The second pass holds each
//! line until nothing earlier can come (`held.rs`): the order is exact, and memory is bounded by the disorder, of which
//! what does not fit is sorted in a temporary file (`spill.rs`). A stream is read once, with a window.
//!
//! What syslog or a container runtime wrote in front of a line is left out before a format reads the line (`prefix.rs`).
//! A line that a container runtime divided is joined (`whole_lines.rs`).

mod alb;
mod caddy;
mod columns;
mod combined;
mod decoder;
mod envoy;
mod envoy_text;
mod field_map;
mod fields;
mod format;
mod haproxy;
mod head;
mod held;
mod input;
mod json;
mod line_times;
pub mod lines;
mod options;
mod prefix;
mod problems;
mod reader;
pub mod request;
mod source;
mod spill;
mod text;
mod time;
mod tollgate;
mod traefik;
mod whole_lines;

pub use field_map::FieldMap;
pub use fields::KnownFields;
pub use options::{LogCounts, LogFormat, LogInput, LogOptions, LogPhase, LogProgress};
pub use problems::{FirstProblem, LogFault, LogProblems, ProblemKind};
pub use reader::{LogReader, read_line};
pub use time::parse_time;
