//! The form of the access log for a reader: when it is chosen, what it shows, and what a client cannot do to a terminal.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::{Arc, Mutex};

use http::{HeaderName, StatusCode};
use proptest::prelude::*;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use tollgate::limit::units::Micros;
use tollgate::limit::wall_clock::WallTime;
use tollgate::plan::log::{AccessLog, HeaderColumn, LogColumn, LogField, LogFields};
use tollgate::telemetry::access_log::{
    AccessLogger, HeaderOrigin, Output, OutputStyle, Record, RecordedConsumer, RecordedDecision,
    RecordedRequest, RecordedResponse,
};
use tollgate::telemetry::metrics::{DecisionLabel, SettledUnits, SettlementResult};

use crate::harness::{Backend, Gateway, TIMEOUT, everything_to};

/// Keeps what was written, for the test to read.
#[derive(Clone, Debug, Default)]
struct Screen(Arc<Mutex<Vec<u8>>>);

impl Write for Screen {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn written(form: AccessLog, style: OutputStyle, records: impl IntoIterator<Item = Record>) -> String {
    let screen = Screen::default();
    let output = Output::new("screen", screen.clone()).with_style(style);
    let writer = AccessLogger::start(form, output).expect("a thread");
    records.into_iter().for_each(|record| writer.logger().record(record));
    assert!(writer.finish(TIMEOUT));
    String::from_utf8(screen.0.lock().unwrap().clone()).expect("UTF-8")
}

fn record() -> Record {
    Record {
        time: WallTime(1_767_225_599_999_999),
        duration: Micros(1_234),
        client: [192, 0, 2, 1].into(),
        request_id: "r1".into(),
        request: RecordedRequest {
            host: "example.com".into(),
            path: "/a?b=c".into(),
            ..RecordedRequest::default()
        },
        decision: decided(DecisionLabel::Allowed),
        ..Record::default()
    }
}

/// The decision of the limit `per-client`.
fn decided(label: DecisionLabel) -> RecordedDecision {
    RecordedDecision { limit: "per-client".into(), label: Some(label), ..RecordedDecision::default() }
}

const PLAIN: OutputStyle = OutputStyle { terminal: false, colour: false };
const TERMINAL: OutputStyle = OutputStyle { terminal: true, colour: true };

#[test]
fn lines_are_aligned_and_say_why() {
    let refused = Record {
        response: RecordedResponse { status: StatusCode::TOO_MANY_REQUESTS, ..RecordedResponse::default() },
        decision: decided(DecisionLabel::Limited),
        consumer: RecordedConsumer { name: "acme".into(), tier: String::new() },
        duration: Micros(12_000_000),
        ..record()
    };
    let failed = Record {
        response: RecordedResponse {
            status: StatusCode::BAD_GATEWAY,
            error: Some("connect"),
            ..RecordedResponse::default()
        },
        client: "2001:db8::1".parse().unwrap(),
        duration: Micros(45_678),
        ..record()
    };
    assert_eq!(
        written(AccessLog::Pretty(LogFields::default()), PLAIN, [record(), refused, failed]),
        "23:59:59.999 200    1.2 ms 192.0.2.1       GET     example.com/a?b=c\n\
         23:59:59.999 429    12.0 s 192.0.2.1       GET     example.com/a?b=c limited by per-client consumer=acme\n\
         23:59:59.999 502     46 ms 2001:db8::1     GET     example.com/a?b=c connect\n"
    );
}

#[test]
fn settled_costs_follow_where_a_route_settles() {
    let settled = SettledUnits { reserved: 2_000, units: 532, result: SettlementResult::Measured };
    let decision =
        || RecordedDecision { settled: Some(settled), cost: Some(2_000), ..decided(DecisionLabel::Allowed) };
    let record = || Record { decision: decision(), ..record() };
    let fields = LogFields::default_with(true, false);
    assert_eq!(
        written(AccessLog::Pretty(fields.clone()), PLAIN, [record(), self::record()]),
        "23:59:59.999 200    1.2 ms 192.0.2.1       GET     example.com/a?b=c reserved=2000 settled=532 settlement=measured\n\
         23:59:59.999 200    1.2 ms 192.0.2.1       GET     example.com/a?b=c\n"
    );
    let json = written(AccessLog::Json(fields), PLAIN, [record()]);
    assert!(
        json.contains("\"cost\":2000,\"reserved\":2000,\"settled\":532,\"settlement\":\"measured\","),
        "{json}"
    );
}

#[test]
fn a_terminal_gets_this_form_and_a_file_gets_json() {
    let auto = || AccessLog::Auto(LogFields::default());
    assert!(written(auto(), PLAIN, [record()]).starts_with("{\"time\":"));
    let shown = written(auto(), TERMINAL, [record()]);
    assert!(shown.contains("\u{1b}[32m200\u{1b}[0m") && shown.contains("example.com/a?b=c"), "{shown:?}");
    let json = written(AccessLog::json(), TERMINAL, [record()]);
    assert!(json.starts_with("{\"time\":") && !json.contains('\u{1b}'), "{json:?}");
}

#[test]
fn fields_of_the_file_follow_by_name() {
    let header = |name: &'static str| HeaderColumn {
        label: format!("header:{name}").into(),
        name: HeaderName::from_static(name),
    };
    let columns = [
        LogColumn::Field(LogField::Status),
        LogColumn::Field(LogField::RequestId),
        LogColumn::RequestHeader(header("x-tenant")),
        LogColumn::RequestHeader(header("x-absent")),
    ];
    let mut record = record();
    let name = HeaderName::from_static("x-tenant");
    record.headers.add(HeaderOrigin::Request, &name, [&b"a b"[..], &b"\"q\""[..]]);
    let line = written(AccessLog::Pretty(LogFields::new(columns)), PLAIN, [record]);
    assert!(
        line.ends_with(" example.com/a?b=c request_id=r1 header:x-tenant=\"a b, \\\"q\\\"\"\n"),
        "{line}"
    );
}

