//! What reaches the backend and what comes back: bodies, trailers, interim answers, connections.

use std::time::Duration;

use crate::harness::{Backend, Client, Gateway, Next, everything_to, send};

fn plain(backend: &Backend) -> Gateway {
    Gateway::start(&everything_to(backend, ""))
}

#[test]
fn a_head_answer_has_the_length_and_no_body() {
    let backend = Backend::answering("HTTP/1.1 200 OK\r\ncontent-length: 1234\r\nx-kind: head\r\n\r\n");
    let gateway = plain(&backend);
    let mut client = Client::connect(gateway.addr());
    for _ in 0..2 {
        let response = client.exchange("HEAD /a HTTP/1.1\r\nhost: test\r\n\r\n").expect(200);
        assert_eq!(
            (response.header("content-length"), response.header("x-kind")),
            (Some("1234"), Some("head"))
        );
    }
    assert_eq!(backend.latest().request_line(), "HEAD /a HTTP/1.1");
}

#[test]
fn answers_without_a_body_are_passed_on() {
    for status in [204, 304] {
        let backend = Backend::answering(format!("HTTP/1.1 {status} X\r\netag: \"a\"\r\n\r\n"));
        let gateway = plain(&backend);
        let mut client = Client::connect(gateway.addr());
        for _ in 0..2 {
            let response = client.get("/", "").expect(status);
            assert_eq!((response.header("etag"), response.body.len()), (Some("\"a\""), 0));
            assert_eq!(response.header("transfer-encoding"), None, "{}", response.head);
        }
    }
}

#[test]
fn a_body_is_framed_upstream_as_it_came() {
    let backend = Backend::ok();
    let gateway = plain(&backend);
    let mut client = Client::connect(gateway.addr());
    for method in ["POST", "PUT", "PATCH", "DELETE", "GET", "OPTIONS", "PROPFIND"] {
        client
            .exchange(format!("{method} / HTTP/1.1\r\nhost: test\r\ncontent-length: 5\r\n\r\nhello"))
            .expect(200);
        let seen = backend.latest();
        assert_eq!(seen.body, b"hello", "{method}");
        assert_eq!(seen.header("content-length").as_deref(), Some("5"), "{method}");
        assert_eq!(seen.header("transfer-encoding"), None, "{method}");
        client
            .exchange(format!("{method} / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"))
            .expect(200);
        let seen = backend.latest();
        assert_eq!(seen.body, b"hello", "{method}, chunked");
        assert_eq!(seen.header("transfer-encoding").as_deref(), Some("chunked"), "{method}");
        assert_eq!(seen.header("content-length"), None, "{method}, chunked");
    }
}

#[test]
fn an_empty_body_is_said_to_be_empty() {
    let backend = Backend::ok();
    let gateway = plain(&backend);
    send(gateway.addr(), "POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 0\r\n\r\n").expect(200);
    assert_eq!(backend.latest().header("content-length").as_deref(), Some("0"));
    send(gateway.addr(), "GET / HTTP/1.1\r\nhost: test\r\n\r\n").expect(200);
    let seen = backend.latest();
    assert_eq!((seen.header("content-length"), seen.header("transfer-encoding")), (None, None));
}

#[test]
fn trailers_pass_both_ways() {
    let backend = Backend::answering(
        "HTTP/1.1 200 OK\r\ntrailer: x-sum\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nx-sum: 7\r\n\r\n",
    );
    let gateway = plain(&backend);
    let request = "POST / HTTP/1.1\r\nhost: test\r\nte: trailers\r\ntrailer: x-check\r\ntransfer-encoding: chunked\r\n\r\n\
                   3\r\nabc\r\n0\r\nx-check: 9\r\n\r\n";
    let response = send(gateway.addr(), request).expect(200);
    assert_eq!(response.trailers, [("x-sum".to_owned(), "7".to_owned())]);
    assert_eq!(response.text(), "ok");
    assert_eq!(backend.only().trailers.to_ascii_lowercase(), "x-check: 9\r\n");
}

