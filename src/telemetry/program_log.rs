//! The program's own log: what it does and what goes wrong, in lines for people, on standard error.
//!
//! Workers hardly ever log, and never for a request: a stuck reader of standard error must not stop traffic.

use std::io;

use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::{SubscriberInitExt as _, TryInitError};
use tracing_subscriber::{EnvFilter, Registry, fmt, reload};

/// The filter when the configured one cannot be read.
const DEFAULT: &str = "info";

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

fn filter(level: &str) -> EnvFilter {
    // `config` refuses what is not a filter; logging too much is better than nothing.
    EnvFilter::try_new(level).unwrap_or_else(|_| EnvFilter::new(DEFAULT))
}
