//! What the backend has sent reaches the client while the backend pauses.

use serde_json::{Value, json};

use super::{CODINGS, compressing};
use crate::harness::{Backend, Client, Gateway, Http2, Next, content_coding, eventually, h2_get};

/// Sends an event, waits until the gate opens, and sends another one.
fn events(media_type: &'static str) -> Backend {
    Backend::start(move |exchange| {
        exchange.write(format!(
            "HTTP/1.1 200 OK\r\ncontent-type: {media_type}\r\ntransfer-encoding: chunked\r\n\r\n"
        ));
        exchange.write("d\r\ndata: first\n\n\r\n");
        exchange.wait_at_gate();
        exchange.write("e\r\ndata: second\n\n\r\n0\r\n\r\n");
        Next::KeepAlive
    })
}

/// Reads chunks until these bytes can be decoded.
fn read_until(client: &mut Client, coding: &str, expected: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    eventually("the first event", || {
        assert!(client.read_chunk(&mut body).expect("a chunk"));
        (content_coding::decoded(coding, &body).0 == expected).then_some(())
    });
    body
}

#[test]
fn an_event_does_not_wait_for_the_next_one() {
    // An event stream is flushed at each pause, other text a moment later.
    for media_type in ["text/event-stream", "text/plain"] {
        for coding in CODINGS {
            let backend = events(media_type);
            let types = format!("{{ types = [\"{media_type}\"] }}");
            let gateway = Gateway::start(&compressing(&backend, &types, ""));
            let mut client = Client::connect(gateway.addr());
            client.write(format!("GET / HTTP/1.1\r\nhost: test\r\naccept-encoding: {coding}\r\n\r\n"));
            let head = client.read_head().expect("a head");
            assert_eq!(head.header("content-encoding"), Some(coding));
            let mut body = read_until(&mut client, coding, b"data: first\n\n");
            backend.open_gate();
            while client.read_chunk(&mut body).expect("a chunk") {}
            assert_eq!(content_coding::whole(coding, &body), b"data: first\n\ndata: second\n\n");
        }
    }
}

#[test]
fn a_cost_is_read_from_the_body_before_it_is_compressed() {
    let backend = Backend::start(|exchange| {
        let body = format!("{{\"usage\": 7, \"text\": \"{}\"}}", "a".repeat(5_000));
        exchange.write(format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        ));
        Next::KeepAlive
    });
    let limited = "limits = [\"tokens\"]\ncost = { reserve = 1, settle = \"json:/usage\" }\n\
        [limits.tokens]\nalgorithm = \"fixed-window\"\nkey = \"global\"\nrate = \"100/day\"\nalign = \"first-request\"\n";
    let gateway = Gateway::start(&compressing(&backend, "true", limited));
    let mut client = Client::connect(gateway.addr());
    for (turn, coding) in CODINGS.into_iter().enumerate() {
        client.get("/", &format!("accept-encoding: {coding}\r\n")).expect(200);
        let line = &gateway.access_log(turn + 1)[turn];
        assert_eq!((&line["settled"], &line["settlement"]), (&7.into(), &"measured".into()), "{line}");
    }
}

#[test]
fn the_metrics_tell_bytes_before_and_after() {
    let backend = Backend::start(|exchange| {
        let body = "abc ".repeat(2_500);
        exchange.write(format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 10000\r\n\r\n{body}"
        ));
        Next::KeepAlive
    });
    let gateway = Gateway::start(&compressing(&backend, "true", ""));
    let mut client = Client::connect(gateway.addr());
    let mut sent = 0;
    for coding in ["gzip", "zstd", "identity"] {
        let answer = client.get("/", &format!("accept-encoding: {coding}\r\n")).expect(200);
        if coding != "identity" {
            sent += answer.body.len();
        }
    }
    let route = &["route=\"all\""];
    let read = |name: &str| gateway.metric(name, route);
    eventually("the last request is counted", || (read("tollgate_requests_total") == 3.0).then_some(()));
    assert_eq!(read("tollgate_compression_input_bytes_total"), 20_000.0);
    let output = read("tollgate_compression_output_bytes_total");
    assert!(output < 1_000.0 && output <= sent as f64, "{output} of {sent} bytes");
}

/// The line of the access log of a client that reads these events, compressed, and leaves.
fn left_after(events: &'static str, coding: &'static str, is_http2: bool) -> Value {
    let backend = Backend::start(move |exchange| {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        exchange.write(format!("{head}{:x}\r\n{events}\r\n", events.len()));
        exchange.wait_at_gate();
        // The gateway notices that the client has left when it writes.
        while exchange.write("8\r\n: late\n\n\r\n") {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        Next::Close
    });
    let limited = "limits = [\"tokens\"]\ncost = { reserve = 1, settle = \"sse:/n\" }\n\
        [limits.tokens]\nalgorithm = \"fixed-window\"\nkey = \"global\"\nrate = \"100/day\"\nalign = \"first-request\"\n";
    let types = "{ types = [\"text/event-stream\"] }";
    let gateway = Gateway::start(&compressing(&backend, types, limited));
    if is_http2 {
        let client = Http2::connect(gateway.addr());
        let mut request = h2_get("/");
        request.headers_mut().insert("accept-encoding", http::HeaderValue::from_static(coding));
        let (mut upload, answer) = client.begin(request);
        upload.send_data(bytes::Bytes::new(), true).expect("the stream is open");
        client.read_until(answer, |body| content_coding::decoded(coding, body).0 == events.as_bytes());
        drop((upload, client));
    } else {
        let mut client = Client::connect(gateway.addr());
        client.write(format!("GET / HTTP/1.1\r\nhost: test\r\naccept-encoding: {coding}\r\n\r\n"));
        assert_eq!(client.read_head().expect("a head").header("content-encoding"), Some(coding));
        read_until(&mut client, coding, events.as_bytes());
        client.reset();
    }
    backend.open_gate();
    gateway.access_log(1).remove(0)
}

/// Bytes of the body before compression are compared with the end of the terminal event.
#[test]
fn a_client_that_leaves_after_the_terminal_event_has_not_failed() {
    for is_http2 in [false, true] {
        for coding in CODINGS {
            let line = left_after("data: {\"n\": 7}\n\ndata: [DONE]\n\n", coding, is_http2);
            assert_eq!((&line["error"], &line["settled"]), (&json!(null), &json!(7)), "{coding}: {line}");
            assert_ne!(line["bytes_out"], json!(0), "{coding}: {line}");
            let line = left_after("data: {\"n\": 7}\n\n", coding, is_http2);
            assert_eq!(line["error"], json!("client_gone"), "{coding}: {line}");
        }
    }
}
