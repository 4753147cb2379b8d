//! The access logs that `tollgate replay` and `tollgate suggest` read.

use std::io::{self, IsTerminal as _, Write as _};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use crate::clock::monotonic;
use crate::limit::units::{Micros, Timestamp};
use crate::limit::wall_clock::WallTime;
use crate::log_reader::{
    FieldMap, LogFormat, LogInput, LogOptions, LogPhase, LogProgress, LogReader, parse_time,
};
use crate::replay::report::number::Grouped;
use crate::replay::report::{LogProblem, LogSummary};
use crate::telemetry::access_log::rfc3339;
use crate::telemetry::terminal::safe_text;

/// The characters of a full bar.
const BAR: usize = 20;
/// How often the progress line is written.
const EVERY: Micros = Micros(200_000);
/// The maximum number of characters of a name of a file and of a line.
const MAX_CHARS: usize = 200;

/// Which logs are read, and how.
#[derive(Args, Clone, Debug)]
pub(super) struct LogArguments {
    /// Access logs, also compressed by gzip or zstd; `-` is standard input
    ///
    /// Several are merged by time. Without one, standard input is read.
    #[arg(value_name = "LOG")]
    logs: Vec<PathBuf>,
    /// The format: auto, tollgate, combined (also common), caddy, traefik, envoy, haproxy or alb
    #[arg(long, value_name = "FORMAT", default_value = "auto", value_parser = format, hide_possible_values = true)]
    format: LogFormat,
    /// The fields of JSON lines of another server: `time=$.ts,client=$.remote_addr,…`
    ///
    /// Fields: time (the end) or start, client, method, path or request, host, status, duration (`:ms`, `:us`, `:ns` for
    /// other units than seconds), bytes_in, bytes_out, user_agent, referer, consumer, header:NAME.
    #[arg(long, value_name = "FIELD=PATH,…", value_parser = FieldMap::parse)]
    map: Option<FieldMap>,
    /// The host of requests, if the log does not have it
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// How long lines of standard input are held back to sort them by time
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
    reorder: Micros,
    /// Leave out requests before this time: `2026-11-22T08:00:00Z`, or a day
    #[arg(long, value_name = "TIME", value_parser = time)]
    from: Option<Timestamp>,
    /// Leave out requests at this time and later
    #[arg(long, value_name = "TIME", value_parser = time)]
    to: Option<Timestamp>,
}

impl LogArguments {
    /// The options for the reader; `files` are the configurations. The error is for users.
    pub(super) fn options(&self, files: &[&Path]) -> Result<LogOptions, String> {
        if self.logs.is_empty() && io::stdin().is_terminal() {
            return Err("no log is named\n  = help: name files, as in `tollgate replay access.log`, or `-` for standard \
                        input"
                .to_owned());
        }
        let input = |path: &PathBuf| match path.as_os_str() == "-" {
            true => LogInput::Stdin,
            false => LogInput::File(path.clone()),
        };
        let mut inputs: Vec<_> = self.logs.iter().map(input).collect();
        if inputs.is_empty() {
            inputs.push(LogInput::Stdin);
        }
        let logs = inputs.iter().filter(|input| **input == LogInput::Stdin).count();
        if logs + files.iter().filter(|file| file.as_os_str() == "-").count() > 1 {
            return Err(
                "standard input is read twice\n  = help: name it once; without a log it is read, too"
                    .to_owned(),
            );
        }
        let Self { format, map, host, reorder, from, to, .. } = self.clone();
        let trusted_proxies = Vec::new();
        Ok(LogOptions { inputs, format, map, host, trusted_proxies, reorder, from, to })
    }
}

fn format(text: &str) -> Result<LogFormat, String> {
    let known = LogFormat::ALL.iter().find(|format| format.as_str() == text);
    known.copied().ok_or_else(|| {
        let all: Vec<_> = LogFormat::ALL.iter().map(|format| format.as_str()).collect();
        format!("write {}", all.join(", "))
    })
}

fn duration(text: &str) -> Result<Micros, String> {
    let unit = text.trim_start_matches(|digit: char| digit.is_ascii_digit());
    let number: u64 =
        text.strip_suffix(unit).unwrap_or(text).parse().map_err(|_| "write `60s`, `5min` or `1h`")?;
    let seconds = match unit {
        "s" => number,
        "min" => number.saturating_mul(60),
        "h" => number.saturating_mul(3_600),
        _ => return Err("write `60s`, `5min` or `1h`".to_owned()),
    };
    if seconds > 86_400 { Err("at most `24h`".to_owned()) } else { Ok(Micros(seconds * 1_000_000)) }
}

fn time(text: &str) -> Result<Timestamp, String> {
    let day = format!("{text}T00:00:00Z");
    let found = parse_time(text).or_else(|| parse_time(&day));
    found.ok_or_else(|| "write `2026-11-22T08:00:00Z`, or a day: `2026-11-22`".to_owned())
}

/// What is known of a log that was read.
pub(super) fn summary(reader: &LogReader<'_>, options: &LogOptions, notes: Vec<String>) -> LogSummary {
    let problem =
        |(kind, lines, first): (crate::log_reader::ProblemKind, u64, &crate::log_reader::FirstProblem)| {
            LogProblem {
                reason: kind.as_str().to_owned(),
                lines,
                first: format!("{}:{}", first.file, first.place.line),
                text: first.text.clone(),
            }
        };
    let mut notes = notes;
    let counts = reader.counts();
    if counts.late > 0 {
        let late = Grouped(counts.late);
        notes.push(format!(
            "lines that came later than `--reorder` allows, and count at the time of the line before: {late}"
        ));
    }
    if counts.other_format > 0 {
        notes.push(format!("lines of another format than their file: {}", Grouped(counts.other_format)));
    }
    if counts.outside > 0 {
        notes.push(format!("requests outside of `--from` and `--to`: {}", Grouped(counts.outside)));
    }
    LogSummary {
        files: options.inputs.iter().map(LogInput::name).collect(),
        lines: counts.lines,
        skipped: reader.problems().skipped_lines(),
        problems: reader.problems().iter().map(problem).collect(),
        notes,
        outside_times: counts.outside_times.filter(|_| counts.requests == 0),
        interrupted: reader.is_interrupted(),
    }
}

