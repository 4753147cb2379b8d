//! Writing for people, without a panic when nobody reads: `println!` panics on a closed pipe.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use super::FAILED;
use crate::config::Report;
use crate::telemetry::program_log::colour_on;

/// Writes `text` to standard output. A reader that has seen enough (`tollgate check | head`) is no failure.
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
    // Nobody there to read it: the exit status must do.
    let _ = stderr.lock().write_all(report.render(colour_on(&stderr)).as_bytes());
}

/// Says on standard error what went wrong, and gives the exit status.
pub(super) fn fault(status: u8, what: impl Display) -> ExitCode {
    // As above.
    let _ = writeln!(io::stderr().lock(), "error: {what}");
    ExitCode::from(status)
}
