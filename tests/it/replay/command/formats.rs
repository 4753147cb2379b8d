//! The logs of all servers, plain and compressed, as files and on standard input.

use std::path::Path;

use super::{Folder, gzip, json, line, lines, zstd};
use crate::harness::log_files::sample;

const NGINX: &str =
    "time=$.msec,client=$.remote_addr,request=$.request,host=$.host,status=$.status,duration=$.request_time";

/// Each log, the requests in it, and the options that it needs.
const LOGS: [(&str, u64, &[&str]); 6] = [
    ("combined.log", 3, &[]),
    ("common.log", 2, &[]),
    ("caddy.log", 2, &[]),
    ("envoy.log", 2, &[]),
    ("traefik.log", 1, &[]),
    ("nginx-json.log", 1, &["--map", NGINX]),
];

fn requests(folder: &Folder, log: &str, more: &[&str], input: &[u8]) -> u64 {
    let arguments = [&["replay", log, "-c", "gateway.toml", "--json"], more].concat();
    json(&folder.run(&arguments, input))["requests"].as_u64().expect("a number")
}

#[test]
fn each_format_is_read_from_files_and_from_standard_input() {
    let folder = Folder::with_bucket();
    for (name, expected, options) in LOGS {
        let content = std::fs::read(sample(name)).expect("a log");
        for content in [content.clone(), gzip(&content), zstd(&content)] {
            folder.file("log", &content);
            assert_eq!(requests(&folder, "log", options, b""), expected, "{name}");
            assert_eq!(requests(&folder, "-", options, &content), expected, "{name}");
        }
    }
}

#[test]
fn a_format_may_be_named() {
    let folder = Folder::with_bucket();
    let named = [
        ("common.log", "combined", 2),
        ("caddy.log", "caddy", 2),
        ("envoy.log", "envoy", 2),
        ("traefik.log", "traefik", 1),
    ];
    for (name, format, expected) in named {
        let path = sample(name);
        let path = path.to_str().expect("text");
        assert_eq!(requests(&folder, path, &["--format", format], b""), expected, "{name}");
        let other = folder.run(&["replay", path, "--format", "tollgate"], b"");
        assert_eq!(super::status(&other), 1, "{name}");
    }
}

/// Two files, of which one is compressed, and standard input.
#[test]
fn several_files_are_merged_by_time() {
    let folder = Folder::with_bucket();
    folder.file("odd", lines(&[1_000, 3_000], 1, ""));
    folder.file("even", gzip(lines(&[0, 2_000], 1, "").as_bytes()));
    let input = line(500, 1, "");
    let arguments = ["replay", "odd", "even", "-", "-c", "gateway.toml", "--json", "--map", super::MAP];
    let report = json(&folder.run(&arguments, input.as_bytes()));
    // Tokens: 2, 1.5 at 0.5 s, 1 at 1 s; then one a second: none is refused, as it would be in another order.
    assert_eq!((report["requests"].as_u64(), report["refused"].as_u64()), (Some(5), Some(0)));
    assert_eq!(report["from"], "2023-11-15T00:00:00.000000Z");
    assert_eq!(report["to"], "2023-11-15T00:00:03.000000Z");
}

#[test]
fn the_window_of_time_is_that_of_the_options() {
    let folder = Folder::with_bucket();
    folder.file("log", lines(&[0, 1_000, 86_400_000], 1, ""));
    for (options, expected) in [
        (vec!["--from", "2023-11-16"], 1),
        (vec!["--to", "2023-11-16"], 2),
        (vec!["--from", "2023-11-15T00:00:01Z", "--to", "2023-11-16T00:00:00Z"], 1),
        (vec!["--from", "2023-11-15T01:00:01+01:00"], 2),
    ] {
        let report = folder.replay(&[&["--map", super::MAP][..], &options].concat());
        assert_eq!(report["requests"], expected, "{options:?}");
        let note = format!("requests outside of `--from` and `--to`: {}", 3 - expected);
        assert!(report["notes"].as_array().expect("notes").contains(&note.into()), "{report:#}");
    }
}

#[test]
fn the_host_of_a_log_without_hosts_is_that_of_the_option() {
    let folder = Folder::with_bucket();
    let file = super::config(&super::bucket(2), "")
        .replace("path = \"/*\"", "path = \"/*\"\nhosts = [\"www.example.com\"]");
    folder.file("gateway.toml", file);
    let path = sample("combined.log");
    let path = path.to_str().expect("text");
    let run = |more: &[&str]| {
        let report = json(&folder.run(&[&["replay", path, "--json"], more].concat(), b""));
        (report["routes"][0]["requests"].as_u64(), report["notes"].to_string())
    };
    assert_eq!(run(&["--host", "www.example.com"]).0, Some(3));
    let (requests, notes) = run(&[]);
    assert_eq!(requests, Some(0));
    assert!(
        notes.contains("route `all` gets no request: the log has no host; name it with `--host`"),
        "{notes}"
    );
}

/// At 165 s the first line is 65 s old: the line of 10 s comes too late for a window of 60 s.
#[test]
fn lines_of_standard_input_are_sorted_within_the_window() {
    let folder = Folder::with_bucket();
    let text = lines(&[100_000, 165_000, 10_000], 1, "");
    for (options, late) in [(vec![], true), (vec!["--reorder", "3min"], false)] {
        let arguments = [&["replay", "-", "--json", "--map", super::MAP][..], &options].concat();
        let report = json(&folder.run(&arguments, text.as_bytes()));
        let notes = report["notes"].to_string();
        assert_eq!(notes.contains("the time of the line before: 1"), late, "{notes}");
        assert_eq!(report["requests"], 3);
    }
}

/// What a shell makes of `tollgate suggest <(zcat access.log.gz)`: a file that can be read only once.
#[test]
fn a_named_pipe_is_read_once() {
    let folder = Folder::with_bucket();
    let times: Vec<_> = (0..200).map(|number| number * 1_000).collect();
    let text: String = (0..40).map(|client| lines(&times, client, "")).collect();
    for command in ["replay", "suggest"] {
        let path = folder.0.path().join(command);
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, mode).expect("a pipe");
        let child =
            folder.command(&[command, command, "--map", super::MAP]).spawn().expect("the program starts");
        write(&path, &text);
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(super::status(&output), 0, "{}", super::error(&output));
        assert!(
            super::text(&output).contains("8,000") || super::text(&output).contains("8000"),
            "{}",
            super::text(&output)
        );
    }
}

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).expect("the program reads it");
}
