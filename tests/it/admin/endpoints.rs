//! The admin listener over real sockets.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::harness::exposition::Page;
use crate::harness::{Backend, Client, Gateway, Response, TIMEOUT, eventually, everything_to, send};

fn start(admin: &str) -> Gateway {
    let route = "[upstreams]\ndemo = \"builtin:echo\"\n[[routes]]\npath = \"/*\"\nupstream = \"demo\"\n";
    Gateway::start(&format!("{route}[admin]\nlisten = \"127.0.0.1:0\"\n{admin}"))
}

fn ask(address: SocketAddr, line: &str, fields: &str) -> Response {
    send(address, format!("{line} HTTP/1.1\r\n{fields}\r\n"))
}

#[test]
fn it_is_alive_and_ready() {
    let gateway = start("");
    for path in ["/healthz", "/readyz", "/metrics", "/healthz?verbose"] {
        let response = gateway.admin(path).expect(200);
        assert_eq!(response.header("cache-control"), Some("no-store"), "{path}");
        assert!(!response.text().is_empty(), "{path}");
    }
    assert_eq!(
        gateway.admin("/metrics").header("content-type"),
        Some("text/plain; version=0.0.4; charset=utf-8")
    );
}

#[test]
fn metrics_count_the_traffic() {
    let backend = Backend::ok();
    let toml = everything_to(
        &backend,
        "limits = [\"two\"]\n[limits.two]\nalgorithm = \"gcra\"\nkey = \"ip\"\nrate = \"1/day\"\nburst = 2\n\
         [admin]\nlisten = \"127.0.0.1:0\"",
    );
    let gateway = Gateway::start(&toml);
    for expected in [200, 200, 429] {
        gateway.get("/").expect(expected);
    }
    let mut open = Client::connect(gateway.addr());
    open.get("/", "").expect(429);
    let server = backend.addr().to_string();
    let listener = gateway.addr().to_string();
    // A request is counted when its response has gone, which its client may see a moment earlier; and the gateway sees a moment later
    // that a client has left.
    let page = eventually("the last request to be counted, and the others' connections to be gone", || {
        let page = Page::parse(&gateway.admin("/metrics").text());
        let count = page.get("tollgate_request_duration_seconds_count", &[("route", "all")]);
        let open = page.get("tollgate_connections", &[("listener", &listener)]);
        ((count, open) == (Some(4.0), Some(1.0))).then_some(page)
    });
    for (name, labels, value) in [
        ("tollgate_requests_total", &[("route", "all"), ("code", "200")][..], 2.0),
        ("tollgate_requests_total", &[("route", "all"), ("code", "429")], 2.0),
        ("tollgate_decisions_total", &[("route", "all"), ("limit", "two"), ("decision", "allowed")], 2.0),
        ("tollgate_decisions_total", &[("route", "all"), ("limit", "two"), ("decision", "limited")], 2.0),
        ("tollgate_upstream_duration_seconds_count", &[("upstream", "api")], 2.0),
        ("tollgate_upstream_up", &[("upstream", "api"), ("server", &server)], 1.0),
        ("tollgate_connections", &[("listener", &listener)], 1.0),
        ("tollgate_store_keys", &[], 1.0),
    ] {
        assert_eq!(page.get(name, labels), Some(value), "{name} {labels:?}");
    }
}

#[test]
fn head_is_get_without_a_body() {
    let gateway = start("");
    let address = gateway.admin_addr();
    for path in ["/healthz", "/metrics"] {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        write!(stream, "HEAD {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\n"), "{answer}");
        assert!(!answer.contains("content-length: 0"), "{answer}");
    }
}

#[test]
fn other_paths_and_methods_are_refused_in_problem_details() {
    let gateway = start("");
    let address = gateway.admin_addr();
    for (line, status) in
        [("GET /index.html", 404), ("GET /healthz/", 404), ("GET /metricsx", 404), ("POST /nothing", 404)]
    {
        let response = ask(address, line, "host: localhost\r\n").expect(status);
        assert_eq!(response.header("content-type"), Some("application/problem+json"));
        assert_eq!(response.json()["status"], status, "{line}");
    }
    for line in ["POST /healthz", "DELETE /metrics", "OPTIONS /readyz"] {
        let response = ask(address, line, "host: localhost\r\ncontent-length: 0\r\n").expect(405);
        assert_eq!(response.header("allow"), Some("GET, HEAD"), "{line}");
    }
}

