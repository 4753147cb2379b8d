//! Collectors that are dead, slow, busy or mad: traffic goes on, and what is lost is counted.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::harness::{Authority, Backend, Client, Collector, Gateway, Next, eventually, everything_to};

const DROPPED: &str = "tollgate_trace_spans_dropped_total";
const EXPORTS: &str = "tollgate_trace_exports_total";
const TAKEN: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

/// A gateway before the built-in echo whose every request is one span.
fn one_span_a_request(otlp: &str, rest: &str) -> String {
    format!(
        "[admin]\nlisten = \"127.0.0.1:0\"\n[log]\naccess = \"off\"\n[upstreams]\ndemo = \"builtin:echo\"\n[[routes]]\npath = \"/*\"\n\
         upstream = \"demo\"\n[trace]\notlp = \"{otlp}\"\nsample = 1\n{rest}\n"
    )
}

/// Sends requests. Those of a slow machine may be several exports: a test that counts exports sends one.
fn ask(gateway: &Gateway, count: usize) {
    let mut client = Client::connect(gateway.addr());
    (0..count).for_each(|_| drop(client.get("/", "").expect(200)));
}

#[track_caller]
fn counted(gateway: &Gateway, name: &str, labels: &[&str], expected: u32) {
    let mut last = 0.0;
    let reached = || {
        last = gateway.metric(name, labels);
        (last >= f64::from(expected)).then_some(())
    };
    eventually(&format!("{name} {labels:?} of {expected}"), reached);
    assert_eq!(last.to_string(), expected.to_string(), "{name} {labels:?}");
}

fn lines(gateway: &Gateway, word: &str) -> usize {
    gateway.stderr_lines().iter().filter(|line| line.contains(word)).count()
}

/// A collector that answers the first exports with `first`, then accepts all.
fn at_first(count: usize, first: &'static str) -> Collector {
    let asked = AtomicUsize::new(0);
    Collector::of(Backend::start(move |exchange| {
        exchange.read_body();
        exchange.write(if asked.fetch_add(1, Ordering::SeqCst) < count { first } else { TAKEN });
        Next::KeepAlive
    }))
}

#[test]
fn a_dead_collector_costs_spans_and_one_line() {
    let (address, held) = Backend::refusing();
    let gateway = Gateway::start(&one_span_a_request(&format!("http://{address}"), ""));
    ask(&gateway, 300);
    counted(&gateway, DROPPED, &[], 300);
    ask(&gateway, 10);
    counted(&gateway, DROPPED, &[], 310);
    gateway.wait_for_log("spans cannot be exported");
    assert_eq!(lines(&gateway, "spans cannot be exported"), 1, "{}", gateway.stderr());
    counted(&gateway, EXPORTS, &["result=\"success\""], 0);
    assert!(gateway.metric(EXPORTS, &["result=\"failure\""]) >= 3.0);
    // It comes back.
    drop(held);
    let listener = std::net::TcpListener::bind(address).expect("its address is free again");
    let taking = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("an export");
        stream.set_read_timeout(Some(Duration::from_millis(300))).expect("a socket option");
        while std::io::Read::read(&mut stream, &mut [0; 4096]).is_ok_and(|count| count > 0) {}
        std::io::Write::write_all(&mut stream, TAKEN.as_bytes()).expect("it reads");
        std::thread::sleep(Duration::from_millis(200));
    });
    ask(&gateway, 1);
    counted(&gateway, EXPORTS, &["result=\"success\""], 1);
    eventually("a line that says so", || (lines(&gateway, "are exported to") == 1).then_some(()));
    counted(&gateway, DROPPED, &[], 310);
    taking.join().expect("it ends");
}

#[test]
fn a_collector_that_hangs_holds_nothing_up_and_fills_no_memory() {
    let hanging = Collector::of(Backend::start(|exchange| {
        exchange.read_body();
        exchange.hang();
        Next::Close
    }));
    let gateway = Gateway::start(&one_span_a_request(&hanging.backend().url(), ""));
    ask(&gateway, 300);
    hanging.backend().wait_for(1);
    let before = gateway.anonymous_kib();
    let started = Instant::now();
    let mut client = Client::connect(gateway.addr());
    let long = "a".repeat(3_000);
    for _ in 0..6_000 {
        client.get(&format!("/{long}?{long}"), &format!("tracestate: a={long}\r\n")).expect(200);
    }
    // A request that waited for the collector would wait for its time-out.
    assert!(started.elapsed() < Duration::from_secs(150), "{:?}", started.elapsed());
    // More than the queue holds was dropped at once; what is out was not.
    let dropped = gateway.metric(DROPPED, &[]);
    assert!((1_500.0..=6_300.0).contains(&dropped), "{dropped}");
    let grown = gateway.anonymous_kib().saturating_sub(before);
    assert!(grown < 40 << 10, "{grown} KiB more");
}

