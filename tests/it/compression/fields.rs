//! Which responses are compressed, and what their heads say.

use super::{CODINGS, compressing};
use crate::harness::{Backend, Client, Gateway, Next, content_coding, everything_to, get_with, send};

/// A backend that answers with the fields in `x-answer` of the request, `|` for the end of a line, and 2,000 bytes.
fn repeating() -> Backend {
    Backend::start(|exchange| {
        let fields = exchange.field("x-answer").unwrap_or_default().replace('|', "\r\n");
        let status = exchange.field("x-status").unwrap_or_else(|| "200 OK".to_owned());
        let body =
            if status.starts_with("304") || status.starts_with("204") { "" } else { &"text ".repeat(400) };
        let length = if status.starts_with("204") {
            String::new()
        } else {
            format!("content-length: {}\r\n", body.len())
        };
        exchange.write(format!("HTTP/1.1 {status}\r\n{fields}\r\n{length}\r\n{body}"));
        Next::KeepAlive
    })
}

const TEXT: &str = "content-type: text/plain";

/// The coding of the answer to a request with these fields, `identity` for none; and its `vary`.
fn answer(gateway: &Gateway, accepted: &str, fields: &str, more: &str) -> (String, Option<String>) {
    let answer = get_with(
        gateway.addr(),
        "/",
        &format!("accept-encoding: {accepted}\r\nx-answer: {fields}\r\n{more}"),
    );
    let coding = answer.header("content-encoding").unwrap_or("identity").to_owned();
    if CODINGS.contains(&coding.as_str()) && !fields.ends_with("content-encoding: gzip") {
        assert_eq!(
            content_coding::whole(&coding, &answer.body),
            "text ".repeat(400).into_bytes(),
            "{fields}"
        );
        assert_eq!(answer.header("content-length"), None, "{fields}");
    } else {
        assert_eq!(answer.header("content-length").map(str::len), Some(4), "{fields}: {}", answer.head);
    }
    (coding, answer.header("vary").map(str::to_owned))
}

#[test]
fn the_coding_is_the_one_that_the_client_prefers() {
    let backend = repeating();
    let gateway = Gateway::start(&compressing(&backend, "true", ""));
    for (accepted, coding) in [
        ("zstd", "zstd"),
        ("br", "br"),
        ("gzip", "gzip"),
        ("gzip, deflate, br, zstd", "zstd"),
        ("gzip, deflate, br", "br"),
        ("gzip;q=1.0, br;q=0.5", "gzip"),
        ("*", "zstd"),
        ("*;q=0", "identity"),
        ("deflate", "identity"),
        ("identity", "identity"),
        ("gzip;q=0.5, identity;q=1", "identity"),
        ("", "identity"),
    ] {
        let (found, vary) = answer(&gateway, accepted, TEXT, "");
        assert_eq!((found.as_str(), vary.as_deref()), (coding, Some("accept-encoding")), "{accepted}");
    }
    let lines = get_with(
        gateway.addr(),
        "/",
        &format!("accept-encoding: gzip;q=0.1\r\naccept-encoding: br\r\nx-answer: {TEXT}\r\n"),
    );
    assert_eq!(lines.header("content-encoding"), Some("br"), "several lines are one list");
}

#[test]
fn a_response_that_must_stay_as_it_is_stays_so() {
    let backend = repeating();
    let gateway = Gateway::start(&compressing(&backend, "true", ""));
    for fields in [
        "content-type: image/png",
        "content-type: text/event-stream",
        "content-type: application/grpc",
        "content-type: application/octet-stream",
        "x-none: 1",
        "content-type: text/plain|content-type: text/html",
        "content-type: text/plain|cache-control: private, No-Transform",
        "content-type: text/plain|content-encoding: gzip",
        "content-type: text/plain|content-encoding: identity, unknown",
        "content-type: text/plain|content-range: bytes 0-1999/4000",
        "content-type: text/plain|content-digest: sha-256=:YQ==:",
        "content-type: text/plain|repr-digest: sha-256=:YQ==:",
        "content-type: text/plain|digest: sha-256=YQ==",
        "content-type: text/plain|Content-MD5: YQ==",
    ] {
        let (coding, vary) = answer(&gateway, "gzip, br, zstd", fields, "");
        let own = if fields.contains("unknown") { "identity, unknown" } else { "identity" };
        let own = if fields.ends_with("encoding: gzip") { "gzip" } else { own };
        assert_eq!((coding.as_str(), vary), (own, None), "{fields}");
    }
    let (coding, vary) = answer(&gateway, "gzip", TEXT, "x-status: 206 Partial Content\r\n");
    assert_eq!((coding.as_str(), vary), ("identity", None));
    for status in ["404 Not Found", "500 Internal Server Error", "203 Non-Authoritative", "201 Created"] {
        let (coding, _) = answer(&gateway, "gzip", TEXT, &format!("x-status: {status}\r\n"));
        assert_eq!(coding, "gzip", "{status}");
    }
    for fields in [
        "content-type: Text/HTML; charset=utf-8",
        "content-type: application/json",
        "content-type: image/svg+xml",
        "content-type: text/plain|content-encoding: identity",
        "content-type: text/plain|cache-control: max-age=1",
    ] {
        assert_eq!(answer(&gateway, "gzip", fields, "").0, "gzip", "{fields}");
    }
}

