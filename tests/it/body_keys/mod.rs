//! Limits that count by a value in the body: `json:/POINTER` and `form:NAME`, through the real binary.

mod buffered;
mod requests;
