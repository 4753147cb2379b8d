//! Black-box and seam tests: one binary, one module a subject.
#![expect(
    clippy::disallowed_methods,
    reason = "black-box tests wait for a real process, so they read a clock"
)]

mod harness;
mod imports;
mod limits_answers;
mod limits_exact;
mod limits_keys;
mod limits_seed;
mod store_exactness;
mod store_flood;
mod store_numbers;
mod store_oracle;
mod store_samples;
