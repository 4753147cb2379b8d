//! Backends that speak HTTP/2 and fail, or do what is rare: frame by frame.

use std::time::Duration;

use crate::harness::servers::{ALONE, is_cut, over_http2, post};
use crate::harness::{Client, Fault, Frame, FrameServer, Frames, Gateway, eventually};

const CANCEL: [u8; 4] = [0, 0, 0, 8];
const INTERNAL_ERROR: u32 = 2;
const REFUSED_STREAM: u32 = 7;
const GET: &str = "GET / HTTP/1.1\r\nhost: test\r\n\r\n";

fn gateway(server: &FrameServer, lines: &str, route: &str) -> Gateway {
    Gateway::start(&format!("{}{ALONE}", over_http2(&[&server.url()], lines, route)))
}

fn error(gateway: &Gateway, index: usize) -> String {
    gateway.access_log(index)[index - 1]["error"].as_str().unwrap_or_default().to_owned()
}

fn asking(gateway: &Gateway, request: &str) -> Client {
    let mut client = Client::connect(gateway.addr());
    client.write(request);
    client
}

/// A client, and the stream on which its request came.
fn asked(gateway: &Gateway, frames: &mut Frames, request: &str) -> (Client, u32) {
    let client = asking(gateway, request);
    (client, frames.request().0)
}

/// RFC 9113 §6.8: what stands above the last stream may be sent again, whatever it is.
#[test]
fn a_server_that_goes_away_ends_what_it_began_and_loses_nothing() {
    let server = FrameServer::start();
    let gateway = gateway(&server, "", "");
    let mut client = asking(&gateway, &post("1"));
    let mut frames = server.accept();
    assert_eq!(frames.request(), (1, b"1".to_vec()));
    let (mut second, _) = asked(&gateway, &mut frames, &post("2"));
    let (mut third, _) = asked(
        &gateway,
        &mut frames,
        "POST / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n1\r\n3\r\n0\r\n\r\n",
    );
    frames.go_away(1);
    let mut other = server.accept();
    let mut bodies = other.requests(2);
    bodies.iter().for_each(|(stream, _)| other.ok(*stream));
    bodies.sort_by_key(|(_, body)| body.clone());
    assert_eq!(bodies.iter().map(|(_, body)| body.as_slice()).collect::<Vec<_>>(), [b"2", b"3"]);
    second.read().expect(200);
    third.read().expect(200);
    frames.ok(1);
    client.read().expect(200);
    assert!(frames.try_next().is_none(), "it is used no more");
    client.write(GET);
    let (stream, _) = other.request();
    other.ok(stream);
    client.read().expect(200);
}

/// Several shared connections may end at about the same time. The repeat goes on a new one, and there is only one.
#[test]
fn a_request_is_repeated_once_on_a_new_connection() {
    let server = FrameServer::start();
    let gateway = gateway(&server, "", "");
    let (mut client, mut other) = (asking(&gateway, GET), Client::connect(gateway.addr()));
    let mut first = server.accept();
    // One stream at once (RFC 9113 §6.5.2).
    first.send(Frame::SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 1]);
    let stream = first.request().0;
    other.write(GET);
    let mut second = server.accept();
    let other_stream = second.request().0;
    first.ok(stream);
    client.read().expect(200);
    second.ok(other_stream);
    other.read().expect(200);

    client.write(GET);
    first.request();
    drop(first);
    let mut third = server.accept();
    let stream = third.request().0;
    third.ok(stream);
    client.read().expect(200);

    // A server that processes nothing is asked a bounded number of times.
    client.write(GET);
    second.request();
    second.go_away(0);
    for _ in 0..20 {
        let mut next = server.accept();
        next.request();
        next.go_away(0);
    }
    client.read().expect(503);
    assert!(server.is_left_alone(Duration::from_millis(20)));
}

/// A body that is still to come is no reason to give up what has come of it.
#[test]
fn a_request_whose_body_is_on_its_way_is_sent_again() {
    let server = FrameServer::start();
    let gateway = gateway(&server, "", "");
    let mut client = asking(&gateway, "POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 4\r\n\r\nab");
    let mut frames = server.accept();
    assert_eq!(frames.next().kind, Frame::HEADERS);
    assert_eq!(frames.next().payload, b"ab");
    frames.reset(1, REFUSED_STREAM);
    assert_eq!(frames.next().kind, Frame::HEADERS);
    assert_eq!(frames.next().payload, b"ab");
    client.write("cd");
    assert_eq!(frames.next().payload, b"cd");
    frames.ok(3);
    client.read().expect(200);
}

