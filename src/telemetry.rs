//! Telemetry: counters for `/metrics`, the history for the dashboard, records for the access log, traces, and the
//! program log.

pub mod access_log;
pub mod history;
pub mod hyperloglog;
pub mod key_stats;
pub mod metrics;
pub mod program_log;
pub mod refusal_samples;
pub mod terminal;
pub mod top_keys;
pub mod trace;
