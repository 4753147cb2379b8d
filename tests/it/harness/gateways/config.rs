//! The files of `tests/config`, and the environment that they are read in.

use std::path::{Path, PathBuf};

use tollgate::config::{self, LoadedConfig, Report};

pub(crate) const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/config");

/// What variables hold that a report must never show.
pub(crate) const SECRET: &str = "hush hush";

/// The environment that the files of `tests/config` know.
pub(crate) fn environment(name: &str) -> Option<String> {
    let value = match name {
        "TOLLGATE_ADMIN_TOKEN" | "SECRET" => SECRET,
        "BILLING_TOKEN" => "hush hush, billing",
        "MONITORING_TOKEN" => "hush hush, monitoring",
        "EMPTY" => " ",
        "FIELDS" => "legacy",
        "HOST" => "backend.internal",
        "LONG_SECRET" => "hush hush, and once more: hush hush, hush hush",
        "REDIS_URL" => "redis://gate:hush%20hush@10.0.0.1",
        "SECONDS" => "3",
        _ => return None,
    };
    Some(value.to_owned())
}

/// Parses a text as the `gateway.toml` of that environment.
pub(crate) fn parse(text: impl AsRef<[u8]>) -> Result<LoadedConfig, Report> {
    config::parse(text.as_ref(), "gateway.toml", &environment)
}

/// The files of a folder of `tests/config` that end so, with their contents; at least one.
pub(crate) fn files(folder: &str, extension: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = std::fs::read_dir(Path::new(FOLDER).join(folder)).expect("the folder exists");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("it can be listed").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|found| found == extension));
    paths.sort();
    assert!(!paths.is_empty(), "{folder} has no .{extension}");
    paths.into_iter().map(|path| (path.clone(), std::fs::read(&path).expect("it can be read"))).collect()
}
