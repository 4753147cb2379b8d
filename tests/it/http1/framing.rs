//! Framing and smuggling: what two parsers could read differently is refused, and the connection closed.

use std::time::Duration;

use crate::harness::corpus::written::{BAD_CODINGS, BAD_LENGTHS};
use crate::harness::{Backend, Client, Fault, Gateway, everything_to};

/// Sends `request` with a smuggled one behind it. Whatever the answer, the second must never reach the backend, and the
/// connection must be closed.
#[track_caller]
fn refused(gateway: &Gateway, request: &[u8], statuses: &[u16]) {
    let shown = String::from_utf8_lossy(request).into_owned();
    let mut client = Client::connect(gateway.addr());
    client.write(request);
    client.write("GET /smuggled HTTP/1.1\r\nhost: test\r\n\r\n");
    match client.try_read("GET") {
        Ok(response) => {
            assert!(statuses.contains(&response.status), "{shown:?} was answered\n{}", response.head)
        }
        // The refusal may be lost to a reset when bytes were still under way, but then nothing was served either.
        Err(Fault::Closed | Fault::Cut(_)) => {}
        Err(fault) => panic!("{shown:?}: {fault}"),
    }
    assert!(client.closes(), "{shown:?}: the connection stays open");
}

#[track_caller]
fn all_refused(requests: &[&str], statuses: &[u16]) {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, ""));
    for request in requests {
        refused(&gateway, request.as_bytes(), statuses);
    }
    assert_eq!(backend.count(), 0, "the backend got {:#?}", backend.requests());
    gateway.get("/").expect(200);
}

#[test]
fn a_host_that_is_missing_double_or_malformed() {
    all_refused(
        &[
            "GET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: a\r\nhost: a\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: a\r\nHost: b\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: a, b\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: a b\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: user@a\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: a/b\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: a:port\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: [::1\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: http://a\r\n\r\n",
            "GET / HTTP/1.1\r\nhost:\r\n\r\n",
            "GET http://a/ HTTP/1.1\r\nhost: b\r\n\r\n",
            "GET http://a:81/ HTTP/1.1\r\nhost: a\r\n\r\n",
            "GET http://user@a/ HTTP/1.1\r\nhost: a\r\n\r\n",
        ],
        &[400],
    );
}

#[test]
fn a_content_length_that_is_not_one_number() {
    let request = |length| format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\nhello");
    let requests: Vec<_> = BAD_LENGTHS.iter().map(request).collect();
    all_refused(&requests.iter().map(String::as_str).collect::<Vec<_>>(), &[400, 413]);
}

#[test]
fn content_length_beside_transfer_encoding() {
    all_refused(
        &[
            "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ncontent-length: 0\r\n\r\n0\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\ntransfer-encoding: identity\r\n\r\n",
        ],
        &[400, 501],
    );
}

#[test]
fn a_transfer_encoding_other_than_chunked() {
    let request =
        |coding| format!("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: {coding}\r\n\r\n0\r\n\r\n");
    let requests: Vec<_> = BAD_CODINGS.iter().map(request).collect();
    all_refused(&requests.iter().map(String::as_str).collect::<Vec<_>>(), &[400, 501]);
    all_refused(&["POST / HTTP/1.0\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"], &[400, 501]);
}

#[test]
fn lines_that_end_or_begin_otherwise() {
    all_refused(
        &[
            "GET / HTTP/1.1\nhost: a\n\n",
            "GET / HTTP/1.1\r\nhost: a\n\r\n",
            "GET / HTTP/1.1\r\nhost: a\r\nx: y\n\r\n",
            "GET / HTTP/1.1\nhost: a\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: a\r\nx: y\rz\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: a\rx: y\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: a\r\nx: y\0z\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: a\r\nx\0: y\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: a\r\nx: y\r\n z\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: a\r\nx: y\r\n\tz\r\n\r\n",
            "GET / HTTP/1.1\r\nhost : a\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: a\r\ntransfer-encoding : chunked\r\n\r\n0\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: a\r\ncontent-length\t: 5\r\n\r\nhello",
            "GET / HTTP/1.1\r\n host: a\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: a\r\nx(y): z\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: a\r\n: z\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: a\r\nno colon\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: a\r\nx: y\u{7f}z\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: a\r\nx: y\u{1}z\r\n\r\n",
        ],
        &[400],
    );
}

