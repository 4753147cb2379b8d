//! Bodies of copies: whole, or not at all.

use std::time::Duration;

use super::{counted, file, post, wait_for};
use crate::harness::{Backend, Client, Gateway, Next, eventually, send};

/// Bytes that show when some are missing, doubled or out of order.
fn pattern(length: usize) -> String {
    (0..length).map(|at| char::from(b'a' + u8::try_from((at + at / 26) % 26).expect("a letter"))).collect()
}

/// `body` in chunks of this size.
fn chunked(body: &str, size: usize, trailers: &str) -> String {
    let chunks = body.as_bytes().chunks(size).map(|chunk| {
        let chunk = String::from_utf8_lossy(chunk);
        // Many extensions are more framing than a body may have.
        let extension = if size > 1 { ";ext=1" } else { "" };
        format!("{:x}{extension}\r\n{chunk}\r\n", chunk.len())
    });
    format!("{}0\r\n{trailers}\r\n", chunks.collect::<String>())
}

/// Waits until the mirror has read the body of its latest request.
#[track_caller]
fn wait_for_body(canary: &Backend, body: &str) {
    eventually("the whole body at the mirror", || (canary.latest().body == body.as_bytes()).then_some(()));
}

#[test]
fn a_body_up_to_the_bound_is_copied_whole() {
    let (api, canary) = (Backend::ok(), Backend::ok());
    let gateway = Gateway::start(&file(&api, &canary, ", max_body = \"100KiB\"", ""));
    let mut client = Client::connect(gateway.addr());
    for (number, length) in [0, 1, 16 << 10, (64 << 10) + 1, 100 << 10].into_iter().enumerate() {
        let body = pattern(length);
        client.exchange(post("/", &body)).expect(200);
        canary.wait_for(number + 1);
        wait_for_body(&canary, &body);
        assert_eq!(canary.latest().header("content-length"), Some(length.to_string()));
    }
    wait_for(&gateway, "sent", 5);
    client.exchange(post("/", &pattern((100 << 10) + 1))).expect(200);
    eventually("it is too long", || (counted(&gateway, "too_long") > 0.0).then_some(()));
    assert_eq!((api.count(), canary.count()), (6, 5));
}

#[test]
fn chunks_are_copied_with_their_trailers() {
    let (api, canary) = (Backend::ok(), Backend::ok());
    let gateway = Gateway::start(&file(&api, &canary, "", ""));
    let mut client = Client::connect(gateway.addr());
    let head = "POST / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n";
    for (number, (length, size)) in
        [(0, 1), (1, 1), (5_000, 1), (60_000, 999), (64 << 10, 40_000)].into_iter().enumerate()
    {
        let body = pattern(length);
        client.write(format!("{head}{}", chunked(&body, size, "x-sum: 7\r\nx-other: 1\r\n")));
        client.read().expect(200);
        canary.wait_for(number + 1);
        wait_for_body(&canary, &body);
        eventually("its trailers", || (canary.latest().trailers == "x-sum: 7\r\n").then_some(()));
        assert_eq!(api.latest().trailers, canary.latest().trailers);
    }
    wait_for(&gateway, "sent", 5);
    client.write(format!("{head}{}", chunked(&pattern((64 << 10) + 1), 30_000, "")));
    client.read().expect(200);
    eventually("it is too long", || (counted(&gateway, "too_long") > 0.0).then_some(()));
    assert_eq!(canary.count(), 5);
}

#[test]
fn without_bodies_only_requests_without_one_are_copied() {
    let (api, canary) = (Backend::ok(), Backend::ok());
    let gateway = Gateway::start(&file(&api, &canary, ", max_body = 0", ""));
    gateway.get("/").expect(200);
    send(gateway.addr(), post("/", "")).expect(200);
    wait_for(&gateway, "sent", 2);
    send(gateway.addr(), post("/", "a")).expect(200);
    eventually("it is too long", || (counted(&gateway, "too_long") > 0.0).then_some(()));
    assert_eq!((api.count(), canary.count()), (3, 2));
}

