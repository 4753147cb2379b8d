//! What people type by habit on the command line, with the remedy for each.

use std::path::Path;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::config::is_standard_input;

/// Commands of other programs, with ours.
const OTHER_COMMANDS: [(&str, &str); 10] = [
    ("validate", "tollgate check"),
    ("verify", "tollgate check"),
    ("test", "tollgate check"),
    ("configtest", "tollgate check"),
    ("lint", "tollgate check"),
    ("start", "tollgate run"),
    ("serve", "tollgate run"),
    ("up", "tollgate run"),
    ("reload", "kill -HUP PID"),
    ("stop", "kill PID"),
];

/// Adds the remedy, where one is known, in place of what the parser guesses.
pub(super) fn with_remedy(error: clap::Error) -> clap::Error {
    let typed = |kind| match error.get(kind) {
        Some(ContextValue::String(typed)) => Some(typed.as_str()),
        _ => None,
    };
    let remedy = match error.kind() {
        ErrorKind::InvalidSubcommand => typed(ContextKind::InvalidSubcommand).and_then(other_command),
        ErrorKind::UnknownArgument if typed(ContextKind::InvalidArg) == Some("-t") => {
            Some("tollgate check".to_owned())
        }
        ErrorKind::UnknownArgument => {
            typed(ContextKind::InvalidArg).and_then(|typed| file(typed, &command()))
        }
        _ => None,
    };
    let Some(remedy) = remedy else { return error };
    let what = match error.kind() {
        ErrorKind::InvalidSubcommand => {
            format!("there is no command `{}`", typed(ContextKind::InvalidSubcommand).unwrap_or_default())
        }
        _ => format!("unexpected argument `{}`", typed(ContextKind::InvalidArg).unwrap_or_default()),
    };
    super::command().error(error.kind(), format!("{what}\n\n  tip: write `{remedy}`"))
}

/// Refuses `--watch` with `-c -`.
pub(super) fn refuse_watch_of_standard_input(config: &Path, watches: bool) -> Result<(), clap::Error> {
    if !watches || !is_standard_input(config) {
        return Ok(());
    }
    let message = "`--watch` cannot watch standard input (`-c -`)\n\n  tip: write the configuration to a file and name \
                   the file: `-c FILE`";
    Err(super::command().error(ErrorKind::ArgumentConflict, message))
}

fn other_command(typed: &str) -> Option<String> {
    let other = OTHER_COMMANDS.iter().find(|(other, _)| *other == typed);
    other.map(|(_, ours)| (*ours).to_owned()).or_else(|| file(typed, "tollgate"))
}

/// The remedy for the name of a file without `-c`.
fn file(typed: &str, command: &str) -> Option<String> {
    let is_file = typed.ends_with(".toml") || typed.contains('/') && !typed.contains("://");
    (is_file && !typed.starts_with('-')).then(|| format!("{command} -c {typed}"))
}

/// The command that was typed, as `tollgate check`.
fn command() -> String {
    let known =
        |argument: &String| matches!(argument.as_str(), "run" | "check" | "explain" | "health" | "top");
    let typed = std::env::args_os().filter_map(|argument| argument.into_string().ok()).find(known);
    typed.map_or_else(|| "tollgate".to_owned(), |typed| format!("tollgate {typed}"))
}
