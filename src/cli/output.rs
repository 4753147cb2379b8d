//! Output for users, without a panic on a closed pipe, as `println!` has.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use super::{FAILED, MISTAKE};
use crate::config::Report;

/// Writes `text` to standard output. A reader that closes the pipe early (`tollgate check | head`) is not a failure.
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

/// Writes the report of a faulty file to standard error, and returns the exit status.
pub(super) fn refuse(report: &Report) -> ExitCode {
    report.print();
    ExitCode::from(MISTAKE)
}

/// Writes an error to standard error, and returns the exit status.
pub(super) fn fault(status: u8, what: impl Display) -> ExitCode {
    // If standard error is closed, only the exit status remains.
    let _ = writeln!(io::stderr().lock(), "error: {what}");
    ExitCode::from(status)
}
