//! What the fuzz targets assert, one function for each parser of bytes from outside. `cargo fuzz` calls them through
//! `fuzz_targets/`, the test suite through `tests/it/fuzz/parsers.rs`.
//!
//! All assert more than that nothing panics: a message means the same however it is cut, an error is final, and what is
//! written is read back.

use std::net::IpAddr;

use bytes::BytesMut;
use tollgate::config;
use tollgate::explain::{ExplainRequest, explain};
use tollgate::http1::chunks::{ChunkDecoder, encode, encode_end};
use tollgate::http1::fields::Fields;
use tollgate::http1::request::RequestHead;
use tollgate::http1::response::{HeadEnd, ResponseHead};
use tollgate::http1::scanner::HeadScanner;
use tollgate::http1::trailers::Trailers;
use tollgate::http2::head::{BlockKind, HeadBuilder};
use tollgate::http2::hpack::decoder::Decoder;
use tollgate::proxy::proxy_protocol;
use tollgate::route::client::{ClientRule, ClientSource};
use tollgate::route::path::{Path, PathMatching};
use tollgate::route::pattern::bare_host;
use tollgate::store::redis::resp;
use tollgate::store::redis::settings::RedisServer;
use tollgate::store::redis::slots::SlotMap;
use tollgate::telemetry::trace::context::Context;

#[path = "call_targets.rs"]
mod call_targets;
#[path = "credential_targets.rs"]
mod credential_targets;
#[cfg_attr(feature = "http3", path = "http3_targets.rs")]
#[cfg_attr(not(feature = "http3"), path = "without_http3.rs")]
mod http3_targets;
#[path = "log_targets.rs"]
mod log_targets;
#[path = "measure_targets.rs"]
mod measure_targets;
#[path = "token_targets.rs"]
mod token_targets;

pub(crate) use call_targets::rate_limit_call;
pub(crate) use credential_targets::{consumers_file, credentials, networks_file, value_pattern};
pub(crate) use http3_targets::{http3_stream, quic_message};
pub(crate) use log_targets::{field_map, log_line};
pub(crate) use measure_targets::measured_body;
pub(crate) use token_targets::{key_set, token};

