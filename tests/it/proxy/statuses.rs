//! Every status that the gateway gives by itself: a problem document without internals, and the reason in the access log.

use std::net::TcpListener;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{Backend, Client, Gateway, Next, Response, eventually, everything_to, send};

/// Panics unless `response` is a short problem document that tells nothing of what stands behind the gateway.
#[track_caller]
fn is_problem(response: &Response, status: u16) {
    assert_eq!(response.status, status, "{}", response.head);
    assert_eq!(response.header("content-type"), Some("application/problem+json"), "{}", response.head);
    assert_eq!(response.header("cache-control"), Some("no-store"), "{}", response.head);
    let body = response.json();
    assert_eq!(body["status"], json!(status), "{body}");
    assert!(body["title"].is_string() && body["error"].is_string() && body["detail"].is_string(), "{body}");
    let text = response.text().to_ascii_lowercase();
    assert!(text.len() < 400, "short: {text}");
    for leak in ["127.0.0.1", "os error", "hyper", "tokio", "api", "src/", "panicked"] {
        assert!(!text.contains(leak), "{text} tells `{leak}`");
    }
    assert!(!response.head.to_ascii_lowercase().contains("\r\nserver:"), "{}", response.head);
}

/// The access record of the only request so far, which must carry a reason.
#[track_caller]
fn reason(gateway: &Gateway, status: u16) -> String {
    let log = gateway.access_log(1);
    assert_eq!(log.len(), 1, "{log:#?}");
    assert_eq!(log[0]["status"], json!(status));
    log[0]["error"].as_str().unwrap_or_else(|| panic!("no reason in {}", log[0])).to_owned()
}

#[test]
fn requests_that_are_refused_unread() {
    let long = "x".repeat(9_000);
    let fields = |count: usize| (0..count).map(|n| format!("x-{n}: y\r\n")).collect::<String>();
    let large = format!("x-a: {0}\r\nx-b: {0}\r\nx-c: {0}\r\nx-d: {0}\r\n", "x".repeat(9_000));
    let table = [
        (400, "GET / HTTP/1.1\r\n\r\n".to_owned()),
        (400, "GET /%zz HTTP/1.1\r\nhost: test\r\n\r\n".to_owned()),
        (404, "GET /elsewhere HTTP/1.1\r\nhost: test\r\n\r\n".to_owned()),
        (405, "TRACE / HTTP/1.1\r\nhost: test\r\n\r\n".to_owned()),
        (405, "CONNECT test:443 HTTP/1.1\r\nhost: test:443\r\n\r\n".to_owned()),
        (413, "POST /here HTTP/1.1\r\nhost: test\r\ncontent-length: 99999999\r\n\r\n".to_owned()),
        (414, format!("GET /here?{long} HTTP/1.1\r\nhost: test\r\n\r\n")),
        (414, format!("GET /here?{long}{long}{long}{long} HTTP/1.1\r\nhost: test\r\n\r\n")),
        (417, "POST /here HTTP/1.1\r\nhost: test\r\nexpect: 200-ok\r\ncontent-length: 0\r\n\r\n".to_owned()),
        (431, format!("GET /here HTTP/1.1\r\nhost: test\r\nx-long: {long}{long}\r\n\r\n")),
        (431, format!("GET /here HTTP/1.1\r\nhost: test\r\n{large}\r\n")),
        (431, format!("GET /here HTTP/1.1\r\nhost: test\r\n{}\r\n", fields(100))),
        (
            501,
            "POST /here HTTP/1.1\r\nhost: test\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n"
                .to_owned(),
        ),
        (505, "GET /here HTTP/1.2\r\nhost: test\r\n\r\n".to_owned()),
    ];
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, "").replace("/*", "/here"));
    for (number, (status, request)) in table.iter().enumerate() {
        let response = send(gateway.addr(), request);
        let shown = &request[..request.len().min(60)];
        assert_eq!(response.status, *status, "{shown:?}");
        is_problem(&response, *status);
        let record = &gateway.access_log(number + 1)[number];
        assert_eq!(record["status"], json!(status), "{shown:?}: {record}");
        assert!(record["error"].as_str().is_some_and(|reason| !reason.is_empty()), "{shown:?}: {record}");
    }
    assert_eq!(backend.count(), 0);
    let fitting = format!("GET /here?{} HTTP/1.1\r\nhost: test\r\n{}\r\n", "x".repeat(8_000), fields(99));
    send(gateway.addr(), fitting).expect(200);
}