/// `1 line`, `1,234 lines`.
pub(super) fn lines(count: u64) -> String {
    format!("{} line{}", Grouped(count), if count == 1 { "" } else { "s" })
}

/// Why there is nothing to report: `what`, and the first problem of the log.
pub(super) fn no_request(log: &LogSummary, what: &str) -> String {
    if log.interrupted {
        return "interrupted before the first request".to_owned();
    }
    if let Some((first, last)) = log.outside_times {
        let (first, last) = (seconds_of(first), seconds_of(last));
        return format!(
            "no request of the log lies in the time of `--from` and `--to`\n  \
             = help: its requests lie from {first} to {last}"
        );
    }
    let first = log.problems.first().map(|one| {
        let (place, text) = (safe_text(&one.first, MAX_CHARS), safe_text(&one.text, MAX_CHARS));
        format!(": {}: {}, the first is {place} `{text}`", one.reason, lines(one.lines))
    });
    let help = "name the format with `--format`, or the fields with `--map`";
    format!("{what}{}\n  = help: {help}", first.unwrap_or_default())
}

/// `2026-11-22T08:00:00Z`, as `--from` reads it.
fn seconds_of(time: Timestamp) -> String {
    let text = rfc3339(WallTime(time.0));
    let seconds =
        text.first_chunk::<19>().map_or_else(Default::default, |text| String::from_utf8_lossy(text));
    format!("{seconds}Z")
}

/// Shows on a terminal how far a reader is, and ends it at Ctrl-C.
pub(super) struct Watcher {
    interrupted: Arc<AtomicBool>,
    /// Standard error is a terminal.
    shows: bool,
    phase: LogPhase,
    phase_began: Micros,
    last: Micros,
}

impl Watcher {
    pub(super) fn new(interrupted: Arc<AtomicBool>) -> Self {
        let now = monotonic();
        let shows = io::stderr().is_terminal();
        Self { interrupted, shows, phase: LogPhase::Times, phase_began: now, last: now }
    }

    /// Called by the reader.
    pub(super) fn watch(&mut self, progress: LogProgress) -> ControlFlow<()> {
        let now = monotonic();
        if progress.phase != self.phase {
            (self.phase, self.phase_began) = (progress.phase, now);
        }
        if self.shows && now.0 - self.last.0 >= EVERY.0 {
            self.last = now;
            let line = progress_line(&progress, Micros(now.0 - self.phase_began.0));
            // If standard error is closed, there is nothing to show.
            let _ = write!(io::stderr().lock(), "\r\x1b[K{line}");
        }
        if self.interrupted.load(Ordering::Relaxed) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        if self.shows {
            let _ = write!(io::stderr().lock(), "\r\x1b[K");
        }
    }
}

/// `reading requests  [████████            ]  42 %  1,234,567 lines  612,000 lines/s  8 s left`.
fn progress_line(progress: &LogProgress, passed: Micros) -> String {
    let what = match progress.phase {
        LogPhase::Times => "reading times",
        LogPhase::Requests => "reading requests",
    };
    let (lines, millis) = (progress.lines, (passed.0 / 1_000).max(1));
    let rate = lines.saturating_mul(1_000) / millis;
    let speed = format!("{} lines  {} lines/s", Grouped(lines), Grouped(rate));
    let Some(total) = progress.bytes_total.filter(|total| *total > 0 && progress.bytes_read > 0) else {
        return format!("{what}  {speed}");
    };
    let read = progress.bytes_read.min(total);
    let percent = usize::try_from(u128::from(read) * 100 / u128::from(total)).unwrap_or(100);
    let bar = "█".repeat(percent * BAR / 100);
    let left = Duration::from_millis(millis.saturating_mul(total - read) / read).as_secs();
    format!("{what}  [{bar:BAR$}]  {percent} %  {speed}  {left} s left")
}

/// A flag that Ctrl-C sets. A second Ctrl-C ends the process.
///
/// # Errors
///
/// The system has no resources to wait for Ctrl-C.
pub(super) fn interruptible() -> io::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    let set = Arc::clone(&flag);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let inside = runtime.enter();
    let mut interrupts = signal(SignalKind::interrupt())?;
    drop(inside);
    std::thread::Builder::new().name("interrupt".to_owned()).spawn(move || {
        runtime.block_on(async {
            while interrupts.recv().await.is_some() {
                if set.swap(true, Ordering::Relaxed) {
                    std::process::exit(i32::from(super::INTERRUPTED));
                }
            }
        });
    })?;
    Ok(flag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_progress_has_a_bar_a_rate_and_the_time_left() {
        let mut progress =
            LogProgress { phase: LogPhase::Requests, bytes_read: 40, bytes_total: Some(100), lines: 2_000 };
        let line = progress_line(&progress, Micros(4_000_000));
        assert_eq!(
            line,
            "reading requests  [████████            ]  40 %  2,000 lines  500 lines/s  6 s left"
        );
        progress.bytes_total = None;
        assert_eq!(progress_line(&progress, Micros(4_000_000)), "reading requests  2,000 lines  500 lines/s");
    }
}
