//! `gateway.toml`: from its text to the plan, or to a report of every error with its position and a remedy.
//!
//! TOML texts → [`toml`]'s own spanned trees → one tree (`gather`, `merge`) → `file` (the keys allowed, section by
//! section) → `compile` (checks across sections) → [`Plan`]. Syntax errors of all files are reported first; all other
//! errors are reported together.

mod acme;
mod acme_rules;
mod action;
mod admin;
mod algorithm;
mod auth;
mod ban;
mod basic;
mod before_auth;
mod calendar;
mod compile;
mod compress;
mod concurrency;
mod conditions;
mod connection_limits;
mod consumer_rules;
mod consumers;
mod content;
mod cors;
mod cost;
mod decisions;
mod descriptor_rules;
mod descriptors;
mod diagnostics;
mod endpoint;
mod file;
mod forward;
mod gather;
mod geo;
mod geo_rules;
mod headers;
mod jwt;
mod keys;
mod lease_rules;
mod leases;
mod limits;
mod lints;
mod log;
mod map_rules;
mod maps;
mod mirror;
mod mirror_rules;
mod name;
mod named_file;
mod networks;
mod other_methods;
mod path_spelling;
mod peek;
mod places;
mod policy_tests;
mod rated;
mod redact;
mod redirect_circles;
mod redis_url;
mod remedies;
mod report;
mod requirements;
mod route_limits;
mod routes;
mod schema;
mod server;
mod service_url;
mod set_names;
mod sets;
mod shares;
mod sources;
mod split;
mod sticky;
mod store;
mod summary;
mod table;
mod templates;
mod text;
mod tls;
mod trace;
mod units;
mod upstreams;
mod usage;
mod value;
mod wildcard;
mod witnesses;

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use toml::de::DeTable;

use crate::plan::Plan;
use diagnostics::Diagnostics;
use gather::FileGatherer;
use sources::{SourceSpan, Sources};

pub use diagnostics::Environment;
pub use named_file::NamedFile;
pub use peek::peek;
pub use policy_tests::{parse_policy_tests, policy_tests};
pub(crate) use redact::is_variable_name;
pub use report::{ConfigFinding, Report};
use schema::sections;
pub use schema::{schema, test_schema};
pub use server::DEFAULT_ADDRESS;
pub use summary::summary;
pub(crate) use summary::{consumers_words, counted};

/// The maximum size of all files of a configuration together.
pub const MAX_FILE_BYTES: usize = 16 << 20;
/// The path that stands for standard input.
const STANDARD_INPUT: &str = "-";

/// A configuration without errors.
#[derive(Debug)]
pub struct LoadedConfig {
    /// The plan.
    pub plan: Plan,
    /// Warnings: settings that are allowed, but probably unintended; often empty.
    pub warnings: Report,
    /// The files that it consists of and names, as they were read, and the patterns of included ones.
    pub files: Vec<NamedFile>,
    /// Eight hexadecimal digits of a hash of its text: the same files have the same version everywhere.
    pub version: String,
}

/// The result of a check.
#[derive(Debug)]
pub struct CheckedConfig {
    /// The plan; `None` if there are errors, or if values are unknown.
    pub plan: Option<Plan>,
    /// Errors, warnings, and what was not checked.
    pub report: Report,
    version: String,
}

/// Loads the configuration at `path` with the environment of this process: a file, all `*.toml` in a directory, or `-`
/// for standard input.
///
/// # Errors
///
/// Every error in the files; or that one cannot be read, that all together are larger than [`MAX_FILE_BYTES`], or that
/// one is not UTF-8.
pub fn load(path: &Path) -> Result<LoadedConfig, Report> {
    check(path, false).loaded()
}

/// Checks the configuration at `path`, as [`load`] does. `without_environment`: variables that are not set and files
/// that are not there are no errors; what depends on them is not checked.
pub fn check(path: &Path, without_environment: bool) -> CheckedConfig {
    compiled(&|variable| std::env::var(variable).ok(), without_environment, |files, diagnostics| {
        read_path(path, files, diagnostics)
    })
}

/// Parses the text of a file that reports call `name`; relative paths in it begin in that file's directory.
///
/// # Errors
/// As [`load`], but for reading.
pub fn parse(bytes: &[u8], name: &str, environment: &Environment<'_>) -> Result<LoadedConfig, Report> {
    let result = compiled(environment, false, |files, _| {
        files.root(name, within_bound(bytes, name)?);
        Ok(())
    });
    result.loaded()
}

/// The name of the configuration at `path` in messages.
pub fn name_of(path: &Path) -> String {
    if is_standard_input(path) { "<stdin>".to_owned() } else { path.display().to_string() }
}

/// Whether `path` stands for standard input, which can be read once only.
pub fn is_standard_input(path: &Path) -> bool {
    path == Path::new(STANDARD_INPUT)
}

impl CheckedConfig {
    fn loaded(self) -> Result<LoadedConfig, Report> {
        match self.plan {
            Some(plan) => {
                let files = self.report.files().to_vec();
                Ok(LoadedConfig { plan, warnings: self.report, files, version: self.version })
            }
            None => Err(self.report),
        }
    }
}

