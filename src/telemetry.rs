//! What happened: counters for `/metrics`, the last minutes for the dashboard, records for the access log, traces, and the program's
//! own log.

pub mod access_log;
pub mod audience;
pub mod distinct;
pub mod metrics;
pub mod program_log;
pub mod refusals;
pub mod samples;
pub mod talkers;
pub mod trace;