/// A client that dawdles occupies no connection of the mirror.
#[test]
fn the_mirror_is_asked_once_the_body_is_whole() {
    let (api, canary) = (Backend::ok(), Backend::ok());
    let gateway = Gateway::start(&file(&api, &canary, "", ""));
    let mut client = Client::connect(gateway.addr());
    client.write("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 10\r\n\r\nhello");
    api.wait_for(1);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(canary.connections(), 0);
    client.write("world");
    client.read().expect(200);
    canary.wait_for(1);
    wait_for_body(&canary, "helloworld");
    wait_for(&gateway, "sent", 1);
}

#[test]
fn a_body_that_does_not_end_is_not_copied() {
    let api = Backend::start(|exchange| {
        if exchange.target() == "/early" {
            exchange.write("HTTP/1.1 403 No\r\ncontent-length: 0\r\n\r\n");
            return Next::Close;
        }
        exchange.read_body();
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
        Next::KeepAlive
    });
    let canary = Backend::ok();
    let gateway = Gateway::start(&file(&api, &canary, "", ""));
    let mut client = Client::connect(gateway.addr());
    client.write("POST /gone HTTP/1.1\r\nhost: test\r\ncontent-length: 10\r\n\r\nhello");
    api.wait_for(1);
    drop(client);
    wait_for(&gateway, "incomplete", 1);
    let mut client = Client::connect(gateway.addr());
    client.write("POST /early HTTP/1.1\r\nhost: test\r\ncontent-length: 10\r\n\r\nhello");
    client.read().expect(403);
    wait_for(&gateway, "incomplete", 2);
    let malformed = "POST / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\nx\r\n";
    send(gateway.addr(), malformed).expect(400);
    wait_for(&gateway, "incomplete", 3);
    assert_eq!(canary.connections(), 0);
}

/// The body was read before the limits decided, and for an auth by a service.
#[test]
fn a_body_that_was_read_for_a_limit_is_copied() {
    let (api, canary) = (Backend::ok(), Backend::ok());
    let gateway = Gateway::start(&file(
        &api,
        &canary,
        "",
        "limits = [\"user\"]\n[limits.user]\nalgorithm = \"fixed-window\"\nkey = \"json:/user\"\nrate = \"5/day\"\n\
         align = \"first-request\"\n",
    ));
    let body = format!("{{\"user\": \"ann\", \"text\": \"{}\"}}", pattern(20_000));
    let head = "POST / HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\n";
    let known = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
    let chunks = format!("{head}transfer-encoding: chunked\r\n\r\n{}", chunked(&body, 3_000, ""));
    let waiting = format!("{head}expect: 100-continue\r\ncontent-length: {}\r\n\r\n", body.len());
    for (number, request) in [known, chunks].into_iter().enumerate() {
        send(gateway.addr(), request).expect(200);
        canary.wait_for(number + 1);
        wait_for_body(&canary, &body);
    }
    let mut client = Client::connect(gateway.addr());
    client.write(waiting);
    client.write(&body);
    client.read().expect(200);
    canary.wait_for(3);
    wait_for_body(&canary, &body);
    wait_for(&gateway, "sent", 3);
}

#[test]
fn pipelined_requests_are_copied_one_by_one() {
    let (api, canary) = (Backend::ok(), Backend::ok());
    let gateway = Gateway::start(&file(&api, &canary, "", ""));
    let mut client = Client::connect(gateway.addr());
    let bodies: Vec<_> = (0..20).map(|number| pattern(number * 400)).collect();
    let requests: String = bodies.iter().map(|body| post("/", body)).collect();
    client.write(requests);
    (0..20).for_each(|_| drop(client.read().expect(200)));
    wait_for(&gateway, "sent", 20);
    let mut copied: Vec<_> = canary.requests().into_iter().map(|request| request.body).collect();
    copied.sort_by_key(Vec::len);
    assert!(copied.iter().eq(bodies.iter().map(|body| body.as_bytes())));
}
