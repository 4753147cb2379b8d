//! `tollgate test`: the limits of the configuration, asked in virtual time whether they do what a file says.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};

use super::output::{fault, refuse, show};
use super::{FAILED, MISTAKE};
use crate::config;
use crate::policy_test::{self, PolicyTest, PolicyTestResult, StepDifference};
use crate::telemetry::terminal::safe_text;

/// The end of the name of a file with tests.
const SUFFIX: &str = ".test.toml";
/// The maximum number of characters shown of a name or a request.
const MAX_SHOWN: usize = 500;

/// The options of `tollgate test`.
#[derive(Args, Clone, Debug)]
pub(super) struct TestArguments {
    /// Files with `[[test]]`, or directories of which all `*.toml` are read [default: gateway.test.toml]
    ///
    /// Without FILE the tests lie beside the configuration: `gateway.test.toml` beside `gateway.toml`, and `conf.test.toml`
    /// beside the directory `conf`.
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Run the tests whose name contains this text
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Print a JSON array with a result for each test, for programs
    #[arg(long)]
    json: bool,
}

/// Runs the tests on the configuration `file`.
pub(super) fn run(file: &Path, arguments: &TestArguments) -> ExitCode {
    let files = match &*arguments.files {
        [] if config::is_standard_input(file) => {
            let help = "name it: `tollgate test FILE`";
            let message = "a configuration from standard input has no file with tests beside it";
            return fault(MISTAKE, format_args!("{message}\n  = help: {help}"));
        }
        [] => vec![beside(file)],
        files => files.to_vec(),
    };
    let plan = match config::load(file) {
        Ok(loaded) => loaded.plan,
        Err(report) => return refuse(&report),
    };
    let mut tests = match config::policy_tests(files.iter().map(PathBuf::as_path), &plan) {
        Ok(tests) => tests,
        Err(report) => return refuse(&report),
    };
    if let Some(text) = &arguments.filter {
        tests.retain(|test| test.name.contains(text));
        if tests.is_empty() {
            let message = format!("no test has a name with `{}`", safe_text(text, MAX_SHOWN));
            return fault(MISTAKE, format_args!("{message}\n  = help: run all: leave `--filter` out"));
        }
    }
    let results = tests.iter().map(|test| policy_test::run(&plan, test)).collect::<Result<Vec<_>, _>>();
    let results = match results {
        Ok(results) => results,
        Err(error) => return fault(FAILED, format_args!("`max_keys` of [store]: {error}")),
    };
    let shown = match arguments.json {
        true => show(&format!("{:#}", as_json(&tests, &results))),
        false => show(&as_text(&tests, &results)),
    };
    let is_failed = results.iter().any(|result| result.difference.is_some());
    if is_failed { ExitCode::from(FAILED) } else { shown }
}

/// The file with tests that belongs to a configuration: `gateway.test.toml` to `gateway.toml`.
pub(super) fn beside(file: &Path) -> PathBuf {
    // A directory is a configuration of all its files, so that tests in it would be read as a part of it.
    let stem = if file.is_dir() { file.file_name() } else { file.file_stem() };
    let mut name = stem.unwrap_or_default().to_owned();
    name.push(SUFFIX);
    file.with_file_name(name)
}

fn as_text(tests: &[PolicyTest], results: &[PolicyTestResult]) -> String {
    let (mut text, mut failures) = (String::new(), String::new());
    for (test, PolicyTestResult { difference }) in tests.iter().zip(results) {
        let word = if difference.is_none() { "ok  " } else { "FAIL" };
        text.push_str(&format!("{word} {}\n", safe_text(&test.name, MAX_SHOWN)));
        if let Some(difference) = difference {
            failures.push_str(&of_failure(test, difference));
        }
    }
    let failed = results.iter().filter(|result| result.difference.is_some()).count();
    let tests = config::counted(tests.len(), "test");
    match failed {
        0 => format!("{text}\n{tests} passed\n"),
        failed => format!("{text}{failures}\n{failed} of {tests} failed\n"),
    }
}

fn of_failure(test: &PolicyTest, difference: &StepDifference) -> String {
    let StepDifference { step, place, sent, expected, got, decision, explanation } = difference;
    let (file, line, name) =
        (safe_text(&place.file, MAX_SHOWN), place.line, safe_text(&test.name, MAX_SHOWN));
    let mut text = format!("\n{file}:{line}: step {step} of `{name}`: {}\n", safe_text(sent, MAX_SHOWN));
    text.push_str(&format!("  expected   {expected}\n  got        {got}\n"));
    text.extend(decision.iter().map(|decision| format!("  decision   {decision}\n")));
    text.push_str("  explain    ");
    // The first line of an explanation is the request.
    let lines: Vec<_> = explanation.lines().filter(|line| !line.is_empty()).collect();
    text.push_str(&lines.join("\n             "));
    text.push('\n');
    text
}

fn as_json(tests: &[PolicyTest], results: &[PolicyTestResult]) -> Value {
    let one = |(test, result): (&PolicyTest, &PolicyTestResult)| {
        let difference = result.difference.as_ref();
        let place = difference.map_or(&test.place, |difference| &difference.place);
        json!({
            "name": test.name,
            "file": place.file,
            "line": place.line,
            "passed": difference.is_none(),
            "step": difference.map(|difference| difference.step),
            "sent": difference.map(|difference| &difference.sent),
            "expected": difference.map(|difference| &difference.expected),
            "got": difference.map(|difference| &difference.got),
            "decision": difference.and_then(|difference| difference.decision.as_ref()),
            "explain": difference.map(|difference| &difference.explanation),
        })
    };
    tests.iter().zip(results).map(one).collect()
}