#[test]
fn the_token_guards_all_but_health_and_readiness() {
    let gateway = start("token_env = \"TOLLGATE_ADMIN_TOKEN\"");
    let address = gateway.admin_addr();
    for path in ["/healthz", "/readyz", "/", "/app.js"] {
        ask(address, &format!("GET {path}"), "host: localhost\r\n").expect(200);
    }
    for path in ["/metrics", "/nothing", "/api/v1/status", "/api/v1/nothing"] {
        for fields in ["", "authorization: Bearer wrong\r\n", "authorization: Basic test-token\r\n"] {
            let response =
                ask(address, &format!("GET {path}"), &format!("host: localhost\r\n{fields}")).expect(401);
            assert_eq!(response.header("www-authenticate"), Some("Bearer"));
            assert!(!response.text().contains("test-token"));
        }
    }
    ask(address, "GET /metrics", "host: localhost\r\nauthorization: Bearer test-token\r\n").expect(200);
    assert!(!gateway.stderr().contains("test-token"), "no secret in the log");
}

#[test]
fn on_loopback_a_foreign_host_or_origin_is_refused() {
    let gateway = start("");
    let address = gateway.admin_addr();
    for own in
        ["host: localhost:1\r\n", "host: [::1]\r\n", "host: 127.0.0.1\r\norigin: http://localhost:3000\r\n"]
    {
        ask(address, "GET /metrics", own).expect(200);
    }
    for foreign in [
        "host: attacker.example\r\n",
        "host: localhost\r\norigin: https://attacker.example\r\n",
        "host: localhost\r\norigin: null\r\n",
        "host: localhost\r\nhost: attacker.example\r\n",
    ] {
        for path in ["/metrics", "/healthz"] {
            ask(address, &format!("GET {path}"), foreign).expect(403);
        }
    }
}

/// `::ffff:127.0.0.1` is the same loopback: as open without a token, and as closed to other sites.
#[test]
fn the_mapped_loopback_is_guarded_like_the_loopback() {
    let gateway = Gateway::start(&format!(
        "[admin]\nlisten = \"[::ffff:127.0.0.1]:0\"\n{}",
        everything_to(&Backend::ok(), "")
    ));
    let port = gateway.admin_addr().port();
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    ask(address, "GET /metrics", "host: 127.0.0.1\r\n").expect(200);
    ask(address, "GET /metrics", "host: [::ffff:127.0.0.1]\r\n").expect(200);
    ask(address, "GET /metrics", "host: attacker.example\r\n").expect(403);
    ask(address, "GET /metrics", "host: localhost\r\norigin: https://attacker.example\r\n").expect(403);
}

#[test]
fn connections_are_few_and_short() {
    let gateway = start("");
    let address = gateway.admin_addr();
    let held: Vec<TcpStream> = (0..64).map(|_| TcpStream::connect(address).unwrap()).collect();
    let begun = Instant::now();
    // Probes get through: each takes the place of the oldest silent connection.
    for _ in 0..20 {
        gateway.admin("/healthz").expect(200);
        gateway.admin("/readyz").expect(200);
    }
    assert!(begun.elapsed() < Duration::from_secs(4), "the silent ones have not been timed out");
    held[0].set_read_timeout(Some(TIMEOUT)).unwrap();
    assert!(matches!((&held[0]).read(&mut [0; 1]), Ok(0) | Err(_)), "the oldest is closed");
    held[63].set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let newest = (&held[63]).read(&mut [0; 1]);
    assert!(newest.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock), "the newest is not");
    let crowd: Vec<TcpStream> = (0..640).map(|_| TcpStream::connect(address).unwrap()).collect();
    gateway.admin("/healthz").expect(200);
    drop(crowd);
    // Traffic does not mind.
    gateway.get("/").expect(200);
    let started = Instant::now();
    for mut stream in held {
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let mut rest = Vec::new();
        // Closed with or without a 408, but closed.
        let _ = stream.read_to_end(&mut rest);
    }
    assert!(started.elapsed() < Duration::from_secs(20), "a silent client is not kept");
    gateway.admin("/healthz").expect(200);
}

#[test]
fn garbage_and_large_heads_are_refused() {
    let gateway = start("");
    for bytes in [
        "\0\0\0\0\r\n\r\n".to_owned(),
        "GET /healthz\r\n\r\n".to_owned(),
        format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "a".repeat(20_000)),
        format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\n{}\r\n", "x: a\r\n".repeat(200)),
    ] {
        let mut stream = TcpStream::connect(gateway.admin_addr()).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let _ = stream.write_all(bytes.as_bytes());
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(
            answer.is_empty() || answer.starts_with(b"HTTP/1.1 4"),
            "{}",
            String::from_utf8_lossy(&answer)
        );
    }
    gateway.admin("/healthz").expect(200);
}
