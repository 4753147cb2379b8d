//! Fields and bodies that a backend may read differently, or that cost more than they should.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::harness::{Backend, Client, Fault, Gateway, Next, eventually, everything_to, get_with};

#[test]
fn an_underscore_does_not_pass_for_a_hyphen() {
    let backend = Backend::ok();
    let rest = "set_request_headers = { x-env = \"prod\" }\n[server]\ntrusted_proxies = [\"127.0.0.2\"]";
    let gateway = Gateway::start(&everything_to(&backend, rest));
    let twins = "x_forwarded_for: 6.6.6.6\r\nX_Forwarded-For: 6.6.6.6\r\nX_REAL_IP: 6.6.6.6\r\nx-forwarded_proto: https\r\n\
                 content_length: 5\r\ntransfer_encoding: chunked\r\nx_env: dev\r\nx_request_id: 1\r\n";
    get_with(gateway.addr(), "/", &format!("{twins}user_id: 7\r\n_: 8\r\n")).expect(200);
    let head = backend.only().head.to_ascii_lowercase();
    let with_underscore: Vec<&str> = head.split("\r\n").skip(1).filter(|line| line.contains('_')).collect();
    assert_eq!(with_underscore, ["user_id: 7", "_: 8"], "{head}");
    assert!(head.contains("\r\nx-env: prod\r\n") && head.contains("\r\nx-forwarded-for: 127.0.0.1\r\n"));
}

#[test]
fn trailers_are_bounded_both_ways() {
    let trailers = "x-a: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n".repeat(1_000);
    let backend = Backend::start({
        let trailers = trailers.clone();
        move |exchange| {
            exchange.read_body();
            exchange.write("HTTP/1.1 200 OK\r\ntrailer: x-a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n");
            exchange.write(&trailers);
            exchange.write("\r\n");
            Next::KeepAlive
        }
    });
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let mut client = Client::connect(gateway.addr());
    client.write("POST / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\ntrailer: x-a\r\n\r\n0\r\n");
    client.write(trailers);
    let answer = client.read().expect(400);
    assert!(answer.closed);
    let mut client = Client::connect(gateway.addr());
    client.write("GET / HTTP/1.1\r\nhost: test\r\nte: trailers\r\n\r\n");
    match client.try_read("GET") {
        // The trailers came together with the head.
        Ok(answer) => drop(answer.expect(502)),
        Err(fault) => assert!(matches!(fault, Fault::Cut(_) | Fault::Closed), "{fault}"),
    }
}

/// Dropped, it would be read as the next request by one of the two.
#[test]
fn a_body_of_a_head_request_goes_on_as_it_is_framed() {
    let backend = Backend::answering("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n");
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let mut client = Client::connect(gateway.addr());
    for body in
        ["content-length: 5\r\n\r\nhello", "transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"]
    {
        client.exchange(format!("HEAD / HTTP/1.1\r\nhost: test\r\n{body}")).expect(200);
        assert_eq!(backend.latest().body, b"hello");
    }
    assert_eq!((backend.count(), backend.connections()), (2, 1));
}

/// What a backend lets through of its own clients' bytes must not become a field of its own.
#[test]
fn answers_are_not_split() {
    let fields = |count: usize| (0..count).map(|n| format!("x-{n}: y\r\n")).collect::<String>();
    let answers = [
        "HTTP/1.1 200 OK\r\nlocation: /a\rset-cookie: x=1\r\ncontent-length: 0\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\nlocation: /a\0\r\ncontent-length: 0\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\nlocation: /a\r\n b\r\ncontent-length: 0\r\n\r\n".to_owned(),
        "HTTP/1.1 200 O\rK\r\ncontent-length: 0\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\nset cookie: x=1\r\ncontent-length: 0\r\n\r\n".to_owned(),
        format!("HTTP/1.1 200 OK\r\n{}content-length: 0\r\n\r\n", fields(200)),
    ];
    for answer in answers {
        let backend = Backend::answering_once(answer.clone());
        let gateway = Gateway::start(&everything_to(&backend, ""));
        assert_eq!(gateway.get("/").status, 502, "{:?}", &answer[..answer.len().min(80)]);
    }
}

/// Node and others close an idle connection after a time that they tell: it is given up before that.
#[test]
fn a_backends_word_on_how_long_it_keeps_connections_is_heeded() {
    let closed = Arc::new(AtomicUsize::new(0));
    let backend = Backend::start({
        let closed = Arc::clone(&closed);
        move |exchange| {
            exchange.write("HTTP/1.1 200 OK\r\nkeep-alive: timeout=3\r\ncontent-length: 2\r\n\r\nok");
            let rest = exchange.read_some();
            closed.fetch_add(usize::from(rest.is_empty()), Ordering::SeqCst);
            Next::Close
        }
    });
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let begun = std::time::Instant::now();
    gateway.get("/").expect(200);
    // By default it would be kept for longer than a test waits.
    eventually("the gateway to close its connection", || (closed.load(Ordering::SeqCst) == 1).then_some(()));
    assert!(begun.elapsed().as_secs() >= 1, "it was kept for a while");
}

#[test]
fn a_backend_that_keeps_a_connection_for_a_moment_is_not_asked_on_it_again() {
    let backend =
        Backend::answering("HTTP/1.1 200 OK\r\nkeep-alive: timeout=0\r\ncontent-length: 2\r\n\r\nok");
    let gateway = Gateway::start(&everything_to(&backend, "[server]\nworkers = 1"));
    let mut client = Client::connect(gateway.addr());
    (0..3).for_each(|_| drop(client.get("/", "").expect(200)));
    assert_eq!(backend.connections(), 3);
}