#[test]
fn forbidden_trailers_never_reach_the_backend() {
    let backend = Backend::ok();
    let gateway = plain(&backend);
    for field in [
        "host: evil",
        "content-length: 3",
        "transfer-encoding: chunked",
        "authorization: x",
        "x-forwarded-for: 1.1.1.1",
    ] {
        let request = format!(
            "POST / HTTP/1.1\r\nhost: test\r\ntrailer: x-check\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n{field}\r\n\r\n"
        );
        let status = send(gateway.addr(), request).status;
        assert!([200, 400].contains(&status), "{field}: {status}");
        assert!(
            backend.requests().iter().all(|seen| seen.trailers.is_empty()),
            "{field}: {:?}",
            backend.latest()
        );
    }
}

#[test]
fn a_close_delimited_answer_is_whole() {
    let backend = Backend::answering_once("HTTP/1.0 200 OK\r\nx-a: b\r\n\r\nuntil the end");
    let gateway = plain(&backend);
    let mut client = Client::connect(gateway.addr());
    for _ in 0..2 {
        let response = client.get("/", "").expect(200);
        assert_eq!(response.text(), "until the end");
        if response.closed {
            client = Client::connect(gateway.addr());
        }
    }
}

#[test]
fn an_old_client_gets_an_answer_it_understands() {
    let backend =
        Backend::answering("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n");
    let gateway = plain(&backend);
    let mut client = Client::connect(gateway.addr());
    let response = client.exchange("GET / HTTP/1.0\r\nhost: test\r\n\r\n").expect(200);
    assert_eq!((response.text().as_str(), response.header("transfer-encoding")), ("ok", None));
    assert!(client.closes());
    assert_eq!(backend.only().request_line(), "GET / HTTP/1.1");
}

#[test]
fn a_client_that_asks_is_told_to_continue_once() {
    let backend = Backend::start(|exchange| {
        exchange.write("HTTP/1.1 100 Continue\r\n\r\n");
        let body = exchange.read_body();
        exchange.write(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len()));
        exchange.write(body);
        Next::KeepAlive
    });
    let gateway = plain(&backend);
    let mut client = Client::connect(gateway.addr());
    for _ in 0..2 {
        client.write("POST / HTTP/1.1\r\nhost: test\r\nexpect: 100-continue\r\ncontent-length: 4\r\n\r\n");
        assert_eq!(client.read_head().expect("an interim answer").status, 100);
        client.write("body");
        let response = client.read().expect(200);
        assert_eq!((response.text().as_str(), response.interim.len()), ("body", 0));
    }
}

#[test]
fn a_backend_that_declines_needs_no_body() {
    let backend = Backend::start(|exchange| {
        exchange.write("HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\nconnection: close\r\n\r\nno");
        Next::Close
    });
    let gateway = plain(&backend);
    let mut client = Client::connect(gateway.addr());
    client.write("POST / HTTP/1.1\r\nhost: test\r\nexpect: 100-continue\r\ncontent-length: 1000000\r\n\r\n");
    let response = client.read().expect(403);
    assert_eq!(response.text(), "no");
}

#[test]
fn a_refused_request_is_never_told_to_continue() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(
        &backend,
        "max_body_bytes = \"10KiB\"
        limits = [\"one\"]
        [limits.one]
        algorithm = \"gcra\"
        key = \"header:x-key\"
        rate = \"1/h\"",
    ));
    let ask = |key: &str, length: usize| {
        let mut client = Client::connect(gateway.addr());
        client.write(format!("POST / HTTP/1.1\r\nhost: test\r\nx-key: {key}\r\nexpect: 100-continue\r\ncontent-length: {length}\r\n\r\n"));
        let response = client.read();
        assert_eq!(response.interim.len(), 0, "no 100 before {}", response.head);
        response.status
    };
    assert_eq!(ask("large", 1_000_000), 413);
    crate::harness::get_with(gateway.addr(), "/", "x-key: limited\r\n").expect(200);
    assert_eq!(ask("limited", 100), 429);
}

