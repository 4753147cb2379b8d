//! `tollgate check`: for people, for programs, and for GitHub.

use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::MISTAKE;
use super::output::show;
use crate::config::{self, CheckedConfig, ConfigFinding, Report, counted};
use crate::plan::Plan;
#[cfg(feature = "http3")]
use crate::proxy;

/// The options of `tollgate check`.
#[derive(Args, Clone, Copy, Debug)]
pub(super) struct CheckOptions {
    /// How to list faults and warnings: as text on standard error; or on standard output as JSON, or as annotations of
    /// GitHub
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = CheckFormat::Text)]
    format: CheckFormat,
    /// Warnings make the exit status 2
    #[arg(long)]
    strict: bool,
    /// Variables that are not set, and files such as certificates, need not be there
    ///
    /// What depends on them is not checked, and standard error names it. A variable that is set is used.
    #[arg(long)]
    no_env: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CheckFormat {
    Text,
    Json,
    Github,
}

/// Checks the configuration `file`.
pub(super) fn run(file: &Path, options: CheckOptions) -> ExitCode {
    let CheckedConfig { plan, mut report, .. } = config::check(file, options.no_env);
    if let (Some(plan), false) = (&plan, options.no_env) {
        try_datagrams(plan, &mut report);
    }
    let written = match options.format {
        CheckFormat::Text => {
            report.print();
            ExitCode::SUCCESS
        }
        CheckFormat::Json => show(&as_json(&report.findings())),
        CheckFormat::Github => show_lines(&as_github(&report.findings())),
    };
    list("not checked", &report.skipped_lines());
    list("note", &report.note_lines());
    let is_refused = report.errors() > 0 || options.strict && report.warnings() > 0;
    if is_refused {
        if options.format == CheckFormat::Text && report.errors() == 0 {
            // If standard error is closed, only the exit status remains.
            let warnings = counted(report.warnings(), "warning");
            let _ = writeln!(io::stderr().lock(), "\nerror: {warnings}, which `--strict` refuses");
        }
        return ExitCode::from(MISTAKE);
    }
    match (options.format, plan) {
        (CheckFormat::Text, Some(plan)) => show(&config::summary(&plan, &config::name_of(file))),
        _ => written,
    }
}

/// Warns of listeners with HTTP/3 that get no UDP on this machine.
#[cfg(feature = "http3")]
fn try_datagrams(plan: &Plan, report: &mut Report) {
    for listener in plan.server.listen.iter().filter(|listener| listener.http3) {
        if let Some(fault) = proxy::datagrams_fault(listener.address) {
            let address = listener.address;
            let message =
                format!("cannot receive UDP on {address}, which `http3` of this listener needs: {fault}");
            report.warn(message, "`ss -lunp` shows which process has the port");
        }
    }
}

/// A build without HTTP/3 has no such listener.
#[cfg(not(feature = "http3"))]
fn try_datagrams(_plan: &Plan, _report: &mut Report) {}

/// Writes these lines to standard error, each after `word`.
fn list(word: &str, lines: &[String]) {
    let mut stderr = io::stderr().lock();
    for line in lines {
        // If standard error is closed, only the exit status remains.
        let _ = writeln!(stderr, "{word}: {line}");
    }
}

/// An empty text writes nothing.
fn show_lines(lines: &str) -> ExitCode {
    if lines.is_empty() { ExitCode::SUCCESS } else { show(lines) }
}

fn as_json(findings: &[ConfigFinding]) -> String {
    let one = |finding: &ConfigFinding| {
        let ConfigFinding { severity, message, help, file, line, column } = finding;
        json!({
            "severity": severity, "message": message, "help": help, "file": file, "line": line, "column": column
        })
    };
    let list = Value::Array(findings.iter().map(one).collect());
    format!("{list:#}\n")
}

/// A workflow command of GitHub for each.
fn as_github(findings: &[ConfigFinding]) -> String {
    let one = |finding: &ConfigFinding| {
        let ConfigFinding { severity, message, help, file, line, column } = finding;
        format!(
            "::{severity} file={},line={line},col={column},title={}::{}%0Ahelp: {}\n",
            property(file),
            property("tollgate check"),
            data(message),
            data(help)
        )
    };
    findings.iter().map(one).collect()
}

/// The message of a workflow command.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// A property of a workflow command.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_name_or_a_message_ends_a_workflow_command() {
        let finding = ConfigFinding {
            severity: "error",
            message: "50%::x,\r\n::error::y".to_owned(),
            help: "a: b".to_owned(),
            file: "a,b:c%\n.toml".to_owned(),
            line: 3,
            column: 7,
        };
        assert_eq!(
            as_github(&[finding]),
            "::error file=a%2Cb%3Ac%25%0A.toml,line=3,col=7,title=tollgate check::\
             50%25::x,%0D%0A::error::y%0Ahelp: a: b\n"
        );
        assert_eq!(as_github(&[]), "");
        assert_eq!(as_json(&[]), "[]\n");
    }
}