/// Many records may wait for a slow reader, so a record is bounded, whatever a client and a backend send.
#[test]
fn the_headers_of_a_record_are_bounded_together() {
    let mut record = record();
    let name = |number: usize| HeaderName::try_from(format!("x-{number}")).expect("a name");
    for number in 0..20 {
        record.headers.add(HeaderOrigin::Response, &name(number), [&[b'v'; 3_000][..]]);
    }
    assert!(record.headers.capacity() <= 2 * 8_192, "{}", record.headers.capacity());
    let columns = (0..20).map(|number| {
        LogColumn::ResponseHeader(HeaderColumn { label: format!("{number}").into(), name: name(number) })
    });
    let line = written(AccessLog::Json(LogFields::new(columns)), PLAIN, [record]);
    let line: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!(line["7"].as_str().map(|value| value.chars().count()), Some(1_025));
    assert_eq!(line["8"], "…");
}

/// The gateway itself, with a terminal as its standard output.
#[test]
fn the_gateway_notices_a_terminal() {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pseudo-terminal");
    grantpt(&master).expect("granted");
    unlockpt(&master).expect("unlocked");
    let name = ptsname(&master, Vec::new()).expect("a name");
    let path = std::path::Path::new(std::ffi::OsStr::from_bytes(name.as_bytes()));
    let terminal = File::options().read(true).write(true).open(path).expect("the other side");
    let backend = Backend::ok();
    let gateway = Gateway::start_logging_to(&everything_to(&backend, ""), terminal);
    gateway.get("/seen").expect(200);
    let mut line = String::new();
    BufReader::new(File::from(master)).read_line(&mut line).expect("a line");
    assert!(line.contains(" 200 ") && line.trim_end().ends_with("/seen"), "{line}");
    assert!(!line.contains('\u{1b}'), "NO_COLOR is set: {line:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Whatever a client sends: one line, and nothing in it moves the cursor or turns the text.
    #[test]
    fn no_client_controls_the_terminal(host in "(?s).{0,20}", path in "(?s).{0,300}", tenant: Vec<u8>) {
        let name = HeaderName::from_static("x-tenant");
        let column = LogColumn::RequestHeader(HeaderColumn { label: "header:x-tenant".into(), name: name.clone() });
        let request = RecordedRequest { host, path, ..RecordedRequest::default() };
        let mut hostile = Record { request, ..record() };
        hostile.headers.add(HeaderOrigin::Request, &name, [&*tenant]);
        let text = written(AccessLog::Pretty(LogFields::new([column])), PLAIN, [hostile]);
        prop_assert_eq!(text.matches('\n').count(), 1);
        let is_bad = |char: char| char != '\n' && (char.is_control() || ('\u{202a}'..='\u{202e}').contains(&char));
        prop_assert!(!text.contains(is_bad), "{:?}", text);
    }
}
