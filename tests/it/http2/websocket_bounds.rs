//! What a WebSocket over HTTP/2 may take: units and places of limits, time, and memory.

use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::client::Builder;
use h2::{Reason, RecvStream};
use http::Request;
use rustix::process::Signal;

use crate::harness::servers::over_http2;
use crate::harness::websocket::{accept, accept_stream, echo_stream, echoing};
use crate::harness::{
    Backend, Exchange, Gateway, Http2, Http2Backend, Next, WebSocket, eventually, everything_to, send_all,
    websocket_at,
};

const MIB: usize = 1 << 20;

/// A backend of HTTP/2 that sends back what comes.
fn echoing_http2() -> Http2Backend {
    let mut settings = h2::server::Builder::new();
    settings.enable_connect_protocol();
    Http2Backend::start(settings, |request: Request<RecvStream>, mut respond| async move {
        let sending = accept_stream(&request, &mut respond);
        echo_stream(request.into_body(), sending).await;
    })
}

#[test]
fn a_handshake_is_charged_like_any_request() {
    let backend = echoing();
    let gateway = Gateway::start(&everything_to(
        &backend,
        "limits = [\"two\"]
        [limits.two]
        algorithm = \"gcra\"
        key = \"ip\"
        rate = \"1/h\"
        burst = 2",
    ));
    let client = Http2::connect(gateway.addr());
    let mut socket = WebSocket::open(&client, "/");
    WebSocket::open(&client, "/");
    let refused = WebSocket::ask(&client, websocket_at("/")).expect_err("it is refused").expect(429);
    assert!(refused.header("retry-after").is_some() && !refused.body.is_empty());
    client.get("/").expect(429);
    socket.write("still open");
    assert_eq!(socket.read_exact(10), b"still open");
    let record = &gateway.access_log(4)[2];
    assert_eq!((&record["method"], &record["limit"]), (&"GET".into(), &"two".into()));
}

#[test]
fn a_place_is_held_until_the_stream_ends() {
    let (backend, backend_http2) = (echoing(), echoing_http2());
    let limit = "limits = [\"open\"]\n[limits.open]\nalgorithm = \"concurrency\"\nkey = \"ip\"\nmax = 2\n[admin]\nlisten = \"127.0.0.1:0\"\n";
    let over_http2 = over_http2(&[&backend_http2.url()], "", limit);
    let over_http2 = over_http2.trim_end().trim_end_matches("[admin]\nlisten = \"127.0.0.1:0\"").to_owned();
    for config in [everything_to(&backend, limit), over_http2] {
        let gateway = Gateway::start(&config);
        let held = |count: f64| {
            eventually("the places", || {
                (gateway.metric("tollgate_concurrency_held", &["limit=\"open\""]) == count).then_some(())
            });
        };
        let client = Http2::connect(gateway.addr());
        let (mut one, other) = (WebSocket::open(&client, "/"), WebSocket::open(&client, "/"));
        held(2.0);
        WebSocket::ask(&client, websocket_at("/")).expect_err("it is refused").expect(429);
        // A reset gives the place back, so does an end of both sides, and the end of the connection.
        other.reset();
        held(1.0);
        one.end();
        assert_eq!(one.read_to_end().expect("a good end"), b"");
        held(0.0);
        let left = Http2::connect(gateway.addr());
        let sockets = [WebSocket::open(&left, "/"), WebSocket::open(&left, "/")];
        held(2.0);
        let statuses = sockets.map(|socket| socket.head.status);
        assert_eq!(statuses, [200; 2]);
        drop(left);
        held(0.0);
    }
}

#[test]
fn a_silent_stream_is_reset_and_a_busy_one_is_not() {
    let (backend, backend_http2) = (echoing(), echoing_http2());
    let configs = [
        everything_to(&backend, "tunnel_timeout = \"2s\""),
        over_http2(&[&backend_http2.url()], "", "tunnel_timeout = \"2s\""),
    ];
    for config in configs {
        let gateway = Gateway::start(&config);
        let client = Http2::connect(gateway.addr());
        let mut socket = WebSocket::open(&client, "/");
        // Longer in all than the time-out, but never silent for so long.
        for _ in 0..6 {
            std::thread::sleep(Duration::from_millis(500));
            socket.write("x");
            assert_eq!(socket.read_exact(1), b"x");
        }
        let ended = socket.read_to_end().map_err(|error| error.reason());
        assert_eq!(ended, Err(Some(Reason::CANCEL)));
    }
}