#[test]
fn a_client_of_http_1_0_gets_the_body_as_it_is() {
    let backend = repeating();
    let gateway = Gateway::start(&compressing(&backend, "true", ""));
    let request = format!("GET / HTTP/1.0\r\naccept-encoding: gzip\r\nx-answer: {TEXT}\r\n\r\n");
    let answer = send(gateway.addr(), request).expect(200);
    assert_eq!((answer.header("content-encoding"), answer.body.len()), (None, 2_000));
    assert_eq!(answer.header("vary"), Some("accept-encoding"));
}

#[test]
fn a_compressed_response_has_a_weak_tag_and_no_ranges() {
    let backend = repeating();
    let gateway = Gateway::start(&compressing(&backend, "true", ""));
    let get = |accepted: &str, fields: &str| {
        let fields = format!("accept-encoding: {accepted}\r\nx-answer: {TEXT}|{fields}\r\n");
        get_with(gateway.addr(), "/", &fields).expect(200)
    };
    let answer = get("gzip", "etag: \"one\"|accept-ranges: bytes|vary: origin");
    assert_eq!(answer.header("etag"), Some("W/\"one\""));
    assert_eq!(answer.header("accept-ranges"), None);
    assert_eq!(answer.header_all("vary"), ["origin", "accept-encoding"]);
    let plain = get("identity", "etag: \"one\"|accept-ranges: bytes");
    assert_eq!((plain.header("etag"), plain.header("accept-ranges")), (Some("\"one\""), Some("bytes")));
    assert_eq!(get("gzip", "etag: W/\"one\"").header("etag"), Some("W/\"one\""));
    for vary in ["Accept-Encoding", "origin, accept-encoding", "*"] {
        assert_eq!(get("gzip", &format!("vary: {vary}")).header_all("vary"), [vary], "no second one");
    }
}

/// The head that the client gets decides, after the edits of the route.
#[test]
fn headers_that_the_route_sets_decide_as_those_of_the_backend() {
    let backend = repeating();
    // A route that edits `content-encoding` beside its own `compress` is a fault of the file.
    let of_route = |lines: &str| {
        Gateway::start(&format!("[server]\ncompress = true\n{}", everything_to(&backend, lines)))
    };
    let get = |gateway: &Gateway, fields: &str| {
        let fields = format!("accept-encoding: gzip\r\nx-answer: {TEXT}|{fields}\r\n");
        get_with(gateway.addr(), "/", &fields).expect(200)
    };
    for (set, coding) in [
        ("cache-control = \"no-transform\"", None),
        ("content-encoding = \"br\"", Some("br")),
        ("content-type = \"image/png\"", None),
        ("content-digest = \"sha-256=:YQ==:\"", None),
        ("cache-control = \"max-age=1\"", Some("gzip")),
    ] {
        let gateway = of_route(&format!("set_response_headers = {{ {set} }}"));
        let answer = get(&gateway, "x-more: 1");
        let codings = answer.header_all("content-encoding");
        assert_eq!(codings, coding.into_iter().collect::<Vec<_>>(), "{set}");
        let size = answer.body.len();
        assert_eq!(size < 2_000, coding == Some("gzip"), "{set}: {size} bytes");
    }
    // What the client does not get forbids nothing.
    let replaced = of_route("set_response_headers = { cache-control = \"max-age=1\" }");
    assert_eq!(get(&replaced, "cache-control: no-transform").header("content-encoding"), Some("gzip"));
    let removed = of_route("remove_response_headers = [\"content-md5\"]");
    assert_eq!(get(&removed, "content-md5: YQ==").header("content-encoding"), Some("gzip"));
    let removed = of_route("remove_response_headers = [\"content-encoding\"]");
    let answer = get(&removed, "content-encoding: br");
    assert_eq!(
        (answer.header("content-encoding"), answer.body.len()),
        (None, 2_000),
        "it has a coding already"
    );
    let varied = of_route("set_response_headers = { vary = \"origin\" }");
    assert_eq!(get(&varied, "vary: accept-encoding").header_all("vary"), ["origin", "accept-encoding"]);
    // The two representations have different tags.
    let tagged = of_route("set_response_headers = { etag = '\"r\"' }");
    assert_eq!(get(&tagged, "etag: \"one\"").header_all("etag"), ["W/\"r\""]);
    let plain = get_with(tagged.addr(), "/", &format!("x-answer: {TEXT}\r\n")).expect(200);
    assert_eq!(plain.header_all("etag"), ["\"r\""]);
}

