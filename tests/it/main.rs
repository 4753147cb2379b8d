//! Black-box and seam tests: one binary, one module a subject.

mod store_exactness;
mod store_flood;
mod store_numbers;
mod store_oracle;
mod store_samples;
