//! The dashboard in headless Chromium: its page before a mock of the API, and the night story before the real gateway.
//!
//! Both are told in Python, whose standard library steers the browser: `tests/dashboard/`.

use std::process::Command;

fn plays(script: &str, arguments: &[&str]) {
    let output = Command::new("python3")
        .arg(format!("tests/dashboard/{script}"))
        .args(arguments)
        .output()
        .expect("python3 is installed");
    assert!(
        output.status.success(),
        "{script} failed\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn the_night_story_in_a_browser() {
    plays("story.py", &["--binary", env!("CARGO_BIN_EXE_tollgate")]);
}

#[test]
fn the_page_before_a_mock_of_the_api() {
    plays("page.py", &[]);
}
