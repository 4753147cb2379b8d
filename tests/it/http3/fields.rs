//! Field sections between the gateway and the crate `h3`, whose QPACK has nothing in common with the gateway's: what one of
//! them encodes, the other decodes.

use super::Http3Gateway;
use crate::harness::{Backend, Body, Next, everything_to, h3_request};

/// Names of the static table (RFC 9204 appendix A) that a request and a response may both have.
const STATIC: [(&str, &str); 24] = [
    ("age", "0"),
    ("content-disposition", ""),
    ("etag", ""),
    ("last-modified", "x"),
    ("link", ""),
    ("referer", "https://a.test/"),
    ("accept", "*/*"),
    ("accept", "application/dns-message"),
    ("accept-ranges", "bytes"),
    ("access-control-allow-headers", "cache-control"),
    ("access-control-allow-headers", "content-type"),
    ("access-control-allow-origin", "*"),
    ("content-type", "text/plain;charset=utf-8"),
    ("vary", "origin"),
    ("x-content-type-options", "nosniff"),
    ("x-xss-protection", "1; mode=block"),
    ("accept-language", "en"),
    ("access-control-allow-credentials", "FALSE"),
    ("access-control-request-method", "post"),
    ("content-security-policy", "script-src 'none'; object-src 'none'; base-uri 'none'"),
    ("purpose", "prefetch"),
    ("timing-allow-origin", "*"),
    ("user-agent", ""),
    ("x-frame-options", "sameorigin"),
];

/// Sends the fields of the request back, between two empty ones.
fn mirror() -> Backend {
    Backend::start(|exchange| {
        let is_field = |line: &&str| !line.starts_with("x-forwarded") && line.starts_with('x');
        let is_static = |line: &&str| STATIC.iter().any(|(name, _)| line.starts_with(&format!("{name}:")));
        let lines = exchange.head.lines().skip(1).filter(|line| is_field(line) || is_static(line));
        let lines: Vec<_> = lines.collect();
        exchange.write(format!("HTTP/1.1 200 OK\r\n{}\r\ncontent-length: 0\r\n\r\n", lines.join("\r\n")));
        Next::KeepAlive
    })
}

fn text(length: usize, alphabet: &[u8]) -> String {
    (0..length).map(|_| char::from(alphabet[fastrand::usize(..alphabet.len())])).collect()
}

/// A value that needs many bits of the Huffman code, few, or any.
fn value() -> String {
    let visible: Vec<u8> = (0x21..0x7f).collect();
    let alphabets = [&visible[..], b"aceiost012", b"<>\\^`{|}~"];
    text(fastrand::usize(..if fastrand::u8(..8) == 0 { 700 } else { 40 }), alphabets[fastrand::usize(..3)])
}

#[test]
fn another_qpack_reads_what_the_gateway_writes_and_the_reverse() {
    fastrand::seed(7);
    let backend = mirror();
    let http3 = Http3Gateway::start(&everything_to(&backend, ""));
    let client = http3.connect();
    for round in 0..100 {
        let mut fields: Vec<(String, String)> = Vec::new();
        for _ in 0..fastrand::usize(1..12) {
            let (name, known) = STATIC[fastrand::usize(..STATIC.len())];
            fields.push(match fastrand::u8(..3) {
                0 => (name.to_owned(), known.to_owned()),
                1 => (name.to_owned(), value()),
                _ => (format!("x{}", text(fastrand::usize(..40), b"abcxyz-09")), value()),
            });
        }
        let borrowed: Vec<_> = fields.iter().map(|(name, value)| (&**name, &**value)).collect();
        let answer = client.exchange(h3_request("GET", "/", &borrowed), Body::default());
        let answer = answer.expect("an answer").expect(200);
        for (name, _) in &fields {
            let sent = fields.iter().filter(|(other, _)| other == name).map(|(_, value)| value.as_bytes());
            let came: Vec<_> = answer.headers.get_all(name).iter().map(|value| value.as_bytes()).collect();
            assert_eq!(came, sent.collect::<Vec<_>>(), "{name} in round {round}: {fields:?}");
        }
    }
}
