//! Times and durations in the API's format.

use serde_json::{Value, json};

use crate::limit::units::{Micros, Timestamp};

/// Seconds since 1970 UTC, with three decimals.
pub(super) fn moment(at: Timestamp) -> Value {
    json!(thousandths(at.0 / 1_000))
}

/// Milliseconds, rounded up: a client that waits as long as this is not too early.
pub(super) fn span(span: Micros) -> Value {
    json!(span.0.div_ceil(1_000))
}

fn thousandths(milliseconds: u64) -> f64 {
    // Exact: both are below 2^53, and the quotient is the double that is printed with three decimals.
    milliseconds as f64 / 1_000.0
}
