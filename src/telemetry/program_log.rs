//! The program log: events and errors of the program, as lines of text or JSON objects on standard error.
//!
//! Workers log very rarely, and never for a request: a stuck reader of standard error must not stop traffic.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::{self, Compact, Format, Json, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::{SubscriberInitExt as _, TryInitError};
use tracing_subscriber::{EnvFilter, Registry, reload};

pub use super::terminal::colour_on;
use crate::plan::log::ProgramFormat;

/// The filter when the configured one cannot be read.
const DEFAULT: &str = "info";

/// Controls the log that [`start`] started.
#[derive(Debug)]
pub struct ProgramLog {
    filter: reload::Handle<EnvFilter, Registry>,
    json: Arc<AtomicBool>,
    /// The level that the command line asks for.
    fixed_level: Option<&'static str>,
}

/// Starts logging to standard error. `level` is a level (`info`) or directives of tracing's `EnvFilter`
/// (`warn,tollgate=debug`); `fixed_level` overrules it for the life of the process. Fails if the process already has a
/// log.
pub fn start(
    level: &str,
    fixed_level: Option<&'static str>,
    format: ProgramFormat,
) -> Result<ProgramLog, TryInitError> {
    let json = Arc::new(AtomicBool::new(format == ProgramFormat::Json));
    let (filter, handle) = reload::Layer::new(filter(fixed_level.unwrap_or(level)));
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(colour_on(&io::stderr()))
        // Otherwise a closed standard error would end the process: the fault itself is printed there, with a panic.
        .log_internal_errors(false)
        .event_format(ProgramLines::new(Arc::clone(&json)))
        .with_writer(io::stderr);
    tracing_subscriber::registry().with(filter).with(lines).try_init()?;
    Ok(ProgramLog { filter: handle, json, fixed_level })
}

impl ProgramLog {
    /// Changes what is logged from now on, and how. A level of the command line stays.
    pub fn change(&self, level: &str, format: ProgramFormat) {
        self.json.store(format == ProgramFormat::Json, Ordering::Relaxed);
        if self.filter.reload(filter(self.fixed_level.unwrap_or(level))).is_err() {
            // The subscriber lives as long as the process, so this does not happen; if it did, the old level would
            // stay.
            tracing::warn!("the level of the log cannot be changed");
        }
    }

    /// Whether each event is a JSON object.
    pub fn is_json(&self) -> bool {
        self.json.load(Ordering::Relaxed)
    }
}

fn filter(level: &str) -> EnvFilter {
    // `config` refuses invalid filters; too many log lines are better than none.
    EnvFilter::try_new(level).unwrap_or_else(|_| EnvFilter::new(DEFAULT))
}

/// Writes events in the present form: a line of text or a JSON object, which a reload may change.
#[derive(Debug)]
struct ProgramLines {
    is_json: Arc<AtomicBool>,
    text: Format<Compact>,
    json: Format<Json>,
}

impl ProgramLines {
    fn new(is_json: Arc<AtomicBool>) -> Self {
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
