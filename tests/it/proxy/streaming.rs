//! Bodies stream with back-pressure both ways; a refusal stays readable whatever the client still sends.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::harness::{Backend, Client, Fault, Gateway, Next, eventually, everything_to};

const HUNDRED_MB: usize = 100_000_000;
/// What the gateway may take for one stream. Its buffers are far smaller; the allocator and the kernel are not exact.
const MAX_KIB: u64 = 12 * 1024;

#[test]
fn a_large_answer_waits_for_a_slow_reader() {
    let sent = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&sent);
    let backend = Backend::start(move |exchange| {
        exchange.write(format!("HTTP/1.1 200 OK\r\ncontent-length: {HUNDRED_MB}\r\n\r\n"));
        let piece = [b'x'; 100_000];
        for _ in 0..HUNDRED_MB / piece.len() {
            if !exchange.write(piece) {
                return Next::Close;
            }
            counter.fetch_add(piece.len(), Ordering::SeqCst);
        }
        Next::KeepAlive
    });
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let before = gateway.anonymous_kib();
    let mut client = Client::connect_narrow(gateway.addr(), 64 * 1024);
    client.write("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
    assert_eq!(client.read_head().expect("a head").status, 200);
    std::thread::sleep(Duration::from_millis(500));
    let ahead = sent.load(Ordering::SeqCst);
    assert!(ahead < HUNDRED_MB / 4, "{ahead} bytes were read from the backend while the client read none");
    let mut read = 0;
    let mut peak = 0;
    while read < HUNDRED_MB {
        let piece = client.read_some(1 << 20).len();
        assert!(piece > 0, "cut after {read} bytes");
        read += piece;
        peak = peak.max(gateway.anonymous_kib());
    }
    let grown = peak.saturating_sub(before);
    assert!(grown < MAX_KIB, "100 MB through a slow reader cost {grown} KiB");
}

#[test]
fn a_large_upload_waits_for_a_slow_backend() {
    let received = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&received);
    let backend = Backend::start(move |exchange| {
        exchange.wait_at_gate();
        while counter.load(Ordering::SeqCst) < HUNDRED_MB {
            let piece = exchange.read_some().len();
            if piece == 0 {
                return Next::Close;
            }
            counter.fetch_add(piece, Ordering::SeqCst);
        }
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        Next::KeepAlive
    });
    let gateway = Gateway::start(&everything_to(&backend, "max_body_bytes = 0"));
    let before = gateway.anonymous_kib();
    let mut client = Client::connect(gateway.addr());
    client.write(format!("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: {HUNDRED_MB}\r\n\r\n"));
    let body = vec![b'x'; HUNDRED_MB];
    let sent = client.write_within(&body, Duration::from_millis(500));
    assert!(sent < HUNDRED_MB / 2, "{sent} bytes were taken while the backend took none");
    let grown = gateway.anonymous_kib().saturating_sub(before);
    assert!(grown < MAX_KIB, "waiting for a slow backend cost {grown} KiB");
    backend.open_gate();
    client.write(&body[sent..]);
    assert_eq!(client.read().expect(200).text(), "ok");
    assert_eq!(received.load(Ordering::SeqCst), HUNDRED_MB);
}