#[test]
fn the_bound_of_the_head_is_settable() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, "[server]\nmax_header_bytes = \"1KiB\""));
    let ask = |length: usize| {
        crate::harness::get_with(gateway.addr(), "/", &format!("x: {}\r\n", "y".repeat(length)))
    };
    ask(900).expect(200);
    ask(1_100).expect(431);
}

#[test]
fn a_backend_that_refuses_resets_or_talks_nonsense() {
    let (closed, _held) = Backend::refusing();
    let refused =
        format!("[upstreams]\napi = \"http://{closed}\"\n[[routes]]\npath = \"/*\"\nupstream = \"api\"");
    let gateway = Gateway::start(&refused);
    is_problem(&gateway.get("/"), 502);
    assert_eq!(reason(&gateway, 502), "connect");

    let resets = Backend::start(|_| Next::Reset);
    let gateway = Gateway::start(&everything_to(&resets, ""));
    is_problem(&send(gateway.addr(), "POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 0\r\n\r\n"), 502);
    assert_eq!(reason(&gateway, 502), "reset");

    let closes = Backend::start(|_| Next::Close);
    let gateway = Gateway::start(&everything_to(&closes, ""));
    is_problem(&send(gateway.addr(), "POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 0\r\n\r\n"), 502);
    assert_eq!(reason(&gateway, 502), "reset");

    let garbage = Backend::answering_once("SSH-2.0-OpenSSH_9.6\r\n\r\n");
    let gateway = Gateway::start(&everything_to(&garbage, ""));
    is_problem(&gateway.get("/"), 502);
    assert_eq!(reason(&gateway, 502), "protocol");
}

#[test]
fn a_backend_that_hangs_is_given_up() {
    let backend = Backend::start(|exchange| {
        exchange.read_body();
        exchange.hang();
        Next::Close
    });
    let gateway = Gateway::start(&everything_to(&backend, "timeout = \"200ms\""));
    is_problem(&gateway.get("/"), 504);
    assert_eq!(reason(&gateway, 504), "timeout");
    assert_eq!(backend.count(), 1, "a slow backend is not asked twice");
}

/// The time runs from the request's end: a slow upload is not the backend's fault.
#[test]
fn the_backends_time_runs_from_the_end_of_the_request() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, "timeout = \"400ms\""));
    let mut client = Client::connect(gateway.addr());
    client.write("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 6\r\n\r\n");
    for byte in b"upload" {
        std::thread::sleep(Duration::from_millis(120));
        client.write([*byte]);
    }
    client.read().expect(200);
}

#[test]
fn silence_inside_an_answer_cuts_it() {
    let backend = Backend::start(|exchange| {
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf");
        exchange.hang();
        Next::Close
    });
    let gateway = Gateway::start(&everything_to(&backend, "read_timeout = \"200ms\""));
    let mut client = Client::connect(gateway.addr());
    client.write("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
    assert!(client.try_read("GET").is_err(), "half an answer is none");
    reason(&gateway, 200);
}

/// A backend whose queue of connections is full answers no SYN: connecting hangs.
#[test]
fn a_backend_that_does_not_accept_is_given_up() {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    socket.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("a free port");
    socket.listen(0).expect("it listens");
    let listener: TcpListener = socket.into();
    let address = listener.local_addr().expect("bound");
    let timeout = Duration::from_millis(200);
    let queued: Vec<_> =
        (0..16).map_while(|_| std::net::TcpStream::connect_timeout(&address, timeout).ok()).collect();
    assert!(queued.len() < 16, "this system takes more than the queue holds");
    let gateway = Gateway::start(&format!(
        "[upstreams.api]
        servers = [\"http://{address}\"]
        connect_timeout = \"200ms\"
        [[routes]]
        path = \"/*\"
        upstream = \"api\""
    ));
    is_problem(&gateway.get("/"), 504);
    assert!(reason(&gateway, 504).starts_with("connect"));
}

#[test]
fn a_slow_head_gets_408_and_none_gets_nothing() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, "[server]\nheader_timeout = \"300ms\""));
    let mut slow = Client::connect(gateway.addr());
    slow.write("GET / HTTP/1.1\r\nhost: te");
    let response = slow.read();
    is_problem(&response, 408);
    assert!(response.closed && slow.closes());
    reason(&gateway, 408);
    let mut silent = Client::connect(gateway.addr());
    assert!(silent.closes(), "a connection without a byte is closed without an answer");
    let mut drips = Client::connect(gateway.addr());
    drips.write_bytewise("GET / HTTP/1.1\r\nhost: test\r\nx: 1234567890", Duration::from_millis(15));
    assert_eq!(
        drips.try_read("GET").map(|response| response.status),
        Ok(408),
        "a byte now and then does not help"
    );
}

