//! `share_by` of a limit.

use super::diagnostics::Diagnostics;
use super::report::{SourceSpan, quoted};
use crate::plan::Limit;

/// Checks a limit that has `share_by` at `span`.
pub(super) fn check(limit: &Limit, span: SourceSpan, diagnostics: &Diagnostics<'_>) {
    let name = quoted(&limit.name);
    if !limit.has_queue() {
        let message = format!("`share_by` divides nothing: no request waits for a place of limit {name}");
        diagnostics.fault(span, message, "write `queue`, the number of requests that may wait");
    }
    if limit.policies.len() > 1 {
        let message = format!("`share_by` divides one queue, but limit {name} has one for each of its rates");
        diagnostics.fault(span, message, "write one rate, and the others in another limit");
    }
    if limit.share_by.as_ref().is_some_and(|share| share.parts == limit.key.parts) {
        let message =
            format!("`share_by` divides nothing: limit {name} has a queue for each such key already");
        diagnostics.fault(span, message, "write a wider `key`, such as `upstream`, or leave `share_by` out");
    }
}
