//! Who may ask.

use std::net::SocketAddr;

use tollgate::rate_limit_service::{HEALTH_CHECK, SHOULD_RATE_LIMIT};

use crate::harness::{Authority, Client, Gateway, RateLimitClient, Response, send};

const ROUTES: &str = "[upstreams]\necho = \"builtin:echo\"\n[[routes]]\npath = \"/*\"\nupstream = \"echo\"\n";
const TOKEN: &str = "s3cret-of-the-fleet";
const ABOUT: &str = "x-forwarded-for: 192.0.2.7\r\n";

fn ask(address: SocketAddr, path: &str, host: &str, fields: &str) -> Response {
    send(address, format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n{ABOUT}{fields}\r\n"))
}

fn open() -> Gateway {
    Gateway::start(&format!("[decisions]\nlisten = \"127.0.0.1:0\"\n{ROUTES}"))
}

fn guarded() -> Gateway {
    let file = format!("[decisions]\nlisten = \"127.0.0.1:0\"\ntoken_env = \"DECISIONS\"\n{ROUTES}");
    Gateway::start_in(&file, &[], &[("DECISIONS", TOKEN)])
}

#[test]
fn without_a_token_only_calls_to_this_machine_are_answered() {
    let gateway = open();
    let address = gateway.decisions_addr();
    for host in ["localhost", "127.0.0.1:1", "[::1]"] {
        ask(address, "/check/envoy/", host, "").expect(200);
    }
    for host in ["shop.test", "127.0.0.1.shop.test", "localhost.shop.test"] {
        ask(address, "/check/envoy/", host, "").expect(403);
    }
    ask(address, "/check/envoy/", "localhost", "origin: http://localhost:3000\r\n").expect(200);
    for origin in ["https://shop.test", "null", "http://127.0.0.1@shop.test"] {
        ask(address, "/check/envoy/", "localhost", &format!("origin: {origin}\r\n")).expect(403);
    }
    let absolute = send(
        address,
        format!("GET http://shop.test/check/envoy/ HTTP/1.1\r\nhost: shop.test\r\n{ABOUT}\r\n"),
    );
    absolute.expect(403);
}

#[test]
fn with_a_token_every_call_needs_it_and_hosts_are_those_of_clients() {
    let gateway = guarded();
    let address = gateway.decisions_addr();
    let header = format!("x-tollgate-token: {TOKEN}\r\n");
    ask(address, "/check/envoy/", "shop.test", &header).expect(200);
    ask(address, &format!("/{TOKEN}/check/envoy/"), "shop.test", "origin: https://shop.test\r\n").expect(200);
    // A proxy that puts it into the path may pass on what its client sends.
    ask(address, &format!("/{TOKEN}/check/envoy/"), "shop.test", "x-tollgate-token: guess\r\n").expect(200);
    for (path, fields) in [
        ("/check/envoy/", ""),
        ("/guess/check/envoy/", ""),
        ("/check/envoy/", "x-tollgate-token: guess\r\n"),
        ("/check/envoy/", "x-tollgate-token: s3cret-of-the-flee\r\n"),
        ("/check/envoy/", "x-tollgate-token: s3cret-of-the-fleett\r\n"),
        ("/check/envoy/", "x-tollgate-token:\r\n"),
        ("/check/envoy/", "authorization: Bearer s3cret-of-the-fleet\r\n"),
        ("//check/envoy/", ""),
        ("/v1/decide", ""),
    ] {
        let answer = ask(address, path, "localhost", fields).expect(401);
        assert!(!answer.text().contains("s3cret"), "{path} {fields}");
    }
    let unknown = ask(address, "/nothing", "localhost", &header);
    unknown.expect(404);
}

#[test]
fn calls_of_grpc_need_the_token_too() {
    let gateway = guarded();
    for path in [SHOULD_RATE_LIMIT, HEALTH_CHECK] {
        let client = RateLimitClient::connect(gateway.decisions_addr());
        assert_eq!(client.call(path, &[0; 5]), Err(16), "{path}");
        assert!(client.with_token(TOKEN).call(path, &[0; 5]).is_ok(), "{path}");
    }
    // The authority is a name of the caller's choice.
    let open = open();
    let client = RateLimitClient::connect(open.decisions_addr());
    assert!(client.call(HEALTH_CHECK, &[0; 5]).is_ok());
}

/// Asks a listener for which clients have certificates of `authority`: with a certificate or without, and with these
/// fields. `None`: the connection ends.
fn asked_by(gateway: &Gateway, authority: &Authority, own: Option<&str>, fields: &str) -> Option<u16> {
    let config = authority.client_of(own, rustls::ALL_VERSIONS);
    let mut client = Client::try_connect_tls(gateway.decisions_addr(), &config, "127.0.0.1").ok()?;
    client.write(format!("GET /check/envoy/ HTTP/1.1\r\nhost: shop.test\r\n{ABOUT}{fields}\r\n"));
    client.try_read("GET").ok().map(|answer| answer.status)
}

fn with_certificates(authority: &Authority, listen: &str, lines: &str) -> String {
    ["server", "proxy"].into_iter().for_each(|name| authority.certify(name, &["127.0.0.1"]));
    let path = |file: &str| authority.path(file).display().to_string();
    format!(
        "[decisions]\nlisten = \"{listen}\"\n{lines}tls.cert = \"{}\"\ntls.key = \"{}\"\ntls.client_ca = \"{}\"\n{ROUTES}",
        path("server.pem"),
        path("server.key"),
        path("ca.pem")
    )
}

#[test]
fn a_certificate_is_asked_for_on_this_listener_alone() {
    let authority = Authority::new();
    let gateway = Gateway::start(&with_certificates(&authority, "0.0.0.0:0", ""));
    gateway.get("/").expect(200);
    assert_eq!(asked_by(&gateway, &authority, None, ""), None);
    assert_eq!(asked_by(&gateway, &authority, Some("proxy"), ""), Some(200));
}

#[test]
fn a_certificate_stands_in_for_the_token_only_where_it_is_optional() {
    let authority = Authority::new();
    let start = |lines: &str| {
        let lines = format!("token_env = \"DECISIONS\"\n{lines}");
        let file = with_certificates(&authority, "0.0.0.0:0", &lines);
        Gateway::start_in(&file, &[], &[("DECISIONS", TOKEN)])
    };
    let token = format!("x-tollgate-token: {TOKEN}\r\n");
    let optional = start("tls.client_auth = \"optional\"\n");
    assert_eq!(asked_by(&optional, &authority, None, ""), Some(401));
    assert_eq!(asked_by(&optional, &authority, None, &token), Some(200));
    assert_eq!(asked_by(&optional, &authority, Some("proxy"), ""), Some(200));
    let required = start("");
    assert_eq!(asked_by(&required, &authority, None, &token), None);
    assert_eq!(asked_by(&required, &authority, Some("proxy"), ""), Some(401));
    assert_eq!(asked_by(&required, &authority, Some("proxy"), &token), Some(200));
}

#[test]
fn a_reload_changes_the_token_and_never_opens_the_listener() {
    let authority = Authority::new();
    let tokens = [("OLD", "an-old-token"), ("NEW", "a-new-token")];
    let file = |lines: &str| format!("[decisions]\nlisten = \"127.0.0.1:0\"\n{lines}{ROUTES}");
    let gateway = Gateway::start_in(&file("token_env = \"OLD\"\n"), &[], &tokens);
    let status = |token: &str| {
        ask(gateway.decisions_addr(), "/check/envoy/", "a", &format!("x-tollgate-token: {token}\r\n")).status
    };
    assert_eq!((status("an-old-token"), status("a-new-token")), (200, 401));
    gateway.reload(&file("token_env = \"NEW\"\n"), "reloaded");
    assert_eq!((status("an-old-token"), status("a-new-token")), (401, 200));
    // Without TLS nobody shows a certificate, and TLS begins with the listener.
    gateway.reload(&with_certificates(&authority, "127.0.0.1:0", ""), "reloaded");
    gateway.wait_for_log("decisions");
    assert_eq!((status("an-old-token"), status("a-new-token"), status("")), (401, 200, 401));
    gateway.reload(ROUTES, "reloaded");
    assert_eq!((status("a-new-token"), status("")), (200, 401));
}

/// A listener of calls begins with the process, and so do the routes of calls.
#[test]
fn a_reload_that_adds_the_listener_changes_nothing() {
    let gateway = Gateway::start(ROUTES);
    let file = format!("[decisions]\nlisten = \"127.0.0.1:0\"\n{ROUTES}");
    gateway.reload(&file, "reloaded: nothing changes before a restart");
    gateway.reload(ROUTES, "reloaded: no changes");
}

#[test]
fn others_cannot_take_all_connections_of_a_client() {
    let file =
        format!("[server]\nmax_connections_per_client = 2\n[decisions]\nlisten = \"127.0.0.1:0\"\n{ROUTES}");
    let gateway = Gateway::start(&file);
    let call = format!("GET /check/envoy/ HTTP/1.1\r\nhost: localhost\r\n{ABOUT}\r\n");
    let mut clients: Vec<_> = (0..8).map(|_| Client::connect(gateway.decisions_addr())).collect();
    for client in &mut clients {
        client.exchange(&call).expect(200);
    }
    gateway.get("/").expect(200);
}
