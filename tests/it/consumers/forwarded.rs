//! What a backend receives: the consumer, and the credential only where the route forwards it.

use super::{CSV, Files, key};
use crate::harness::{Backend, Client, Gateway, Recorded, everything_to, get_with, send};

const HEADER: &str = "header:x-api-key";

/// A gateway whose only route takes the keys of the file from `source`. `rest` follows the route's own lines.
fn gateway(backend: &Backend, files: &Files, source: &str, rest: &str) -> Gateway {
    let auth = files.auth("keys", source, "");
    Gateway::start(&everything_to(backend, &format!("auth = \"keys\"\n{rest}\n{auth}")))
}

/// The name and the tier that a backend received.
fn consumer(request: &Recorded) -> (String, String) {
    let header = |name| request.header(name).unwrap_or_default();
    (header("x-consumer"), header("x-consumer-tier"))
}

/// The request as the backend received it, without the lines that differ from run to run.
fn stable_head(request: &Recorded) -> String {
    let is_stable = |line: &&str| !line.starts_with("x-request-id: ") && !line.starts_with("cdn-loop: ");
    request.head.split_inclusive("\r\n").filter(is_stable).collect()
}

/// The lines that the gateway adds to a request of `127.0.0.1` to `test`.
const FORWARDED: &str =
    "x-forwarded-for: 127.0.0.1\r\nx-forwarded-proto: http\r\nx-forwarded-host: test\r\n\r\n";

#[test]
fn the_backend_receives_the_consumer_and_not_the_credential() {
    let (backend, files) = (Backend::ok(), Files::with_consumers(CSV));
    for (source, request, received) in [
        (
            HEADER,
            "GET /a?x=1 HTTP/1.1\r\nhost: test\r\nX-Api-Key: key-ada-1\r\nx_api_key: other\r\nX-Api_Key: b\r\nx-other: 1\r\n\r\n",
            "GET /a?x=1 HTTP/1.1\r\nhost: test\r\nx-other: 1\r\n",
        ),
        (
            "bearer",
            "GET / HTTP/1.1\r\nhost: test\r\nAuthorization: bearer key-ada-1\r\nx-other: 1\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: test\r\nx-other: 1\r\n",
        ),
        (
            "query:k",
            "GET /a?x=1&k=key-ada-1&y HTTP/1.1\r\nhost: test\r\nx-api-key: mine\r\n\r\n",
            "GET /a?x=1&y HTTP/1.1\r\nhost: test\r\nx-api-key: mine\r\n",
        ),
        (
            "cookie:k",
            "GET / HTTP/1.1\r\nhost: test\r\nCookie: a=1;k=key-ada-1;b=2\r\nx-other: 1\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: test\r\nx-other: 1\r\ncookie: a=1;b=2\r\n",
        ),
    ] {
        let gateway = gateway(&backend, &files, source, "");
        send(gateway.addr(), request).expect(200);
        let own = "x-consumer: ada\r\nx-consumer-tier: pro\r\n";
        assert_eq!(stable_head(&backend.latest()), format!("{received}{own}{FORWARDED}"), "{source}");
    }
}

#[test]
fn the_backend_receives_the_credential_where_the_route_forwards_it() {
    let (backend, files) = (Backend::ok(), Files::with_consumers(CSV));
    for (source, request) in [
        (HEADER, "GET /a?x=1 HTTP/1.1\r\nhost: test\r\nX-Api-Key: key-ada-1\r\nx-other: 1\r\n"),
        ("bearer", "GET / HTTP/1.1\r\nhost: test\r\nAuthorization: bearer  key-ada-1\r\n"),
        ("query:k", "GET /a?x=1&k=key%2Dada-1&y HTTP/1.1\r\nhost: test\r\n"),
        ("cookie:k", "GET / HTTP/1.1\r\nhost: test\r\nCookie: a=1;k=key-ada-1;b=2\r\n"),
    ] {
        let gateway = gateway(&backend, &files, source, "forward_credentials = true");
        send(gateway.addr(), format!("{request}\r\n")).expect(200);
        let own = "x-consumer: ada\r\nx-consumer-tier: pro\r\n";
        assert_eq!(stable_head(&backend.latest()), format!("{request}{own}{FORWARDED}"), "{source}");
    }
}

