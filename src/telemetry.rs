//! What happened: counters for `/metrics`, records for the access log, traces, and the program's own log.

pub mod access_log;
pub mod metrics;
pub mod program_log;
pub mod trace;
