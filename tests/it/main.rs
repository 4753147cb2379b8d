//! Black-box and seam tests: one binary, one module a subject.

mod core_cases;
mod core_definitions;
mod core_promises;
