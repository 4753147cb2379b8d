//! Prometheus' own tool, where it is installed (`make tools`).

use std::path::Path;
use std::process::{Command, Stdio};

/// Runs `promtool`, or what `TOLLGATE_TEST_PROMTOOL` names, with a file as standard input. What it says, which must be good.
/// `None`: it is not installed.
#[track_caller]
pub(crate) fn promtool(arguments: &[&str], input: &Path) -> Option<String> {
    let program = std::env::var("TOLLGATE_TEST_PROMTOOL").unwrap_or_else(|_| "promtool".to_owned());
    let input = std::fs::File::open(input).expect("it can be read");
    let Ok(output) = Command::new(&program).args(arguments).stdin(Stdio::from(input)).output() else {
        eprintln!("{program} is not installed, so nothing is tested with it: make tools");
        return None;
    };
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "promtool {arguments:?} ended with {}:\n{said}", output.status);
    Some(said)
}
