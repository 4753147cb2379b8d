//! `tollgate replay` and `tollgate suggest`, and the logs that they read.

mod calls;
mod command;
mod exact;
mod log_formats;
mod log_order;
mod log_prefixes;
mod log_problems;
mod one_decision;
mod own_log;
mod page;
mod story;
mod text_formats;