/// A name, and what is asserted of any bytes.
pub(crate) type Target = (&'static str, fn(&[u8]));

/// All of them. Each has a folder of the same name in `corpus/`.
pub(crate) const TARGETS: [Target; 25] = [
    ("request_head", request_head),
    ("response_head", response_head),
    ("request_body", request_body),
    ("response_body", response_body),
    ("trailers", trailers),
    ("proxy_preamble", proxy_preamble),
    ("http2_head", http2_head),
    ("path", path),
    ("client_address", client_address),
    ("traceparent", traceparent),
    ("redis_reply", redis_reply),
    ("gateway_toml", gateway_toml),
    ("explain", explain_request),
    ("credentials", credentials),
    ("consumers_file", consumers_file),
    ("networks_file", networks_file),
    ("value_pattern", value_pattern),
    ("token", token),
    ("key_set", key_set),
    ("measured_body", measured_body),
    ("log_line", log_line),
    ("field_map", field_map),
    ("rate_limit_call", rate_limit_call),
    ("http3_stream", http3_stream),
    ("quic_message", quic_message),
];

/// Bytes that the gateway takes of a head.
const MAX_HEAD: usize = 2 << 10;

/// The first byte says where the rest is cut in two.
fn cut(data: &[u8]) -> (&[u8], usize) {
    match data.split_first() {
        Some((&first, rest)) => (rest, usize::from(first).min(rest.len())),
        None => (data, 0),
    }
}

/// Where a request's head ends, or the status that refuses it.
fn read_head(pieces: &[&[u8]]) -> Result<Option<usize>, u16> {
    let (mut scanner, mut come) = (HeadScanner::default(), Vec::new());
    for piece in pieces {
        come.extend_from_slice(piece);
        match scanner.advance(&come, MAX_HEAD) {
            Ok(false) => {}
            Ok(true) => {
                let mut spans = Vec::new();
                let head = RequestHead::parse(&come, &mut spans).map_err(|fault| fault.status().as_u16())?;
                for field in head.fields.iter() {
                    assert!(
                        !field.name.is_empty() && !field.value.iter().any(|byte| b"\r\n\0".contains(byte))
                    );
                }
                assert!(come[..head.length].ends_with(b"\r\n\r\n"));
                assert_rewritten(&head);
                return Ok(Some(head.length));
            }
            Err(fault) => {
                assert_eq!(scanner.advance(&come, MAX_HEAD), Err(fault), "an error is final");
                return Err(fault.status().as_u16());
            }
        }
    }
    Ok(None)
}

/// A head written anew from what was read of it is read as the same.
fn assert_rewritten(head: &RequestHead<'_>) {
    let version = if head.http_11 { "1.1" } else { "1.0" };
    let mut text = format!("{} {} HTTP/{version}\r\n", head.method, head.target.text).into_bytes();
    put_fields(head.fields, &mut text);
    let mut spans = Vec::new();
    let again = RequestHead::parse(&text, &mut spans)
        .unwrap_or_else(|fault| panic!("{}: {}", text.escape_ascii(), fault.reason()));
    assert_eq!((&again.method, again.target, again.http_11), (&head.method, head.target, head.http_11));
    assert_eq!((again.body, again.upgrade, again.keep_alive), (head.body, head.upgrade, head.keep_alive));
    assert!(pairs(again.fields).eq(pairs(head.fields)) && again.length == text.len());
}

fn pairs(fields: Fields<'_>) -> impl Iterator<Item = (&[u8], &[u8])> {
    fields.iter().map(|field| (field.name, field.value))
}

/// Writes the fields and the end of a head.
fn put_fields(fields: Fields<'_>, text: &mut Vec<u8>) {
    for (name, value) in pairs(fields) {
        text.extend([name, b": ", value, b"\r\n"].concat());
    }
    text.extend(b"\r\n");
}

/// A request's head means the same however it is cut, and written anew.
pub(crate) fn request_head(data: &[u8]) {
    let (head, at) = cut(data);
    // The gateway skips empty lines before a head.
    if head.starts_with(b"\r\n") || head.starts_with(b"\r") {
        return;
    }
    assert_eq!(read_head(&[&head[..at], &head[at..]]), read_head(&[head]), "cut at {at}");
}

/// A response's head means the same however it is cut, and written anew.
pub(crate) fn response_head(data: &[u8]) {
    let (head, at) = cut(data);
    let mut end = HeadEnd::default();
    let first = end.advance(&head[..at]);
    let (mut late, whole) = (end, HeadEnd::default().advance(head));
    match first {
        Ok(Some(_)) | Err(_) => assert_eq!(first, whole),
        Ok(None) => assert_eq!(late.advance(head), whole),
    }
    if let Ok(Some(length)) = whole {
        for to_head in [false, true] {
            let mut spans = Vec::new();
            if let Ok(parsed) = ResponseHead::parse(&head[..length], to_head, &mut spans) {
                assert_eq!(parsed.length, length);
                let (start, end) = parsed.reason;
                let reason = head[start..end].to_vec();
                let version = &head[..8];
                let status = parsed.status.as_str().as_bytes();
                let mut text = [version, b" ", status, b" ", &reason, b"\r\n"].concat();
                let fields = Fields::new(&head[..length], &spans);
                put_fields(fields, &mut text);
                let mut spans = Vec::new();
                let again = ResponseHead::parse(&text, to_head, &mut spans)
                    .unwrap_or_else(|fault| panic!("{}: {fault}", text.escape_ascii()));
                let meaning = |head: ResponseHead| {
                    (head.status, head.framing, head.content_length, head.kept, head.private, head.keep_alive)
                };
                assert_eq!(meaning(again), meaning(parsed), "{}", text.escape_ascii());
                assert!(pairs(Fields::new(&text, &spans)).eq(pairs(fields)));
            }
        }
    }
}

/// What came of a chunked body.
#[derive(Debug, PartialEq, Eq)]
struct Chunks {
    /// Its data; if it is malformed, those before the fault.
    data: Vec<u8>,
    /// Its trailers, and how many bytes stand behind it, if it came whole.
    end: Option<(Vec<u8>, usize)>,
    malformed: bool,
}

fn read_chunks(mut decoder: ChunkDecoder, pieces: &[&[u8]]) -> Chunks {
    let (mut data, mut behind) = (Vec::new(), 0);
    for piece in pieces {
        let mut rest = *piece;
        while !rest.is_empty() && !decoder.is_done() {
            let Ok((taken, part)) = decoder.decode(rest) else {
                assert!(
                    decoder.decode(b"0\r\n\r\n").is_err() && decoder.decode(b"").is_err(),
                    "an error is final"
                );
                assert!(!decoder.is_done());
                return Chunks { data, end: None, malformed: true };
            };
            data.extend_from_slice(part);
            rest = &rest[taken..];
        }
        behind += rest.len();
    }
    let end = decoder.is_done().then(|| (decoder.trailers(&Trailers::All), behind));
    Chunks { data, end, malformed: false }
}

fn body(data: &[u8], decoder: fn() -> ChunkDecoder) {
    let (body, at) = cut(data);
    let whole = read_chunks(decoder(), &[body]);
    assert_eq!(read_chunks(decoder(), &[&body[..at], &body[at..]]), whole, "cut at {at}");
    let Chunks { data, end, .. } = whole;
    let mut framed = BytesMut::new();
    encode(&data, &mut framed);
    let trailers = end.map_or_else(Vec::new, |(trailers, _)| trailers);
    encode_end(&trailers, &mut framed);
    let again = read_chunks(ChunkDecoder::of_request(), &[&framed]);
    let expected = Chunks { data, end: Some((trailers, 0)), malformed: false };
    assert_eq!(again, expected, "what is written anew is read back");
}

/// A request's chunked body means the same however it is cut.
pub(crate) fn request_body(data: &[u8]) {
    body(data, ChunkDecoder::of_request);
}

/// A response's chunked body means the same however it is cut.
pub(crate) fn response_body(data: &[u8]) {
    body(data, ChunkDecoder::of_response);
}

/// Trailers that travel on are some of those that came, and none that frames or routes.
pub(crate) fn trailers(data: &[u8]) {
    let (lines, at) = cut(data);
    let (declared, lines) = lines.split_at(at);
    let all = Trailers::All.pick(lines);
    for line in all.split_inclusive(|&byte| byte == b'\n') {
        let name = line.split(|&byte| byte == b':').next().unwrap_or_default();
        let name = String::from_utf8_lossy(name).to_ascii_lowercase().replace('_', "-");
        assert!(
            !["host", "content-length", "transfer-encoding", "authorization", "cookie"].contains(&&*name)
        );
    }
    let picked = Trailers::Declared(declared.to_vec()).pick(lines);
    assert!(Trailers::NONE.pick(lines).is_empty());
    let mut rest = all.split_inclusive(|&byte| byte == b'\n');
    for line in picked.split_inclusive(|&byte| byte == b'\n') {
        assert!(rest.any(|other| other == line), "each is one of all, in their order");
    }
    assert_eq!(Trailers::All.pick(&all), all, "what was picked is picked again");
}

/// Of a PROXY preamble, the shortest prefix that means something decides.
pub(crate) fn proxy_preamble(data: &[u8]) {
    let mut decided = None;
    for end in 0..=data.len().min(300) {
        match (decided, proxy_protocol::parse(&data[..end])) {
            (None, Ok(None)) => {}
            (None, now) => decided = Some(now),
            (Some(before), now) => assert_eq!(now, before, "after {end} bytes"),
        }
        if let Some(Ok(Some(preamble))) = decided {
            assert!(preamble.length <= end);
        }
    }
}

/// Any header block of HTTP/2 is one head of HTTP/1.1, or none. Two blocks, as the second refers to the first.
pub(crate) fn http2_head(data: &[u8]) {
    let (bytes, at) = cut(data);
    let mut decoder = Decoder::new(4096);
    for block in [&bytes[..at], &bytes[at..]] {
        let mut head = HeadBuilder::new(BlockKind::Request, 32 << 10);
        if decoder.decode(block, |name, value| head.field(name, value)).is_err() {
            return;
        }
        let Ok(head) = head.finish(block.len().is_multiple_of(2)) else { continue };
        let mut scanner = HeadScanner::default();
        let whole = &head.text[..];
        assert!(!matches!(scanner.advance(&whole[..whole.len() - 1], 1 << 20), Ok(true)), "{whole:?}");
        if let Ok(read) = RequestHead::parse(whole, &mut Vec::new()) {
            assert_eq!(read.length, whole.len(), "another head stands behind it");
        }
    }
}

/// A path that is normalised is normal.
pub(crate) fn path(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    assert!(!bare_host(text).bytes().any(|byte| byte.is_ascii_uppercase()));
    let Ok(path) = Path::parse(text, PathMatching::Strict) else { return };
    for merge_slashes in [true, false] {
        let form = path.form(merge_slashes);
        let again = Path::parse(form, PathMatching::Strict);
        let again = again.unwrap_or_else(|fault| panic!("{form:?} of {text:?}: {fault}"));
        assert_eq!(again.form(merge_slashes), form, "{text:?}");
        assert!(form.starts_with('/') && !form.bytes().any(|byte| byte <= b' ' || byte == 0x7f), "{form:?}");
    }
    let lenient = Path::parse(text, PathMatching::Lenient).expect("the same paths are refused");
    assert_eq!(lenient.has_encoded_dots(), path.has_encoded_dots(), "{text:?}");
    for merge_slashes in [true, false] {
        let form = lenient.form(merge_slashes);
        assert_eq!(form, path.form(merge_slashes), "{text:?}");
        let folded = lenient.folded(merge_slashes);
        assert!(!folded.bytes().any(|byte| byte.is_ascii_uppercase()), "{folded:?} of {text:?}");
        assert!(!folded.split('/').any(|segment| matches!(segment, "." | "..")), "{folded:?} of {text:?}");
        if !path.has_encoded_dots() {
            assert!(!folded.contains(';'), "{folded:?} of {text:?}");
            assert!(!climbs(form), "{form:?} of {text:?}");
        }
    }
}

/// Whether a backend that drops parameters and decodes separators, in either order, finds a dot segment in the path.
fn climbs(path: &str) -> bool {
    let decode = |text: &str| text.replace("%2F", "/").replace("%5C", "/");
    let drop_parameters = |text: &str| {
        let names = text.split('/').map(|segment| segment.split(';').next().unwrap_or_default());
        names.collect::<Vec<_>>().join("/")
    };
    let decoded = decode(path);
    [drop_parameters(&decoded), drop_parameters(&decoded.replace("%3B", ";")), decode(&drop_parameters(path))]
        .iter()
        .any(|read| read.split('/').any(|segment| matches!(segment, "." | "..")))
}

/// Only a trusted peer is believed.
pub(crate) fn client_address(data: &[u8]) {
    let lines = data
        .split(|&byte| byte == b'\n')
        .filter(|line| line.iter().all(|&byte| byte >= b' ' && byte != 0x7f));
    let name = |odd: bool| if odd { "x-forwarded-for" } else { "forwarded" };
    let head: Vec<u8> = lines.take(50).enumerate().fold(
        b"GET / HTTP/1.1\r\nhost: a\r\n".to_vec(),
        |mut head, (count, line)| {
            head.extend_from_slice(name(count % 2 == 1).as_bytes());
            head.extend_from_slice(b": ");
            head.extend_from_slice(line);
            head.extend_from_slice(b"\r\n");
            head
        },
    );
    let head = [head, b"\r\n".to_vec()].concat();
    let mut spans = Vec::new();
    let Ok(head) = RequestHead::parse(&head, &mut spans) else { return };
    let trusted = "10.0.0.0/8".parse().expect("a network");
    let (stranger, proxy) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([10, 0, 0, 1]));
    let own = "x-forwarded-for".parse().expect("a name");
    for source in
        [ClientSource::XForwardedFor, ClientSource::Forwarded, ClientSource::Header(own), ClientSource::Peer]
    {
        let rule = ClientRule { trusted_proxies: vec![trusted], source, ..ClientRule::default() };
        assert_eq!(rule.identify(stranger, head.fields), rule.client(stranger));
        assert_eq!(rule.overlooked(stranger, head.fields), None);
        // Whatever a trusted proxy says, it is an address; and one of a trusted hop unless it is understood.
        let client = rule.identify(proxy, head.fields);
        assert!(client.identified || rule.trusts(client.address));
        assert!(rule.source != ClientSource::Peer || client == rule.client(proxy));
    }
}

