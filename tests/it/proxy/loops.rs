//! Requests that come back to the gateway that has passed them on.

use std::net::SocketAddr;

use crate::harness::config::parse;
use crate::harness::{
    Backend, DropProxy, Gateway, Http2, Next, everything_to, free_address, get, get_with, send,
};

/// A gateway at `own` that sends everything to `next`.
fn gateway_at(own: SocketAddr, next: SocketAddr, upstream: &str) -> Gateway {
    Gateway::start(&format!(
        "[server]\nlisten = [\"{own}\"]\nworkers = 2\n[admin]\nlisten = \"127.0.0.1:0\"\n\
         [upstreams.next]\nservers = [\"http://{next}\"]\n{upstream}\n[[routes]]\npath = \"/*\"\nupstream = \"next\"\n"
    ))
}

/// Two gateways that point at each other.
fn circle(upstream: &str) -> [Gateway; 2] {
    let (one, other) = (free_address(), free_address());
    [gateway_at(one, other, upstream), gateway_at(other, one, upstream)]
}

/// The ids that stand in `cdn-loop`.
fn passed(list: &str) -> Vec<&str> {
    list.split(',').map(str::trim).collect()
}

#[test]
fn a_chain_of_gateways_is_no_loop() {
    let backend = Backend::ok();
    let last = Gateway::start(&everything_to(&backend, ""));
    let first = gateway_at(free_address(), last.addr(), "");
    get_with(first.addr(), "/", "cdn-loop: edge.example; v=1\r\nconnection: cdn-loop\r\n").expect(200);
    let seen = backend.only().header("cdn-loop").expect("the field");
    let ids = passed(&seen);
    assert_eq!((ids.len(), ids[0]), (3, "edge.example; v=1"), "{seen}");
    for id in &ids[1..] {
        let digits = id.strip_prefix("tollgate-").expect("our name");
        assert!(digits.len() == 16 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()), "{seen}");
    }
    assert_ne!(ids[1], ids[2]);
    get(first.addr(), "/").expect(200);
    let again = backend.latest().header("cdn-loop").expect("the field");
    assert_eq!(passed(&again), ids[1..], "the id is the process's");
}

#[test]
fn two_gateways_that_point_at_each_other_answer_508() {
    for upstream in ["", "protocol = \"http2\""] {
        let [mut one, mut other] = circle(upstream);
        let answer = get_with(one.addr(), "/round", "connection: cdn-loop\r\n").expect(508);
        assert_eq!(answer.header("content-type"), Some("application/problem+json"));
        assert_eq!(answer.json()["title"], "Loop Detected");
        let looped = |line: &serde_json::Value| line["error"] == "loop" && line["status"] == 508;
        assert_eq!(one.access_log(4).iter().filter(|line| looped(line)).count(), 1);
        one.has_counted("tollgate_requests_total", &[], 4);
        other.has_counted("tollgate_requests_total", &[], 3);
        let client = Http2::connect(one.addr());
        assert_eq!(client.get("/round").status, 508);
        one.has_counted("tollgate_requests_total", &[], 8);
        other.has_counted("tollgate_requests_total", &[], 6);
        assert!(one.alive() && other.alive());
    }
}

#[test]
fn a_loop_through_another_proxy_is_found_before_the_route() {
    let own = free_address();
    let relay = DropProxy::start(own);
    let mut gateway = gateway_at(own, relay.addr(), "");
    get(own, "/").expect(508);
    let lines = gateway.access_log(4);
    assert_eq!(lines.iter().filter(|line| line["error"] == "loop" && line["route"].is_null()).count(), 1);
    assert!(lines.len() == 4 && gateway.alive());
}

#[test]
fn a_cache_between_the_gateway_and_itself_is_no_loop() {
    let backend = Backend::ok();
    let own = free_address();
    let cache = Backend::start(move |exchange| {
        let came = exchange.field("cdn-loop").unwrap_or_default();
        let answer = send(
            own,
            format!("GET /behind HTTP/1.1\r\nhost: test\r\nx-cache: miss\r\ncdn-loop: {came}\r\n\r\n"),
        );
        exchange.write(format!("HTTP/1.1 {} From Behind\r\ncontent-length: 0\r\n\r\n", answer.status));
        Next::KeepAlive
    });
    let _gateway = Gateway::start(&format!(
        "[server]\nlisten = [\"{own}\"]\nworkers = 2\n[upstreams]\ncache = \"{}\"\napi = \"{}\"\n\
         [[routes]]\nname = \"front\"\npath = \"/*\"\nupstream = \"cache\"\n\
         [[routes]]\nname = \"behind\"\npath = \"/*\"\nheaders = {{ x-cache = \"miss\" }}\nupstream = \"api\"\n",
        cache.url(),
        backend.url()
    ));
    get(own, "/").expect(200);
    let seen = backend.only().header("cdn-loop").expect("the field");
    assert_eq!(passed(&seen).len(), 2, "{seen}");
    assert_eq!(passed(&seen)[0], passed(&seen)[1]);
}

#[test]
fn an_upstream_that_is_an_own_listener_is_a_fault() {
    let with = |listen: &str, server: &str| {
        parse(format!(
            "[server]\nlisten = [\"{listen}\"]\n[upstreams]\napi = \"{server}\"\n[[routes]]\npath = \"/*\"\nupstream = \"api\"\n"
        ))
    };
    for (listen, server) in [
        ("127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("127.0.0.1:80", "http://127.0.0.1"),
        ("192.0.2.1:8080", "https://192.0.2.1:8080"),
        ("127.0.0.1:8080", "http://localhost:8080"),
        ("127.0.0.1:8080", "http://LOCALHOST.:8080"),
        ("0.0.0.0:8080", "http://127.0.0.1:8080"),
        ("0.0.0.0:8080", "http://127.8.0.1:8080"),
        ("0.0.0.0:8080", "http://localhost:8080"),
        ("0.0.0.0:8080", "http://0.0.0.0:8080"),
        ("127.0.0.1:8080", "http://0.0.0.0:8080"),
        ("[::]:8080", "http://[::1]:8080"),
        ("[::1]:8080", "http://[::1]:8080"),
        ("[::]:8080", "http://localhost:8080"),
    ] {
        let report = parse_fault(with(listen, server));
        assert!(
            report.contains("own listener") && report.contains("gateway.toml:4:1"),
            "{listen} {server}: {report}"
        );
        assert!(report.contains("help: write the address of the backend"), "{report}");
    }
    for (listen, server) in [
        ("127.0.0.1:8080", "http://127.0.0.1:8081"),
        ("127.0.0.1:8080", "http://127.0.0.2:8080"),
        ("127.0.0.1:8080", "http://192.0.2.1:8080"),
        ("192.0.2.1:8080", "http://localhost:8080"),
        ("192.0.2.1:8080", "http://127.0.0.1:8080"),
        ("0.0.0.0:8080", "http://192.0.2.1:8080"),
        ("0.0.0.0:8080", "http://[::1]:8080"),
        ("[::]:8080", "http://127.0.0.1:8080"),
        ("127.0.0.1:8080", "http://api.internal:8080"),
    ] {
        assert!(with(listen, server).is_ok(), "{listen} {server}");
    }
}

fn parse_fault<T: std::fmt::Debug>(parsed: Result<T, tollgate::config::Report>) -> String {
    parsed.expect_err("a fault").to_string()
}