#[test]
fn an_answer_that_is_nonsense_is_a_failure_and_nothing_more() {
    for nonsense in [
        "\0\u{1}\u{2}nonsense\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n",
        "HTTP/1.1 301 Moved\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 400 Bad\r\nretry-after: 0\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 500 Broken\r\nretry-after: 0\r\ncontent-length: 0\r\n\r\n",
        "",
    ] {
        let collector = Collector::of(Backend::answering_once(nonsense));
        let gateway = Gateway::start(&one_span_a_request(&collector.backend().url(), ""));
        ask(&gateway, 1);
        let taken = nonsense.starts_with("HTTP/1.1 200");
        let result = if taken { "result=\"success\"" } else { "result=\"failure\"" };
        counted(&gateway, EXPORTS, &[result], 1);
        counted(&gateway, DROPPED, &[], if taken { 0 } else { 1 });
        ask(&gateway, 1);
        counted(&gateway, EXPORTS, &[result], 2);
        assert_eq!(collector.backend().count(), 2, "{nonsense:?}: none is sent twice");
    }
    // What it takes is not looked at, if it is no message.
    let odd = Collector::of(Backend::answering("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n\u{1}nonsense"));
    let gateway = Gateway::start(&one_span_a_request(&odd.backend().url(), ""));
    ask(&gateway, 1);
    odd.exactly(1);
    counted(&gateway, EXPORTS, &["result=\"success\""], 1);
    counted(&gateway, DROPPED, &[], 0);
}

#[test]
fn a_busy_collector_is_asked_again_when_it_says() {
    for busy in [
        "HTTP/1.1 429 Too Many\r\nretry-after: 0\r\ncontent-length: 4\r\n\r\nbusy",
        "HTTP/1.1 503 Busy\r\nretry-after: Thu, 01 Jan 1970 00:00:01 GMT\r\ndate: Thu, 01 Jan 1970 00:00:00 GMT\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 502 Bad\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 504 Slow\r\ncontent-length: 0\r\n\r\n",
    ] {
        let collector = at_first(1, busy);
        let gateway = Gateway::start(&one_span_a_request(&collector.backend().url(), ""));
        ask(&gateway, 1);
        counted(&gateway, EXPORTS, &["result=\"success\""], 1);
        counted(&gateway, DROPPED, &[], 0);
        let exports = collector.backend().requests();
        assert_eq!(exports.len(), 2, "{busy}");
        assert_eq!(exports[0].body, exports[1].body);
        assert_eq!(collector.backend().connections(), 1, "{busy}: the connection is kept");
        let pause = exports[1].at - exports[0].at;
        let min = Duration::from_millis(if busy.contains("retry-after: 0") { 0 } else { 990 });
        assert!(pause >= min, "{busy}: {pause:?}");
    }
}

#[test]
fn a_collector_that_stays_busy_or_asks_for_too_long_does_not_get_the_batch() {
    for (busy, exports) in [
        ("HTTP/1.1 429 Too Many\r\nretry-after: 0\r\ncontent-length: 0\r\n\r\n", 4),
        ("HTTP/1.1 429 Too Many\r\nretry-after: 31\r\ncontent-length: 0\r\n\r\n", 1),
        (
            "HTTP/1.1 503 Busy\r\nretry-after: 99999999999999999999\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
            4,
        ),
    ] {
        let collector = at_first(usize::MAX, busy);
        let gateway = Gateway::start(&one_span_a_request(&collector.backend().url(), ""));
        ask(&gateway, 1);
        counted(&gateway, EXPORTS, &["result=\"failure\""], 1);
        counted(&gateway, DROPPED, &[], 1);
        assert_eq!(collector.backend().count(), exports, "{busy}");
    }
}

