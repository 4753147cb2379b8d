//! `gateway.toml`: what loads, and the report of what does not.

mod files;
mod report;
mod schema;
mod summary;
mod tables;
mod tour;