/// An answer that comes while the body is still being sent is passed on at once, and the connections are not reused wrongly.
#[test]
fn an_early_answer_is_passed_on() {
    let backend = Backend::start(|exchange| {
        exchange.write("HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno");
        exchange.read_body();
        Next::KeepAlive
    });
    let gateway = plain(&backend);
    let mut client = Client::connect(gateway.addr());
    client.write("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 10\r\n\r\nfirst");
    assert_eq!(client.read().expect(403).text(), "no");
    assert_eq!(send(gateway.addr(), "GET /next HTTP/1.1\r\nhost: test\r\n\r\n").expect(403).text(), "no");
}

#[test]
fn early_hints_do_not_disturb_the_answer() {
    let backend = Backend::answering(
        "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
    );
    let gateway = plain(&backend);
    let mut client = Client::connect(gateway.addr());
    for _ in 0..3 {
        assert_eq!(client.get("/", "").expect(200).text(), "ok");
    }
}

#[test]
fn redirects_are_passed_on_and_never_followed() {
    let backend = Backend::answering(
        "HTTP/1.1 302 Found\r\nlocation: http://elsewhere.example/x\r\ncontent-length: 0\r\n\r\n",
    );
    let response = plain(&backend).get("/").expect(302);
    assert_eq!(response.header("location"), Some("http://elsewhere.example/x"));
    assert_eq!(backend.count(), 1);
}

#[test]
fn connections_are_kept_on_both_sides() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, "[server]\nworkers = 1"));
    let mut client = Client::connect(gateway.addr());
    for _ in 0..20 {
        client.get("/", "").expect(200);
    }
    assert_eq!(backend.connections(), 1);
    let last = client.get("/", "connection: close\r\n").expect(200);
    assert!(last.closed && client.closes());
}

#[test]
fn a_backend_that_closes_is_connected_to_anew() {
    let backend =
        Backend::answering_once("HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok");
    let gateway = plain(&backend);
    let mut client = Client::connect(gateway.addr());
    for _ in 0..5 {
        let response = client.get("/", "").expect(200);
        assert!(!response.closed, "the backend's `connection` is not the client's: {}", response.head);
    }
    assert_eq!(backend.connections(), 5);
}

#[test]
fn a_request_may_come_byte_by_byte() {
    let backend = Backend::ok();
    let gateway = plain(&backend);
    let mut client = Client::connect(gateway.addr());
    client.write_bytewise(
        "POST /slow HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        Duration::from_millis(1),
    );
    client.read().expect(200);
    assert_eq!(backend.only().body, b"abc");
}

#[test]
fn a_client_may_half_close_after_its_request() {
    let backend = Backend::start(|exchange| {
        exchange.wait_at_gate();
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        Next::KeepAlive
    });
    let gateway = plain(&backend);
    let mut client = Client::connect(gateway.addr());
    client.write("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
    backend.wait_for(1);
    client.finish();
    std::thread::sleep(Duration::from_millis(50));
    backend.open_gate();
    match client.try_read("GET") {
        Ok(response) => assert_eq!(response.expect(200).text(), "ok"),
        Err(fault) => panic!("a client that half-closes still wants its answer: {fault}"),
    }
}

#[test]
fn the_echo_upstream_answers_by_itself() {
    let gateway = Gateway::start(
        "[upstreams]\ndemo = \"builtin:echo\"\n[[routes]]\npath = \"/*\"\nupstream = \"demo\"",
    );
    let response = gateway.get("/hello?a=b").expect(200);
    assert!(response.text().contains("/hello"), "{}", response.text());
    let mut client = Client::connect(gateway.addr());
    client.exchange("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 2\r\n\r\nhi").expect(200);
    client.exchange("HEAD / HTTP/1.1\r\nhost: test\r\n\r\n").expect(200);
    client.get("/again", "").expect(200);
}
