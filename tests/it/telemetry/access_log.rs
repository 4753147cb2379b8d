//! The access log: whole lines, no line that a client wrote, and traffic that never waits for it.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http::StatusCode;
use proptest::prelude::*;
use serde_json::Value;
use tollgate::limit::units::Micros;
use tollgate::limit::wall_clock::WallTime;
use tollgate::plan::log::{AccessLog, LogField, LogFields, Sample};
use tollgate::telemetry::access_log::{
    AccessLogger, Output, Record, RecordedDecision, RecordedRequest, RecordedResponse, RecordedUpstream,
};
use tollgate::telemetry::metrics::DecisionLabel;

use crate::harness::{TIMEOUT, eventually};

/// Keeps what was written, for the test to read.
#[derive(Clone, Debug, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Kept {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).expect("UTF-8")
    }
}

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn record() -> Record {
    Record {
        time: WallTime(1_767_225_599_999_999),
        duration: Micros(1_234),
        client: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
        request_id: "r1".into(),
        route: "search".into(),
        request: RecordedRequest {
            host: "example.com".into(),
            path: "/a?b=c".into(),
            bytes_in: 1,
            user_agent: b"curl/8".to_vec(),
            ..RecordedRequest::default()
        },
        response: RecordedResponse { status: StatusCode::TOO_MANY_REQUESTS, bytes_out: 2, error: None },
        upstream: RecordedUpstream { server: "api/127.0.0.1:9001".into(), duration: Some(Micros(1_000)) },
        decision: RecordedDecision {
            limit: "per-client".into(),
            label: Some(DecisionLabel::Limited),
            remaining: Some(0),
            cost: Some(10),
            ..RecordedDecision::default()
        },
        ..Record::default()
    }
}

/// What the log writes for these records.
fn written(mode: AccessLog, records: impl IntoIterator<Item = Record>) -> String {
    let kept = Kept::default();
    let writer = AccessLogger::start(mode, Output::new("kept", kept.clone())).expect("a thread");
    for record in records {
        writer.logger().record(record);
    }
    assert!(writer.finish(TIMEOUT));
    kept.text()
}

#[test]
fn a_json_line_has_every_field_in_its_order() {
    assert_eq!(
        written(AccessLog::json(), [record()]),
        "{\"time\":\"2025-12-31T23:59:59.999999Z\",\"method\":\"GET\",\"host\":\"example.com\",\"path\":\"/a?b=c\",\
         \"route\":\"search\",\"status\":429,\"bytes_in\":1,\"bytes_out\":2,\"duration_ms\":1.234,\
         \"upstream\":\"api/127.0.0.1:9001\",\"upstream_ms\":1.0,\"client\":\"192.0.2.1\",\"consumer\":null,\"tier\":null,\"request_id\":\"r1\",\
         \"limit\":\"per-client\",\"decision\":\"limited\",\"remaining\":0,\"cost\":10,\"error\":null}\n"
    );
}

#[test]
fn what_there_is_nothing_to_say_of_is_null() {
    let bare = Record {
        route: String::new(),
        upstream: RecordedUpstream::default(),
        decision: RecordedDecision::default(),
        ..record()
    };
    let line: Value = serde_json::from_str(&written(AccessLog::json(), [bare])).unwrap();
    for field in ["route", "upstream", "upstream_ms", "limit", "decision"] {
        assert_eq!(line.get(field), Some(&Value::Null), "{field}");
    }
}

/// What replay reads of a line stands in its reader; of other fields no decision depends.
#[test]
fn replay_reads_each_field_or_needs_it_not() {
    const NOT_NEEDED: [&str; 9] = [
        "upstream",
        "upstream_ms",
        "request_id",
        "reserved",
        "settlement",
        "shadow",
        "trace_id",
        "protocol",
        "key",
    ];
    let reader = include_str!("../../../src/log_reader/tollgate.rs");
    let monitoring = include_str!("../../../docs/monitoring.md");
    for (field, _) in LogField::WORDS {
        let is_read = reader.contains(&format!("b\"{field}\""));
        assert_ne!(
            is_read,
            NOT_NEEDED.contains(&field),
            "{field}: read it in log_reader/tollgate.rs, or list it here"
        );
        assert!(monitoring.contains(&format!("`{field}`")), "{field} has a row in docs/monitoring.md");
    }
}