#[test]
fn the_tag_of_a_304_is_that_of_the_clients_copy() {
    let backend = repeating();
    let gateway = Gateway::start(&compressing(&backend, "true", ""));
    let ask = |tag: &str| {
        let fields = format!(
            "accept-encoding: gzip\r\nif-none-match: {tag}\r\nx-status: 304 Not Modified\r\nx-answer: etag: \"one\"\r\n"
        );
        let answer = get_with(gateway.addr(), "/", &fields).expect(304);
        assert_eq!(answer.header("vary"), Some("accept-encoding"));
        assert_eq!(answer.header("content-encoding"), None);
        answer.header("etag").map(str::to_owned)
    };
    assert_eq!(ask("W/\"one\"").as_deref(), Some("W/\"one\""));
    assert_eq!(ask("\"one\"").as_deref(), Some("\"one\""));
    assert_eq!(ask("\"two\", W/\"one\"").as_deref(), Some("W/\"one\""));
}

#[test]
fn a_response_to_head_has_the_fields_of_that_to_get() {
    let backend = Backend::start(|exchange| {
        exchange.write(
            "HTTP/1.1 200 OK\r\ncontent-type: text/css\r\netag: \"a\"\r\ncontent-length: 5000\r\n\r\n",
        );
        Next::KeepAlive
    });
    let gateway = Gateway::start(&compressing(&backend, "true", ""));
    let mut client = Client::connect(gateway.addr());
    for _ in 0..2 {
        client.write("HEAD / HTTP/1.1\r\nhost: test\r\naccept-encoding: br\r\n\r\n");
        let answer = client.read_for("HEAD").expect(200);
        assert_eq!(answer.header("content-encoding"), Some("br"));
        assert_eq!(answer.header("etag"), Some("W/\"a\""));
        assert_eq!(answer.header("vary"), Some("accept-encoding"));
        assert_eq!((answer.header("content-length"), answer.header("transfer-encoding")), (None, None));
    }
    client.write("HEAD / HTTP/1.1\r\nhost: test\r\n\r\n");
    assert_eq!(client.read_for("HEAD").expect(200).header("content-length"), Some("5000"));
}

#[test]
fn a_response_without_a_body_stays_so() {
    let backend = repeating();
    let gateway = Gateway::start(&compressing(&backend, "true", ""));
    let fields = format!("accept-encoding: gzip\r\nx-status: 204 No Content\r\nx-answer: {TEXT}\r\n");
    let answer = get_with(gateway.addr(), "/", &fields).expect(204);
    assert_eq!((answer.header("content-encoding"), answer.header("vary")), (None, None));
    let empty = Backend::answering(format!("HTTP/1.1 200 OK\r\n{TEXT}\r\ncontent-length: 0\r\n\r\n"));
    let gateway = Gateway::start(&compressing(&empty, "{ min = 0 }", ""));
    let answer = get_with(gateway.addr(), "/", "accept-encoding: gzip\r\n").expect(200);
    assert_eq!((answer.header("content-encoding"), answer.header("content-length")), (None, Some("0")));
}

#[test]
fn a_route_without_compress_changes_nothing() {
    let backend = repeating();
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let (coding, vary) = answer(&gateway, "gzip", "content-type: text/plain|etag: \"one\"", "");
    assert_eq!((coding.as_str(), vary), ("identity", None));
}

#[test]
fn edits_of_the_route_win() {
    let rest = "set_response_headers = { etag = '\"mine\"', x-env = \"prod\" }\nremove_response_headers = [\"server\"]";
    let backend = repeating();
    let gateway = Gateway::start(&compressing(&backend, "true", rest));
    let fields = format!("accept-encoding: gzip\r\nx-answer: {TEXT}|etag: \"one\"|server: x\r\n");
    let answer = get_with(gateway.addr(), "/", &fields).expect(200);
    assert_eq!(answer.header_all("etag"), ["W/\"mine\""]);
    assert_eq!((answer.header("content-encoding"), answer.header("server")), (Some("gzip"), None));
}