#[test]
fn request_lines_that_are_none() {
    all_refused(
        &[
            "GET  / HTTP/1.1\r\nhost: a\r\n\r\n",
            "GET /  HTTP/1.1\r\nhost: a\r\n\r\n",
            "GET\t/\tHTTP/1.1\r\nhost: a\r\n\r\n",
            "GET / x HTTP/1.1\r\nhost: a\r\n\r\n",
            " GET / HTTP/1.1\r\nhost: a\r\n\r\n",
            "get / HTTP/1.1\r\nhost: a\r\n\r\n",
            "Get / HTTP/1.1\r\nhost: a\r\n\r\n",
            "G(T / HTTP/1.1\r\nhost: a\r\n\r\n",
            "GET /#fragment HTTP/1.1\r\nhost: a\r\n\r\n",
            "GET /a\u{7f} HTTP/1.1\r\nhost: a\r\n\r\n",
            "GET /a\u{1} HTTP/1.1\r\nhost: a\r\n\r\n",
            "GET /\u{e9} HTTP/1.1\r\nhost: a\r\n\r\n",
            "GET * HTTP/1.1\r\nhost: a\r\n\r\n",
            "GET a:80 HTTP/1.1\r\nhost: a\r\n\r\n",
            "GET a HTTP/1.1\r\nhost: a\r\n\r\n",
            "PRI * HTTP/1.1\r\nhost: a\r\n\r\n",
        ],
        &[400],
    );
    all_refused(
        &[
            "GET / HTTP/1.2\r\nhost: a\r\n\r\n",
            "GET / HTTP/2.0\r\nhost: a\r\n\r\n",
            "GET / HTTP/0.9\r\nhost: a\r\n\r\n",
            "GET / http/1.1\r\nhost: a\r\n\r\n",
            "GET / HTTP/1.10\r\nhost: a\r\n\r\n",
            "GET / HTTP/01.1\r\nhost: a\r\n\r\n",
            "GET /\r\n\r\n",
            "PRI * HTTP/2.0\r\n\r\nSM\r\nx",
            "PRI * HTTP/2.0\r\nx: y\r\n\r\n",
            // Their clients send a line and wait.
            "GET /\r\n",
            "GET / HTTP/1.2\r\n",
            "EHLO client.example\r\n",
        ],
        &[400, 505],
    );
}

/// The client reads no body after HEAD, so one would be taken for the next answer.
#[test]
fn a_malformed_head_request_is_refused_without_a_body() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let mut client = Client::connect(gateway.addr());
    client.write("HEAD / HTTP/1.1\r\nhost: a\r\nx: y\u{1}z\r\n\r\n");
    client.read_for("HEAD").expect(400);
    assert!(client.closes(), "nothing follows the head");
}

/// The head is fine, so the backend may see the request; what stands behind the broken chunk it must never see.
#[test]
fn chunks_that_are_broken() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let long = format!("1;{}\r\na\r\n0\r\n\r\n", "x".repeat(20_000));
    let bodies = [
        "+1\r\na\r\n0\r\n\r\n",
        "-1\r\na\r\n0\r\n\r\n",
        " 1\r\na\r\n0\r\n\r\n",
        "1 \r\na\r\n0\r\n\r\n",
        "0x1\r\na\r\n0\r\n\r\n",
        "1_0\r\na\r\n0\r\n\r\n",
        "g\r\na\r\n0\r\n\r\n",
        "\r\na\r\n0\r\n\r\n",
        "10000000000000000\r\na\r\n0\r\n\r\n",
        "ffffffffffffffff1\r\na\r\n0\r\n\r\n",
        "1\na\r\n0\r\n\r\n",
        "1\r\na\n0\r\n\r\n",
        "1\r\nab\r\n0\r\n\r\n",
        "1\r\na0\r\n\r\n",
        "1;x\ny\r\na\r\n0\r\n\r\n",
        "1\r\na\r\n0\r\nbad trailer\r\n\r\n",
        "1\r\na\r\n0\r\nx: y\n\r\n",
        "1\r\na\r\n0\r\nx : y\r\n\r\n",
        &long,
    ];
    for body in bodies {
        refused(
            &gateway,
            format!("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n{body}").as_bytes(),
            &[400],
        );
    }
    assert!(backend.requests().iter().all(|seen| seen.target() == "/"), "{:#?}", backend.requests());
    gateway.get("/fine").expect(200);
}

