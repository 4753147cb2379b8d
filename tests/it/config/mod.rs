//! `gateway.toml`: what loads, and the report of what does not.

mod files;
mod include;
mod no_env;
mod policy_tests;
mod report;
mod schema;
mod sets;
mod summary;
mod tables;
mod tour;
mod variables;
mod witnesses;