/// Compiles the files that `read` reads.
fn compiled(
    environment: &Environment<'_>,
    without_environment: bool,
    read: impl FnOnce(&mut FileGatherer<'_>, &Diagnostics<'_>) -> Result<(), Report>,
) -> CheckedConfig {
    let sources = Sources::default();
    let diagnostics = Diagnostics::new(environment, &sources, without_environment);
    let mut files = FileGatherer::new(&diagnostics);
    if let Err(report) = read(&mut files, &diagnostics) {
        let report = report.with_files(diagnostics.files());
        return CheckedConfig { plan: None, report, version: String::new() };
    }
    let (mut table, is_whole) = files.into_table();
    if is_whole {
        sets::apply(&mut table, &diagnostics);
    }
    let plan = if is_whole { compiled_table(&table, &diagnostics) } else { None };
    let (named, version) = (diagnostics.files(), version(&sources));
    // The borrow of `reader` ends here.
    drop(table);
    CheckedConfig { plan, report: Report::new(&sources, diagnostics.into_findings(), named), version }
}

/// One file has the version of its text; several have one of all texts in order.
fn version(sources: &Sources) -> String {
    let mut hasher = blake3::Hasher::new();
    for file in sources.iter() {
        if sources.len() > 1 {
            hasher.update(&(file.text.len() as u64).to_le_bytes());
        }
        hasher.update(file.text.as_bytes());
    }
    let mut digits = hasher.finalize().to_hex().to_string();
    digits.truncate(8);
    digits
}

fn compiled_table(table: &DeTable<'_>, diagnostics: &Diagnostics<'_>) -> Option<Plan> {
    if table.is_empty() && !diagnostics.is_incomplete() {
        let help =
            "begin with an upstream and a route: see the example `gateway.toml` that comes with tollgate";
        diagnostics.fault(SourceSpan::default(), "the config file is empty", help);
        return None;
    }
    let draft = file::read(table, diagnostics);
    lints::advise(&draft, diagnostics);
    compile::compile(draft, diagnostics)
}

/// Reads the files at a path.
fn read_path(path: &Path, files: &mut FileGatherer<'_>, diagnostics: &Diagnostics<'_>) -> Result<(), Report> {
    let name = name_of(path);
    if is_standard_input(path) {
        let bytes = bounded(io::stdin().lock()).map_err(|error| unreadable(&name, &error))?;
        files.root(&name, within_bound(&bytes, &name)?);
        return Ok(());
    }
    if path.is_dir() {
        return read_directory(path, files, diagnostics);
    }
    read_root(path, files, diagnostics)
}

fn read_root(path: &Path, files: &mut FileGatherer<'_>, diagnostics: &Diagnostics<'_>) -> Result<(), Report> {
    let name = path.display().to_string();
    let stamp = NamedFile::stamped(path);
    let bytes = File::open(path).and_then(bounded).map_err(|error| unreadable(&name, &error))?;
    diagnostics.saw(stamp.holding(&bytes));
    files.root(&name, within_bound(&bytes, &name)?);
    Ok(())
}

/// All `*.toml` in a directory, in the order of their names.
fn read_directory(
    directory: &Path,
    files: &mut FileGatherer<'_>,
    diagnostics: &Diagnostics<'_>,
) -> Result<(), Report> {
    let (name, pattern) = (directory.display().to_string(), directory.join("*.toml"));
    let found = wildcard::matches(&pattern).map_err(|error| unreadable(&name, &error))?;
    diagnostics.saw(NamedFile::pattern(&pattern, &found));
    let whole = |message: String, help: &str| Err(Report::whole_file(&name, message, help.to_owned()));
    if found.is_empty() {
        return whole(
            format!("there is no `*.toml` in `{name}`"),
            "name a file with `-c FILE`, or put one there",
        );
    }
    if found.len() > sources::MAX_FILES {
        return whole(
            format!("there are more than {} files in `{name}`", sources::MAX_FILES),
            "join some of them",
        );
    }
    found.iter().for_each(|path| files.reserve(path));
    found.iter().try_for_each(|path: &PathBuf| {
        // Another kind of file may never end.
        if std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
            let shown = path.display();
            return whole(format!("`{shown}` is not a regular file"), "take it out of the directory");
        }
        read_root(path, files, diagnostics)?;
        match diagnostics.sources().bytes() > MAX_FILE_BYTES {
            true => Err(too_large(&name)),
            false => Ok(()),
        }
    })
}

/// The bytes of a file; at most one more than [`MAX_FILE_BYTES`], which suffices to detect that it is too large.
fn bounded(file: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let bound = u64::try_from(MAX_FILE_BYTES + 1).unwrap_or(u64::MAX);
    file.take(bound).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn within_bound<'b>(bytes: &'b [u8], name: &str) -> Result<&'b [u8], Report> {
    if bytes.len() > MAX_FILE_BYTES { Err(too_large(name)) } else { Ok(bytes) }
}

fn too_large(name: &str) -> Report {
    let help = "split the gateway, or look whether this is the right file";
    Report::whole_file(name, format!("`{name}` is larger than 16 MiB"), help.to_owned())
}

fn unreadable(name: &str, error: &io::Error) -> Report {
    let (why, help) = match error.kind() {
        io::ErrorKind::NotFound => {
            ("there is no such file", "name the file with `-c FILE`, or run tollgate where it lies")
        }
        io::ErrorKind::PermissionDenied => {
            ("permission denied", "let the user that tollgate runs as read it")
        }
        _ => ("it cannot be read to its end", "look at the file system that it lies on"),
    };
    Report::whole_file(name, format!("cannot read `{name}`: {why}"), help.to_owned())
}
