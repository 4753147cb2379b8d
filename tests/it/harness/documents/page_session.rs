//! The commands of a page, as a reader would type them.

use std::path::Path;
use std::process::Command;

use super::pages::{Block, line_matches};

/// What a command prints in a directory. Programs in its `bin` come first.
pub(crate) fn run(directory: &Path, command: &str) -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new("bash")
        .args(["-c", &format!("exec 2>&1\n{command}")])
        .current_dir(directory)
        .env("PATH", format!("{}:{path}", directory.join("bin").display()))
        .env("NO_COLOR", "1")
        // No proxy of the environment's has a part in it.
        .env("no_proxy", "*")
        .output()
        .expect("there is a bash");
    String::from_utf8_lossy(&output.stdout).replace('\r', "")
}

/// The commands of a block, each with the lines behind it. A line that ends in `\` continues on the next one.
pub(crate) fn commands(block: &Block) -> Vec<(String, Vec<String>)> {
    let mut commands: Vec<(String, Vec<String>)> = Vec::new();
    for line in block.text.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            commands.push((command.to_owned(), Vec::new()));
            continue;
        }
        let (command, output) = commands.last_mut().expect("a command first");
        if command.ends_with('\\') {
            command.push_str(&format!("\n{line}"));
        } else {
            output.push(line.to_owned());
        }
    }
    commands
}

/// A line `…` stands for any lines.
pub(crate) fn lines_match(expected: &[String], printed: &[&str]) -> bool {
    match (expected, printed) {
        ([], rest) => rest.is_empty(),
        ([any, after @ ..], _) if any == "…" => {
            (0..=printed.len()).any(|skipped| lines_match(after, &printed[skipped..]))
        }
        ([first, after @ ..], [line, rest @ ..]) => {
            line_matches(first, line.trim_end()) && lines_match(after, rest)
        }
        (_, []) => false,
    }
}
