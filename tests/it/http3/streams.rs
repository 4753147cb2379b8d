//! Streams of HTTP/3 that end early, stall or are reset: what becomes of them, of their backends and of other streams.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use quinn::{TransportConfig, VarInt};

use super::{Http3Gateway, codes, pattern};
use crate::harness::in_flight::{comes_to_hold, limited};
use crate::harness::quic_client::{H3_DATA, h3_frame, h3_head};
use crate::harness::{
    Backend, Body, HoldingBackend, Http3, Http3Lost, Next, QuicClient, QuicEnd, eventually, everything_to,
    h3_get, h3_request,
};

fn request(method: &str, path: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    let pseudo = [(":method", method), (":scheme", "https"), (":path", path), (":authority", "a.test")];
    h3_head(&[&pseudo, fields].concat())
}

/// A client whose streams have this window.
fn narrow(http3: &Http3Gateway, window: u32) -> QuicClient {
    let mut transport = TransportConfig::default();
    transport.stream_receive_window(VarInt::from_u32(window));
    let connected =
        QuicClient::connect_by(http3.gateway.addr(), &http3.tls(), transport, |connecting| connecting);
    connected.expect("a connection")
}

#[test]
fn a_cancelled_request_ends_at_the_backend() {
    let ended = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&ended);
    let backend = Backend::start(move |exchange| {
        exchange.hang();
        count.fetch_add(1, Ordering::SeqCst);
        Next::Close
    });
    let has_ended = |expected| {
        let count = || (ended.load(Ordering::SeqCst) == expected).then_some(());
        eventually("the backend's connections to close", count);
    };
    let http3 = Http3Gateway::start(&everything_to(&backend, ""));
    let client = http3.quic();
    let cancelled = VarInt::from_u32(0x10c);
    // The response is not wanted; the request is reset in its body; both.
    let mut unwanted = client.send(&request("GET", "/stop", &[]));
    backend.wait_for(1);
    unwanted.receiving.stop(cancelled).expect("it is open");
    has_ended(1);
    let part = [request("POST", "/reset", &[]), h3_frame(H3_DATA, b"part")].concat();
    let mut reset = client.open(&part);
    backend.wait_for(2);
    reset.sending.reset(cancelled).expect("it is open");
    has_ended(2);
    let mut both = client.open(&part);
    backend.wait_for(3);
    both.sending.reset(cancelled).expect("it is open");
    both.receiving.stop(cancelled).expect("it is open");
    has_ended(3);
    let _lost = client.send(&request("GET", "/lost", &[]));
    backend.wait_for(4);
    client.close();
    has_ended(4);
    for record in http3.gateway.access_log(4) {
        assert_eq!(
            (record["status"].as_u64(), record["error"].as_str()),
            (Some(499), Some("client_gone")),
            "{record}"
        );
    }
}

#[test]
fn a_cancelled_request_frees_its_place() {
    let backend = HoldingBackend::start();
    let http3 = Http3Gateway::start(&limited(&backend, "max = 2", "", ""));
    let client = http3.quic();
    for number in 0..6 {
        let mut stream = client.send(&request("GET", &format!("/{number}"), &[("x-client", "a")]));
        backend.holds(1);
        comes_to_hold(&http3.gateway, 1);
        stream.receiving.stop(VarInt::from_u32(0x10c)).expect("it is open");
        comes_to_hold(&http3.gateway, 0);
    }
    let mut stream = client.send(&request("GET", "/stream", &[("x-client", "a")]));
    client.block_on(stream.receiving.read(&mut [0; 1])).expect("a response begins");
    comes_to_hold(&http3.gateway, 1);
    client.close();
    comes_to_hold(&http3.gateway, 0);
    eventually("the exchanges to end", || (backend.broken_off() == 7).then_some(()));
    let held = Http3Gateway::start(&limited(&backend, "max = 3", "", ""));
    let client = held.connect();
    let ask = |number: usize| h3_request("GET", &format!("/{number}"), &[("x-client", "a")]);
    std::thread::scope(|scope| {
        let streams = scope.spawn(|| client.all((0..30).map(|number| (ask(number), Body::default()))));
        backend.holds(3);
        let refused = || held.gateway.metric("tollgate_decisions_total", &["decision=\"limited\""]);
        eventually("27 refusals", || (refused() > 26.5).then_some(()));
        backend.open();
        let answers = streams.join().expect("no panic");
        let served = answers.iter().filter(|answer| answer.as_ref().is_ok_and(|it| it.status == 200)).count();
        assert_eq!(served, 3);
    });
    comes_to_hold(&held.gateway, 0);
}

