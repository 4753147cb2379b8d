//! Servers that listen on a Unix socket.

use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};

use bytes::Bytes;
use h2::RecvStream;
use h2::server::Builder;
use http::{Request, Response};

use crate::harness::servers::ALONE;
use crate::harness::{
    Backend, Client, Gateway, Http2, Http2Backend, Next, UnixRelay, eventually, send, send_all,
};

/// Everything to an upstream with these lines.
fn to(lines: &str) -> String {
    format!(
        "{ALONE}[upstreams.app]\n{lines}\n[[routes]]\nname = \"all\"\npath = \"/*\"\nupstream = \"app\"\n\
         [admin]\nlisten = \"127.0.0.1:0\"\n"
    )
}

fn servers(urls: &[&str]) -> String {
    format!("servers = {urls:?}\n")
}

#[test]
fn requests_go_to_a_unix_socket_on_kept_connections() {
    let backend = Backend::ok();
    let relay = UnixRelay::start(backend.addr());
    let gateway = Gateway::start(&to(&servers(&[&relay.url()])));
    let mut client = Client::connect(gateway.addr());
    for _ in 0..5 {
        assert_eq!(client.get("/a?b=c", "").expect(200).text(), "ok");
    }
    let request = "POST /upload HTTP/1.1\r\nhost: shop.test\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    client.exchange(request).expect(200);
    Http2::connect(gateway.addr()).get("/a").expect(200);
    assert_eq!(backend.connections(), 1, "one connection serves all requests");
    let requests = backend.requests();
    assert_eq!(requests[0].request_line(), "GET /a?b=c HTTP/1.1");
    assert_eq!(
        (requests[5].header("host").as_deref(), &*requests[5].body),
        (Some("shop.test"), &b"hello"[..])
    );
}

#[test]
fn a_unix_socket_is_named_as_in_the_file() {
    let backend = Backend::ok();
    let relay = UnixRelay::start(backend.addr());
    let config = to(&servers(&[&relay.url()])) + "[log]\naccess = \"json\"\n";
    let gateway = Gateway::start(&config);
    gateway.get("/").expect(200);
    let label = format!("server=\"{}\"", relay.url());
    assert_eq!(gateway.metric("tollgate_upstream_up", &[&label]), 1.0);
    assert_eq!(gateway.access_log(1)[0]["upstream"], format!("app/{}", relay.url()));
}

#[test]
fn a_unix_socket_is_drained_by_its_name() {
    let backend = Backend::ok();
    let relay = UnixRelay::start(backend.addr());
    let gateway = Gateway::start(&to(&servers(&[&relay.url()])));
    let path = format!("/api/v1/upstreams/app/servers/{}/drain", relay.url().replace('/', "%2F"));
    let request = |method: &str| {
        format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 0\r\n\r\n"
        )
    };
    send(gateway.admin_addr(), request("POST")).expect(200);
    gateway.get("/").expect(503);
    send(gateway.admin_addr(), request("DELETE")).expect(200);
    gateway.get("/").expect(200);
}

#[test]
fn http2_goes_over_a_unix_socket() {
    let backend =
        Http2Backend::start(Builder::new(), |request: Request<RecvStream>, mut respond| async move {
            let path = Bytes::copy_from_slice(request.uri().path().as_bytes());
            let mut out = respond.send_response(Response::new(()), false).expect("the gateway waits for it");
            send_all(&mut out, path, true).await;
        });
    let target = backend.url().trim_start_matches("http://").parse().expect("an address");
    let relay = UnixRelay::start(target);
    let gateway = Gateway::start(&to(&(servers(&[&relay.url()]) + "protocol = \"http2\"\n")));
    for path in ["/a", "/b"] {
        assert_eq!(gateway.get(path).expect(200).text(), path);
    }
}

#[test]
fn the_short_form_names_a_unix_socket_too() {
    let backend = Backend::ok();
    let relay = UnixRelay::start(backend.addr());
    for url in [relay.url(), relay.url().replace("unix:", "unix://")] {
        let upstream = format!("[upstreams]\napp = \"{url}\"\n");
        let gateway = Gateway::start(&format!("{upstream}[[routes]]\npath = \"/*\"\nupstream = \"app\"\n"));
        gateway.get("/").expect(200);
    }
}

