//! Black-box and seam tests: one binary, one module a subject.

mod client_address;
mod key_claim;
mod key_exemption;
mod key_words;
mod route_explain;
mod route_path;
mod route_pattern;
mod route_sample;
mod route_table;
mod route_unreachable;
