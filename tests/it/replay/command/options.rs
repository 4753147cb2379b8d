//! Exit statuses, mistakes in options, and the fields of `--json`.

use super::{Folder, error, line, lines, status, text};

#[test]
fn mistakes_end_with_2_and_say_what_to_do() {
    let folder = Folder::with_bucket();
    folder.file("log", line(0, 1, ""));
    folder.file("broken.toml", "[limits.x]\n");
    for (arguments, what) in [
        (vec!["replay", "missing.log"], "cannot open `missing.log`"),
        (vec!["replay", "."], "`.` is a directory"),
        (vec!["replay", "log", "-c", "missing.toml"], "missing.toml"),
        (vec!["replay", "log", "-c", "broken.toml"], "broken.toml"),
        (vec!["replay", "log", "--against", "missing.toml"], "missing.toml"),
        (vec!["replay", "-", "-"], "standard input is read twice"),
        (vec!["replay", "-", "-c", "-"], "standard input is read twice"),
        (vec!["replay", "log", "-c", "-", "--against", "-"], "standard input is read twice"),
        (vec!["suggest", "-c", "-"], "standard input is read twice"),
        (vec!["replay", "log", "--map", "time=ts"], "has no path"),
        (vec!["replay", "log", "--map", "when=$.t"], "names no field"),
        (vec!["replay", "log", "--map", "path=$.p"], "has no time"),
        (vec!["replay", "log", "--format", "apache"], "auto, tollgate, combined"),
        (vec!["replay", "log", "--reorder", "60"], "60s"),
        (vec!["replay", "log", "--from", "yesterday"], "2026-11-22"),
        (vec!["replay", "log", "--fail-above", "101%"], "0.1%"),
        (vec!["replay", "log", "--fail-above", "NaN"], "0.1%"),
        (vec!["replay", "log", "--no-such-option"], "--no-such-option"),
        (vec!["suggest", "missing.log"], "cannot open `missing.log`"),
        (vec!["suggest", "log", "--keep", "2"], "0.999"),
        (vec!["suggest", "log", "--headroom", "0"], "1.5"),
        (vec!["suggest", "log", "--algorithm", "magic"], "token-bucket"),
        (vec!["suggest", "log", "--key", "shoe-size"], "shoe-size"),
    ] {
        let output = folder.run(&arguments, b"");
        let message = error(&output);
        assert_eq!((status(&output), message.contains(what)), (2, true), "{arguments:?}: {message}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

/// A log whose requests all lie outside of `--from` and `--to` has requests: the message says when.
#[test]
fn a_time_without_a_request_is_told_with_the_times_of_the_log() {
    let folder = Folder::with_bucket();
    folder.file("log", [line(0, 1, ""), line(90_000, 2, "")].concat());
    for (command, option, time) in [
        ("replay", "--from", "2027-01-01"),
        ("replay", "--to", "2020-01-01"),
        ("suggest", "--from", "2027-01-01"),
    ] {
        let output = folder.run(&[command, "log", "--map", super::MAP, option, time], b"");
        let message = error(&output);
        assert_eq!(status(&output), 1, "{message}");
        let told = "error: no request of the log lies in the time of `--from` and `--to`\n  \
                    = help: its requests lie from 2023-11-15T00:00:00Z to 2023-11-15T00:01:30Z";
        assert_eq!(message.trim_end(), told, "{command} {option}");
    }
}

#[test]
fn too_many_refusals_end_with_1() {
    let folder = Folder::with_bucket();
    // A quarter is refused.
    folder.file("log", [lines(&[0, 0, 0], 1, ""), line(0, 2, "")].concat());
    for (share, expected) in [("25%", 0), ("0.25", 0), ("24.9%", 1), ("0", 1), ("1", 0)] {
        let output = folder.run(&["replay", "log", "--map", super::MAP, "--fail-above", share], b"");
        assert_eq!(status(&output), expected, "{share}: {}", error(&output));
        assert!(text(&output).starts_with("1 of 4 requests (25.0 %) would have been refused"));
        assert_eq!(error(&output).contains("more than `--fail-above`"), expected == 1);
    }
}

#[test]
fn json_has_the_documented_fields() {
    let folder = Folder::with_bucket();
    let report = folder.replay_lines(&[&lines(&[0, 0, 0], 1, ""), "no line\n"].concat());
    for (name, value) in [("requests", 3), ("refused", 1), ("delayed", 0), ("skipped", 1), ("lines", 4)] {
        assert_eq!(report[name], value, "{name}");
    }
    for name in ["limits", "routes", "refused_keys", "refused_clients", "problems", "notes"] {
        assert!(report[name].is_array(), "{name}");
    }
    let problem = &report["problems"][0];
    assert_eq!(
        (&problem["lines"], &problem["first"], &problem["text"]),
        (&1.into(), &"log:4".into(), &"no line".into())
    );
}

#[test]
fn a_report_that_cannot_be_written_ends_with_1() {
    let folder = Folder::with_bucket();
    folder.file("log", lines(&[0, 1, 2], 1, ""));
    for command in ["replay", "suggest"] {
        let output =
            folder.run(&[command, "log", "--map", super::MAP, "--report", "no/such/folder.html"], b"");
        assert_eq!(status(&output), 1);
        assert!(error(&output).contains("cannot write `no/such/folder.html`"), "{}", error(&output));
    }
}

/// `tollgate replay … | head -1` is not a failure.
#[test]
fn a_closed_standard_output_is_no_failure() {
    let folder = Folder::with_bucket();
    folder.file("log", lines(&[0, 1, 2], 1, ""));
    for command in ["replay", "suggest"] {
        let mut child = folder.command(&[command, "log", "--map", super::MAP]).spawn().expect("it starts");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(status(&output), 0, "{}", error(&output));
    }
}
