//! Random and mutated input.

mod config;
mod http1;
mod http2;
mod parsers;
mod policy_tests;
