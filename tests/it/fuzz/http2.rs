//! Any head of HTTP/2 has one reading as HTTP/1.1, or none.

use http::{HeaderName, HeaderValue, Uri};
use proptest::prelude::*;
use tollgate::http1::request::{Body, RequestHead};
use tollgate::http1::scanner::HeadScanner;
use tollgate::http2::head::{BlockKind, HeadBuilder};

fn text(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

/// Fields as a header block has them: names in lower case, values without line ends.
fn fields() -> impl Strategy<Value = Vec<(HeaderName, HeaderValue)>> {
    let names = prop_oneof![
        2 => "[a-z!#$%&'*+.^_`|~0-9-]{1,12}".prop_map(|name| HeaderName::from_bytes(name.as_bytes())),
        2 => prop::sample::select(vec![
            "cookie", "host", "content-length", "connection", "transfer-encoding", "te", "upgrade", "expect", "trailer",
        ])
        .prop_map(|name| HeaderName::from_bytes(name.as_bytes())),
    ]
    .prop_filter_map("a name", Result::ok);
    let values = prop_oneof![
        3 => prop::collection::vec(any::<u8>(), 0..20),
        1 => prop::sample::select(vec!["5", "0", "a.test", "A.TEST", "chunked", "trailers", "close", "a=1", "\t b "])
            .prop_map(|value| value.as_bytes().to_vec()),
    ]
    .prop_filter_map("a value", |value| HeaderValue::from_bytes(&value).ok());
    prop::collection::vec((names, values), 0..8)
}

fn target() -> impl Strategy<Value = Uri> {
    let path = prop_oneof![
        "/[ -~]{0,20}".prop_map(Some),
        "/[a-z/?#%.]{0,20}".prop_map(Some),
        Just(Some("*".to_owned())),
        Just(None)
    ];
    let authority = prop_oneof!["[a-z.]{1,8}(:[0-9]{1,4})?", "[ -~]{0,12}", Just("a.test".to_owned())];
    (path, prop::option::of(authority)).prop_filter_map("a target", |(path, authority)| {
        let mut parts = http::uri::Parts::default();
        parts.path_and_query = path.map(|path| path.parse()).transpose().ok()?;
        parts.authority = authority.map(|authority| authority.parse()).transpose().ok()?;
        parts.scheme = parts.authority.is_some().then_some(http::uri::Scheme::HTTP);
        Uri::from_parts(parts).ok()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(3000) })]

    #[test]
    fn a_head_has_one_reading_or_none(
        method in "[A-Za-z!]{1,8}|GET|POST|CONNECT",
        uri in target(),
        fields in fields(),
        ended in any::<bool>(),
        protocol in prop::option::weighted(0.2, "websocket|WebSocket|connect-udp|[ -~]{0,4}"),
    ) {
        let mut head = HeadBuilder::new(BlockKind::Request, 32 << 10);
        head.field(b":method", method.as_bytes());
        if let Some(protocol) = &protocol {
            head.field(b":protocol", protocol.as_bytes());
        }
        let connects = method == "CONNECT" && protocol.is_some();
        let path = uri.path_and_query().map(|target| target.as_str());
        if method != "CONNECT" || connects {
            head.field(b":scheme", b"http");
            head.field(b":path", path.unwrap_or_default().as_bytes());
        }
        if let Some(authority) = uri.authority() {
            head.field(b":authority", authority.as_str().as_bytes());
        }
        for (name, value) in &fields {
            head.field(name.as_str().as_bytes(), value.as_bytes());
        }
        let all = |wanted: &'static str| fields.iter().filter(move |(name, _)| name == wanted).map(|(_, value)| value.as_bytes());
        let Ok(head) = head.finish(ended) else { return Ok(()) };
        prop_assert_eq!(head.connect, protocol.is_some());
        if let Some(protocol) = &protocol {
            prop_assert!(method == "CONNECT" && !ended && protocol.eq_ignore_ascii_case("websocket"));
            prop_assert!(uri.authority().is_some() && all("content-length").next().is_none());
        }
        let written = head.text;
        let mut spans = Vec::new();
        let Ok(read) = RequestHead::parse(&written, &mut spans) else { return Ok(()) };
        prop_assert!(matches!(HeadScanner::default().advance(&written, 1 << 20), Ok(true)));
        prop_assert_eq!(read.length, written.len(), "another head stands behind it: {}", text(&written));
        prop_assert_eq!(read.method.as_str(), if connects { "GET" } else { &*method });
        prop_assert_eq!(Some(read.target.text), path);
        prop_assert!(read.target.authority.is_none() && read.http_11 && read.upgrade == connects);

        let mut expected: Vec<(String, Vec<u8>)> = Vec::new();
        let hosts: Vec<_> = all("host").map(<[u8]>::to_ascii_lowercase).collect();
        match uri.authority() {
            Some(authority) => {
                let host = authority.as_str().to_ascii_lowercase().into_bytes();
                prop_assert!(hosts.iter().all(|other| *other == host), "two hosts: {}", text(&written));
                expected.push(("host".to_owned(), authority.as_str().as_bytes().to_vec()));
            }
            None => expected.extend(all("host").map(|host| ("host".to_owned(), host.trim_ascii().to_vec()))),
        }
        for (name, value) in fields.iter().filter(|(name, _)| *name != "host" && *name != "cookie") {
            expected.push((name.to_string(), value.as_bytes().trim_ascii().to_vec()));
        }
        let crumbs: Vec<_> = all("cookie").map(<[u8]>::trim_ascii).filter(|crumb| !crumb.is_empty()).collect();
        if !crumbs.is_empty() {
            expected.push(("cookie".to_owned(), crumbs.join(&b"; "[..]).trim_ascii().to_vec()));
        }
        if connects {
            expected.push(("connection".to_owned(), b"upgrade".to_vec()));
            expected.push(("upgrade".to_owned(), b"websocket".to_vec()));
        }
        let length = all("content-length").next();
        prop_assert_eq!(head.unknown_length, length.is_none() && !ended && !connects);
        match length {
            None => prop_assert_eq!(read.body, Body::EMPTY),
            Some(length) => {
                let length = std::str::from_utf8(length.trim_ascii()).expect("digits").parse().expect("a number");
                prop_assert_eq!(read.body, Body::Length(length));
            }
        }
        let mut found: Vec<_> = read
            .fields
            .iter()
            .map(|field| (String::from_utf8_lossy(field.name).into_owned(), field.value.to_vec()))
            .collect();
        found.sort();
        expected.sort();
        prop_assert_eq!(found, expected, "{}", text(&written));
    }
}