#[test]
fn a_head_has_its_time() {
    let backend = Backend::ok();
    let http3 = Http3Gateway::start_with("header_timeout = \"1s\"", &everything_to(&backend, ""));
    let client = http3.quic();
    let part = client.open(&request("GET", "/", &[])[..10]);
    let skipped = client.open(&h3_frame(0x21, b"grease"));
    assert_eq!(client.fate(&request("GET", "/", &[])), QuicEnd::Answered(200));
    assert_eq!(client.end_of(part), QuicEnd::Answered(408));
    assert_eq!(client.end_of(skipped), QuicEnd::Answered(408));
    assert_eq!(client.fate(&request("GET", "/", &[])), QuicEnd::Answered(200));
    assert_eq!(backend.count(), 2);
}

#[test]
fn a_stalled_upload_ends_alone() {
    let backend = Backend::start(|exchange| {
        exchange.read_body();
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        Next::KeepAlive
    });
    let http3 = Http3Gateway::start_with("body_timeout = \"1s\"", &everything_to(&backend, ""));
    let client = http3.connect();
    let (mut upload, download) = client.begin(h3_request("POST", "/stalled", &[]));
    client.send(&mut upload, b"part").expect("the stream is open");
    client.get("/").expect(200);
    client.finish(download).expect("an answer").expect(408);
    client.get("/").expect(200);
    let log = http3.gateway.access_log(3);
    assert!(log.iter().any(|record| record["error"] == "body_timeout"), "{log:#?}");
}

