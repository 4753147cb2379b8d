//! The program log: events and errors of the program, as text lines on standard error.
//!
//! Workers log very rarely, and never for a request: a stuck reader of standard error must not stop traffic.

use std::io;

use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::{SubscriberInitExt as _, TryInitError};
use tracing_subscriber::{EnvFilter, Registry, fmt, reload};

/// The filter when the configured one cannot be read.
const DEFAULT: &str = "info";

/// Controls the log that [`start`] started.
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
        // Otherwise a closed standard error would end the process: the fault itself is printed there, with a panic.
        .log_internal_errors(false)
        .with_writer(io::stderr);
    tracing_subscriber::registry().with(filter).with(lines).try_init()?;
    Ok(ProgramLog { filter: handle })
}

/// Whether `stream` gets colours: a terminal does, unless `NO_COLOR` is set to any value (<https://no-color.org>).
pub fn colour_on(stream: &impl io::IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

impl ProgramLog {
    /// Changes what is logged from now on.
    pub fn set_level(&self, level: &str) {
        if self.filter.reload(filter(level)).is_err() {
            // The subscriber lives as long as the process, so this does not happen; if it did, the old level would
            // stay.
            tracing::warn!("the level of the log cannot be changed");
        }
    }
}

fn filter(level: &str) -> EnvFilter {
    // `config` refuses invalid filters; too many log lines are better than none.
    EnvFilter::try_new(level).unwrap_or_else(|_| EnvFilter::new(DEFAULT))
}
