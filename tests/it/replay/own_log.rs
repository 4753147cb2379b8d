//! A log that tollgate wrote is read back with the same values.

use std::io::{self, Write};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{HeaderName, Method, StatusCode};
use proptest::prelude::*;
use tollgate::limit::units::Micros;
use tollgate::limit::wall_clock::WallTime;
use tollgate::log_reader::request::OwnRecord;
use tollgate::plan::log::{AccessLog, HeaderColumn, LogColumn, LogField, LogFields};
use tollgate::telemetry::access_log::{
    AccessLogger, HeaderOrigin, Output, Record, RecordedConsumer, RecordedDecision, RecordedRequest,
    RecordedResponse,
};
use tollgate::telemetry::metrics::DecisionLabel;

use crate::harness::log_files::{ReadLogs, head, read_text};

/// Keeps what was written.
#[derive(Clone, Debug, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes a record, and reads it.
fn round_trip(log: AccessLog, record: Record) -> ReadLogs {
    let kept = Kept::default();
    let writer = AccessLogger::start(log, Output::new("kept", kept.clone())).expect("a thread");
    writer.logger().record(record);
    assert!(writer.finish(Duration::from_secs(10)));
    let text = kept.0.lock().unwrap().clone();
    read_text(text)
}

fn record(
    time: u64,
    path: String,
    agent: String,
    tenant: Option<String>,
    client: IpAddr,
    numbers: [u32; 3],
) -> Record {
    let [bytes, duration, cost] = numbers;
    let mut record = Record {
        time: WallTime(time),
        duration: Micros(duration.into()),
        client,
        request_id: "r1".into(),
        route: "search".into(),
        request: RecordedRequest {
            method: Method::POST,
            host: "example.com".into(),
            path,
            bytes_in: u64::from(bytes) + 1,
            user_agent: agent.into_bytes(),
            ..RecordedRequest::default()
        },
        response: RecordedResponse {
            status: StatusCode::TOO_MANY_REQUESTS,
            bytes_out: u64::from(bytes),
            error: Some("timeout"),
        },
        consumer: RecordedConsumer { name: "ada \"l\"".into(), tier: String::new() },
        decision: RecordedDecision {
            limit: "per-client".into(),
            label: Some(DecisionLabel::Limited),
            remaining: Some(7),
            cost: Some(cost),
            ..RecordedDecision::default()
        },
        ..Record::default()
    };
    if let Some(tenant) = tenant {
        record.headers.add(HeaderOrigin::Request, &HeaderName::from_static("x-tenant"), [tenant.as_bytes()]);
    }
    record
}

fn columns() -> LogFields {
    let header = HeaderColumn { label: "header:X-Tenant".into(), name: HeaderName::from_static("x-tenant") };
    let fields = LogField::ALL.into_iter().map(LogColumn::Field);
    LogFields::new(fields.chain([LogColumn::RequestHeader(header)]))
}

/// From 1990 to 2099.
const TIMES: std::ops::Range<u64> = 631_152_000_000_000..4_102_444_800_000_000;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn json_lines_have_the_same_values(
        time in TIMES,
        path in r#"/[!-"$-~]{0,30}"#,
        agent in r#"[!-~é][ -~]{0,20}"#,
        tenant in prop::option::of(r"[a-z\\/]{1,8}"),
        client: IpAddr,
        numbers: [u32; 3],
    ) {
        prop_assume!(agent != "-");
        let written = record(time, path.clone(), agent.clone(), tenant.clone(), client, numbers);
        let expected = written.clone();
        let log = round_trip(AccessLog::Json(columns()), written);
        prop_assert!(log.problems.is_empty(), "{:?}", log.problems);
        let request = &log.requests[0];
        prop_assert_eq!((request.time.0, request.client), (expected.time.0, client.to_canonical()));
        prop_assert_eq!((request.duration, request.status), (Some(expected.duration), Some(429)));
        prop_assert_eq!((request.bytes_in, request.bytes_out), (Some(expected.request.bytes_in), Some(expected.response.bytes_out)));
        prop_assert_eq!(&request.consumer, &expected.consumer.name);
        let own = OwnRecord {
            tier: String::new(),
            route: "search".into(),
            limit: "per-client".into(),
            decision: "limited".into(),
            remaining: Some(7),
            cost: expected.decision.cost,
            settled: None,
            error: "timeout".into(),
        };
        prop_assert_eq!(request.own.as_ref(), Some(&own));
        let tenant = tenant.map_or_else(String::new, |tenant| format!("X-Tenant: {tenant}\r\n"));
        let expected = format!(
            "POST {path} HTTP/1.1\r\nhost: example.com\r\nuser-agent: {agent}\r\n{tenant}content-length: {}\r\n\r\n",
            expected.request.bytes_in
        );
        prop_assert_eq!(head(request), expected);
    }

    #[test]
    fn combined_lines_have_the_same_values(
        time in TIMES,
        path in r#"/[!-"$-~]{0,30}"#,
        agent in r#"[!-~é][ -~]{0,20}"#,
        client: IpAddr,
        numbers: [u32; 3],
    ) {
        prop_assume!(agent != "-");
        let written = record(time, path.clone(), agent.clone(), None, client, numbers);
        let log = round_trip(AccessLog::Combined, written);
        let request = &log.requests[0];
        prop_assert_eq!(request.time.0, time - time % 1_000_000);
        prop_assert_eq!((request.client, request.bytes_out), (client.to_canonical(), Some(numbers[0].into())));
        let expected = format!("POST {path} HTTP/1.0\r\nuser-agent: {agent}\r\n\r\n");
        prop_assert_eq!(head(request), expected);
    }
}