#[test]
fn a_client_that_leaves_inside_its_body_is_not_the_backends_fault() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, ""));
    for request in [
        "POST /cut HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\nhalf",
        "POST /cut HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5\r\nha",
    ] {
        let mut client = Client::connect(gateway.addr());
        client.write(request);
        std::thread::sleep(Duration::from_millis(20));
        drop(client);
    }
    for _ in 0..10 {
        gateway.get("/next").expect(200);
    }
}

/// What is lawful, if rare, is taken.
#[test]
fn lawful_oddities_are_taken() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, ""));
    for request in [
        "GET / HTTP/1.1\r\nHOST:a\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: \t a \t\r\nx:\t y\t \r\n\r\n",
        "\r\nGET / HTTP/1.1\r\nhost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: [::1]:80\r\n\r\n",
        "GET /a?b=c?d/e HTTP/1.1\r\nhost: a\r\n\r\n",
        "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 005\r\n\r\nhello",
        "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: Chunked\r\n\r\n5;a=b\r\nhello\r\n000\r\n\r\n",
        "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0005\r\nhello\r\n0\r\n\r\n",
        "GET / HTTP/1.0\r\n\r\n",
    ] {
        let mut client = Client::connect(gateway.addr());
        let response = client.exchange(request);
        assert_eq!(response.status, 200, "{request:?}");
        assert!(!response.head.is_empty());
    }
}

/// Whatever a backend sends that two parsers could read differently becomes a 502 or a cut, and is never reused.
#[test]
fn broken_answers_of_a_backend() {
    let long = format!("HTTP/1.1 200 OK\r\nx: {}\r\ncontent-length: 0\r\n\r\n", "x".repeat(1_000_000));
    let flood = "HTTP/1.1 100 Continue\r\n\r\n".repeat(100_000);
    let answers = [
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok",
        "HTTP/1.1 200 OK\r\ncontent-length: two\r\n\r\nok",
        "HTTP/1.1 2OO OK\r\n\r\n",
        "SSH-2.0-OpenSSH\r\n",
        "\0\0\0\0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nx y: z\r\ncontent-length: 0\r\n\r\n",
        "HTTP/2.0 200 OK\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        &long,
        &flood,
    ];
    for answer in answers {
        let shown = &answer[..answer.len().min(70)];
        let backend = Backend::answering_once(answer);
        let gateway = Gateway::start(&everything_to(&backend, ""));
        let response = gateway.get("/");
        assert_eq!(response.status, 502, "{shown:?} became\n{}", response.head);
        assert_eq!(response.header("content-type"), Some("application/problem+json"), "{shown:?}");
        let record = &gateway.access_log(1)[0];
        assert!(record["error"].is_string(), "{shown:?}: {record}");
    }
}

#[test]
fn an_answer_that_is_too_short_or_badly_chunked_is_cut() {
    for answer in [
        "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nshort",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhel",
    ] {
        let backend = Backend::answering_once(answer);
        let gateway = Gateway::start(&everything_to(&backend, ""));
        let mut client = Client::connect(gateway.addr());
        client.write("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
        match client.try_read("GET") {
            Err(Fault::Cut(_) | Fault::Closed) => {}
            Ok(response) => assert_eq!(response.status, 502, "{answer:?} passed as whole: {response:?}"),
            Err(fault) => panic!("{answer:?}: {fault}"),
        }
        assert!(gateway.access_log(1)[0]["error"].is_string(), "{answer:?}");
    }
}

#[test]
fn an_answer_that_is_too_long_does_not_poison_the_next() {
    let backend = Backend::answering(
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil",
    );
    let gateway = Gateway::start(&everything_to(&backend, "[server]\nworkers = 1"));
    let mut client = Client::connect(gateway.addr());
    for _ in 0..5 {
        assert_eq!(client.get("/", "").expect(200).text(), "ok");
    }
}
