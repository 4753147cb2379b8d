//! Consumers: API keys with plans, and networks, through the real binary.

mod attacks;
mod faults;
mod forwarded;
mod keys;
mod networks;
mod require;
mod secrets;
mod shadow;
mod story;
mod tiers;
mod views;

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

use crate::harness::{Response, binary};

/// A file of consumers: `ada` has two keys and the tier `pro`, `bob` has the tier `free`, `eve` has none.
const CSV: &str = "key,name,tier,org\n\
    key-ada-1,ada,pro,alpha\n\
    key-ada-2,ada,pro,alpha\n\
    key-bob-1,bob,free,alpha\n\
    key-eve-1,eve,,\n";

/// Counts by consumer, for a whole test.
const BY_CONSUMER: &str = "[limits.api]\nalgorithm = \"fixed-window\"\nalign = \"first-request\"\n\
    key = \"consumer\"\nrate = \"2/day\"\n";

/// The files of a test that a configuration names.
struct Files {
    directory: tempfile::TempDir,
}

impl Files {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().expect("a temporary directory") }
    }

    /// With `consumers.csv`.
    fn with_consumers(csv: impl AsRef<[u8]>) -> Self {
        let files = Self::new();
        files.write("consumers.csv", csv);
        files
    }

    /// Replaces a file at once, as editors do.
    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let beside = self.directory.path().join(format!("{name}.new"));
        std::fs::write(&beside, content).expect("the file can be written");
        std::fs::rename(beside, self.path(name)).expect("the file can be renamed");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// An `[auth.NAME]` whose keys are in `consumers.csv`. `rest`: further lines of it.
    fn auth(&self, name: &str, from: &str, rest: &str) -> String {
        self.auth_in("consumers.csv", name, from, rest)
    }

    fn auth_in(&self, file: &str, name: &str, from: &str, rest: &str) -> String {
        let file = self.path(file).display().to_string();
        format!("[auth.{name}]\ntype = \"api-key\"\nfrom = \"{from}\"\nfile = \"{file}\"\n{rest}\n")
    }

    /// Runs `tollgate` beside a `gateway.toml` with this content.
    fn tollgate(&self, toml: &str, arguments: &[&str]) -> Output {
        self.write("gateway.toml", toml);
        Command::new(binary())
            .args(arguments)
            .current_dir(self.directory.path())
            .env("NO_COLOR", "1")
            .output()
            .expect("the binary starts")
    }

    /// `tollgate check`: its exit status, and all that it prints.
    fn check(&self, toml: &str) -> (i32, String) {
        let Output { status, stdout, stderr } = self.tollgate(toml, &["check"]);
        let text = format!("{}{}", String::from_utf8_lossy(&stderr), String::from_utf8_lossy(&stdout));
        (status.code().expect("an exit status"), text)
    }
}

/// The line of a request with an API key.
fn key(key: &str) -> String {
    format!("x-api-key: {key}\r\n")
}

/// Asserts that this is the refusal of a request without a valid credential.
#[track_caller]
fn assert_unauthorized(response: &Response, challenge: &str, detail: &str) {
    assert_eq!(response.status, 401, "{}", response.head);
    assert_eq!(response.header("www-authenticate"), Some(challenge));
    assert_eq!(response.header("content-type"), Some("application/problem+json"));
    assert_eq!(response.header("cache-control"), Some("no-store"));
    let problem: Value = response.json();
    assert_eq!((&problem["status"], &problem["title"]), (&401.into(), &"Unauthorized".into()));
    assert_eq!(problem["detail"], detail);
}

/// The detail of a 401 for a request without a credential.
const MISSING: &str = "this route requires a credential";
/// The detail of a 401 for a wrong credential.
const UNKNOWN: &str = "the credential is not known";
