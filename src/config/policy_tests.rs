//! Files with `[[test]]`: tests of limits, which `tollgate test` runs. They are read as the configuration is, so that
//! their faults have a place and a remedy, too.

mod step;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::diagnostics::Diagnostics;
use super::gather::FileGatherer;
use super::keys::{SOME, Schema, keys};
use super::report::{Report, SourceSpan};
use super::sources::Sources;
use super::table::ConfigTable;
use super::value::ConfigValue;
use super::{Environment, unreadable, wildcard};
use crate::limit::units::Timestamp;
use crate::plan::Plan;
use crate::policy_test::{MAX_BYTES, MAX_REQUESTS, MAX_STEPS, PolicyTest, TestPlace};
use step::{StepNames, TEST_STEP, place};

/// The maximum number of characters of a test's name.
const MAX_NAME: u32 = 200;
/// 2026-01-01T00:00:00Z, in seconds since 1970.
const START: u64 = 1_767_225_600;
/// The seconds since 1970 before which a test may start: 2200-01-01.
const MAX_START: i64 = 7_258_118_400;

keys! {
    /// Tests of limits, which `tollgate test` runs.
    pub(super) TEST_FILE: TestFileKeys = "the test file" {
        /// The tests. Each begins with unused counters.
        test = Schema::List(SOME, &Schema::Table(&TEST)), required "[{ name = \"…\", steps = […] }]";
    }
}

keys! {
    /// Requests at their times, and their answers.
    pub(super) TEST: TestKeys = "[[test]]" {
        /// What the test shows, none twice.
        name = Schema::TextUpTo(MAX_NAME), required "\"a client has 10 requests a minute\"";
        /// The moment at which `at = "0s"` is, from 1970 to 2199. Default "2026-01-01T00:00:00Z".
        start = Schema::Text;
        /// The requests and their answers, in the order of time.
        steps = Schema::List(SOME, &Schema::Table(&TEST_STEP)),
            required "[{ request = \"GET /\", expect = 200 }]";
    }
}

/// Reads the tests in these files, and in all `*.toml` of these directories, for a gateway with this plan.
///
/// # Errors
///
/// Every fault in the files; or that one cannot be read, or that all together are larger than [`MAX_BYTES`].
pub fn policy_tests<'p>(
    paths: impl IntoIterator<Item = &'p Path>,
    plan: &Plan,
) -> Result<Vec<PolicyTest>, Report> {
    let mut files: Vec<(String, Vec<u8>)> = Vec::new();
    for path in paths {
        let name = path.display().to_string();
        if !path.is_dir() {
            files.push(read(path, &name, &files)?);
            continue;
        }
        let found = wildcard::matches(&path.join("*.toml")).map_err(|error| unreadable(&name, &error))?;
        if found.is_empty() {
            let help = "name a file, or put one there";
            return Err(Report::whole_file(
                &name,
                format!("there is no `*.toml` in `{name}`"),
                help.to_owned(),
            ));
        }
        for path in found {
            let name = path.display().to_string();
            files.push(read(&path, &name, &files)?);
        }
    }
    let files: Vec<_> = files.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())).collect();
    parse_policy_tests(&files, plan, &|variable| std::env::var(variable).ok())
}

/// The bytes of a file, if it fits beside those before it.
fn read(path: &Path, name: &str, before: &[(String, Vec<u8>)]) -> Result<(String, Vec<u8>), Report> {
    let whole = |message: String, help: &str| Err(Report::whole_file(name, message, help.to_owned()));
    let broken = |error: &io::Error| match error.kind() {
        io::ErrorKind::NotFound => {
            let message = format!("cannot read `{name}`: there is no such file");
            let help = "name the file: `tollgate test FILE`; `tollgate init` writes one";
            Report::whole_file(name, message, help.to_owned())
        }
        _ => unreadable(name, error),
    };
    if before.iter().any(|(other, _)| other == name) {
        return whole(format!("`{name}` is named twice"), "name each file once");
    }
    // Another kind of file may never end.
    let metadata = std::fs::metadata(path).map_err(|error| broken(&error))?;
    if !metadata.is_file() {
        return whole(format!("`{name}` is not a regular file"), "name a file with `[[test]]`");
    }
    let left = MAX_BYTES.saturating_sub(before.iter().map(|(_, bytes)| bytes.len()).sum());
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| broken(&error))?;
    file.take(left as u64 + 1).read_to_end(&mut bytes).map_err(|error| broken(&error))?;
    if bytes.len() > left {
        return whole("the files with tests are larger than 1 MiB".to_owned(), "run them one by one");
    }
    Ok((name.to_owned(), bytes))
}