/// Nothing but frames of unknown types is no progress of a body.
#[test]
fn an_upload_of_unknown_frames_is_stalled() {
    let backend = Backend::ok();
    let http3 = Http3Gateway::start_with(
        "body_timeout = \"1s\"",
        &everything_to(&backend, "max_body_bytes = \"1KiB\""),
    );
    let client = http3.quic();
    let mut stream = client.open(&request("POST", "/", &[("content-length", "3")]));
    let (mut sending, receiving) = (stream.sending, &mut stream.receiving);
    let uploading = client.spawn(async move {
        while sending.write_all(&h3_frame(0x21, &[0; 100])).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let mut begin = [0; 8];
    client.block_on(receiving.read_exact(&mut begin)).expect("a response");
    client.block_on(uploading).expect("the gateway stops the upload");
}

#[test]
fn a_client_that_reads_nothing_is_cut() {
    let backend = Backend::start(|exchange| {
        let length: usize = exchange.target()[1..].parse().expect("a length");
        exchange.write(format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n"));
        exchange.write(vec![b'x'; length]);
        Next::KeepAlive
    });
    let http3 = Http3Gateway::start_with("write_timeout = \"1s\"", &everything_to(&backend, ""));
    let client = narrow(&http3, 4_000);
    // More than the gateway holds for a stream, and less.
    for length in [1_000_000, 20_000] {
        let stream = client.send(&request("GET", &format!("/{length}"), &[]));
        let mut receiving = stream.receiving;
        let code = client.block_on(receiving.received_reset()).expect("the connection is open");
        assert_eq!(code.map(u64::from), Some(codes::REQUEST_CANCELLED), "{length}");
    }
    assert_eq!(client.fate(&request("GET", "/3", &[])), QuicEnd::Answered(200));
    let log = http3.gateway.access_log(3);
    let large = log.iter().find(|record| record["path"] == "/1000000").expect("a record");
    assert_eq!(
        (large["error"].as_str(), large["status"].as_u64()),
        (Some("write_timeout"), Some(200)),
        "{large}"
    );
}

/// What a client's window holds back is sent as it opens, whether the backend goes on or not.
#[test]
fn a_window_that_opens_in_time_loses_nothing() {
    let backend = Backend::start(|exchange| {
        exchange.write("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
        exchange.write(format!("{:x}\r\n", 20_000));
        exchange.write(pattern(20_000));
        exchange.write("\r\n");
        exchange.wait_at_gate();
        exchange.write("0\r\n\r\n");
        Next::KeepAlive
    });
    let http3 = Http3Gateway::start(&everything_to(&backend, ""));
    let client = narrow(&http3, 4_000);
    let mut stream = client.send(&request("GET", "/", &[]));
    backend.wait_for(1);
    let mut received = vec![0; 20_000];
    client.block_on(stream.receiving.read_exact(&mut received)).expect("the first part, before the rest");
    backend.open_gate();
    assert_eq!(client.block_on(stream.receiving.read_to_end(10_000)).map(|_| ()), Ok(()));
}

/// Its last bytes take longer than `write_timeout` in all, and no part of them does.
#[test]
fn a_slow_reader_gets_everything() {
    let backend = Backend::start(|exchange| {
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 60000\r\n\r\n");
        exchange.write(pattern(60_000));
        Next::KeepAlive
    });
    let http3 = Http3Gateway::start_with("write_timeout = \"1s\"", &everything_to(&backend, ""));
    let client = narrow(&http3, 4_000);
    let mut stream = client.send(&request("GET", "/", &[]));
    let mut received = Vec::new();
    while let Some(chunk) = client.block_on(stream.receiving.read_chunk(1_000, true)).expect("it goes on") {
        received.extend_from_slice(&chunk.bytes);
        std::thread::sleep(Duration::from_millis(60));
    }
    assert!(received.len() > 60_000, "{}", received.len());
}

/// CVE-2023-44487 and CVE-2019-9514, over QUIC.
#[test]
fn a_flood_of_resets_closes_the_connection_and_others_are_served() {
    let backend = Backend::start(|exchange| {
        if exchange.target() == "/slow" {
            exchange.hang();
            return Next::Close;
        }
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        Next::KeepAlive
    });
    let http3 = Http3Gateway::start(&everything_to(&backend, ""));
    for with_head in [true, false] {
        let attacker = http3.quic();
        let connection = attacker.connection().clone();
        let head = request("GET", "/slow", &[]);
        let attacking = attacker.spawn(async move {
            let code = VarInt::from_u32(0x10c);
            while let Ok((mut sending, mut receiving)) = connection.open_bi().await {
                if with_head && sending.write_all(&head).await.is_err() {
                    break;
                }
                // The other side learns of a stream by its reset, too.
                sending.reset(code).ok();
                receiving.stop(code).ok();
            }
        });
        let others = http3.connect();
        while !attacking.is_finished() {
            others.get("/").expect(200);
        }
        assert_eq!(attacker.close_code(), codes::EXCESSIVE_LOAD, "with heads: {with_head}");
    }
    http3.connect().get("/").expect(200);
}

/// As many as a busy browser cancels.
#[test]
fn a_client_that_cancels_now_and_then_is_served() {
    let backend = Backend::ok();
    let http3 = Http3Gateway::start(&everything_to(&backend, ""));
    let client = http3.quic();
    for _ in 0..300 {
        let mut stream = client.send(&request("GET", "/", &[]));
        stream.receiving.stop(VarInt::from_u32(0x10c)).ok();
    }
    assert_eq!(client.fate(&request("GET", "/", &[])), QuicEnd::Answered(200));
}

#[test]
fn a_reset_in_the_middle_of_an_answer_is_logged() {
    let backend = Backend::start(|exchange| {
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf");
        exchange.hang();
        Next::Close
    });
    let http3 = Http3Gateway::start(&everything_to(&backend, ""));
    let client = http3.connect();
    let (_upload, mut download) = client.begin(h3_get("/"));
    assert_eq!(client.status(&mut download), Ok(200));
    drop(download);
    let record = http3.gateway.access_log(1).remove(0);
    assert_eq!(
        (record["status"].as_u64(), record["error"].as_str()),
        (Some(200), Some("client_gone")),
        "{record}"
    );
}

/// A backend that is cut in the middle of a request's body, and one that there is none.
#[test]
fn a_backend_that_fails_is_answered_for() {
    let backend = Backend::start(|exchange| {
        exchange.read_some();
        Next::Reset
    });
    let http3 = Http3Gateway::start(&everything_to(&backend, ""));
    let client: Http3 = http3.connect();
    let answer = client.exchange(h3_request("POST", "/", &[]), &*pattern(1_000_000));
    match answer {
        Ok(answer) => assert_eq!(answer.status, 502),
        Err(lost) => assert_ne!(lost, Http3Lost::Leaving),
    }
    drop(backend);
    assert_eq!(client.get("/").status, 502);
}