/// A Unix socket has no name, and HTTP/1.0 needs none.
#[test]
fn a_request_without_host_gets_a_valid_one() {
    let backend = Backend::ok();
    let relay = UnixRelay::start(backend.addr());
    let health = "health = { path = \"/up\", interval = \"20ms\" }\n";
    let gateway = Gateway::start(&to(&(servers(&[&relay.url()]) + health)));
    send(gateway.addr(), "GET /old HTTP/1.0\r\n\r\n").expect(200);
    backend.wait_for(3);
    let hosts = |target: &str| {
        let of_target =
            backend.requests().into_iter().filter(|request| request.target() == target).collect::<Vec<_>>();
        of_target[0].header("host")
    };
    assert_eq!((hosts("/old").as_deref(), hosts("/up").as_deref()), (Some("app"), Some("localhost")));
}

#[test]
fn a_socket_that_vanishes_is_a_failed_connection_until_it_returns() {
    let backend =
        Backend::answering_once("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok");
    let relay = UnixRelay::start(backend.addr());
    let health = "health = { path = \"/up\", interval = \"20ms\", healthy = 1, unhealthy = 1 }\n";
    let gateway = Gateway::start(&to(&(servers(&[&relay.url()]) + health)));
    gateway.get("/").expect(200);
    relay.remove();
    gateway.wait_for_log("is unhealthy: no connection: No such file or directory");
    gateway.get("/").expect(503);
    relay.resume();
    eventually("an answer", || (gateway.get("/").status == 200).then_some(()));
}

#[test]
fn a_request_is_retried_at_another_server_of_any_kind() {
    let backend = Backend::ok();
    let relay = UnixRelay::start(backend.addr());
    let gone = "unix:/nonexistent/app.sock";
    let gateway = Gateway::start(&to(&servers(&[gone, &relay.url(), &backend.url()])));
    for _ in 0..9 {
        gateway.get("/").expect(200);
    }
    assert!(gateway.metric("tollgate_upstream_retries_total", &["reason=\"connect\""]) >= 1.0);
}

/// Linux refuses a connection to a Unix socket at once while its queue is full. A gateway that gave up would refuse a
/// burst that the same server takes over TCP.
#[test]
fn a_full_queue_is_waited_for() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("app.sock");
    let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None).expect("a socket");
    socket.bind(&socket2::SockAddr::unix(&path).expect("a path")).expect("the path is free");
    socket.listen(1).expect("a listener");
    let gateway = Gateway::start(&to(&servers(&[&format!("unix:{}", path.display())])));
    let target = gateway.addr();
    let asking: Vec<_> =
        (0..20).map(|_| std::thread::spawn(move || Client::connect(target).get("/", "").status)).collect();
    eventually("requests in flight", || (gateway.metric("tollgate_connections", &[]) >= 20.0).then_some(()));
    let listener = UnixListener::from(OwnedFd::from(socket));
    std::thread::spawn(move || {
        for near in listener.incoming().flatten() {
            answer(near);
        }
    });
    for asked in asking {
        assert_eq!(asked.join().expect("no panic"), 200);
    }
}

/// Answers each request of a connection.
fn answer(mut near: UnixStream) {
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while near.read(&mut buffer).is_ok_and(|read| read > 0) {
            near.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").ok();
        }
    });
}

#[test]
fn an_upgraded_connection_passes_bytes_both_ways() {
    let backend = Backend::start(|exchange| {
        exchange.write("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n");
        loop {
            let bytes = exchange.read_some();
            if bytes.is_empty() || !exchange.write(bytes) {
                return Next::Close;
            }
        }
    });
    let relay = UnixRelay::start(backend.addr());
    let gateway = Gateway::start(&to(&servers(&[&relay.url()])));
    let mut client = Client::connect(gateway.addr());
    client.write("GET / HTTP/1.1\r\nhost: test\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n");
    client.read_head().expect("a head").expect(101);
    client.write("there and back");
    assert_eq!(client.read_exact(14).expect("the echo"), b"there and back");
}
