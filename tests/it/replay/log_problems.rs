//! Logs that are damaged, mixed or no logs at all.

use std::io::Write as _;
use std::ops::ControlFlow;

use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;
use tempfile::TempDir;
use tollgate::log_reader::{LogReader, ProblemKind};

use crate::harness::log_files::{file, options, read, read_text, sample};

fn line(second: u64, rest: &str) -> String {
    format!("192.0.2.1 - - [10/Oct/2000:13:{:02}:{:02} +0000] {rest}\n", second / 60, second % 60)
}

fn lines(count: u64) -> String {
    (0..count).map(|second| line(second, r#""GET / HTTP/1.1" 200 1 "-" "-""#)).collect()
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

fn zstd(text: &str) -> Vec<u8> {
    let mut output = vec![0; zstd_safe::compress_bound(text.len())];
    let length = zstd_safe::compress(&mut output[..], text.as_bytes(), 1).unwrap();
    output.truncate(length);
    output
}

#[test]
fn compressed_logs_are_read_whatever_their_names() {
    for content in [gzip(&lines(9)), zstd(&lines(9)), [gzip(&lines(4)), gzip(&lines(5))].concat()] {
        let log = read_text(content);
        assert_eq!(log.requests.len(), 9);
        assert!(log.problems.is_empty());
    }
}

#[test]
fn what_was_read_of_a_truncated_log_counts() {
    // Text that does not compress well, so that half of the file has lines.
    let text: String = (0..3_600_u64)
        .map(|second| {
            line(
                second,
                &format!(r#""GET /{:x} HTTP/1.1" 200 1"#, second.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            )
        })
        .collect();
    for content in [gzip(&text), zstd(&text)] {
        let log = read_text(&content[..content.len() / 2]);
        assert_eq!(log.problems.count(ProblemKind::EndsEarly), 1, "{:?}", log.problems);
        assert!(log.requests.len() < 3_600);
        let mut damaged = content.clone();
        damaged.extend_from_slice(b"something else entirely, longer than a head");
        let log = read_text(damaged);
        assert_eq!((log.requests.len(), log.problems.count(ProblemKind::Damaged)), (3_600, 1));
    }
}

#[test]
fn lines_that_cannot_be_read_are_counted_by_reason() {
    let good = r#""GET / HTTP/1.1" 200 1"#;
    let mut text = line(1, good);
    text.push_str("\n   \nhello\n");
    text.push_str(&line(2, r#""GET /\x0d\x0aX-Evil:\x201 HTTP/1.1" 200 1"#));
    text.push_str("192.0.2.1 - - [not a time] \"GET / HTTP/1.1\" 200 1\n");
    text.push_str("host.example - - [10/Oct/2000:13:00:00 +0000] \"GET / HTTP/1.1\" 200 1\n");
    text.push_str("192.0.2.1 - - [10/Oct/1970:13:00:00 +0000] \"GET / HTTP/1.1\" 200 1\n");
    text.push_str("\0\0\0\n");
    text.push_str(&"x".repeat(10 << 20));
    text.push('\n');
    text.push_str(&line(3, good));
    let log = read_text(text);
    assert_eq!(log.requests.len(), 2);
    for (kind, number) in [
        (ProblemKind::NotReadable, 4),
        (ProblemKind::NoRequest, 5),
        (ProblemKind::NoTime, 6),
        (ProblemKind::NoClient, 7),
        (ProblemKind::TimeOutOfRange, 8),
        (ProblemKind::Binary, 9),
        (ProblemKind::TooLong, 10),
    ] {
        let (_, count, first) = log.problems.iter().find(|row| row.0 == kind).unwrap();
        assert_eq!((count, first.place.line), (1, number), "{kind:?}");
        assert!(first.text.chars().count() <= 80);
    }
    assert_eq!(log.problems.skipped_lines(), 7);
    assert_eq!((log.counts.lines, log.requests[1].place.line), (9, 11));
}

#[test]
fn formats_may_be_mixed_in_one_file() {
    let parts =
        ["envoy.log", "caddy.log", "combined.log"].map(|name| std::fs::read_to_string(sample(name)).unwrap());
    let log = read_text(parts.concat());
    assert_eq!(log.requests.len(), 7);
    assert!(log.counts.other_format >= 5, "{:?}", log.counts);
}

#[test]
fn jumps_back_are_counted_and_sorted() {
    let text = [line(3_599, r#""GET /b HTTP/1.1" 200 1"#), lines(1).replace("13:", "11:")].concat();
    let log = read_text(text);
    assert_eq!((log.requests.len(), log.problems.count(ProblemKind::ClockJump)), (2, 1));
    assert!(log.requests.is_sorted_by_key(|request| request.time));
}

#[test]
fn missing_files_and_directories_are_named_with_a_remedy() {
    let folder = TempDir::new().unwrap();
    for path in [folder.path().join("missing.log"), folder.path().to_path_buf()] {
        let fault =
            LogReader::open(options(std::slice::from_ref(&path)), |_| ControlFlow::Continue(())).unwrap_err();
        assert!(fault.what.contains(&path.display().to_string()) && !fault.remedy.is_empty(), "{fault}");
    }
}

#[test]
fn nothing_at_all_has_no_request() {
    let folder = TempDir::new().unwrap();
    for path in ["/dev/null".into(), file(&folder, "empty", "")] {
        let log = read(options(&[path]));
        assert!(log.requests.is_empty() && log.problems.is_empty());
    }
}

#[test]
fn a_file_that_grows_or_shrinks_is_read_as_far_as_it_goes() {
    let folder = TempDir::new().unwrap();
    for (later, expected) in [(20, 10), (5, 5)] {
        let path = file(&folder, "a", lines(10));
        let mut reader =
            LogReader::open(options(std::slice::from_ref(&path)), |_| ControlFlow::Continue(())).unwrap();
        std::fs::write(&path, lines(later)).unwrap();
        let mut count = 0;
        while reader.next().is_some() {
            count += 1;
        }
        assert_eq!(count, expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_damage_is_read_without_panic(
        name in prop::sample::select(vec!["combined.log", "common.log", "caddy.log", "traefik.log", "envoy.log"]),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        cut in any::<prop::sample::Index>(),
        coding in 0..3,
    ) {
        let plain = std::fs::read_to_string(sample(name)).unwrap();
        let mut content = match coding {
            0 => plain.into_bytes(),
            1 => gzip(&plain),
            _ => zstd(&plain),
        };
        for (index, byte) in changes {
            let at = index.index(content.len());
            content[at] = byte;
        }
        content.truncate(cut.index(content.len()) + 1);
        let log = read_text(content);
        for request in &log.requests {
            let head = String::from_utf8_lossy(&request.head);
            prop_assert!(head.ends_with("\r\n\r\n") && head.matches("\r\n\r\n").count() == 1);
            prop_assert!(!head.contains('\0'));
        }
    }
}

/// A first field that is not an address, nor a list with one at its end, is never taken for a client.
#[test]
fn a_first_field_that_is_not_understood_is_a_problem() {
    let fronts = [
        "garbage - -",
        "192.0.2.300 - -",
        "- - -",
        "unknown, - - -",
        "192.0.2.7, unknown - -",
        "\"192.0.2.7\" - -",
        "192.0.2.7;x - -",
        "www.example.com:80 garbage - -",
    ];
    let line = |front: &str| format!("{front} [10/Oct/2000:13:00:00 +0000] \"GET / HTTP/1.1\" 200 1\n");
    let log = read_text(fronts.map(line).concat());
    assert_eq!((log.requests.len(), log.problems.count(ProblemKind::NoClient)), (0, fronts.len() as u64));
}
