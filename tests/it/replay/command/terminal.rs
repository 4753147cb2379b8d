//! Text of attackers on a terminal.

use std::path::PathBuf;

use super::{Folder, MAP, error, status, text};

/// Clears the screen, sets the title, turns the direction, ends a line, hides.
const HOSTILE: &str =
    "\\u001b[2J\\u001b]0;owned\\u0007\\u202egpj\\u200b\\u0085\\u2028\\u00ad\\u009b31m\\u061c\\u2066\\ufeff";

fn assert_safe(shown: &str) {
    let is_hidden = |letter: &char| {
        letter.is_control() && *letter != '\n'
            || matches!(letter, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    assert_eq!(shown.chars().find(is_hidden), None, "{shown:?}");
}

/// Keys that clients sent.
#[test]
fn keys_are_escaped() {
    let table = super::bucket(1).replace("\"ip\"", "\"header:x-tenant\"\nreveal = true");
    let folder = Folder::new(&table, "\"bucket\"");
    let line = |tenant: &str| super::line(0, 1, &format!(",\"h\":\"{tenant}\",\"u\":\"{tenant}\""));
    // A header has no control characters: such lines are no request.
    let tenant = "\\u202egpj\\u200b\\u2028\\u00ad\\u061c\\u2066\\ufeff\\u0085\\u009b31m";
    let text_of_log = [line(tenant).repeat(9), line(HOSTILE)].concat();
    folder.file("log", text_of_log);
    let map = format!("{MAP},header:x-tenant=$.h");
    let output = folder.run(&["replay", "log", "--map", &map], b"");
    assert_eq!(status(&output), 0, "{}", error(&output));
    assert_safe(&text(&output));
    assert!(text(&output).contains("\\u{202e}gpj\\u{200b}"), "{}", text(&output));
}

#[test]
fn keys_in_comments_are_escaped() {
    let folder = Folder::with_bucket();
    let tenant = "\\u202egpj\\u200b\\u2028\\u00ad\\u061c\\u0085\\n[limits.x]";
    // Forty ordinary consumers, and one that sends a hundred times as much.
    let ordinary: String =
        (0..40).map(|name| super::lines(&[0, 5_000], 1, &format!(",\"u\":\"n{name}\""))).collect();
    let times: Vec<_> = (0..2_000).collect();
    let outlier = super::lines(&times, 2, &format!(",\"u\":\"{tenant}\""));
    folder.file("log", [ordinary, outlier].concat());
    let output = folder.run(&["suggest", "log", "--map", MAP, "--key", "consumer"], b"");
    assert_eq!(status(&output), 0, "{}", error(&output));
    assert_safe(&text(&output));
    assert!(text(&output).contains("\\u{202e}gpj"), "{}", text(&output));
}

/// The names of files and the texts of lines.
#[test]
fn files_and_lines_are_escaped() {
    let folder = Folder::with_bucket();
    let name = PathBuf::from("a\u{1b}[2J\u{202e}.log");
    folder.file(
        name.to_str().expect("text"),
        ["\u{1b}[2J\u{202e}\u{ad}\u{61c}line\n", &super::line(0, 1, "")].concat(),
    );
    let name = name.to_str().expect("text");
    for (command, map) in [("replay", MAP), ("suggest", MAP), ("replay", "time=$.none,path=$.none")] {
        let output = folder.run(&[command, name, "--map", map], b"");
        assert_safe(&text(&output));
        assert_safe(&error(&output));
    }
    for command in ["replay", "suggest"] {
        let output = folder.run(&[command, "\u{1b}[2J\u{202e}"], b"");
        assert_eq!(status(&output), 2);
    }
}