/// The client's window stays closed, although it goes on to send.
#[test]
fn a_client_that_reads_nothing_is_not_served_for_ever() {
    let backend = Backend::start(|exchange| {
        accept(exchange, "");
        exchange.write(vec![0; 10 * MIB]);
        while !exchange.read_some().is_empty() {}
        Next::Close
    });
    let gateway = Gateway::start(&everything_to(&backend, "tunnel_timeout = \"2s\""));
    let client = Http2::connect(gateway.addr());
    let mut socket = WebSocket::open(&client, "/");
    let begun = Instant::now();
    while socket.try_write("x").is_ok() {
        assert!(begun.elapsed() < crate::harness::TIMEOUT, "it goes on for ever");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn the_longest_time_of_an_exchange_ends_it() {
    let backend = Backend::start(|exchange| {
        accept(exchange, "");
        while exchange.write("tick") {
            std::thread::sleep(Duration::from_millis(100));
        }
        Next::Close
    });
    let gateway = Gateway::start(&everything_to(&backend, "max_duration = \"1s\""));
    let client = Http2::connect(gateway.addr());
    let mut socket = WebSocket::open(&client, "/");
    let ended = socket.read_to_end().map_err(|error| error.reason());
    assert_eq!(ended, Err(Some(Reason::CANCEL)));
    drop(client);
}

#[test]
fn a_drain_leaves_open_streams_the_time_that_they_have() {
    let backend = echoing();
    let config = everything_to(&backend, "[server]\ndrain_timeout = \"3s\"\n");
    let mut gateway = Gateway::start(&config);
    let client = Http2::connect(gateway.addr());
    let mut short = WebSocket::open(&client, "/");
    let mut long = WebSocket::open(&client, "/");
    gateway.signal(Signal::TERM);
    assert!(client.is_told_to_leave());
    short.write("after");
    assert_eq!(short.read_exact(5), b"after");
    short.end();
    assert_eq!(short.read_to_end().expect("a good end"), b"");
    long.write("x");
    assert_eq!(long.read_exact(1), b"x");
    long.read_to_end().expect_err("it is cut when the time is over");
    gateway.wait_for_exit();
}

#[test]
fn a_client_that_leaves_before_the_answer_is_noticed() {
    let backend = Backend::start(|exchange| {
        exchange.wait_at_gate();
        accept(exchange, "");
        Next::Close
    });
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let client = Http2::connect(gateway.addr());
    client.wait_for_connect_protocol();
    let (mut sending, answer) = client.begin(websocket_at("/"));
    backend.wait_for(1);
    sending.send_reset(Reason::CANCEL);
    drop((sending, answer));
    assert_eq!(gateway.access_log(1)[0]["status"], 499);
    backend.open_gate();
}

/// Sends as much as it is asked for, and then reads as much.
fn sending_and_reading(exchange: &mut Exchange<'_>) -> Next {
    accept(exchange, "");
    let size: usize = exchange.target()[1..].parse().expect("a size");
    for _ in 0..size / MIB {
        exchange.write(vec![7; MIB]);
    }
    let mut received = 0;
    while received < size {
        match exchange.read_some().len() {
            0 => return Next::Close,
            count => received += count,
        }
        // A slow reader.
        if received % 7 == 0 {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    exchange.write("all");
    Next::Close
}

#[test]
fn much_passes_both_ways_with_little_memory() {
    const SIZE: usize = 64 * MIB;
    let backend = Backend::start(sending_and_reading);
    let mut settings = h2::server::Builder::new();
    settings.enable_connect_protocol();
    let backend_http2 =
        Http2Backend::start(settings, |request: Request<RecvStream>, mut respond| async move {
            let size: usize = request.uri().path()[1..].parse().expect("a size");
            let mut sending = accept_stream(&request, &mut respond);
            send_all(&mut sending, Bytes::from(vec![7; size]), false).await;
            let (mut receiving, mut received) = (request.into_body(), 0);
            while let Some(Ok(data)) = receiving.data().await {
                received += data.len();
                receiving.flow_control().release_capacity(data.len()).ok();
                if received == size {
                    break;
                }
            }
            send_all(&mut sending, Bytes::from_static(b"all"), true).await;
        });
    for config in [everything_to(&backend, ""), over_http2(&[&backend_http2.url()], "", "")] {
        let gateway = Gateway::start(&format!("[server]\nworkers = 1\n{config}"));
        let client = Http2::connect(gateway.addr());
        client.wait_for_connect_protocol();
        let before = gateway.anonymous_kib();
        let mut socket = WebSocket::open(&client, &format!("/{SIZE}"));
        let mut most = 0;
        for round in 0..64 {
            // The first ones are left lying.
            if round < 4 {
                std::thread::sleep(Duration::from_millis(50));
            }
            assert!(socket.read_exact(MIB).iter().all(|byte| *byte == 7));
            most = most.max(gateway.anonymous_kib());
        }
        for _ in 0..64 {
            socket.write(vec![8; MIB]);
            most = most.max(gateway.anonymous_kib());
        }
        assert_eq!(socket.read_exact(3), b"all");
        let grown = most.saturating_sub(before);
        assert!(grown < 8 << 10, "{grown} KiB");
    }
}

/// An open WebSocket that waits holds a stream, a task and a connection to the backend, and no buffers.
#[test]
fn those_that_wait_hold_little() {
    const COUNT: usize = 2_000;
    let backend = echoing();
    let config = everything_to(&backend, "[server]\nworkers = 1\n");
    let gateway = Gateway::start(&config);
    let mut settings = Builder::new();
    settings.initial_max_send_streams(100);
    let clients: Vec<_> = (0..COUNT / 100).map(|_| Http2::connect_with(gateway.addr(), &settings)).collect();
    clients.iter().for_each(Http2::wait_for_connect_protocol);
    let before = gateway.anonymous_kib();
    let mut sockets = Vec::new();
    for client in &clients {
        for _ in 0..100 {
            let mut socket = WebSocket::open(client, "/");
            // A buffer was needed for that.
            socket.write(vec![1; 10_000]);
            assert_eq!(socket.read_exact(10_000).len(), 10_000);
            sockets.push(socket);
        }
    }
    let each = gateway.anonymous_kib().saturating_sub(before) * 1024 / COUNT as u64;
    assert!(each < 6 << 10, "{each} bytes each");
}
