//! `max_duration` runs while a request waits, before it is forwarded.

use std::time::Duration;

use serde_json::json;

use crate::harness::in_flight::{ask, ask_with, begin, comes_to_hold, limited};
use crate::harness::{
    AllVersions, Backend, Body, Client, Gateway, HoldingBackend, Next, Response, eventually, everything_to,
    get_with, h2_get,
};

const BOUND: &str = "max_duration = \"1s\"\n";

/// The response is that of an exchange that took too long.
#[track_caller]
fn took_too_long(response: Response) -> Response {
    let response = response.expect(504);
    assert_eq!(response.json()["detail"], json!("the exchange took too long"));
    response
}

/// The errors of the access log's lines, each with its status.
fn told(gateway: &Gateway, count: usize) -> Vec<(u64, String)> {
    let lines = gateway.access_log(count);
    let told = |line: &serde_json::Value| {
        (line["status"].as_u64().unwrap_or_default(), line["error"].as_str().unwrap_or_default().to_owned())
    };
    lines.iter().map(told).collect()
}

#[test]
fn a_wait_for_a_place_ends_with_it_and_leaves_the_queue() {
    let backend = HoldingBackend::start();
    let limit = "max = 1\nqueue = 9\nmax_wait = \"25s\"";
    // The request that has the place is on a route without the bound.
    let held = "[[routes]]\nname = \"held\"\npath = \"/held/*\"\nupstream = \"api\"\nlimits = [\"x\"]\n";
    let gateway = AllVersions::start(&limited(&backend, limit, BOUND, held));
    let mut first = begin(&gateway, "/held/first");
    backend.holds(1);
    let mut late = Client::connect(gateway.addr());
    late.write(ask("/late"));
    took_too_long(late.read());
    // The connection serves further requests.
    late.write(ask("/again"));
    took_too_long(late.read());
    for client in gateway.clients() {
        let mut request = h2_get("/late");
        request.headers_mut().insert("x-client", http::HeaderValue::from_static("a"));
        let answer = client.exchange(request, Body::default()).expect("an answer").expect(504);
        assert!(answer.header("content-type").is_some(), "{}", client.version());
    }
    let lines = told(&gateway, 3);
    assert!(lines.iter().all(|line| *line == (504, "max_duration".to_owned())), "{lines:?}");
    // No request is left in the queue, and no place is lost.
    let waiting = || gateway.metric("tollgate_concurrency_waiting", &["limit=\"x\""]);
    eventually("an empty queue", || (waiting() < 0.5).then_some(()));
    backend.open();
    first.read().expect(200);
    comes_to_hold(&gateway, 0);
    begin(&gateway, "/next").read().expect(200);
    assert_eq!(backend.arrivals(), ["/held/first", "/next"]);
}

#[test]
fn a_wait_in_a_leaky_bucket_ends_with_it() {
    let backend = Backend::ok();
    let limit = "limits = [\"slow\"]\n[limits.slow]\nalgorithm = \"leaky-bucket\"\nkey = \"ip\"\nrate = \"10/min\"\nqueue = 5\n";
    let gateway = Gateway::start(&everything_to(&backend, &format!("{BOUND}{limit}")));
    get_with(gateway.addr(), "/", "").expect(200);
    took_too_long(get_with(gateway.addr(), "/", ""));
    assert_eq!(told(&gateway, 2)[1], (504, "max_duration".to_owned()));
    assert_eq!(backend.count(), 1);
}

#[test]
fn a_question_to_a_service_ends_with_it() {
    let backend = Backend::ok();
    let door = Backend::start(|exchange| {
        exchange.hang();
        Next::Close
    });
    let auth = format!(
        "auth = \"door\"\n[auth.door]\ntype = \"forward\"\nurl = \"{}/\"\ntimeout = \"30s\"\nmax_in_flight = 1\n",
        door.url()
    );
    let gateway = Gateway::start(&everything_to(&backend, &format!("{BOUND}{auth}")));
    // The second request finds the place of the first one's question free.
    for _ in 0..2 {
        took_too_long(get_with(gateway.addr(), "/", ""));
    }
    assert_eq!(told(&gateway, 2), vec![(504, "max_duration".to_owned()); 2]);
    assert_eq!((door.count(), backend.count()), (2, 0));
}

#[test]
fn a_slow_body_for_a_key_ends_with_it() {
    let backend = Backend::ok();
    let limit = "limits = [\"m\"]\n[limits.m]\nalgorithm = \"token-bucket\"\nkey = \"json:/model\"\nrate = \"10/s\"\n";
    let gateway = Gateway::start(&everything_to(&backend, &format!("{BOUND}{limit}")));
    let mut client = Client::connect(gateway.addr());
    client.write(
        "POST / HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{\"model\":",
    );
    let response = took_too_long(client.read());
    assert_eq!(response.header("connection"), Some("close"));
    assert!(client.closes());
    assert_eq!(told(&gateway, 1), [(504, "max_duration".to_owned())]);
    assert_eq!(backend.count(), 0);
}

#[test]
fn a_wait_that_is_shorter_is_no_different() {
    let backend = HoldingBackend::start();
    let gateway = Gateway::start(&limited(&backend, "max = 1\nqueue = 9", "max_duration = \"20s\"", ""));
    let mut first = begin(&gateway, "/first");
    backend.holds(1);
    let mut second = Client::connect(gateway.addr());
    second.write(ask_with("/second", "content-length: 0\r\n"));
    assert!(second.silent_for(Duration::from_millis(200)));
    backend.open();
    first.read().expect(200);
    second.read().expect(200);
}
