//! What happened: counters for `/metrics`, records for the access log, and the program's own log.

pub mod access_log;
pub mod metrics;
pub mod program_log;