/// A backend behind CGI would read one of the two, and perhaps not the one that the gateway has checked.
#[test]
fn a_second_key_under_a_similar_name_is_never_forwarded() {
    let (backend, files) = (Backend::ok(), Files::with_consumers(CSV));
    let gateway = gateway(&backend, &files, HEADER, "forward_credentials = true");
    let twins = "x_api_key: other\r\nX-Api_Key: other\r\n";
    get_with(gateway.addr(), "/", &format!("{twins}{}{twins}", key("key-ada-1"))).expect(200);
    let request = backend.latest();
    assert_eq!(request.header("x-api-key"), Some("key-ada-1".into()));
    assert!(!request.head.contains("other"), "{}", request.head);
}

#[test]
fn another_scheme_beside_a_bearer_key_is_forwarded() {
    let (backend, files) = (Backend::ok(), Files::with_consumers(CSV));
    let gateway = gateway(&backend, &files, "bearer", "auth_optional = true");
    get_with(gateway.addr(), "/", "authorization: Basic YTpi\r\n").expect(200);
    assert_eq!(backend.latest().header("authorization"), Some("Basic YTpi".into()));
}

#[test]
fn names_are_percent_encoded_outside_visible_ascii() {
    let csv = "key,name,tier\nkey-0001,Müller & Söhne,50% Rabatt\nkey-0002,\"a,\"\"b\"\"\",x~y\n";
    let (backend, files) = (Backend::ok(), Files::with_consumers(csv));
    let gateway = gateway(&backend, &files, HEADER, "");
    let mut client = Client::connect(gateway.addr());
    client.get("/", &key("key-0001")).expect(200);
    let encoded = ("M%C3%BCller%20&%20S%C3%B6hne".to_owned(), "50%25%20Rabatt".to_owned());
    assert_eq!(consumer(&backend.latest()), encoded);
    client.get("/", &key("key-0002")).expect(200);
    assert_eq!(consumer(&backend.latest()), ("a,\"b\"".to_owned(), "x~y".to_owned()));
    let log = gateway.access_log(2);
    assert_eq!((&log[0]["consumer"], &log[0]["tier"]), (&"Müller & Söhne".into(), &"50% Rabatt".into()));
}

/// A page of the same site names the URL that it was loaded from, with the key in its query.
#[test]
fn a_key_in_the_referer_reaches_no_backend() {
    let (backend, files) = (Backend::ok(), Files::with_consumers(CSV));
    let open = "[[routes]]\nname = \"open\"\npath = \"/open\"\nupstream = \"api\"\n";
    let hidden = gateway(&backend, &files, "query:k", open);
    let shown = gateway(&backend, &files, "query:k", "forward_credentials = true");
    for (referer, expected) in [
        ("https://test/a?k=key-ada-1", "https://test/a"),
        ("https://test/a?x=1&%6B=key-ada-1&y#z", "https://test/a?x=1&y#z"),
        ("https://test/a?kk=1&x=k", "https://test/a?kk=1&x=k"),
        ("https://test/a?k=key-ada-1#z", "https://test/a#z"),
        ("/a?k=key-ada-1&k=key-bob-1", "/a"),
    ] {
        let fields = format!("Referer: {referer}\r\nx-other: 1\r\n");
        for path in ["/?k=key-ada-1", "/open"] {
            get_with(hidden.addr(), path, &fields).expect(200);
            assert_eq!(backend.latest().header("referer").as_deref(), Some(expected), "{path}");
        }
        get_with(shown.addr(), "/?k=key-ada-1", &fields).expect(200);
        assert_eq!(backend.latest().header("referer").as_deref(), Some(referer));
    }
    let odd = b"GET /open HTTP/1.1\r\nhost: test\r\nreferer: /\xff?k=key-ada-1\r\n\r\n";
    send(hidden.addr(), odd).expect(200);
    assert!(!backend.latest().head.contains("key-ada-1"), "{}", backend.latest().head);
    get_with(hidden.addr(), "/open", "connection: referer\r\nreferer: /a?k=key-ada-1\r\n").expect(200);
    assert_eq!(backend.latest().header("referer"), None);
}