#[test]
fn spans_that_the_collector_rejects_are_counted() {
    // `partial_success { rejected_spans: 1 }`.
    let rejecting = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n\u{a}\u{2}\u{8}\u{1}";
    let collector = Collector::of(Backend::answering(rejecting));
    let gateway = Gateway::start(&one_span_a_request(&collector.backend().url(), ""));
    ask(&gateway, 1);
    counted(&gateway, EXPORTS, &["result=\"success\""], 1);
    counted(&gateway, DROPPED, &[], 1);
}

#[test]
fn exports_carry_the_fields_of_the_file_to_the_path_of_the_file() {
    let collector = Collector::start();
    let otlp = format!("{}/otlp/v1/traces?tenant=a", collector.backend().url());
    let rest = "headers = { authorization = \"Bearer ${TOLLGATE_ADMIN_TOKEN}\", x-scope-orgid = \"7\" }";
    let gateway = Gateway::start(&one_span_a_request(&otlp, rest));
    ask(&gateway, 1);
    collector.exactly(1);
    let export = collector.backend().only();
    assert_eq!(export.request_line(), "POST /otlp/v1/traces?tenant=a HTTP/1.1");
    for (name, value) in [
        ("authorization", "Bearer test-token"),
        ("x-scope-orgid", "7"),
        ("content-type", "application/x-protobuf"),
        ("host", collector.backend().addr().to_string().as_str()),
        ("user-agent", concat!("tollgate/", env!("CARGO_PKG_VERSION"))),
    ] {
        assert_eq!(export.header(name).as_deref(), Some(value), "{name}");
    }
    let usual = Collector::start();
    let gateway = Gateway::start(&one_span_a_request(&usual.backend().url(), ""));
    ask(&gateway, 1);
    usual.exactly(1);
    assert_eq!(usual.backend().only().request_line(), "POST /v1/traces HTTP/1.1");
    assert_eq!(usual.told()[0].service, "tollgate");
}

#[test]
fn a_collector_may_speak_tls_that_the_system_trusts() {
    let authority = Authority::new();
    authority.certify("collector", &["localhost"]);
    let collector = Collector::of(Backend::ok_tls(authority.backend("collector")));
    let otlp = format!("https://localhost:{}", collector.backend().addr().port());
    let trusted = authority.path("ca.pem").display().to_string();
    let gateway =
        Gateway::start_in(&one_span_a_request(&otlp, ""), &[], &[("SSL_CERT_FILE", trusted.as_str())]);
    ask(&gateway, 2);
    collector.exactly(2);
    let stranger = Authority::new();
    let trusted = stranger.path("ca.pem").display().to_string();
    let gateway =
        Gateway::start_in(&one_span_a_request(&otlp, ""), &[], &[("SSL_CERT_FILE", trusted.as_str())]);
    ask(&gateway, 2);
    counted(&gateway, DROPPED, &[], 2);
    collector.exactly(2);
}

#[test]
fn a_connection_that_the_collector_closed_in_the_meantime_is_no_failure() {
    let collector = Collector::start();
    let gateway = Gateway::start(&one_span_a_request(&collector.backend().url(), ""));
    ask(&gateway, 1);
    collector.exactly(1);
    // Its response may still be on its way.
    counted(&gateway, EXPORTS, &["result=\"success\""], 1);
    collector.backend().close_connections();
    ask(&gateway, 1);
    collector.exactly(2);
    counted(&gateway, DROPPED, &[], 0);
    counted(&gateway, EXPORTS, &["result=\"failure\""], 0);
}

#[test]
fn with_everything_traced_nothing_is_lost() {
    let (backend, collector) = (Backend::ok(), Collector::start());
    let gateway = Gateway::start(&everything_to(
        &backend,
        &format!("[admin]\nlisten = \"127.0.0.1:0\"\n{}", collector.section("sample = 1")),
    ));
    let address = gateway.addr();
    let clients: Vec<_> = (0..4)
        .map(|_| {
            std::thread::spawn(move || {
                let mut client = Client::connect(address);
                (0..500).for_each(|_| drop(client.get("/", "").expect(200)));
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().expect("all are answered"));
    let told = collector.exactly(4_000);
    let names: std::collections::BTreeSet<_> = told.iter().map(|span| &span.span).collect();
    assert_eq!(names.len(), 4_000, "no name twice");
    counted(&gateway, DROPPED, &[], 0);
}
