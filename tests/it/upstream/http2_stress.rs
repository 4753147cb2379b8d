//! HTTP/2 to backends under stress: no request waits for another's upload, or for a connection that cannot take it.

use std::time::Duration;

use crate::harness::servers::{ALONE, over_http2, post};
use crate::harness::{Client, Frame, FrameServer, Frames, Gateway, Load};

const GET: &str = "GET / HTTP/1.1\r\nhost: test\r\n\r\n";
/// MAX_CONCURRENT_STREAMS (RFC 9113 §6.5.2).
const NO_STREAM: &[u8] = &[0, 3, 0, 0, 0, 0];
const ONE_STREAM: &[u8] = &[0, 3, 0, 0, 0, 1];

fn gateway(url: &str, lines: &str, route: &str) -> Gateway {
    Gateway::start(&format!("{}{ALONE}", over_http2(&[url], lines, route)))
}

fn answers(frames: &mut Frames) {
    let (stream, _) = frames.request();
    frames.ok(stream);
}

/// Reads DATA until the connection's window is used up, and opens it no more.
fn reads_no_more(frames: &mut Frames) {
    let mut left = 65_535;
    while left > 0 {
        let frame = frames.next();
        if frame.kind == Frame::DATA {
            left -= frame.payload.len();
        }
    }
}

#[test]
fn an_upload_that_is_not_read_holds_up_no_other() {
    let server = FrameServer::start();
    let gateway = gateway(&server.url(), "", "");
    let mut upload = Client::connect(gateway.addr());
    upload.write("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 1000000\r\n\r\n");
    let body = vec![b'x'; 200_000];
    let sending = std::thread::spawn(move || {
        upload.write_within(&body, Duration::from_secs(2));
        upload
    });
    let mut stalled = server.accept();
    reads_no_more(&mut stalled);
    // The gateway may not have asked for the window yet.
    std::thread::sleep(Duration::from_millis(100));
    let mut client = Client::connect(gateway.addr());
    client.write(post("a"));
    let mut other = server.accept();
    answers(&mut other);
    client.read().expect(200);
    for _ in 0..3 {
        client.write(post("b"));
        answers(&mut other);
        client.read().expect(200);
    }
    drop(sending.join().expect("no panic"));
}

/// As nginx with `keepalive_requests 1`: what it has not processed is not a failure, and no attempt.
#[test]
fn connections_that_serve_one_request_each_lose_none() {
    let server = FrameServer::start();
    let gateway = gateway(&server.url(), "retry = { attempts = 1 }", "");
    server.serve(
        |_, server| server.accept(),
        |_, mut frames| {
            let head = frames.next();
            if head.kind == Frame::HEADERS {
                frames.ok(head.stream);
                frames.go_away(head.stream);
            }
            while frames.try_next().is_some() {}
        },
    );
    let load = Load { requests: 300, concurrency: 20 };
    let statuses = load.run(gateway.addr(), |_| GET.to_owned());
    assert_eq!(statuses.into_iter().collect::<Vec<_>>(), [(200, 300)]);
    assert_eq!(gateway.metric("tollgate_upstream_failed_attempts_total", &["upstream=\"api\""]), 0.0);
}

/// Others have room, or will have it.
#[test]
fn a_connection_without_room_is_not_chosen() {
    let server = FrameServer::start();
    let gateway = gateway(&server.url(), "", "timeout = \"20s\"");
    server.serve(
        |number, server| server.accept_with(if number % 2 == 1 { NO_STREAM } else { ONE_STREAM }),
        |_, mut frames| {
            while let Some(frame) = frames.try_next() {
                if frame.ends() {
                    std::thread::sleep(Duration::from_millis(2));
                    frames.ok(frame.stream);
                }
            }
        },
    );
    let load = Load { requests: 300, concurrency: 30 };
    let statuses = load.run(gateway.addr(), |_| GET.to_owned());
    assert_eq!(statuses.into_iter().collect::<Vec<_>>(), [(200, 300)]);
}

/// Nothing can come after half a frame, or before the end of a header block.
#[test]
fn a_connection_with_half_a_frame_takes_no_further_request() {
    for half in [&[0, 0, 9, Frame::HEADERS, 0][..], &[0, 0, 1, Frame::HEADERS, 0, 0, 0, 0, 1, 0x88]] {
        let server = FrameServer::start();
        let gateway = gateway(&server.url(), "", "");
        let mut client = Client::connect(gateway.addr());
        client.write(GET);
        let mut first = server.accept();
        first.request();
        first.raw(half);
        std::thread::sleep(Duration::from_millis(100));
        let mut other = Client::connect(gateway.addr());
        other.write(GET);
        answers(&mut server.accept());
        other.read().expect(200);
    }
}

/// A path that swallows the bytes of a connection while new ones work.
#[test]
fn a_dead_connection_is_given_up_and_its_requests_go_elsewhere() {
    let server = FrameServer::start();
    let gateway = gateway(&server.url(), "", "timeout = \"25s\"");
    let mut client = Client::connect(gateway.addr());
    client.write(GET);
    let mut dead = server.accept();
    answers(&mut dead);
    client.read().expect(200);
    client.write(GET);
    dead.request();
    // From here on nothing comes from it. A second later others do not use it.
    std::thread::sleep(Duration::from_millis(1_500));
    let mut second = Client::connect(gateway.addr());
    second.write(GET);
    let mut alive = server.accept();
    answers(&mut alive);
    second.read().expect(200);
    // The request is sent again once the PING was not answered.
    answers(&mut server.accept());
    client.read().expect(200);
    assert_eq!(dead.pings_to_the_end(), 1);
}
