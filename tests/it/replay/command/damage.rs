//! Input that is no log: counted, the first shown with its number, never a panic, never silence.

use serde_json::Value;

use super::{Folder, error, gzip, line, lines, status, text, zstd};

/// Runs all that reads logs: each ends with the same status, and none panics. Returns the result of `replay --json`.
#[track_caller]
fn read(content: &[u8], expected: i32) -> (Value, String) {
    let folder = Folder::with_bucket();
    folder.file("log", content);
    let page = folder.0.path().join("out.html");
    for arguments in [["replay", "log"], ["replay", "-"], ["suggest", "log"], ["suggest", "-"]] {
        for more in [&[][..], &["--report", "out.html"]] {
            let arguments = [&arguments[..], more].concat();
            let output = folder.run(&arguments, content);
            assert_eq!(status(&output), expected, "{arguments:?}: {}", error(&output));
            assert_eq!(error(&output).is_empty(), expected == 0, "{arguments:?}: {}", error(&output));
            assert_eq!(page.exists(), expected == 0 && !more.is_empty(), "{arguments:?}");
            drop(std::fs::remove_file(&page));
        }
    }
    let output = folder.run(&["replay", "log", "--json"], b"");
    assert_eq!(status(&output), expected);
    (serde_json::from_slice(&output.stdout).expect("JSON"), error(&output))
}

fn combined(second: u64, year: u32) -> String {
    format!(
        "192.0.2.1 - - [10/Oct/{year}:13:{:02}:{:02} +0000] \"GET / HTTP/1.1\" 200 1\n",
        second / 60,
        second % 60
    )
}

fn problem<'r>(report: &'r Value, reason: &str) -> &'r Value {
    let all = report["problems"].as_array().expect("problems");
    all.iter().find(|problem| problem["reason"] == reason).unwrap_or_else(|| panic!("{reason}: {report:#}"))
}

#[test]
fn nothing_is_said_to_be_nothing() {
    for content in ["", "\n\n", "   \r\n"] {
        let (report, message) = read(content.as_bytes(), 1);
        assert_eq!(report["requests"], 0);
        assert!(message.starts_with("error: the log has no request\n  = help: "), "{message}");
    }
    let folder = Folder::with_bucket();
    for command in ["replay", "suggest"] {
        let output = folder.run(&[command, "/dev/null"], b"");
        assert_eq!(status(&output), 1);
        assert!(error(&output).starts_with("error: the log has no request"), "{}", error(&output));
    }
}

#[test]
fn binary_data_is_named() {
    let mut state = 1_u64;
    let bytes: Vec<u8> = (0..100_000)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56).to_le_bytes()[0]
        })
        .collect();
    let (report, message) = read(&[b"\0".as_slice(), &bytes].concat(), 1);
    assert_eq!(problem(&report, "binary data")["first"], "log:1");
    assert!(message.contains("binary data: ") && message.contains("the first is log:1 "), "{message}");
    assert!(!message.chars().any(|letter| letter.is_control() && letter != '\n'), "{message:?}");
}

#[test]
fn compressed_data_that_ends_early_counts_as_far_as_it_goes() {
    let text: String = (0..3_600)
        .map(|second| combined(second, 2_000 + u32::try_from(second % 7).expect("small")))
        .collect();
    for content in [gzip(text.as_bytes()), zstd(text.as_bytes())] {
        let (report, _) = read(&content[..content.len() - 9], 0);
        assert_eq!(problem(&report, "the compressed data ends early")["lines"], 1);
        assert!(report["requests"].as_u64() > Some(0));
        // Only the magic bytes.
        let (report, message) = read(&content[..4], 1);
        assert_eq!(problem(&report, "the compressed data ends early")["lines"], 1);
        assert!(message.contains("ends early"), "{message}");
    }
}

#[test]
fn mixed_formats_are_read_with_a_note() {
    let caddy = std::fs::read_to_string("tests/logs/caddy.log").expect("a log");
    let (report, _) = read([combined(0, 2022), caddy, combined(9, 2022)].concat().as_bytes(), 0);
    assert_eq!(report["requests"], 4);
    let note = "lines of another format than their file: 2";
    assert!(report["notes"].as_array().expect("notes").contains(&note.into()), "{report:#}");
}

#[test]
fn a_clock_that_jumps_back_is_named() {
    let text = [combined(3_599, 2000), combined(0, 1999), combined(1, 1999)].concat();
    let (report, _) = read(text.as_bytes(), 0);
    assert_eq!(report["requests"], 3);
    assert_eq!(report["skipped"], 0, "lines after a jump are used");
    assert_eq!(problem(&report, "the time jumps")["first"], "log:2");
}

#[test]
fn a_line_of_10_megabytes_is_skipped() {
    let text = [combined(0, 2000), "x".repeat(10 << 20), "\n".to_owned(), combined(1, 2000)].concat();
    let (report, _) = read(text.as_bytes(), 0);
    assert_eq!((&report["requests"], &report["skipped"]), (&2.into(), &1.into()));
    let problem = problem(&report, "longer than 1 MiB");
    assert_eq!((&problem["lines"], &problem["first"]), (&1.into(), &"log:2".into()));
    assert!(problem["text"].as_str().expect("text").chars().count() <= 80);
}

#[test]
fn years_may_lie_between_lines() {
    let text = [combined(0, 1991), combined(0, 2024), combined(0, 2098)].concat();
    let (report, _) = read(text.as_bytes(), 0);
    assert_eq!((&report["requests"], &report["refused"]), (&3.into(), &0.into()));
    let (report, _) = read([combined(0, 1989), combined(0, 2100), combined(0, 2000)].concat().as_bytes(), 0);
    assert_eq!(problem(&report, "the time is before 1990 or after 2099")["lines"], 2);
}

/// A path that the gateway answers with 414; what is kept of the first requests is bounded.
#[test]
fn lines_of_almost_a_megabyte_are_read() {
    let path = "x".repeat(1_000_000);
    let long: String =
        (0..12).map(|second| combined(second, 2000).replace("GET /", &format!("GET /{path}"))).collect();
    let (report, _) = read([long, combined(12, 2000)].concat().as_bytes(), 0);
    assert_eq!((&report["requests"], &report["skipped"]), (&13.into(), &0.into()));
}

#[test]
fn the_problems_are_in_the_text() {
    let folder = Folder::with_bucket();
    folder.file("log", [&lines(&[0], 1, ""), "what\n", "{}\n", &line(0, 1, "")].concat());
    let output = folder.run(&["replay", "log", "--map", super::MAP], b"");
    let shown = text(&output);
    assert!(
        shown.contains("\nProblems of the log\n  1: not a line of this format; the first is log:2 `what`\n"),
        "{shown}"
    );
    assert!(shown.contains(", 4 lines, 2 of them no request (see the end)\n"), "{shown}");
    let output = folder.run(&["suggest", "log", "--map", super::MAP], b"");
    assert!(
        text(&output).contains("\n# not a line of this format: 1 line, the first is log:2.\n"),
        "{}",
        text(&output)
    );
}
