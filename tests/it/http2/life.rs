//! How long connections of HTTP/2 and their streams live.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::Request;
use rustix::process::Signal;

use crate::harness::frames::{
    DATA, END_HEADERS, Fate, Frames, GOAWAY, HEADERS, PREFACE, RST_STREAM, SETTINGS, block, frame, get,
};
use crate::harness::{
    Backend, Body, Client, Gateway, Http2, Next, eventually, everything_to, h2_get, h2_reason,
};

/// RFC 9113 §7.
const NO_ERROR: u32 = 0;
const PROTOCOL_ERROR: u32 = 1;
const CANCEL: u32 = 8;

/// Answers once the test opens the gate.
fn gated() -> Backend {
    Backend::start(|exchange| {
        exchange.wait_at_gate();
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        Next::KeepAlive
    })
}

fn post() -> Vec<u8> {
    block(&[(":method", "POST"), (":scheme", "http"), (":path", "/"), (":authority", "test")])
}

#[test]
fn draining_finishes_open_streams_and_loses_none() {
    let backend = gated();
    let mut gateway = Gateway::start(&everything_to(&backend, ""));
    let client = Http2::connect(gateway.addr());
    let mut idle = Frames::connect(gateway.addr());
    idle.request(1, &get("/nowhere", &[("x", "1")]));
    std::thread::scope(|scope| {
        let streams = scope.spawn(|| client.all((0..20).map(|_| (h2_get("/"), Body::default()))));
        backend.wait_for(21);
        gateway.signal(Signal::TERM);
        assert_eq!(idle.read_until(GOAWAY).payload[4..], [0; 4]);
        backend.open_gate();
        for answer in streams.join().expect("no panic") {
            answer.expect("an answer").expect(200);
        }
    });
    assert_eq!(idle.fate(1), Fate::Answered(200));
    client.end().expect("a good end");
    assert!(gateway.wait_for_exit().success());
}

#[test]
fn a_connection_outlives_reloads() {
    let backend = Backend::ok();
    let config = |rate| {
        let limit = format!(
            "limits = [\"few\"]\n[limits.few]\nalgorithm = \"fixed-window\"\nkey = \"global\"\nrate = \"{rate}/day\"\nalign = \"first-request\"\n"
        );
        everything_to(&backend, &limit)
    };
    let gateway = Gateway::start(&config(1000));
    let client = Http2::connect(gateway.addr());
    client.get("/").expect(200);
    gateway.reload(&config(1), "reload");
    client.get("/").expect(429);
}

#[test]
fn an_idle_connection_ends_in_time() {
    let backend = Backend::ok();
    let gateway =
        Gateway::start(&("[server]\nidle_timeout = \"1s\"\n".to_owned() + &everything_to(&backend, "")));
    let mut silent = Frames::connect(gateway.addr());
    let mut used = Frames::connect(gateway.addr());
    used.request(1, &get("/", &[]));
    assert_eq!(
        (used.fate(1), used.end(), silent.end()),
        (Fate::Answered(200), Some(NO_ERROR), Some(NO_ERROR))
    );
}

#[test]
fn a_connection_carries_ten_thousand_requests() {
    let gateway = Gateway::start(
        "[server]\nmax_requests_per_connection = 10000\n[upstreams]\ne = \"builtin:echo\"\n[[routes]]\nname = \"a\"\npath = \"/a\"\nupstream = \"e\"\n",
    );
    let client = Http2::connect(gateway.addr());
    let mut served = 0;
    for _ in 0..99 {
        let answers = client.all((0..100).map(|_| (h2_get("/"), Body::default())));
        served += answers
            .into_iter()
            .filter(|answer| answer.as_ref().is_ok_and(|answer| answer.status == 404))
            .count();
    }
    assert_eq!(served, 9900);
    let rest = client.all((0..300).map(|_| (h2_get("/"), Body::default())));
    served += rest.into_iter().filter(Result::is_ok).count();
    assert!((10_000..10_200).contains(&served), "{served}");
    assert!(client.is_told_to_leave());
}

#[test]
fn an_idle_connection_makes_room() {
    let backend = gated();
    let config = "[server]\nworkers = 1\nmax_connections = 1\n".to_owned() + &everything_to(&backend, "");
    let gateway = Gateway::start(&config);
    let mut busy = Frames::connect(gateway.addr());
    busy.request(1, &get("/", &[]));
    backend.wait_for(1);
    gateway.get("/").expect(503);
    backend.open_gate();
    assert_eq!(busy.fate(1), Fate::Answered(200));
    eventually("room", || (gateway.get("/").status == 200).then_some(()));
    assert_eq!(busy.end(), Some(NO_ERROR));
}

#[test]
fn a_head_has_its_time() {
    let backend = Backend::ok();
    let gateway =
        Gateway::start(&("[server]\nheader_timeout = \"1s\"\n".to_owned() + &everything_to(&backend, "")));
    let mut half = Client::connect(gateway.addr());
    half.write(&PREFACE[..20]);
    let mut open = Frames::connect(gateway.addr());
    open.send(HEADERS, 0, 1, &get("/", &[]));
    let mut part = Frames::connect(gateway.addr());
    part.client.write(&frame(HEADERS, END_HEADERS, 1, &get("/", &[]))[..30]);
    let mut silent = Client::connect(gateway.addr());
    assert!(silent.closes());
    half.read().expect(408);
    assert_eq!((open.end(), part.end()), (Some(PROTOCOL_ERROR), Some(PROTOCOL_ERROR)));
    assert_eq!(backend.count(), 0);
}

