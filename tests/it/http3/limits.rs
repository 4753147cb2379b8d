//! Limits of requests and of connections, over HTTP/3.

use super::Http3Gateway;
use crate::harness::{Backend, Body, Http2, Http3, Next, eventually, everything_to, h2_get, h3_get};

const LIMITED: &str = "limits = [\"few\"]\n\
    [limits.few]\nalgorithm = \"fixed-window\"\nkey = \"ip\"\nrate = \"25/day\"\nalign = \"first-request\"\n";
const ADMIN: &str = "[admin]\nlisten = \"127.0.0.1:0\"\n";

fn gated() -> Backend {
    Backend::start(|exchange| {
        exchange.read_body();
        exchange.wait_at_gate();
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        Next::KeepAlive
    })
}

#[test]
fn each_stream_is_charged() {
    let backend = Backend::ok();
    let http3 = Http3Gateway::start(&everything_to(&backend, LIMITED));
    let clients: Vec<_> = (0..4).map(|_| http3.connect()).collect();
    let answers: Vec<_> = std::thread::scope(|scope| {
        let hundred = |client: &Http3| client.all((0..100).map(|_| (h3_get("/"), Body::default())));
        let all: Vec<_> = clients.iter().map(|client| scope.spawn(move || hundred(client))).collect();
        all.into_iter().flat_map(|client| client.join().expect("no panic")).collect()
    });
    let answers: Vec<_> = answers.into_iter().map(|answer| answer.expect("an answer")).collect();
    let count = |status| answers.iter().filter(|answer| answer.status == status).count();
    assert_eq!((count(200), count(429), backend.count()), (25, 375, 25));
    for refused in answers.iter().filter(|answer| answer.status == 429) {
        let wait: u32 = refused.header("retry-after").expect("a wait").parse().expect("seconds");
        // A second more, rounded up, for one that came a moment before the request that opened the window.
        assert!((1..=86401).contains(&wait), "{wait}");
        assert_eq!(refused.header("ratelimit-policy"), Some("\"few\";q=25;w=86400"));
        assert!(refused.header("ratelimit").expect("a field").starts_with("\"few\";r=0;t="));
        assert_eq!(refused.header("content-type"), Some("application/problem+json"));
        assert_eq!(refused.header("content-length"), Some(&*refused.body.len().to_string()));
    }
    // A client is the same over any version.
    let tls = http3.authority.client_offering(&["h2"]);
    let http2 = Http2::connect_tls(http3.gateway.addr(), &tls, "a.test");
    http2.exchange(h2_get("/"), Body::default()).expect("an answer").expect(429);
}

#[test]
fn too_many_refusals_ban_the_client() {
    let backend = Backend::ok();
    let limited = LIMITED.replace("25/day", "25/min");
    let ban = format!("{limited}ban = {{ after = 3, within = \"10min\", for = \"1h\" }}\n{ADMIN}");
    let http3 = Http3Gateway::start(&everything_to(&backend, &ban));
    let client = http3.connect();
    (0..25).for_each(|_| drop(client.get("/").expect(200)));
    (0..4).for_each(|_| drop(client.get("/").expect(429)));
    let answer = http3.connect().get("/").expect(429);
    let wait: u32 = answer.header("retry-after").expect("a wait").parse().expect("seconds");
    assert!((3590..=3600).contains(&wait), "{wait}");
    let banned = http3.gateway.metric("tollgate_decisions_total", &["decision=\"banned\""]);
    assert!(banned > 1.5, "{banned}");
}

#[test]
fn a_client_has_no_more_connections_than_it_may() {
    let backend = Backend::ok();
    let http3 = Http3Gateway::start_with("max_connections_per_client = 2", &everything_to(&backend, ADMIN));
    let mut open: Vec<_> = (0..2).map(|_| http3.try_connect().expect("a connection")).collect();
    open.iter().for_each(|client| drop(client.get("/").expect(200)));
    for _ in 0..3 {
        assert!(http3.try_connect().is_err(), "a third connection");
    }
    open.pop().expect("one").end();
    let client = eventually("its place to be free again", || http3.try_connect().ok());
    client.get("/").expect(200);
    open.iter().for_each(|client| drop(client.get("/").expect(200)));
    let refused = http3.gateway.metric("tollgate_connections_refused_total", &["reason=\"per_client\""]);
    assert!(refused >= 3.0, "{refused}");
}

#[test]
fn exactly_the_allowance_of_connections_is_served() {
    let backend = Backend::ok();
    let limit = "[limits.connections]\nalgorithm = \"fixed-window\"\nkey = \"ip\"\nrate = \"5/day\"\n";
    let config = everything_to(&backend, &format!("{ADMIN}{limit}"));
    let http3 = Http3Gateway::start_with("connection_limits = [\"connections\"]", &config);
    let connected: Vec<_> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..12).map(|_| scope.spawn(|| http3.try_connect())).collect();
        all.into_iter().map(|client| client.join().expect("no panic")).collect()
    });
    let served: Vec<_> = connected.into_iter().flatten().collect();
    assert_eq!(served.len(), 5);
    for client in &served {
        (0..3).for_each(|_| drop(client.get("/").expect(200)));
    }
    let refused = http3.gateway.metric("tollgate_connections_refused_total", &["reason=\"limit\""]);
    assert!((refused - 7.0).abs() < 0.5, "each connection counts once: {refused}");
}

#[test]
fn where_connections_are_scarce_an_idle_one_makes_room() {
    let backend = gated();
    let server = "max_connections = 1\nworkers = 1";
    let http3 = Http3Gateway::start_with(server, &everything_to(&backend, ""));
    let busy = http3.connect();
    let (mut upload, download) = busy.begin(h3_get("/"));
    busy.end_body(&mut upload).expect("the stream is open");
    backend.wait_for(1);
    assert!(http3.try_connect().is_err(), "a connection more than there may be");
    backend.open_gate();
    busy.finish(download).expect("an answer").expect(200);
    let other = eventually("room", || http3.try_connect().ok());
    other.get("/").expect(200);
    assert_eq!(busy.quic().close_code(), super::codes::NO_ERROR);
}
