//! Output for users, without a panic on a closed pipe, as `println!` has.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use super::FAILED;
use crate::config::Report;
use crate::telemetry::program_log::colour_on;

/// Writes `text` to standard output. A reader that closes the pipe early (`tollgate check | head`) is no failure.
pub(super) fn show(text: &str) -> ExitCode {
    let mut stdout = io::stdout().lock();
    let end = if text.ends_with('\n') { "" } else { "\n" };
    let written = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.write_all(end.as_bytes()))
        .and_then(|()| stdout.flush());
    match written {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            fault(FAILED, format_args!("cannot write to standard output: {error}"))
        }
        _ => ExitCode::SUCCESS,
    }
}

/// Writes a report of faults or warnings to standard error; an empty one writes nothing.
pub(super) fn show_report(report: &Report) {
    let stderr = io::stderr();
    // If standard error is closed, only the exit status remains.
    let _ = stderr.lock().write_all(report.render(colour_on(&stderr)).as_bytes());
}

/// Writes an error to standard error, and returns the exit status.
pub(super) fn fault(status: u8, what: impl Display) -> ExitCode {
    // As above.
    let _ = writeln!(io::stderr().lock(), "error: {what}");
    ExitCode::from(status)
}
