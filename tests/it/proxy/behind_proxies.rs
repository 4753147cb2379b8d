//! Behind a real nginx and a real HAProxy, each of which writes one header and passes the others as the client sent them.

use std::net::SocketAddr;

use crate::harness::{Backend, Client, Front, Gateway, everything_to};

/// One request per client; the proxy itself, and all of its network but the clients, are exempt.
fn gateway(backend: &Backend, server: &str) -> Gateway {
    let limits = "limits = [\"one\"]
        [limits.one]
        algorithm = \"fixed-window\"
        key = \"ip\"
        rate = \"1/366day\"
        exempt = [\"ip:127.0.0.1\"]
        [server]
        trusted_proxies = [\"127.0.0.1\"]\n";
    Gateway::start(&everything_to(backend, &format!("{limits}{server}")))
}

/// What a client may send beside what the proxy writes.
const SPOOFS: [&str; 12] = [
    "",
    "forwarded: x\r\n",
    "forwarded: for=127.0.0.1\r\n",
    "forwarded: for=203.0.113.9\r\n",
    "forwarded: for=\"\r\n",
    "x-forwarded-for: 203.0.113.9\r\n",
    "x-forwarded-for: x\r\n",
    "x-forwarded-for: 127.0.0.1\r\nforwarded: for=127.0.0.1\r\n",
    "x-real-ip: 203.0.113.9\r\n",
    "x-real-ip: 127.0.0.1\r\n",
    "x_forwarded_for: 203.0.113.9\r\nX_Real_IP: 203.0.113.9\r\n",
    "connection: x-forwarded-for, forwarded, x-real-ip\r\nx-forwarded-for: 203.0.113.9\r\n",
];

/// Each client has one request, whatever it sends.
#[track_caller]
fn no_client_escapes(front: SocketAddr, backend: &Backend) {
    let status = |last: u8, fields: &str| {
        Client::connect_from([127, 0, 0, last].into(), front).get("/", fields).status
    };
    for (last, spoof) in (10..).zip(SPOOFS) {
        assert_eq!(status(last, spoof), 200, "the first request of a client with {spoof:?}");
        let seen = backend.latest();
        let client = format!("127.0.0.{last}");
        let list = seen.header_all("x-forwarded-for").join(", ");
        assert!(list.ends_with(&format!("{client}, 127.0.0.1")), "{list} with {spoof:?}");
        if let Some(address) = seen.header("x-real-ip") {
            assert_eq!(address, client, "with {spoof:?}");
        }
        for other in SPOOFS {
            assert_eq!(status(last, other), 429, "a further request of that client with {other:?}");
        }
    }
}

#[test]
fn nginx_that_appends_to_x_forwarded_for() {
    let backend = Backend::ok();
    let gateway = gateway(&backend, "");
    let front = Front::nginx(gateway.addr(), "proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;");
    no_client_escapes(front.addr(), &backend);
    assert_eq!(backend.latest().header("forwarded"), None);
}

#[test]
fn nginx_that_sets_x_real_ip() {
    let backend = Backend::ok();
    let gateway = gateway(&backend, "client_ip = \"header:X-Real-IP\"");
    let front = Front::nginx(gateway.addr(), "proxy_set_header X-Real-IP $remote_addr;");
    no_client_escapes(front.addr(), &backend);
}

#[test]
fn haproxy_that_adds_x_forwarded_for() {
    let backend = Backend::ok();
    let gateway = gateway(&backend, "client_ip = \"x-forwarded-for\"");
    let front = Front::haproxy(gateway.addr(), "option forwardfor");
    no_client_escapes(front.addr(), &backend);
}

#[test]
fn haproxy_that_adds_forwarded() {
    let backend = Backend::ok();
    let gateway = gateway(&backend, "client_ip = \"forwarded\"");
    let front = Front::haproxy(gateway.addr(), "http-request add-header forwarded for=%[src]");
    no_client_escapes(front.addr(), &backend);
    Client::connect_from([127, 0, 0, 99].into(), front.addr()).get("/", "").expect(200);
    assert_eq!(backend.latest().header("forwarded").as_deref(), Some("for=127.0.0.99"));
}

/// The proxy writes the header that the gateway does not read: all clients are the proxy, and the log says so once.
#[test]
fn a_proxy_that_writes_the_other_header_is_warned_about_once() {
    let backend = Backend::ok();
    let gateway = gateway(&backend, "");
    let front = Front::haproxy(gateway.addr(), "http-request set-header forwarded for=%[src]");
    for last in 10..14 {
        let response = Client::connect_from([127, 0, 0, last].into(), front.addr()).get("/", "");
        response.expect(200);
    }
    let warnings = || {
        let lines = gateway.stderr_lines();
        lines.into_iter().filter(|line| line.contains("client_ip")).collect::<Vec<_>>()
    };
    crate::harness::eventually("a warning", || (!warnings().is_empty()).then_some(()));
    assert_eq!(warnings().len(), 1, "{:?}", warnings());
    assert!(warnings()[0].contains("`forwarded`") && warnings()[0].contains("127.0.0.1"), "{:?}", warnings());
}
