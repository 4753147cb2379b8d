//! Any head of HTTP/2 has one reading as HTTP/1.1, or none.

use bytes::BytesMut;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use proptest::prelude::*;
use tollgate::http1::body::Body;
use tollgate::http1::request::RequestHead;
use tollgate::http1::scanner::HeadScanner;
use tollgate::http2::frames::Frames;
use tollgate::http2::head::write_request;
use tollgate::http2::open_block::OpenBlock;

fn text(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

/// Fields as the `h2` crate gives them: names in lower case, values without line ends.
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
    ) {
        let mut request = Request::new(());
        *request.method_mut() = Method::from_bytes(method.as_bytes()).expect("a token");
        *request.uri_mut() = uri.clone();
        *request.headers_mut() = fields.iter().cloned().collect::<HeaderMap>();
        for (name, value) in &fields {
            // Collected, only the last of each name is there.
            request.headers_mut().remove(name);
            prop_assert!(!value.as_bytes().contains(&b'\n'));
        }
        for (name, value) in fields {
            request.headers_mut().append(name, value);
        }
        let (head, ()) = request.into_parts();
        let mut written = BytesMut::new();
        write_request(&head, ended, &mut written);
        let mut spans = Vec::new();
        let Ok(read) = RequestHead::parse(&written, &mut spans) else { return Ok(()) };
        prop_assert!(matches!(HeadScanner::default().advance(&written, 1 << 20), Ok(true)));
        prop_assert_eq!(read.length, written.len(), "another head stands behind it: {}", text(&written));
        prop_assert_eq!(read.method.as_str(), method);
        prop_assert_eq!(Some(read.target.text), uri.path_and_query().map(|target| target.as_str()));
        prop_assert!(read.target.authority.is_none() && read.http_11 && !read.upgrade);

        let mut expected: Vec<(String, Vec<u8>)> = Vec::new();
        let hosts: Vec<_> = head.headers.get_all("host").iter().map(|host| host.as_bytes().to_ascii_lowercase()).collect();
        match uri.authority() {
            Some(authority) => {
                let host = authority.as_str().to_ascii_lowercase().into_bytes();
                prop_assert!(hosts.iter().all(|other| *other == host), "two hosts: {}", text(&written));
                expected.push(("host".to_owned(), authority.as_str().as_bytes().to_vec()));
            }
            None => expected.extend(head.headers.get_all("host").iter().map(|host| ("host".to_owned(), host.as_bytes().trim_ascii().to_vec()))),
        }
        for (name, value) in head.headers.iter().filter(|(name, _)| *name != "host" && *name != "cookie") {
            expected.push((name.to_string(), value.as_bytes().trim_ascii().to_vec()));
        }
        let crumbs: Vec<_> = head.headers.get_all("cookie").iter().map(HeaderValue::as_bytes).collect();
        if !crumbs.is_empty() {
            expected.push(("cookie".to_owned(), crumbs.join(&b"; "[..]).trim_ascii().to_vec()));
        }
        let length = head.headers.get("content-length").map(HeaderValue::as_bytes);
        match (length, ended) {
            (None, true) => prop_assert!(read.body == Body::EMPTY || head.headers.contains_key("transfer-encoding")),
            (None, false) => {
                prop_assert_eq!(read.body, Body::Chunked);
                if !head.headers.contains_key("transfer-encoding") {
                    expected.push(("transfer-encoding".to_owned(), b"chunked".to_vec()));
                }
            }
            (Some(length), _) => {
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

    #[test]
    fn an_open_block_is_seen_however_the_frames_are_cut(
        frames in prop::collection::vec((0_u8..12, any::<u8>(), 0_usize..60), 1..12),
        pieces in prop::collection::vec(1_usize..40, 1..60),
    ) {
        let mut bytes = Vec::new();
        // After so many bytes, whether a block is open.
        let mut turns = vec![(0, false)];
        let mut open = false;
        for (kind, flags, payload) in frames {
            let carries = kind == 1 || kind == 9;
            bytes.extend([0, 0, u8::try_from(payload).expect("small"), kind, flags, 0, 0, 0, 1]);
            open |= carries;
            turns.push((bytes.len(), open));
            bytes.extend(vec![0xff; payload]);
            open &= !(carries && flags & 4 != 0);
            turns.push((bytes.len(), open));
        }
        let (mut seen, mut block, mut at) = (Frames::default(), OpenBlock::default(), 0);
        for piece in pieces.into_iter().cycle() {
            let end = bytes.len().min(at + piece);
            let mut here = &bytes[at..end];
            while let Some(part) = seen.next(&mut here) {
                block.see(&part);
            }
            at = end;
            let expected = turns.iter().rev().find(|(turn, _)| *turn <= at).is_some_and(|(_, open)| *open);
            prop_assert_eq!(block.is_open(), expected, "after {} bytes", at);
            if at == bytes.len() {
                break;
            }
        }
    }
}