#[test]
fn each_piece_of_an_answer_is_passed_on_as_it_comes() {
    let backend = Backend::start(|exchange| {
        exchange.write("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n");
        exchange.wait_at_gate();
        exchange.write("6\r\nsecond\r\n0\r\n\r\n");
        Next::KeepAlive
    });
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let mut client = Client::connect(gateway.addr());
    client.write("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
    client.read_head().expect("a head");
    assert_eq!(client.read_exact(10).expect("the first piece"), b"5\r\nfirst\r\n");
    backend.open_gate();
    assert_eq!(client.read_exact(16).expect("the rest"), b"6\r\nsecond\r\n0\r\n\r\n");
}

#[test]
fn each_piece_of_an_upload_is_passed_on_as_it_comes() {
    let backend = Backend::start(|exchange| {
        let first = exchange.read_exact(5);
        exchange.write(format!(
            "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{}",
            String::from_utf8_lossy(&first)
        ));
        let second = exchange.read_exact(5);
        exchange.write(second);
        Next::KeepAlive
    });
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let mut client = Client::connect(gateway.addr());
    client.write("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 10\r\n\r\nfirst");
    assert_eq!(client.read_head().expect("an early head").status, 200);
    assert_eq!(client.read_exact(5).expect("the first piece"), b"first");
    client.write("other");
    assert_eq!(client.read_exact(5).expect("the second piece"), b"other");
}

/// A client that sends its whole body before it reads must still be able to read why it was refused.
#[test]
fn a_refusal_is_readable_while_a_large_body_is_still_coming() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(
        &backend,
        "max_body_bytes = \"1MiB\"
        [[routes]]
        path = \"/limited\"
        upstream = \"api\"
        limits = [\"none\"]
        [limits.none]
        algorithm = \"gcra\"
        key = \"header:x-none\"
        missing = \"deny\"
        rate = \"1/h\"",
    ));
    for (path, length, status) in
        [("/large", 8 << 20, 413), ("/limited", 900 << 10, 429), ("/%00", 900 << 10, 400)]
    {
        for framing in ["content-length", "chunked"] {
            let mut client = Client::connect(gateway.addr());
            let body = vec![b'x'; length];
            if framing == "chunked" {
                client.write(format!(
                    "POST {path} HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n{length:x}\r\n"
                ));
                client.write(&body);
                client.write("\r\n0\r\n\r\n");
            } else {
                client
                    .write(format!("POST {path} HTTP/1.1\r\nhost: test\r\ncontent-length: {length}\r\n\r\n"));
                client.write(&body);
            }
            let response = client.read().expect(status);
            assert!(
                response.closed,
                "{framing} of {length} bytes to {path} is not drained: {}",
                response.head
            );
            assert!(client.closes(), "{framing} to {path}");
        }
    }
    assert!(
        backend
            .requests()
            .iter()
            .all(|seen| seen.target() == "/large" && seen.header("content-length").is_none())
    );
}

#[test]
fn a_small_unread_body_is_drained_and_the_connection_stays() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(
        &backend,
        "limits = [\"one\"]
        [limits.one]
        algorithm = \"gcra\"
        key = \"method\"
        rate = \"1/h\"",
    ));
    let mut client = Client::connect(gateway.addr());
    let body = "x".repeat(60 * 1024);
    let post = format!("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let chunked = format!(
        "POST / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
        body.len()
    );
    client.exchange(&post).expect(200);
    for request in [&post, &chunked, &post] {
        assert!(!client.exchange(request).expect(429).closed);
    }
    client.get("/", "").expect(200);
}

#[test]
fn a_chunked_body_is_bounded_as_it_comes() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, "max_body_bytes = \"16KiB\""));
    let ask = |bytes: usize| {
        let chunk = format!("400\r\n{}\r\n", "x".repeat(1024));
        let body = chunk.repeat(bytes / 1024);
        let mut client = Client::connect(gateway.addr());
        client
            .exchange(format!(
                "POST / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n{body}0\r\n\r\n"
            ))
            .status
    };
    assert_eq!(ask(16 * 1024), 200);
    assert_eq!(ask(17 * 1024), 413);
    assert_eq!(ask(300 * 1024), 413);
    gateway.get("/still-there").expect(200);
}

#[test]
fn a_client_that_leaves_ends_the_backends_work() {
    let gone = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&gone);
    let backend = Backend::start(move |exchange| {
        exchange.write("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n");
        while exchange.write("1\r\na\r\n") {
            std::thread::sleep(Duration::from_millis(10));
        }
        seen.fetch_add(1, Ordering::SeqCst);
        Next::Close
    });
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let mut client = Client::connect(gateway.addr());
    client.write("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
    client.read_head().expect("a head");
    drop(client);
    eventually("the backend's connection to end", || (gone.load(Ordering::SeqCst) == 1).then_some(()));
}

#[test]
fn a_backend_that_breaks_off_cuts_the_client() {
    let backend = Backend::start(|exchange| {
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nsome");
        exchange.wait_at_gate();
        Next::Reset
    });
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let mut client = Client::connect(gateway.addr());
    client.write("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
    client.read_head().expect("a head");
    assert_eq!(client.read_exact(4).expect("what came before"), b"some");
    backend.open_gate();
    assert!(matches!(client.read_exact(1), Err(Fault::Cut(_))), "a short body must not look whole");
}