#[test]
fn a_stalled_upload_ends_alone() {
    let backend = Backend::start(|exchange| {
        exchange.read_body();
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        Next::KeepAlive
    });
    let gateway =
        Gateway::start(&("[server]\nbody_timeout = \"1s\"\n".to_owned() + &everything_to(&backend, "")));
    let client = Http2::connect(gateway.addr());
    let stalled = Request::post("http://test/stalled").body(()).expect("a request");
    let (mut body, answer) = client.begin(stalled);
    body.send_data("part".into(), false).expect("sent");
    client.get("/").expect(200);
    client.finish(answer).expect("an answer").expect(408);
    client.get("/").expect(200);
    let log = gateway.access_log(3);
    assert!(log.iter().any(|record| record["error"] == "body_timeout"), "{log:#?}");
}

#[test]
fn a_closed_window_is_waited_for_so_long() {
    let backend = Backend::start(|exchange| {
        let length = if exchange.target() == "/large" { 1_000_000 } else { 0 };
        exchange.write(format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n"));
        exchange.write(vec![b'x'; length]);
        Next::KeepAlive
    });
    let gateway =
        Gateway::start(&("[server]\nwrite_timeout = \"1s\"\n".to_owned() + &everything_to(&backend, "")));
    // SETTINGS_INITIAL_WINDOW_SIZE.
    let mut client = Frames::over(Client::connect(gateway.addr()), &[(4, 0)]);
    client.request(1, &get("/large", &[]));
    assert_eq!(client.fate(1), Fate::Answered(200));
    client.request(3, &get("/", &[]));
    let reset = client.read_until(RST_STREAM);
    assert_eq!((reset.stream, reset.payload), (1, CANCEL.to_be_bytes().to_vec()));
    let log = gateway.access_log(2);
    let large = log.iter().find(|record| record["path"] == "/large").expect("a record");
    assert_eq!(
        (large["error"].as_str(), large["status"].as_u64()),
        (Some("write_timeout"), Some(200)),
        "{large}"
    );
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
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let mut client = Frames::connect(gateway.addr());
    client.request(1, &get("/reset", &[]));
    client.send(HEADERS, END_HEADERS, 3, &post());
    client.send(DATA, 0, 3, b"part");
    backend.wait_for(2);
    client.send(RST_STREAM, 0, 1, &CANCEL.to_be_bytes());
    client.send(RST_STREAM, 0, 3, &CANCEL.to_be_bytes());
    eventually("the backend's connections to close", || (ended.load(Ordering::SeqCst) == 2).then_some(()));
    client.request(5, &get("/lost", &[]));
    backend.wait_for(3);
    drop(client);
    eventually("the backend's connection to close", || (ended.load(Ordering::SeqCst) == 3).then_some(()));
    for record in gateway.access_log(3) {
        assert_eq!(
            (record["status"].as_u64(), record["error"].as_str()),
            (Some(499), Some("client_gone")),
            "{record}"
        );
    }
}

#[test]
fn a_reset_in_the_middle_of_an_answer_is_logged() {
    let backend = Backend::start(|exchange| {
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf");
        exchange.hang();
        Next::Close
    });
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let mut client = Frames::connect(gateway.addr());
    client.request(1, &get("/", &[]));
    assert_eq!(client.fate(1), Fate::Answered(200));
    client.send(RST_STREAM, 0, 1, &CANCEL.to_be_bytes());
    let record = gateway.access_log(1).remove(0);
    assert_eq!(
        (record["status"].as_u64(), record["error"].as_str()),
        (Some(200), Some("client_gone")),
        "{record}"
    );
}

/// Its answer comes only when its window opens again, and whole.
#[test]
fn a_window_that_opens_in_time_loses_nothing() {
    let backend = Backend::start(|exchange| {
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 300000\r\n\r\n");
        exchange.write(vec![b'x'; 300_000]);
        Next::KeepAlive
    });
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let mut client = Frames::over(Client::connect(gateway.addr()), &[(4, 0)]);
    client.request(1, &get("/", &[]));
    assert_eq!(client.fate(1), Fate::Answered(200));
    std::thread::sleep(Duration::from_millis(50));
    client.send(crate::harness::frames::WINDOW_UPDATE, 0, 0, &1_000_000_u32.to_be_bytes());
    client.send(SETTINGS, 0, 0, &[&[0, 4][..], &1_000_000_u32.to_be_bytes()].concat());
    let mut length = 0;
    while length < 300_000 {
        length += client.read_until(DATA).payload.len();
    }
    assert_eq!(length, 300_000);
    let answer = Http2::connect(gateway.addr()).exchange(h2_get("/"), Body::default());
    assert_eq!(h2_reason(answer.map(|answer| assert_eq!(answer.body.len(), 300_000))), None);
}
