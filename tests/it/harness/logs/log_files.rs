//! Logs in files, and the requests that a reader returns of them.

use std::net::IpAddr;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tollgate::limit::units::Micros;
use tollgate::log_reader::request::LoggedRequest;
use tollgate::log_reader::{LogCounts, LogFormat, LogInput, LogOptions, LogProblems, LogReader};

/// What a reader returned, and what it counted.
#[derive(Debug)]
pub(crate) struct ReadLogs {
    pub(crate) requests: Vec<LoggedRequest>,
    pub(crate) problems: LogProblems,
    pub(crate) counts: LogCounts,
}

/// Options for these files.
pub(crate) fn options(files: &[PathBuf]) -> LogOptions {
    LogOptions {
        inputs: files.iter().cloned().map(LogInput::File).collect(),
        format: LogFormat::Auto,
        map: None,
        host: None,
        trusted_proxies: Vec::new(),
        reorder: Micros(60_000_000),
        from: None,
        to: None,
    }
}

/// Reads all requests, with this many bytes for lines that wait.
pub(crate) fn read_bounded(options: LogOptions, max_held: usize) -> ReadLogs {
    let mut reader = LogReader::open_bounded(options, max_held, |_| ControlFlow::Continue(()))
        .expect("the files are there");
    let mut requests = Vec::new();
    while let Some(request) = reader.next() {
        requests.push(request.clone());
    }
    assert!(!reader.is_interrupted());
    ReadLogs { requests, problems: reader.problems().clone(), counts: reader.counts() }
}

/// Reads all requests.
pub(crate) fn read(options: LogOptions) -> ReadLogs {
    read_bounded(options, 64 << 20)
}

/// Writes a file.
pub(crate) fn file(folder: &TempDir, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::write(&path, content).expect("a folder of the test's own");
    path
}

/// Reads the requests of one text.
pub(crate) fn read_text(content: impl AsRef<[u8]>) -> ReadLogs {
    let folder = TempDir::new().expect("a folder");
    read(options(&[file(&folder, "access.log", content)]))
}

/// The requests of a file of `tests/logs`.
pub(crate) fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/logs").join(name)
}

/// The head of a request as text.
pub(crate) fn head(request: &LoggedRequest) -> &str {
    std::str::from_utf8(&request.head).expect("text")
}

/// An address.
pub(crate) fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}
