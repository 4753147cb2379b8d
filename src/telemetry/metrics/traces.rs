//! The metrics of traces.

use super::exposition::{Exposition, Kind};
use crate::telemetry::trace::SpanCounts;

/// The counts of exported and dropped spans.
pub(super) fn traces(page: &mut Exposition, counts: &SpanCounts) {
    let exports = "tollgate_trace_exports_total";
    page.family(exports, Kind::Counter, "Batches of spans exported to the collector, by result.");
    page.sample(exports, &[("result", "success")], counts.succeeded());
    page.sample(exports, &[("result", "failure")], counts.failed());
    let dropped = "Spans dropped because the queue was full or an export failed.";
    page.single("tollgate_trace_spans_dropped_total", Kind::Counter, dropped, counts.dropped());
}
