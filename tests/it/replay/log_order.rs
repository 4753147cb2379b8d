//! Requests come in the order of their arrival, whatever the order of the lines.

use std::fmt::Write as _;
use std::ops::ControlFlow;

use proptest::prelude::*;
use tempfile::TempDir;
use tollgate::limit::units::Timestamp;
use tollgate::log_reader::{LogPhase, LogReader, ProblemKind};

use crate::harness::log_files::{file, options, read, read_bounded};

const START: u64 = 1_700_000_000;

/// Lines of Caddy, which have the end of a request and its duration, in whole seconds.
fn caddy(requests: &[(u64, u64)]) -> String {
    let mut text = String::new();
    for (end, duration) in requests {
        let time = START + end;
        writeln!(text, r#"{{"ts":{time},"request":{{"client_ip":"192.0.2.1","method":"GET","host":"a","uri":"/"}},"duration":{duration}}}"#).unwrap();
    }
    text
}

/// A line of a pipe, which is read once: a FIFO that a thread writes.
fn piped(folder: &TempDir, text: String) -> std::path::PathBuf {
    let path = folder.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let writer = path.clone();
    std::thread::spawn(move || std::fs::write(writer, text));
    path
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn the_order_is_that_of_a_stable_sort(
        files in prop::collection::vec(prop::collection::vec((0_u64..40, 0_u64..60), 0..900), 1..4),
        max_held in prop_oneof![Just(500_usize), Just(20_000), Just(64 << 20)],
    ) {
        let folder = TempDir::new().unwrap();
        let (mut paths, mut expected) = (Vec::new(), Vec::new());
        for (index, steps) in files.iter().enumerate() {
            let mut end = 100;
            let requests: Vec<_> = steps.iter().map(|(step, duration)| { end += step / 20; (end, *duration) }).collect();
            for (line, (end, duration)) in (1_u64..).zip(&requests) {
                expected.push((Timestamp((START + end - duration) * 1_000_000), index, line));
            }
            paths.push(file(&folder, &format!("{index}.log"), caddy(&requests)));
        }
        expected.sort();
        let log = read_bounded(options(&paths), max_held);
        let found: Vec<_> = log.requests.iter().map(|request| (request.time, request.place.file as usize, request.place.line)).collect();
        prop_assert_eq!(found, expected);
        prop_assert!(log.problems.is_empty());
        prop_assert_eq!(log.counts.late, 0);
    }
}

#[test]
fn a_stream_is_sorted_within_its_window() {
    let folder = TempDir::new().unwrap();
    let requests = [(100, 0), (130, 40), (200, 0), (201, 140), (202, 0)];
    let path = piped(&folder, caddy(&requests));
    let log = read(options(&[path]));
    let seconds: Vec<_> = log.requests.iter().map(|request| request.time.0 / 1_000_000 - START).collect();
    // The fourth request arrived at 61, when requests until 100 had been returned.
    assert_eq!(seconds, [90, 100, 100, 200, 202]);
    assert_eq!((log.counts.late, log.counts.out_of_order), (1, 2));
}

#[test]
fn a_window_of_time_leaves_others_out() {
    let folder = TempDir::new().unwrap();
    let requests: Vec<_> = (100..200).map(|end| (end, 0)).collect();
    let mut options = options(&[file(&folder, "a", caddy(&requests))]);
    let at = |second| Some(Timestamp((START + second) * 1_000_000));
    (options.from, options.to) = (at(120), at(130));
    let log = read(options);
    assert_eq!((log.requests.len(), log.counts.outside, log.counts.lines), (10, 90, 100));
}

#[test]
fn one_line_in_the_future_does_not_end_the_window_of_a_stream() {
    let folder = TempDir::new().unwrap();
    let path = piped(&folder, caddy(&[(100, 0), (999_999_999, 0), (101, 0), (102, 10)]));
    let log = read(options(&[path]));
    assert_eq!((log.requests.len(), log.counts.late), (4, 0));
    assert_eq!(log.problems.count(ProblemKind::ClockJump), 1);
}

#[test]
fn a_watch_can_end_reading_in_both_phases() {
    let folder = TempDir::new().unwrap();
    let requests: Vec<_> = (0..20_000).map(|end| (end + 100, 0)).collect();
    let path = file(&folder, "a", caddy(&requests));
    for wanted in [LogPhase::Times, LogPhase::Requests] {
        let watch = |progress: tollgate::log_reader::LogProgress| match progress.phase == wanted {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        };
        let mut reader = LogReader::open(options(std::slice::from_ref(&path)), watch).unwrap();
        let mut count = 0;
        while reader.next().is_some() {
            count += 1;
        }
        assert!(reader.is_interrupted() && count < 20_000, "{count} in {wanted:?}");
    }
}

#[test]
fn progress_reaches_the_length_of_all_files() {
    let folder = TempDir::new().unwrap();
    let paths = ["a", "b"].map(|name| file(&folder, name, caddy(&[(100, 0), (101, 0)])));
    let length: u64 = paths.iter().map(|path| path.metadata().unwrap().len()).sum();
    let mut reader = LogReader::open(options(&paths), |_| ControlFlow::Continue(())).unwrap();
    while reader.next().is_some() {}
    let progress = reader.progress();
    assert_eq!((progress.bytes_read, progress.bytes_total, progress.lines), (length, Some(length), 4));
    assert_eq!(reader.counts().requests, 4);
}
