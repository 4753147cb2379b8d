//! Black-box and seam tests: one binary, one folder a subject.
#![expect(
    clippy::disallowed_methods,
    reason = "black-box tests wait for a real process, so they read a clock"
)]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking, and so do the functions that tests share"
)]

mod abuse;
mod acme;
mod actions;
mod admin;
mod bans;
mod body_keys;
mod calls;
mod cli;
mod compression;
mod config;
mod consumers;
mod cost;
mod decisions;
mod docs;
mod forward_auth;
mod fuzz;
mod harness;
mod http1;
mod http2;
#[cfg(feature = "http3")]
mod http3;
mod in_flight;
mod limit;
mod limit_options;
mod measure;
mod migrate;
mod mirror;
mod overload;
mod packaging;
mod passwords;
mod peers;
mod proxy;
mod redis;
mod replay;
mod route;
mod serve;
mod shared;
mod store;
mod stories;
mod structure;
mod suggest;
mod telemetry;
mod tls;
mod tokens;
mod top;
mod upstream;
mod usage;
