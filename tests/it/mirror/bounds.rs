//! Copies hold a bounded part of the memory.

use super::{counted, file, post, wait_for};
use crate::harness::{Backend, Client, Gateway, Next, eventually};

/// A quarter of `max_buffered` for all copies: 16 of 16 KiB with their heads do not fit into 256 KiB.
#[test]
fn copies_hold_a_quarter_of_max_buffered_and_no_request_is_refused_for_them() {
    let api = Backend::ok();
    let canary = Backend::start(|exchange| {
        exchange.read_body();
        exchange.wait_at_gate();
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
        Next::KeepAlive
    });
    let toml = format!("[server]\nmax_buffered = \"1MiB\"\n{}", file(&api, &canary, "", ""));
    let gateway = Gateway::start(&toml);
    let mut client = Client::connect(gateway.addr());
    let body = "x".repeat(16 << 10);
    for _ in 0..20 {
        client.exchange(post("/", &body)).expect(200);
    }
    canary.wait_for(15);
    wait_for_busy(&gateway, 5.0);
    // What is read piece by piece is counted piece by piece.
    let chunks = format!(
        "POST / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n4000\r\n{body}\r\n0\r\n\r\n"
    );
    client.exchange(chunks).expect(200);
    wait_for_busy(&gateway, 6.0);
    assert_eq!(gateway.metric("tollgate_buffer_evictions_total", &[]), 0.0);
    canary.open_gate();
    eventually("the others are sent", || (counted(&gateway, "sent") >= 15.0).then_some(()));
    client.exchange(post("/", &body)).expect(200);
    eventually("there is room again", || (counted(&gateway, "sent") >= 16.0).then_some(()));
    assert_eq!((api.count(), canary.count()), (22, 16));
}

fn wait_for_busy(gateway: &Gateway, count: f64) {
    eventually("over the budget", || (counted(gateway, "over_budget") >= count).then_some(()));
    assert_eq!(counted(gateway, "over_budget"), count);
}

/// The memory of copies is given back.
#[test]
fn many_copies_leave_no_memory() {
    let (api, canary) = (Backend::ok(), Backend::ok());
    let gateway = Gateway::start(&file(&api, &canary, "", ""));
    let mut client = Client::connect(gateway.addr());
    let body = "x".repeat(60 << 10);
    for _ in 0..50 {
        client.exchange(post("/", &body)).expect(200);
    }
    eventually("they are sent", || (counted(&gateway, "sent") >= 50.0).then_some(()));
    let before = gateway.anonymous_kib();
    for _ in 0..500 {
        client.exchange(post("/", &body)).expect(200);
    }
    eventually("they are answered", || (super::all_counted(&gateway) >= 550.0).then_some(()));
    let after = gateway.anonymous_kib();
    assert!(after < before + 12 * 1024, "{before} KiB, then {after} KiB");
    let mut fresh = Client::connect(gateway.addr());
    fresh.get("/", "").expect(200);
}

/// Copies of requests that nobody answers are counted once each.
#[test]
fn results_add_up() {
    let (api, canary) = (Backend::ok(), Backend::ok());
    let gateway = Gateway::start(&file(&api, &canary, ", max_body = 10", ""));
    let mut client = Client::connect(gateway.addr());
    client.get("/", "").expect(200);
    client.exchange(post("/", "0123456789")).expect(200);
    wait_for(&gateway, "sent", 2);
    client.exchange(post("/", "0123456789a")).expect(200);
    eventually("too long", || (counted(&gateway, "too_long") >= 1.0).then_some(()));
    assert_eq!(super::all_counted(&gateway), 3.0);
}
