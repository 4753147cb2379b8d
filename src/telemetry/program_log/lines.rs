//! The form of an event: a line of text or a JSON object, which a reload may change.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::{self, Compact, Format, Json, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Writes events in the present form.
#[derive(Debug)]
pub(super) struct ProgramLines {
    is_json: Arc<AtomicBool>,
    text: Format<Compact>,
    json: Format<Json>,
}

impl ProgramLines {
    pub(super) fn new(is_json: Arc<AtomicBool>) -> Self {
        let text = format::format().compact().with_target(false);
        // The program has no spans, and the fields of an event stand beside its message.
        let json = format::format().json().with_target(false).flatten_event(true);
        let json = json.with_current_span(false).with_span_list(false);
        Self { is_json, text, json }
    }
}

impl<S, N> FormatEvent<S, N> for ProgramLines
where
    S: Subscriber + for<'l> LookupSpan<'l>,
    N: for<'w> FormatFields<'w> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        if self.is_json.load(Ordering::Relaxed) {
            self.json.format_event(context, writer, event)
        } else {
            self.text.format_event(context, writer, event)
        }
    }
}
