//! Metrics, logs and traces.

mod access_log;
mod alerts;
mod dashboard;
mod log_fields;
mod log_file;
mod log_pretty;
mod log_sample;
mod metrics;
mod program_log;
mod samples;
mod scrape;
mod settled_costs;
mod shadow;
mod trace_context;
mod trace_export;
mod trace_life;
mod trace_spans;