/// No server has processed it: that is no attempt, but a server that only ever refuses ends it.
#[test]
fn a_refused_stream_is_tried_again_a_bounded_number_of_times() {
    let server = FrameServer::start();
    let gateway = gateway(&server, "retry = { attempts = 1 }", "");
    let mut client = asking(&gateway, &post("a"));
    let mut frames = server.accept();
    for _ in 0..5 {
        let (stream, body) = frames.request();
        assert_eq!(body, b"a");
        frames.reset(stream, REFUSED_STREAM);
    }
    let (stream, _) = frames.request();
    frames.ok(stream);
    client.read().expect(200);
    assert_eq!(gateway.metric("tollgate_upstream_failed_attempts_total", &["upstream=\"api\""]), 0.0);
    client.write(post("a"));
    let refusing = std::thread::spawn(move || {
        let mut refused = 0;
        while let Some(frame) = frames.try_next() {
            if frame.ends() {
                frames.reset(frame.stream, REFUSED_STREAM);
                refused += 1;
            }
        }
        refused
    });
    client.read().expect(503);
    assert_eq!(error(&gateway, 2), "upstream_full");
    drop((client, gateway));
    assert_eq!(refusing.join().expect("no panic"), 21);
}

#[test]
fn an_answer_that_breaks_off_never_passes_as_whole() {
    let server = FrameServer::start();
    let gateway = gateway(&server, "", "");
    let mut client = asking(&gateway, GET);
    let mut frames = server.accept();
    let mut stream = frames.request().0;
    let whole = [(":status", "200")];
    let bounded = [(":status", "200"), ("content-length", "3")];
    // Reset with and without a length; shorter and longer than it says.
    for (index, (head, body, ended)) in [
        (&whole[..], "abc", false),
        (&bounded, "ab", false),
        (&bounded, "ab", true),
        (&bounded, "abcd", true),
    ]
    .into_iter()
    .enumerate()
    {
        frames.head(stream, head, false);
        frames.data(stream, body.as_bytes(), ended);
        if !ended {
            frames.reset(stream, INTERNAL_ERROR);
        }
        if ended {
            // A fault that is known before the head has gone on is told as such.
            assert_eq!(frames.next().kind, Frame::RESET);
            let outcome = client.try_read("GET");
            let is_told = matches!(&outcome, Ok(response) if response.status == 502);
            assert!(is_told || matches!(outcome, Err(Fault::Cut(_))), "{head:?} {body}: {outcome:?}");
        } else {
            assert!(is_cut(&mut client), "{head:?} {body}");
            assert_eq!(error(&gateway, index + 1), "response_cut");
        }
        (client, stream) = asked(&gateway, &mut frames, GET);
    }
    frames.head(stream, &bounded, true);
    client.read().expect(502);
    assert_eq!(error(&gateway, 5), "protocol");
}

#[test]
fn a_client_that_speaks_http_2_learns_of_it_by_a_reset() {
    let server = FrameServer::start();
    let gateway = gateway(&server, "", "");
    let address = gateway.addr();
    let (tell, told) = std::sync::mpsc::channel();
    let asking = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let socket = tokio::net::TcpStream::connect(address).await.expect("it listens");
            let (mut sender, connection) = h2::client::handshake(socket).await.expect("HTTP/2");
            tokio::spawn(connection);
            let request = http::Request::get("http://test/").body(()).expect("a request");
            let (response, _) = sender.send_request(request, true).expect("a stream");
            let mut body = response.await.expect("a head").into_body();
            assert_eq!(body.data().await.expect("a part").expect("whole"), "abc");
            tell.send(()).expect("the receiver waits");
            body.data().await.expect("no end").expect_err("a reset").is_reset()
        })
    });
    let mut frames = server.accept();
    let (stream, _) = frames.request();
    frames.head(stream, &[(":status", "200")], false);
    frames.data(stream, b"abc", false);
    told.recv().expect("it has come");
    frames.reset(stream, INTERNAL_ERROR);
    assert!(asking.join().expect("no panic"));
}

