//! Prometheus' own tool, which `make tools` installs.

use std::path::Path;
use std::process::Stdio;

use crate::harness::tools;

/// Runs `promtool`, or what `TOLLGATE_TEST_PROMTOOL` names, with a file as standard input. What it says, which must be good.
#[track_caller]
pub(crate) fn promtool(arguments: &[&str], input: &Path) -> String {
    let program = std::env::var("TOLLGATE_TEST_PROMTOOL").unwrap_or_else(|_| "promtool".to_owned());
    let input = std::fs::File::open(input).expect("it can be read");
    let output = tools::needed(&program).args(arguments).stdin(Stdio::from(input)).output();
    let output = output.expect("it can be run");
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "promtool {arguments:?} ended with {}:\n{said}", output.status);
    said
}
