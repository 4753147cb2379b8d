//! What syslog and container runtimes write in front of lines.

use std::fmt::Write as _;

use tempfile::TempDir;
use tollgate::log_reader::{FieldMap, LogFormat, LogOptions, ProblemKind};

use crate::harness::log_files::{address, file, head, options, read, read_text, sample};

/// The addresses and times in them are not those of the requests.
const PREFIXES: [&str; 12] = [
    "Nov 27 15:00:00 198.51.100.99 nginx[123]: ",
    "<190>Nov 27 15:00:00 nginx: ",
    "<134>1 2026-11-27T15:00:00.123456+01:00 198.51.100.99 nginx 123 - - ",
    "<134>1 2026-11-27T15:00:00Z host app 1 ID47 [a@1 b=\"]\" c=\"\\\"\"] ",
    "2026-11-27T15:00:00.123456+01:00 198.51.100.99 nginx: ",
    "2026-11-27T15:00:00+0000 host nginx[123]: ",
    "web-1  | ",
    "\u{1b}[36mweb-1  | \u{1b}[0m",
    "web-1  | 2026-11-27T15:00:00.123456789Z ",
    "2026-11-27T15:00:00.123456789Z stdout F ",
    "2026-11-27T15:00:00.123456789Z stderr F Nov 27 15:00:00 host haproxy[1]: ",
    "web-1  | <134>Nov 27 15:00:00 haproxy[1]: ",
];
const SAMPLES: [&str; 10] = [
    "combined.log",
    "common.log",
    "nginx-extended.log",
    "caddy.log",
    "caddy-wall.log",
    "traefik.log",
    "envoy.log",
    "envoy-text.log",
    "haproxy.log",
    "alb.log",
];

#[test]
fn a_prefix_changes_nothing_of_a_request() {
    for name in SAMPLES {
        let text = std::fs::read_to_string(sample(name)).unwrap();
        let expected = read_text(&text);
        assert!(!expected.requests.is_empty());
        for prefix in PREFIXES {
            let lines: String = text.lines().map(|line| format!("{prefix}{line}\n")).collect();
            let log = read_text(lines);
            assert_eq!(log.requests.len(), expected.requests.len(), "{prefix}{name}: {:?}", log.problems);
            for (found, expected) in log.requests.iter().zip(&expected.requests) {
                assert_eq!(format!("{found:?}"), format!("{expected:?}"), "{prefix}{name}");
            }
        }
    }
}

#[test]
fn a_prefix_is_left_out_with_a_format_or_a_map() {
    let line = r#"{"ts":1700000000,"client":"192.0.2.7","path":"/a"}"#;
    let folder = TempDir::new().unwrap();
    let json = file(&folder, "json", format!("web-1  | {line}\n"));
    let map = FieldMap::parse("time=$.ts,client=$.client,path=$.path").ok();
    let log = read(LogOptions { map, ..options(&[json]) });
    assert_eq!(log.requests.first().map(|request| request.client), Some(address("192.0.2.7")), "{log:?}");
    let text = std::fs::read_to_string(sample("combined.log")).unwrap();
    let lines: String =
        text.lines().map(|line| format!("<134>Nov 27 15:00:00 host nginx: {line}\n")).collect();
    let combined = file(&folder, "combined", lines);
    let log = read(LogOptions { format: LogFormat::Combined, ..options(&[combined]) });
    assert_eq!(log.requests.len(), 3, "{log:?}");
}

#[test]
fn lines_of_a_service_that_are_no_requests_are_counted() {
    let text = "\
        web-1  | /docker-entrypoint.sh: Configuration complete; ready for start up\n\
        web-1  | \n\
        web-1  | 2026/11/27 15:00:00 [notice] 1#1: start worker processes\n\
        db-1   | 2026-11-27 15:00:00.000 UTC [1] LOG:  database system is ready\n\
        web-1  | 192.0.2.7 - - [27/Nov/2026:15:00:00 +0000] \"GET / HTTP/1.1\" 200 1 \"-\" \"-\"\n";
    let log = read_text(text);
    assert_eq!(
        (log.requests.len(), log.problems.count(ProblemKind::NotReadable)),
        (1, 3),
        "{:?}",
        log.problems
    );
    assert_eq!(log.counts.lines, 4, "a line that is empty after its prefix does not count");
}

/// A runtime divides a line after 16 KiB, and lines of both streams are mixed.
#[test]
fn a_divided_line_of_a_container_is_one_request() {
    let time = "2026-11-27T15:00:00.123456789Z";
    let path = "x".repeat(40_000);
    let long =
        format!(r#"192.0.2.7 - - [27/Nov/2026:15:00:01 +0000] "GET /{path} HTTP/1.1" 200 1 "-" "curl""#);
    let short = r#"192.0.2.8 - - [27/Nov/2026:15:00:00 +0000] "GET / HTTP/1.1" 200 1 "-" "-""#;
    let mut text = String::new();
    let parts: Vec<_> = long.as_bytes().chunks(16 << 10).collect();
    for (index, part) in parts.iter().enumerate() {
        let tag = if index + 1 < parts.len() { "P" } else { "F" };
        writeln!(text, "{time} stdout {tag} {}", str::from_utf8(part).unwrap()).unwrap();
        writeln!(text, "{time} stderr F 2026/11/27 15:00:00 [error] 7#7: upstream timed out").unwrap();
    }
    writeln!(text, "{time} stdout F {short}").unwrap();
    write!(text, "{time} stdout P {}", &short[..40]).unwrap();
    let log = read_text(&text);
    let [first, second] = &log.requests[..] else { panic!("{:?}", log.problems) };
    assert_eq!((first.client, first.place.line), (address("192.0.2.8"), 7));
    assert_eq!((second.client, second.place.line), (address("192.0.2.7"), 5));
    assert!(head(second).ends_with("x HTTP/1.0\r\nuser-agent: curl\r\n\r\n"));
    let (_, count, first) = log.problems.iter().find(|row| row.0 == ProblemKind::NoEnd).unwrap();
    assert_eq!((count, first.place.line), (1, 8));
    assert_eq!((log.problems.count(ProblemKind::NotReadable), log.counts.lines), (3, 6));
}