#[test]
fn a_combined_line_is_apaches() {
    assert_eq!(
        written(AccessLog::Combined, [record()]),
        "192.0.2.1 - - [31/Dec/2025:23:59:59 +0000] \"GET /a?b=c HTTP/1.1\" 429 2 \"-\" \"curl/8\"\n"
    );
    let mut hostile = record();
    hostile.request.user_agent = b"\"\\\r\n\x1b[2J\xff".to_vec();
    let line = written(AccessLog::Combined, [hostile]);
    assert!(line.ends_with(" \"\\\"\\\\\\x0d\\x0a\\x1b[2J\\xff\"\n"), "{line}");
}

#[test]
fn months_and_leap_days_are_right() {
    for (seconds, json, combined) in [
        (0, "1970-01-01T00:00:00.000000Z", "01/Jan/1970:00:00:00 +0000"),
        (951_782_400, "2000-02-29T00:00:00.000000Z", "29/Feb/2000:00:00:00 +0000"),
        (4_107_542_399, "2100-02-28T23:59:59.000000Z", "28/Feb/2100:23:59:59 +0000"),
    ] {
        let moment = || Record { time: WallTime(seconds * 1_000_000), ..record() };
        assert!(written(AccessLog::json(), [moment()]).contains(json), "{json}");
        assert!(written(AccessLog::Combined, [moment()]).contains(combined), "{combined}");
    }
}

#[test]
fn chosen_fields_stand_in_the_order_of_the_file() {
    let fields = [LogField::Status, LogField::Error, LogField::Path, LogField::Decision];
    let form = AccessLog::Json(LogFields::of(fields));
    assert_eq!(
        written(form, [record()]),
        "{\"status\":429,\"error\":null,\"path\":\"/a?b=c\",\"decision\":\"limited\"}\n"
    );
}

#[test]
fn a_change_holds_for_what_comes_after_it() {
    let (first, second) = (Kept::default(), Kept::default());
    let writer = AccessLogger::start(AccessLog::Off, Output::new("first", first.clone())).expect("a thread");
    let logger = writer.logger();
    let only = |field| AccessLog::Json(LogFields::of([field]));
    logger.record(record());
    logger.change(AccessLog::Combined, None);
    logger.record(record());
    logger.change(only(LogField::Cost), None);
    logger.record(record());
    logger.change(only(LogField::Status), Some(Output::new("second", second.clone())));
    logger.record(record());
    logger.redirect(Output::new("first again", first.clone()));
    logger.record(record());
    logger.record(record());
    logger.change(AccessLog::Off, None);
    logger.record(record());
    assert!(writer.finish(TIMEOUT));
    let (first, second) = (first.text(), second.text());
    let (combined, rest) = first.split_once('\n').expect("a line");
    assert!(combined.starts_with("192.0.2.1 "), "{combined}");
    assert_eq!(rest, "{\"cost\":10}\n{\"status\":429}\n{\"status\":429}\n");
    assert_eq!(second, "{\"status\":429}\n");
}

#[test]
fn a_sample_is_even_however_requests_take_turns() {
    for (share, first) in [(0.5, 0), (0.1, u64::MAX), (0.01, 12_345_678_901_234_567)] {
        let (sample, mut phase) = (Sample::new(share), first);
        let chosen: Vec<bool> = (0..20_000).map(|_| sample.chooses(&mut phase)).collect();
        for turns in [1, 2, 3, 10, 100] {
            for place in 0..turns {
                let of_this = chosen.iter().skip(place).step_by(turns);
                let expected = share * 20_000.0 / turns as f64;
                let found = of_this.filter(|chosen| **chosen).count() as f64;
                assert!((found - expected).abs() <= 6.0, "{found} of {expected}, {share} of every {turns}th");
            }
        }
    }
    let mut phase = 7;
    assert!((0..10_000).all(|_| Sample::ALL.chooses(&mut phase) && Sample::new(1.0).chooses(&mut phase)));
    assert!(!(0..10_000).any(|_| Sample::new(0.0).chooses(&mut phase)));
}

#[test]
fn all_that_was_handed_over_is_written_at_the_end() {
    let records = (0..5_000).map(|number| {
        let mut record = record();
        record.request.bytes_in = number;
        record
    });
    let text = written(AccessLog::json(), records);
    let numbers: Vec<u64> = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["bytes_in"].as_u64().unwrap())
        .collect();
    assert_eq!(numbers, (0..5_000).collect::<Vec<_>>());
}