/// What is read of a `traceparent` is written and read back.
pub(crate) fn traceparent(data: &[u8]) {
    if let Some(context) = Context::parse(data) {
        let again = Context::parse(&context.text()).expect("what is written is read");
        assert_eq!(again.text(), context.text());
    }
}

/// Of a Redis server's answer, the shortest prefix that is one decides; of a map of slots, any value may be read.
pub(crate) fn redis_reply(data: &[u8]) {
    let mut decided = None;
    for end in 0..=data.len().min(300) {
        let now = resp::read(&data[..end]);
        if let Ok(Some((_, length))) = &now {
            assert!(*length <= end);
        }
        match &decided {
            None if now == Ok(None) => {}
            None => decided = Some(now),
            Some(before) => assert_eq!(&now, before, "after {end} bytes"),
        }
    }
    if let Ok(Some((value, _))) = resp::read(data) {
        let teller = RedisServer { host: "a".into(), port: 6379 };
        if let Some(map) = SlotMap::read(&value, &teller) {
            assert!(map.masters().len() <= data.len());
        }
    }
}

/// A file is a plan without faults or a report with some; a comment behind it changes neither the plan nor its warnings.
pub(crate) fn gateway_toml(data: &[u8]) {
    let variable = |name: &str| (name == "SET").then(|| "x".to_owned());
    let loaded = match config::parse(data, "gateway.toml", &variable) {
        Ok(loaded) => loaded,
        Err(report) => return assert!(report.errors() > 0 && !report.render(false).is_empty()),
    };
    let more = [data, b"\n# the end\n"].concat();
    let again = config::parse(&more, "gateway.toml", &variable).unwrap_or_else(|report| panic!("{report}"));
    let summary = |loaded: &config::LoadedConfig| config::summary(&loaded.plan, "gateway.toml");
    assert_eq!(summary(&again), summary(&loaded));
    assert_eq!((loaded.warnings.errors(), again.warnings.errors()), (0, 0));
    assert_eq!(again.warnings.warning_lines(), loaded.warnings.warning_lines());
}

/// A request that a person describes is explained, in the same words each time, or refused: it has a route, or an answer that
/// says why not.
pub(crate) fn explain_request(data: &[u8]) {
    const FILE: &[u8] = include_bytes!("explain.toml");
    thread_local! {
        static PLAN: config::LoadedConfig = config::parse(FILE, "explain.toml", &|_| None).unwrap_or_else(|_| panic!("a good file"));
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut lines = text.split('\n');
    let (method, url) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let headers: Vec<String> = lines.take(20).map(str::to_owned).collect();
    for ip in [None, Some(IpAddr::from([10, 0, 0, 1]))] {
        if let Ok(request) = ExplainRequest::new(method, url, &headers, ip) {
            PLAN.with(|loaded| {
                let told = explain(&loaded.plan, &request);
                assert!(!told.to_string().is_empty());
                assert_eq!(explain(&loaded.plan, &request), told);
                assert!(told.route.is_some() || told.answer.is_some(), "a route, or why there is none");
                for applied in told.route.iter().flat_map(|route| &route.limits) {
                    assert!(applied.policies.len() == 1 && !applied.name.is_empty());
                }
            });
        }
    }
}
