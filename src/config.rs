//! `gateway.toml`: from its text to the plan, or to a report of every error with its position and a remedy.
//!
//! TOML text → [`toml`]'s own spanned tree → `file` (the keys allowed, section by section) → `compile` (checks across
//! sections) → [`Plan`]. A syntax error is reported alone; all other errors are reported together.

mod admin;
mod algorithm;
mod auth;
mod ban;
mod compile;
mod concurrency;
mod conditions;
mod consumer_rules;
mod consumers;
mod cors;
mod csv_rows;
mod diagnostics;
mod endpoint;
mod file;
mod habits;
mod headers;
mod later;
mod limits;
mod lints;
mod log;
mod name;
mod networks;
mod policy;
mod rated;
mod redact;
mod redis_url;
mod reject;
mod report;
mod routes;
mod schema;
mod server;
mod store;
mod suggest;
mod summary;
mod syntax;
mod table;
mod text;
mod tls;
mod trace;
mod units;
mod upstreams;
mod value;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use toml::de::DeTable;

use crate::plan::Plan;
use diagnostics::Diagnostics;
use report::SourceSpan;

pub use diagnostics::{Environment, NamedFile};
pub(crate) use redact::is_variable_name;
pub use report::Report;
pub use schema::SCHEMA;
pub use server::DEFAULT_ADDRESS;
pub use summary::summary;
pub(crate) use summary::{consumers_words, counted};

/// The maximum size of the file.
pub const MAX_FILE_BYTES: usize = 16 << 20;

/// A file without errors.
#[derive(Debug)]
pub struct LoadedConfig {
    /// The plan.
    pub plan: Plan,
    /// Warnings: settings that are allowed, but probably unintended; often empty.
    pub warnings: Report,
    /// Other files that it names, as they were read.
    pub files: Vec<NamedFile>,
    /// Eight hexadecimal digits of a hash of its text: the same file has the same version everywhere.
    pub version: String,
}

/// Loads the file at `path`, with the environment of this process.
///
/// # Errors
///
/// Every error in the file; or that it cannot be read, is larger than [`MAX_FILE_BYTES`], or is not UTF-8.
pub fn load(path: &Path) -> Result<LoadedConfig, Report> {
    let name = path.display().to_string();
    let bytes = read(path).map_err(|error| unreadable(&name, &error))?;
    parse(&bytes, &name, &|variable| std::env::var(variable).ok())
}

/// Parses the text of a file that reports call `name`; relative paths in it begin in that file's directory.
///
/// # Errors
/// As [`load`], but for reading.
pub fn parse(bytes: &[u8], name: &str, environment: &Environment<'_>) -> Result<LoadedConfig, Report> {
    if bytes.len() > MAX_FILE_BYTES {
        let message = format!("`{name}` is larger than 16 MiB");
        return Err(Report::whole_file(
            name,
            message,
            "split the gateway, or look whether this is the right file".into(),
        ));
    }
    let directory = Path::new(name).parent().unwrap_or(Path::new(""));
    let reader = Diagnostics::new(environment, directory);
    let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
    let plan = match std::str::from_utf8(bytes) {
        Ok(text) => parse_text(text, &reader),
        Err(error) => {
            syntax::not_utf8(&error, &reader);
            None
        }
    };
    let files = reader.files();
    let report = Report::new(name, &redact::shown(&String::from_utf8_lossy(bytes)), reader.into_findings());
    match plan {
        Some(plan) => Ok(LoadedConfig { plan, warnings: report, files, version: version(bytes) }),
        None => Err(report),
    }
}

fn version(text: &[u8]) -> String {
    let mut digits = blake3::hash(text).to_hex().to_string();
    digits.truncate(8);
    digits
}

fn parse_text(text: &str, reader: &Diagnostics<'_>) -> Option<Plan> {
    let document = match DeTable::parse(text) {
        Ok(document) => document,
        Err(error) => {
            syntax::report(&error, text, reader);
            return None;
        }
    };
    if document.get_ref().is_empty() {
        let help =
            "begin with an upstream and a route: see the example `gateway.toml` that comes with tollgate";
        reader.fault(SourceSpan::default(), "the config file is empty", help);
        return None;
    }
    let draft = file::read(document.get_ref(), reader);
    lints::advise(&draft, reader);
    compile::compile(draft, reader)
}

/// The file's bytes; at most one more than [`MAX_FILE_BYTES`], which suffices to detect that it is too large.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let bound = u64::try_from(MAX_FILE_BYTES + 1).unwrap_or(u64::MAX);
    File::open(path)?.take(bound).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn unreadable(name: &str, error: &io::Error) -> Report {
    let (why, help) = match error.kind() {
        io::ErrorKind::NotFound => {
            ("there is no such file", "name the file with `-c FILE`, or run tollgate where it lies")
        }
        io::ErrorKind::PermissionDenied => {
            ("permission denied", "let the user that tollgate runs as read it")
        }
        io::ErrorKind::IsADirectory => ("it is a directory", "name the file in it"),
        _ => ("it can not be read to its end", "look at the file system that it lies on"),
    };
    Report::whole_file(name, format!("can not read `{name}`: {why}"), help.to_owned())
}