/// Takes nothing until it is told to.
struct Stuck(Receiver<()>);

impl Write for Stuck {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = self.0.recv();
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_stuck_reader_stops_no_request_and_lost_records_are_counted() {
    let (release, stuck): (Sender<()>, _) = channel();
    let writer =
        AccessLogger::start(AccessLog::json(), Output::new("stuck", Stuck(stuck))).expect("a thread");
    let (logger, started) = (writer.logger(), Instant::now());
    for _ in 0..50_000 {
        logger.record(record());
    }
    assert!(started.elapsed() < TIMEOUT, "handing over never waits");
    // Two queues' worth at most are held: one queued, one in the writer's hands.
    assert!(logger.dropped() >= 50_000 - 3 * 8_192, "{}", logger.dropped());
    assert!(!writer.finish(Duration::from_millis(50)), "nor does the end wait longer than it is told");
    drop(release);
}

/// A disk that is full at first.
#[derive(Debug)]
struct Full {
    kept: Kept,
    /// It accepts this number of bytes, then fails this number of times.
    room: usize,
    failures: usize,
}

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.failures > 0 {
            if self.room == 0 {
                self.failures -= 1;
                return Err(io::ErrorKind::StorageFull.into());
            }
            let taken = self.room.min(bytes.len());
            self.room -= taken;
            return self.kept.write(&bytes[..taken]);
        }
        self.kept.write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn an_output_that_fails_costs_the_lines_it_refused_and_no_other() {
    let kept = Kept::default();
    let full = Full { kept: kept.clone(), room: 5, failures: 1 };
    let writer = AccessLogger::start(AccessLog::json(), Output::new("full", full)).expect("a thread");
    let logger = writer.logger();
    logger.record(record());
    eventually("the loss to be counted", || (logger.dropped() == 1).then_some(()));
    logger.record(record());
    assert!(writer.finish(TIMEOUT));
    let text = kept.text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2, "the torn line is ended: {text}");
    assert!(serde_json::from_str::<Value>(lines[1]).is_ok(), "the next is whole: {text}");
    assert_eq!(logger.dropped(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Whatever a client sends: one line, and its fields say what was sent.
    #[test]
    fn json_cannot_be_injected(host in ".{0,20}", path in "(?s).{0,40}", id in "[\"\\\\\r\n\u{85}\u{2028}{},:]{0,20}") {
        let hostile = Record {
            request: RecordedRequest {
                host: host.as_str().into(),
                path: path.as_str().into(),
                ..RecordedRequest::default()
            },
            request_id: id.as_str().into(),
            ..record()
        };
        let text = written(AccessLog::json(), [hostile, record()]);
        prop_assert_eq!(text.matches('\n').count(), 2);
        let lines = text.strip_suffix('\n').unwrap();
        let unsafe_char = |char: char| (char.is_control() && char != '\n') || char == '\u{2028}';
        prop_assert!(!lines.contains(unsafe_char), "{:?}", lines);
        let line: Value = serde_json::from_str(lines.split('\n').next().unwrap()).unwrap();
        prop_assert_eq!(line["host"].as_str(), Some(host.as_str()));
        prop_assert_eq!(line["path"].as_str(), Some(path.as_str()));
        prop_assert_eq!(line["request_id"].as_str(), Some(id.as_str()));
        prop_assert_eq!(line["status"].as_u64(), Some(429));
    }

    /// Printable ASCII on one line, and quotes only where the format has them.
    #[test]
    fn combined_cannot_be_injected(path in "(?s).{0,40}", agent: Vec<u8>, referer: Vec<u8>) {
        let hostile = Record {
            request: RecordedRequest { path, user_agent: agent, referer, ..RecordedRequest::default() },
            ..record()
        };
        let text = written(AccessLog::Combined, [hostile]);
        let line = text.strip_suffix('\n').unwrap();
        prop_assert!(line.bytes().all(|byte| matches!(byte, b' '..=b'~')), "{}", line);
        let bare = line.replace("\\\\", "").replace("\\\"", "");
        prop_assert_eq!(bare.matches('"').count(), 6, "{}", line);
    }
}
