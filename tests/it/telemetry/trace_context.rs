//! `traceparent` as W3C Trace Context, level 2, defines it: which are read, which are dropped, and what the backend sees.

use proptest::prelude::*;
use tollgate::telemetry::trace::context::Context;

use crate::harness::{Backend, Collector, Gateway, everything_to, get_with};

const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

/// Any fault in it has the same effect: the receiver begins a new trace.
const MALFORMED: &[&str] = &[
    "",
    "00",
    "0af7651916cd43dd8448eb211c80319c",
    "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
    "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0",
    "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-1g",
    "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-",
    "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-00",
    "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-011",
    "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
    "00-0af7651916cd43dd8448eb211c80319c-B7AD6B7169203331-01",
    "00-00000000000000000000000000000000-b7ad6b7169203331-01",
    "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
    "00-0af7651916cd43dd8448eb211c80319-cb7ad6b7169203331-01",
    "00_0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331_01",
    "0-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-011",
    "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "0F-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01.what",
    "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0",
    "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01,00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
];

/// Each with the flags that go on, the sampled one as it came.
const FOLLOWED: &[(&str, &str)] = &[
    (GOOD, "01"),
    ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00", "00"),
    ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-03", "03"),
    ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-02", "02"),
    ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-ff", "03"),
    ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-08", "00"),
    ("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "01"),
    ("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-what-comes-later", "01"),
    ("01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00-", "00"),
];

fn parts(traceparent: &str) -> (String, String, String) {
    let parts: Vec<&str> = traceparent.split('-').collect();
    let [version, trace, span, flags] = parts.as_slice() else { panic!("{traceparent}") };
    assert_eq!((*version, trace.len(), span.len(), flags.len()), ("00", 32, 16, 2), "{traceparent}");
    ((*trace).to_owned(), (*span).to_owned(), (*flags).to_owned())
}

#[test]
fn the_backend_sees_where_the_request_stands() {
    let (backend, collector) = (Backend::ok(), Collector::start());
    let gateway = Gateway::start(&everything_to(&backend, &collector.section("sample = 0")));
    for (sent, flags) in FOLLOWED {
        get_with(
            gateway.addr(),
            "/",
            &format!("TraceParent: {sent}\r\ntracestate: a=1\r\nTraceState: b=2\r\n"),
        )
        .expect(200);
        let seen = backend.latest();
        let (trace, span, seen_flags) = parts(&seen.header("traceparent").expect("one"));
        assert_eq!((trace.as_str(), seen_flags.as_str()), (TRACE, *flags), "{sent}");
        assert_ne!(span, "b7ad6b7169203331", "{sent}");
        assert_eq!(seen.header_all("tracestate"), ["a=1", "b=2"], "{sent}");
    }
}

#[test]
fn what_is_malformed_is_dropped_with_its_state() {
    let (backend, collector) = (Backend::ok(), Collector::start());
    let gateway = Gateway::start(&everything_to(&backend, &collector.section("sample = 0")));
    let twice = format!("{GOOD}\r\ntraceparent: {GOOD}");
    let mut traces = std::collections::BTreeSet::new();
    for sent in MALFORMED.iter().copied().chain([twice.as_str()]) {
        get_with(gateway.addr(), "/", &format!("traceparent: {sent}\r\ntracestate: a=1\r\n")).expect(200);
        let seen = backend.latest();
        let (trace, _, flags) = parts(&seen.header("traceparent").expect("one"));
        assert_eq!(flags, "00", "{sent}");
        assert_ne!(trace, TRACE, "{sent}");
        assert!(traces.insert(trace), "{sent}: each begins a trace of its own");
        assert_eq!(seen.header("tracestate"), None, "{sent}");
    }
    // A state of no trace is none.
    get_with(gateway.addr(), "/", "tracestate: a=1\r\n").expect(200);
    assert_eq!(backend.latest().header("tracestate"), None);
}

#[test]
fn without_trace_both_fields_pass_byte_for_byte() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let sent = [GOOD]
        .iter()
        .chain(MALFORMED)
        .chain(FOLLOWED.iter().map(|(sent, _)| sent))
        .filter(|sent| !sent.is_empty());
    for sent in sent {
        let lines = format!("TraceParent: {sent}\r\nTRACESTATE: a=1, b=\r\ntraceparent: {sent}\r\n");
        get_with(gateway.addr(), "/", &lines).expect(200);
        assert!(backend.latest().head.contains(&lines), "{}", backend.latest().head);
    }
    get_with(gateway.addr(), "/", "").expect(200);
    assert!(!backend.latest().head.to_lowercase().contains("trace"));
}

#[test]
fn a_route_has_the_last_word_on_both_fields() {
    let (backend, collector) = (Backend::ok(), Collector::start());
    let rest = format!(
        "remove_request_headers = [\"traceparent\", \"tracestate\"]\n{}",
        collector.section("sample = 0")
    );
    let gateway = Gateway::start(&everything_to(&backend, &rest));
    get_with(gateway.addr(), "/", &format!("traceparent: {GOOD}\r\ntracestate: a=1\r\n")).expect(200);
    assert_eq!(backend.latest().header("traceparent"), None);
    assert_eq!(backend.latest().header("tracestate"), None);
}

#[test]
fn the_tables_hold_for_the_parser() {
    for sent in MALFORMED {
        assert_eq!(Context::parse(sent.as_bytes()), None, "{sent}");
    }
    for (sent, flags) in FOLLOWED {
        let context = Context::parse(sent.as_bytes()).unwrap_or_else(|| panic!("{sent}"));
        assert_eq!(format!("{:02x}", context.flags()), *flags, "{sent}");
        assert_eq!(context.trace.to_string(), TRACE);
    }
}

proptest! {
    /// What is written is read again.
    #[test]
    fn what_is_written_is_read(trace in 1_u128.., span in 1_u64.., flags in 0_u8..4, version in 0_u8..0xff) {
        let text = format!("00-{trace:032x}-{span:016x}-{flags:02x}");
        let context = Context::parse(text.as_bytes()).expect("a good one");
        prop_assert_eq!(context.text().to_vec(), text.as_bytes());
        prop_assert_eq!((context.trace.bytes(), context.span.bytes()), (trace.to_be_bytes(), span.to_be_bytes()));
        let later = format!("{version:02x}{}", &text[2..]);
        prop_assert_eq!(Context::parse(later.as_bytes()), Some(context));
    }

    /// Whatever is sent, there is no panic, and what is read means the same when it is written.
    #[test]
    fn whatever_is_sent_is_read_or_dropped(bytes in prop::collection::vec(any::<u8>(), 0..70)) {
        if let Some(context) = Context::parse(&bytes) {
            prop_assert_eq!(Context::parse(&context.text()), Some(context));
        }
    }

    /// One wrong byte in a good one makes it another or none; never one that the grammar does not have.
    #[test]
    fn one_byte_changes_it_or_spoils_it(at in 0_usize..55, byte in any::<u8>()) {
        let mut text = GOOD.as_bytes().to_vec();
        text[at] = byte;
        let digit = byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let good = match at {
            2 | 35 | 52 => byte == b'-',
            _ => digit,
        };
        prop_assert_eq!(Context::parse(&text).is_some(), good, "{}", String::from_utf8_lossy(&text));
    }
}
