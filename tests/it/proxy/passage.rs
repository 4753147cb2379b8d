//! Heads and bodies: the parts that pass unchanged, the new framing, and the detection of a peer that is gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::harness::{Backend, Client, Fault, Gateway, Next, eventually, everything_to};

#[test]
fn names_keep_their_case_and_odd_targets_pass() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let target = r#"/a{b}|c?q="x"<y>&z=`1`^"#;
    let request =
        format!("GET {target} HTTP/1.1\r\nHost: test\r\nX-MiXeD:\t 1 \t\r\nx-next:2\r\nX-Last: 3\r\n\r\n");
    Client::connect(gateway.addr()).exchange(request).expect(200);
    let seen = backend.only();
    assert_eq!(seen.target(), target);
    assert!(seen.head.contains("\r\nX-MiXeD: 1\r\nx-next: 2\r\nX-Last: 3\r\n"), "{}", seen.head);
}

#[test]
fn a_lenient_backend_is_understood() {
    let backend =
        Backend::answering("HTTP/1.1 200 Fine So Far\nX-One:1\nx-two:   2  \r\ncontent-length: 2, 2\n\nok");
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let mut client = Client::connect(gateway.addr());
    for _ in 0..2 {
        let response = client.get("/", "").expect(200);
        assert!(
            response.head.starts_with("HTTP/1.1 200 Fine So Far\r\nX-One: 1\r\nx-two: 2\r\n"),
            "{}",
            response.head
        );
        assert_eq!((response.header("content-length"), response.text()), (Some("2"), "ok".into()));
    }
    assert_eq!(backend.connections(), 1);
}

#[test]
fn an_answer_without_content_has_no_length() {
    let backend = Backend::answering("HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n");
    let response = Gateway::start(&everything_to(&backend, "")).get("/").expect(204);
    assert_eq!(response.header("content-length"), None);
}

#[test]
fn both_bodies_flow_at_once() {
    let backend = Backend::start(|exchange| {
        exchange.write("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
        for _ in 0..3 {
            let piece = exchange.read_some();
            exchange.write(format!("{:x}\r\n", piece.len()));
            exchange.write(piece);
            exchange.write("\r\n");
        }
        exchange.write("0\r\n\r\n");
        Next::Close
    });
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let mut client = Client::connect(gateway.addr());
    client.write("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 9\r\n\r\n");
    client.read_head().expect("the head, before any body");
    for piece in ["one", "two", "end"] {
        client.write(piece);
        let chunk = format!("3\r\n{piece}\r\n");
        assert_eq!(client.read_exact(chunk.len()).expect("the same back"), chunk.as_bytes());
    }
}

#[test]
fn a_client_that_breaks_off_ends_the_wait_for_its_backend() {
    let gone = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&gone);
    let backend = Backend::start(move |exchange| {
        assert_eq!(exchange.read_some(), b"", "the gateway has nothing to say but that it leaves");
        seen.fetch_add(1, Ordering::SeqCst);
        Next::Close
    });
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let mut client = Client::connect(gateway.addr());
    client.write("GET /slow HTTP/1.1\r\nhost: test\r\n\r\n");
    backend.wait_for(1);
    client.reset();
    eventually("the backend's connection to end", || (gone.load(Ordering::SeqCst) == 1).then_some(()));
    assert_eq!(gateway.access_log(1)[0]["status"], 499);
}

#[test]
fn an_old_client_learns_by_a_reset_that_its_answer_is_not_whole() {
    let backend = Backend::start(|exchange| {
        exchange.write("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nsome\r\n");
        exchange.wait_at_gate();
        Next::Reset
    });
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let mut client = Client::connect(gateway.addr());
    client.write("GET / HTTP/1.0\r\nhost: test\r\n\r\n");
    client.read_head().expect("a head");
    assert_eq!(client.read_exact(4).expect("what came before"), b"some");
    backend.open_gate();
    match client.read_exact(1) {
        Err(Fault::Cut(why)) => {
            assert!(why.contains("reset"), "the end looks like the end of the body: {why}")
        }
        other => panic!("expected a reset, got {other:?}"),
    }
}
