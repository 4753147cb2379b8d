//! The program's own log: what it does and what goes wrong, in lines for people, on standard error.
//!
//! Workers hardly ever log, and never for a request: a stuck reader of standard error must not stop traffic.

use std::io;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::{SubscriberInitExt as _, TryInitError};
use tracing_subscriber::{EnvFilter, Registry, fmt, reload};

use crate::clock::deadline::now;

/// The filter when the configured one cannot be read.
const DEFAULT: &str = "info";
/// How often a warning of the HTTP/2 library is logged at most.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// Steers the log that [`start`] started.
#[derive(Debug)]
pub struct ProgramLog {
    filter: reload::Handle<EnvFilter, Registry>,
}

/// Starts logging to standard error. `level` is a level (`info`) or directives of tracing's `EnvFilter`
/// (`warn,tollgate=debug`). Fails if the process already has a log.
pub fn start(level: &str) -> Result<ProgramLog, TryInitError> {
    let (filter, handle) = reload::Layer::new(filter(level));
    let lines = fmt::layer()
        .compact()
        .with_target(false)
        .with_ansi(colour_on(&io::stderr()))
        // Else a closed standard error ends the process: the fault is itself printed there, with a panic.
        .log_internal_errors(false)
        .map_event_format(Throttled::new)
        .with_writer(io::stderr);
    tracing_subscriber::registry().with(filter).with(lines).try_init()?;
    Ok(ProgramLog { filter: handle })
}

/// Whether `stream` gets colours: a terminal does, unless `NO_COLOR` is set to anything (<https://no-color.org>).
pub fn colour_on(stream: &impl io::IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

impl ProgramLog {
    /// Changes what is logged from now on.
    pub fn set_level(&self, level: &str) {
        if self.filter.reload(filter(level)).is_err() {
            // The subscriber lives as long as the process, so this does not happen; if so, the old level stays.
            tracing::warn!("the level of the log cannot be changed");
        }
    }
}

/// Formats events, but of the warnings of the `h2` crate one a minute at most: any client can cause them, as often as it
/// likes.
struct Throttled<F> {
    format: F,
    lately: Mutex<Lately>,
}

/// What was logged of the `h2` crate's warnings.
#[derive(Debug, Default)]
struct Lately {
    logged: Option<Instant>,
    /// Warnings since then.
    left_out: u64,
}

impl<F> Throttled<F> {
    fn new(format: F) -> Self {
        Self { format, lately: Mutex::default() }
    }
}

impl Lately {
    /// A warning comes at `now`. `None`: it is left out; else how many were left out before it.
    fn admit(&mut self, now: Instant) -> Option<u64> {
        if self.logged.is_some_and(|logged| now - logged < WARN_EVERY) {
            self.left_out += 1;
            return None;
        }
        self.logged = Some(now);
        Some(std::mem::take(&mut self.left_out))
    }
}

impl<F, S, N> FormatEvent<S, N> for Throttled<F>
where
    F: FormatEvent<S, N>,
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> std::fmt::Result {
        let metadata = event.metadata();
        let is_librarys = metadata.target() == "h2" || metadata.target().starts_with("h2::");
        if !is_librarys || *metadata.level() > Level::WARN {
            return self.format.format_event(context, writer, event);
        }
        match self.lately.lock().admit(now()) {
            // Nothing is written, so there is no line.
            None => Ok(()),
            Some(0) => self.format.format_event(context, writer, event),
            Some(left_out) => {
                let mut line = String::new();
                self.format.format_event(context, Writer::new(&mut line), event)?;
                writeln!(writer, "{} ({left_out} more since the last such line)", line.trim_end())
            }
        }
    }
}

fn filter(level: &str) -> EnvFilter {
    // `config` refuses what is not a filter; logging too much is better than nothing.
    EnvFilter::try_new(level).unwrap_or_else(|_| EnvFilter::new(DEFAULT))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn warnings_of_the_http2_library_are_logged_once_a_minute() {
        let lines = Lines::default();
        let writer = lines.clone();
        let layer = fmt::layer().compact().with_target(false).without_time().with_ansi(false);
        let layer = layer.map_event_format(Throttled::new).with_writer(move || writer.clone());
        let guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(layer));
        for round in 0..3 {
            (0..5).for_each(|_| tracing::warn!(target: "h2::proto", "round {round}"));
            tracing::info!(target: "h2::proto", "no warning");
            tracing::warn!("not the library's");
            tokio::time::advance(WARN_EVERY - Duration::from_secs(1)).await;
            tracing::warn!(target: "h2", "too early");
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        drop(guard);
        let text = String::from_utf8(lines.0.lock().clone()).expect("text");
        let others = " INFO no warning\n WARN not the library's\n";
        let later = |round| format!(" WARN round {round} (5 more since the last such line)\n{others}");
        assert_eq!(text, format!(" WARN round 0\n{others}{}{}", later(1), later(2)));
    }
}