#[test]
fn a_slow_body_gets_408() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, "[server]\nbody_timeout = \"300ms\""));
    for request in [
        "POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 10\r\n\r\nhalf",
        "POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 10\r\n\r\n",
        "POST / HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n5\r\nha",
    ] {
        let mut client = Client::connect(gateway.addr());
        client.write(request);
        let response = client.read();
        is_problem(&response, 408);
        assert!(response.closed && client.closes());
    }
    assert!(gateway.access_log(3).iter().all(|record| record["error"].is_string()));
}

#[test]
fn a_bodys_time_runs_from_when_it_is_awaited() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, "[server]\nbody_timeout = \"2s\""));
    let mut client = Client::connect(gateway.addr());
    std::thread::sleep(Duration::from_millis(2500)); // no part of the body's time
    client.write("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 4\r\n\r\nso");
    std::thread::sleep(Duration::from_millis(200));
    client.write("me");
    client.read().expect(200);
    assert_eq!(backend.only().body, b"some");
}

#[test]
fn an_idle_connection_is_closed_without_a_word() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, "[server]\nidle_timeout = \"300ms\""));
    let mut client = Client::connect(gateway.addr());
    client.get("/", "").expect(200);
    assert!(client.closes());
}

#[test]
fn a_client_that_takes_nothing_is_reset() {
    let backend = Backend::start(|exchange| {
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 100000000\r\n\r\n");
        while exchange.write([b'x'; 100_000]) {}
        Next::Close
    });
    let gateway = Gateway::start(&everything_to(&backend, "[server]\nwrite_timeout = \"300ms\""));
    let mut client = Client::connect_narrow(gateway.addr(), 16 * 1024);
    client.write("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
    client.read_head().expect("a head");
    reason(&gateway, 200);
}

#[test]
fn too_many_connections_are_turned_away() {
    let backend = Backend::start(|exchange| {
        exchange.wait_at_gate();
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
        Next::KeepAlive
    });
    let gateway = Gateway::start(&everything_to(&backend, "[server]\nmax_connections = 2"));
    let mut busy: Vec<_> = (0..2).map(|_| Client::connect(gateway.addr())).collect();
    for client in &mut busy {
        client.write("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
    }
    backend.wait_for(2);
    let mut third = Client::connect(gateway.addr());
    let response = third.exchange("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
    is_problem(&response, 503);
    assert!(response.closed && third.closes());
    backend.open_gate();
    for client in &mut busy {
        client.read().expect(200);
    }
}

#[test]
fn an_idle_connection_makes_room_for_a_new_one() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, "[server]\nmax_connections = 2"));
    let mut idle: Vec<_> = (0..2).map(|_| Client::connect(gateway.addr())).collect();
    for client in &mut idle {
        client.get("/", "").expect(200);
    }
    let served = eventually("a place", || (gateway.get("/").status == 200).then_some(true));
    assert!(served);
}

#[test]
fn hostile_bytes_do_not_break_the_log() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let request =
        b"GET /a\"{}?x=%0a{ HTTP/1.1\r\nhost: test\r\nuser-agent: \"\\\x80\xff\r\nreferer: \"x\"\r\n\r\n";
    send(gateway.addr(), request).expect(200);
    let record: &Value = &gateway.access_log(1)[0];
    assert_eq!(record["path"], "/a\"{}?x=%0a{");
}
