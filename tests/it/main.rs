//! Black-box and seam tests: one binary, one module a subject.

mod core_cases;
mod core_definitions;
mod core_promises;
mod store_exactness;
mod store_flood;
mod store_numbers;
mod store_oracle;
mod store_samples;
