//! Health checks: what is asked where, and which answers are good.

use std::io::Write as _;
use std::net::TcpListener;

use tollgate::explain::{ExplainRequest, explain};

use crate::harness::config::parse;
use crate::harness::servers::{is_up, over, over_http2};
use crate::harness::{Authority, Backend, Gateway, Next, eventually};

fn gateway(server: &Backend, health: &str) -> Gateway {
    Gateway::start(&over(&[server], &health_of(health)))
}

fn health_of(health: &str) -> String {
    format!("health = {{ {health}, interval = \"20ms\", timeout = \"10s\" }}")
}

/// A server that answers each request with this head, and no body.
fn answering(head: &'static str) -> Backend {
    Backend::start(move |exchange| {
        exchange.write(format!("HTTP/1.1 {head}\r\ncontent-length: 0\r\n\r\n"));
        Next::Close
    })
}

/// The first check alone decides, so that a server is up after several.
fn stays_up(gateway: &Gateway, server: &Backend) {
    server.wait_for(3);
    assert!(is_up(gateway, server), "{:?}", gateway.stderr_lines());
}

#[test]
fn method_headers_and_host_are_those_of_the_file() {
    let server = answering("200 OK");
    let health = "path = \"/up\", method = \"HEAD\", host = \"probe.internal\", \
                  headers = { Authorization = \"Bearer 7\", user-agent = \"probe\", accept = \"text/plain\" }";
    stays_up(&gateway(&server, health), &server);
    let asked = server.latest();
    assert_eq!(asked.request_line(), "HEAD /up HTTP/1.1");
    for (name, value) in [
        ("host", "probe.internal"),
        ("authorization", "Bearer 7"),
        ("user-agent", "probe"),
        ("accept", "text/plain"),
    ] {
        assert_eq!(asked.header(name).as_deref(), Some(value), "{name}");
        assert_eq!(asked.head.to_lowercase().matches(&format!("\r\n{name}:")).count(), 1, "{name}");
    }
    // RFC 9110 §8.6.
    for (method, length) in [("POST", Some("0")), ("OPTIONS", None)] {
        let server = answering("200 OK");
        stays_up(&gateway(&server, &format!("path = \"/up\", method = \"{method}\"")), &server);
        assert_eq!(server.latest().header("content-length").as_deref(), length, "{method}");
    }
}

#[test]
fn another_port_of_the_server_is_asked() {
    let (server, aside) = (Backend::ok(), answering("500 Internal Server Error"));
    let port = aside.addr().port();
    let gateway = gateway(&server, &format!("path = \"/up\", port = {port}"));
    eventually("the server is down", || (!is_up(&gateway, &server)).then_some(()));
    assert_eq!(aside.latest().header("host"), Some(format!("127.0.0.1:{port}")));
    assert_eq!(server.count(), 0);
    gateway.wait_for_log(&format!("{} is unhealthy: it answered 500", server.addr()));
}

#[test]
fn statuses_say_which_answers_are_good() {
    for (statuses, head, good) in [
        ("[\"2xx\"]", "204 No Content", true),
        ("[\"2xx\"]", "302 Found\r\nlocation: /elsewhere", false),
        ("[401, \"5xx\"]", "401 Unauthorized", true),
        ("[401, \"5xx\"]", "503 Service Unavailable", true),
        ("[401, \"5xx\"]", "200 OK", false),
        ("[\"200\"]", "201 Created", false),
    ] {
        let server = answering(head);
        let gateway = gateway(&server, &format!("path = \"/up\", statuses = {statuses}"));
        if good {
            stays_up(&gateway, &server);
        } else {
            gateway.wait_for_log(&format!("is unhealthy: it answered {}", &head[..3]));
        }
        assert!(
            server.requests().iter().all(|request| request.target() == "/up"),
            "a redirect is not followed"
        );
    }
}

#[test]
fn a_body_is_not_read() {
    let server = Backend::start(|exchange| {
        exchange.write("HTTP/1.1 200 OK\r\n\r\n");
        while exchange.write([b'x'; 1_024]) {}
        Next::Close
    });
    stays_up(&gateway(&server, "path = \"/up\""), &server);
}

#[test]
fn a_connection_is_enough_for_tcp() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let (closed, _held) = Backend::refusing();
    let file = over(&[], &health_of("type = \"tcp\""));
    let file = file.replace("servers = [", &format!("servers = [\"http://{address}\", \"http://{closed}\""));
    let gateway = Gateway::start(&file);
    gateway.wait_for_log(&format!("{closed} is unhealthy: no connection"));
    for _ in 0..3 {
        listener.accept().expect("a check");
    }
    let up = |server| gateway.metric("tollgate_upstream_up", &[&format!("server=\"{server}\"")]) > 0.0;
    assert!(up(address) && !up(closed));
}

#[test]
fn tcp_to_a_server_of_tls_includes_the_handshake() {
    let authority = Authority::new();
    authority.certify("server", &["a.test", "127.0.0.1"]);
    let server = Backend::ok_tls(authority.backend("server"));
    let lines =
        format!("{}\n{}", authority.trusted(", server_name = \"a.test\""), health_of("type = \"tcp\""));
    let gateway = Gateway::start(&over(&[&server], &lines));
    eventually("checks", || (server.handshakes().len() > 3).then_some(()));
    assert!(is_up(&gateway, &server));
    assert_eq!(server.handshakes()[0].name.as_deref(), Some("a.test"), "SNI is that of requests");
    // A server without TLS.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let file = over(&[&server], &lines).replace(&server.url(), &format!("https://{address}"));
    let gateway = Gateway::start(&file);
    let (mut plain, _) = listener.accept().expect("a check");
    plain.write_all(b"220 mail.test ESMTP\r\n").expect("it is read");
    gateway.wait_for_log("is unhealthy: no TLS");
}

#[test]
fn explain_shows_the_check() {
    for (health, words) in [
        ("path = \"/up?a=1\", method = \"HEAD\"", "health check: `HEAD /up?a=1`)"),
        ("type = \"tcp\", port = 81", "health check: a connection on port 81)"),
        ("type = \"grpc\"", "health check: gRPC)"),
        ("type = \"grpc\", service = \"shop.Cart\"", "health check: gRPC for `shop.Cart`)"),
    ] {
        let file = over_http2(&["http://127.0.0.1:9001"], &health_of(health), "");
        let plan = parse(&file).expect("a good file").plan;
        let request = ExplainRequest::new("GET", "http://a.test/", &[], None).expect("a request");
        let told = explain(&plan, &request).to_string();
        let expected = format!("upstream  `api` (127.0.0.1:9001; {words} gets `/`\n");
        assert!(told.contains(&expected), "{told}");
    }
}
