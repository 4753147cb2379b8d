//! Telemetry: counters for `/metrics`, the history for the dashboard, records for the access log, traces, and the
//! program log.
//!
//! For example, a refusal adds one to a counter of its worker. A scrape of `/metrics` adds the counters of all workers up.
//! Once a second the control thread notes how much they have grown, which is what the dashboard draws. The worker hands
//! the record of the request to a writer thread, or drops and counts it where the writer is behind.

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
