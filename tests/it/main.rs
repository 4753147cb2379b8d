//! Black-box and seam tests: one binary, one module a subject.

mod core_bounds;
mod core_cases;
mod core_convert;
mod core_definitions;
mod core_promises;
mod core_settle;
mod core_vectors;
mod trace;
