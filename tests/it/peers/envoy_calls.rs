//! What Envoy's rate limit filter sends for each of its actions. The recorded calls are in
//! `tests/grpc/rate-limit-calls/envoy.txt`, which tests replay without Envoy. To record anew: `INSTA_UPDATE=always`.

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response};
use prost::Message as _;

use crate::harness::pages::root;
use crate::harness::{Backend, Client, Http2Backend, eventually};

const FILE: &str = "tests/grpc/rate-limit-calls/envoy.txt";

const HEAD: &str = "\
# Calls of Envoy 1.40.0, recorded by tests/it/peers/envoy_calls.rs with tests/peers/envoy.yaml.
# `case`: its name, and the request of the client 127.0.0.2. `descriptor`: its entries, bytes that are not printable
# escaped; `hits_addend` if it is present, `limit` as requests per unit. `message`: RateLimitRequest in hexadecimal.
";

/// Requests: a name, the target, further fields, and how many calls they cause.
const CASES: &[(&str, &str, &[u8], usize)] = &[
    ("remote_address", "/remote", b"", 1),
    ("masked_remote_address", "/masked", b"", 1),
    ("request_headers", "/key", b"x-api-key: k1\r\n", 1),
    ("request_headers, absent", "/key", b"", 0),
    ("request_headers, empty", "/key", b"x-api-key:\r\n", 1),
    ("request_headers, twice", "/key", b"x-api-key: k1\r\nx-api-key: k2\r\n", 1),
    ("request_headers, not UTF-8", "/key", b"x-api-key: \xff\xfek\r\n", 1),
    ("generic_key, twice", "/twice", b"", 1),
    ("header_value_match", "/match", b"user-agent: mobile/1\r\n", 1),
    ("metadata", "/plan", b"", 1),
    ("query_parameters, NUL and not UTF-8", "/query?q=%ff%00%2Gz", b"", 1),
    ("source_cluster without a value, destination_cluster", "/clusters", b"", 1),
    ("limit by metadata", "/override", b"", 1),
    ("two descriptors", "/two", b"", 1),
    ("a cost of 10", "/cost", b"", 1),
    ("a cost of 0, and a report when the stream is done", "/tokens", b"", 2),
];

#[derive(Clone, PartialEq, prost::Message)]
struct CallMessage {
    #[prost(bytes = "vec", tag = "1")]
    domain: Vec<u8>,
    #[prost(message, repeated, tag = "2")]
    descriptors: Vec<DescriptorMessage>,
    #[prost(uint32, tag = "3")]
    hits_addend: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct DescriptorMessage {
    #[prost(message, repeated, tag = "1")]
    entries: Vec<EntryMessage>,
    #[prost(message, optional, tag = "2")]
    limit: Option<OverrideMessage>,
    #[prost(message, optional, tag = "3")]
    hits_addend: Option<NumberMessage>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct EntryMessage {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct OverrideMessage {
    #[prost(uint32, tag = "1")]
    requests_per_unit: u32,
    #[prost(uint32, tag = "2")]
    unit: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct NumberMessage {
    #[prost(uint64, tag = "1")]
    value: u64,
}

/// A rate limit service that admits every call, and keeps its message with the frame of gRPC.
fn recording() -> (Http2Backend, Arc<Mutex<Vec<Vec<u8>>>>) {
    let calls = Arc::<Mutex<Vec<Vec<u8>>>>::default();
    let kept = Arc::clone(&calls);
    let service = Http2Backend::start(h2::server::Builder::new(), move |request, mut respond| {
        let kept = Arc::clone(&kept);
        async move {
            assert_eq!(request.uri().path(), "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit");
            assert_eq!(request.headers()["x-tollgate-token"], "c0ffee00c0ffee00c0ffee00c0ffee00");
            assert!(request.headers()["grpc-timeout"].to_str().is_ok_and(|timeout| timeout == "5000m"));
            let (mut body, mut call) = (request.into_body(), Vec::new());
            while let Some(Ok(part)) = body.data().await {
                call.extend_from_slice(&part);
            }
            kept.lock().expect("no panic").push(call);
            let head =
                Response::builder().header("content-type", "application/grpc").body(()).expect("a head");
            let mut stream = respond.send_response(head, false).expect("it takes a response");
            // `overall_code: OK`.
            stream.send_data(Bytes::from_static(b"\0\0\0\0\x02\x08\x01"), false).expect("it takes a body");
            let trailers = HeaderMap::from_iter([(
                "grpc-status".parse().expect("a name"),
                HeaderValue::from_static("0"),
            )]);
            stream.send_trailers(trailers).expect("it takes trailers");
        }
    });
    (service, calls)
}

/// A call as a line for each descriptor, and its message.
fn to_text(call: &[u8]) -> String {
    let (frame, message) = call.split_at(5);
    let length = u32::try_from(message.len()).expect("a short message");
    assert_eq!(frame, [&[0], &length.to_be_bytes()[..]].concat(), "one message, not compressed");
    let decoded = CallMessage::decode(message).expect("a message");
    assert_eq!((decoded.domain.as_slice(), decoded.hits_addend), (&b"shop"[..], 0));
    assert_eq!(decoded.encode_to_vec(), message, "no other fields");
    let mut text = String::new();
    for descriptor in &decoded.descriptors {
        text += "descriptor";
        for entry in &descriptor.entries {
            write!(text, " {}={}", entry.key.escape_ascii(), entry.value.escape_ascii()).expect("a text");
        }
        if let Some(limit) = &descriptor.limit {
            write!(text, " limit={}/{}", limit.requests_per_unit, limit.unit).expect("a text");
        }
        if let Some(hits) = &descriptor.hits_addend {
            write!(text, " hits_addend={}", hits.value).expect("a text");
        }
        text.push('\n');
    }
    text += "message ";
    for byte in message {
        write!(text, "{byte:02x}").expect("a text");
    }
    text + "\n"
}

#[test]
fn the_recorded_calls_are_those_of_envoy() {
    let shop = Backend::answering("HTTP/1.1 200 OK\r\nx-cost: 40\r\ncontent-length: 0\r\n\r\n");
    let (service, calls) = recording();
    let address = service.url().trim_start_matches("http://").parse().expect("an address");
    let envoy = super::envoy_of(shop.addr(), address, &["timeout: 5s"]);
    let mut text = HEAD.to_owned();
    for (name, target, fields, count) in CASES {
        let mut client = Client::connect_from(Ipv4Addr::new(127, 0, 0, 2).into(), envoy.addr());
        let head = format!("GET {target} HTTP/1.1\r\nhost: test\r\n");
        client.exchange([head.as_bytes(), fields, b"\r\n"].concat()).expect(200);
        let calls = eventually("the calls", || {
            let mut calls = calls.lock().expect("no panic");
            (calls.len() >= *count).then(|| std::mem::take(&mut *calls))
        });
        assert_eq!(calls.len(), *count, "{name}");
        write!(text, "\ncase {name}: {target}\n").expect("a text");
        text.extend(calls.iter().map(|call| to_text(call)));
    }
    if std::env::var("INSTA_UPDATE").is_ok_and(|update| update == "always") {
        std::fs::write(root().join(FILE), &text).expect("it can be written");
    }
    let recorded = std::fs::read_to_string(root().join(FILE)).expect("it is there");
    assert_eq!(text, recorded, "{FILE} is not what Envoy sends: INSTA_UPDATE=always records it anew");
}
