//! `max_duration`: the whole exchange has an end, whatever trickles in it.

use std::time::Duration;

use serde_json::json;

use crate::harness::{Backend, Client, Exchange, Gateway, Next, everything_to};

/// What the last line of the access log tells: status and error.
fn told(gateway: &Gateway) -> (u64, String) {
    let log = gateway.access_log(1);
    (log[0]["status"].as_u64().unwrap_or_default(), log[0]["error"].as_str().unwrap_or_default().to_owned())
}

/// Sends a byte every tenth of a second until the gateway takes no more.
fn trickle(exchange: &mut Exchange<'_>) -> Next {
    for _ in 0..200 {
        std::thread::sleep(Duration::from_millis(100));
        if !exchange.write("1\r\nx\r\n") {
            break;
        }
    }
    Next::Close
}

#[test]
fn a_response_that_trickles_is_cut() {
    let backend = Backend::start(|exchange| {
        exchange.write("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
        trickle(exchange)
    });
    let gateway = Gateway::start(&everything_to(&backend, "max_duration = \"1s\""));
    let mut client = Client::connect(gateway.addr());
    client.write("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
    assert!(client.try_read("GET").is_err(), "the response has no end");
    assert_eq!(told(&gateway), (200, "max_duration".to_owned()));
}

#[test]
fn a_backend_that_does_not_answer_in_it_is_a_504() {
    let backend = Backend::start(|_| {
        std::thread::sleep(Duration::from_secs(5));
        Next::Close
    });
    let gateway = Gateway::start(&everything_to(&backend, "max_duration = \"1s\""));
    let response = Client::connect(gateway.addr()).get("/", "").expect(504);
    assert_eq!(response.json()["detail"], json!("the exchange took too long"));
    assert_eq!(told(&gateway), (504, "max_duration".to_owned()));
}

#[test]
fn a_tunnel_ends_with_it() {
    let backend = Backend::start(|exchange| {
        exchange.write("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n");
        trickle(exchange)
    });
    let gateway = Gateway::start(&everything_to(&backend, "max_duration = \"1s\""));
    let mut client = Client::connect(gateway.addr());
    client.exchange("GET / HTTP/1.1\r\nhost: test\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n").expect(101);
    let mut received = 0;
    loop {
        match client.read_some(64).len() {
            0 => break,
            count => received += count,
        }
    }
    // Six bytes ten times a second.
    assert!(received < 200, "{received}");
}

#[test]
fn a_quick_exchange_is_whole() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, "max_duration = \"1s\""));
    let mut client = Client::connect(gateway.addr());
    for _ in 0..4 {
        std::thread::sleep(Duration::from_millis(400));
        client.get("/", "").expect(200);
    }
}