/// A connection that was closed while idle fails no request.
#[test]
fn a_connection_that_ends_idle_is_replaced() {
    let server = FrameServer::start();
    let gateway = gateway(&server, "", "");
    let mut client = Client::connect(gateway.addr());
    for request in [GET, &post("a"), GET, &post("a")] {
        client.write(request);
        let mut frames = server.accept();
        let (stream, _) = frames.request();
        frames.ok(stream);
        client.read().expect(200);
        drop(frames);
        // The gateway must see the end first; a request at the same time may still get the old connection.
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn interim_answers_go_before_the_real_one() {
    let server = FrameServer::start();
    let gateway = gateway(&server, "", "");
    let mut client = asking(&gateway, GET);
    let mut frames = server.accept();
    let (stream, _) = frames.request();
    frames.head(stream, &[(":status", "103"), ("link", "</a.css>")], false);
    frames.ok(stream);
    assert_eq!(client.read().expect(200).text(), "ok");
    client.write("GET / HTTP/1.1\r\nhost: test\r\nconnection: upgrade\r\nupgrade: other\r\n\r\n");
    let (stream, _) = frames.request();
    frames.head(stream, &[(":status", "101")], false);
    client.read().expect(502);
    assert_eq!(error(&gateway, 2), "protocol");
}

#[test]
fn a_client_that_leaves_cancels_the_request() {
    let server = FrameServer::start();
    let gateway = gateway(&server, "", "");
    let client = asking(&gateway, GET);
    let mut frames = server.accept();
    let (stream, _) = frames.request();
    client.reset();
    let frame = frames.next();
    assert_eq!((frame.kind, frame.stream, &frame.payload[..]), (Frame::RESET, stream, &CANCEL[..]));
    // The same with an answer on its way.
    let (mut client, stream) = asked(&gateway, &mut frames, GET);
    frames.head(stream, &[(":status", "200")], false);
    client.read_head().expect("a head");
    client.reset();
    frames.data(stream, b"abc", false);
    let reset = eventually("the reset", || {
        let frame = frames.next();
        (frame.kind == Frame::RESET).then_some(frame)
    });
    assert_eq!((reset.stream, &reset.payload[..]), (stream, &CANCEL[..]));
    let (mut client, stream) = asked(&gateway, &mut frames, GET);
    frames.ok(stream);
    client.read().expect(200);
}

/// Many clients may leave during their responses, without harm to the others on the same connection.
#[test]
fn two_thousand_clients_that_leave_end_no_connection() {
    let server = FrameServer::start();
    let gateway = gateway(&server, "", "timeout = \"10min\"");
    let (mut patient, mut frames) = (asking(&gateway, GET), server.accept());
    let (awaited, _) = frames.request();
    let mut streams = Vec::new();
    for index in 0..2_000 {
        // A connection that is silent for long is not used.
        frames.send(Frame::PING, 0, 0, &[0; 8]);
        let client = asking(&gateway, GET);
        streams.push(frames.request().0);
        client.reset();
        while frames.next().kind != Frame::RESET {}
        if index >= 100 {
            // So late that it is not remembered any more.
            frames.data(streams[index - 100], b"late", true);
        }
    }
    frames.ok(awaited);
    patient.read().expect(200);
}

/// The connection delivers nothing: the next request tries another.
#[test]
fn a_connection_that_falls_silent_is_used_no_more() {
    let server = FrameServer::start();
    let gateway = gateway(&server, "", "timeout = \"1100ms\"");
    let mut client = asking(&gateway, GET);
    let mut frames = server.accept();
    let (stream, _) = frames.request();
    frames.ok(stream);
    client.read().expect(200);
    client.write(GET);
    frames.request();
    client.read().expect(504);
    assert_eq!(error(&gateway, 2), "timeout");
    client.write(GET);
    let mut other = server.accept();
    let (stream, _) = other.request();
    other.ok(stream);
    client.read().expect(200);
    // One that is only slow with this request, and busy with others, stays.
    client.write(GET);
    other.request();
    std::thread::sleep(Duration::from_millis(100));
    let (mut quick, stream) = asked(&gateway, &mut other, GET);
    other.ok(stream);
    quick.read().expect(200);
    client.read().expect(504);
    assert_eq!(other.next().payload, CANCEL);
    client.write(GET);
    let (stream, _) = other.request();
    other.ok(stream);
    client.read().expect(200);
    assert!(server.is_left_alone(Duration::ZERO));
}

/// Resets count as failures, though the connection is an old one.
#[test]
fn a_server_that_gives_up_every_request_is_ejected() {
    let (bad, good) = (FrameServer::start(), FrameServer::start());
    let lines = "eject = { failures = 3, for = \"1h\" }\nretry = { attempts = 1 }";
    let gateway = Gateway::start(&format!("{}{ALONE}", over_http2(&[&bad.url(), &good.url()], lines, "")));
    let giving_up = std::thread::spawn(move || {
        let (mut frames, mut count) = (bad.accept(), 0);
        while let Some(frame) = frames.try_next() {
            if frame.kind == Frame::HEADERS {
                frames.reset(frame.stream, INTERNAL_ERROR);
                count += 1;
            }
        }
        count
    });
    std::thread::spawn(move || {
        let mut frames = good.accept();
        while let Some(frame) = frames.try_next() {
            if frame.ends() {
                frames.ok(frame.stream);
            }
        }
    });
    let mut client = Client::connect(gateway.addr());
    let failed = (0..20).filter(|_| client.exchange(post("a")).status == 502).count();
    assert_eq!(failed, 3);
    assert_eq!(gateway.metric("tollgate_upstream_ejections_total", &[]), 1.0);
    drop(gateway);
    assert_eq!(giving_up.join().expect("no panic"), 3);
}