/// Reads the tests in these files: names and texts.
///
/// # Errors
///
/// Every fault in them.
pub fn parse_policy_tests(
    files: &[(&str, &[u8])],
    plan: &Plan,
    environment: &Environment<'_>,
) -> Result<Vec<PolicyTest>, Report> {
    let sources = Sources::default();
    let diagnostics = Diagnostics::new(environment, &sources, false);
    let mut gatherer = FileGatherer::new(&diagnostics);
    files.iter().for_each(|(name, bytes)| gatherer.root(name, bytes));
    let (table, is_whole) = gatherer.into_table();
    let mut tests = Vec::new();
    if is_whole {
        let mut file = ConfigTable::new("the test file", SourceSpan::default(), &table, &diagnostics);
        let names = StepNames::new(plan);
        let read_all = |value: ConfigValue<'_>| read_tests(&value, &names);
        tests = file.require(&TEST_FILE.test, read_all).unwrap_or_default();
        file.finish();
    }
    let named = diagnostics.files();
    // The borrow of the diagnostics ends here.
    drop(table);
    let report = Report::new(&sources, diagnostics.into_findings(), named);
    if report.errors() > 0 { Err(report) } else { Ok(tests) }
}

fn read_tests(value: &ConfigValue<'_>, names: &StepNames<'_>) -> Option<Vec<PolicyTest>> {
    if !value.is_list() {
        return value.mismatch("a list", "each test stands below a header with two brackets: `[[test]]`");
    }
    let items = value.list()?;
    if items.is_empty() {
        value.fault("there is no test", "add one below `[[test]]`");
    }
    let mut tests: Vec<PolicyTest> = Vec::new();
    let (mut steps, mut requests) = (0, 0);
    for item in items {
        let Some(test) = read_test(&item, names) else { continue };
        if let Some(other) = tests.iter().find(|other| other.name == test.name) {
            let TestPlace { file, line } = &other.place;
            item.fault(
                format!("a test with this name is in {file}:{line}, too"),
                "give one of them another name",
            );
        }
        steps += test.steps.len();
        requests += test.steps.iter().map(|step| u64::from(step.times)).sum::<u64>();
        tests.push(test);
    }
    if steps > MAX_STEPS {
        value.fault(format!("all tests together have {steps} steps"), format!("{MAX_STEPS} are the maximum"));
    }
    if requests > MAX_REQUESTS {
        let message = format!("all tests together send {requests} requests");
        value.fault(message, format!("{MAX_REQUESTS} are the maximum"));
    }
    Some(tests)
}

fn read_test(value: &ConfigValue<'_>, names: &StepNames<'_>) -> Option<PolicyTest> {
    let mut table = value.table("`[[test]]`")?;
    let name = table.require(&TEST.name, |value| name(&value));
    let start = table.or(&TEST.start, Timestamp(START * 1_000_000), |value| start(&value));
    let mut before = None;
    let steps = table.require(&TEST.steps, |value| {
        value.some_of(|item| {
            let step = step::read(&item, names, before.as_ref())?;
            before = Some((step.at, step.at_written.clone()));
            Some(step)
        })
    });
    let is_sound = table.finish();
    let (Some(name), Some(steps), true) = (name, steps, is_sound) else { return None };
    Some(PolicyTest { name, place: place(value), start, steps })
}

fn name(value: &ConfigValue<'_>) -> Option<String> {
    let text = value.text()?;
    let name = text.as_str();
    let is_name = !name.trim().is_empty()
        && name.chars().count() <= MAX_NAME as usize
        && !name.chars().any(char::is_control);
    if !is_name {
        let help = format!("use 1 to {MAX_NAME} characters, and no control characters");
        value.fault(format!("{} cannot be the name of a test", text.quoted()), help);
        return None;
    }
    Some(text.into_string())
}

/// A moment by the wall clock.
fn start(value: &ConfigValue<'_>) -> Option<Timestamp> {
    let help = "write a moment in quotes, from 1970 to 2199: `\"2026-01-31T23:59:00Z\"`";
    if !value.is_text() {
        return value.mismatch("a moment", help);
    }
    let text = value.text()?;
    let moment = text.as_str().parse::<jiff::Timestamp>().ok();
    let moment = moment.filter(|moment| (0..MAX_START).contains(&moment.as_second()));
    let moment = moment.and_then(|moment| u64::try_from(moment.as_microsecond()).ok());
    if moment.is_none() {
        value.fault(format!("{} is not such a moment", text.quoted()), help);
    }
    moment.map(Timestamp)
}
