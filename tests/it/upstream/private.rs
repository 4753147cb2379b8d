//! Backends that authenticate a connection instead of a request (NTLM, Negotiate): such a connection serves one client only.

use std::collections::HashMap;
use std::sync::Mutex;

use crate::harness::{AllVersions, Backend, Client, Gateway, Http2, Next, everything_to};

const ONE_WORKER: &str = "[server]\nworkers = 1\n";

/// NTLM in its three legs. Once a connection is authenticated, each request on it is answered `USER on CONNECTION`.
fn ntlm() -> Backend {
    let users: Mutex<HashMap<usize, String>> = Mutex::default();
    Backend::start(move |exchange| {
        let mut users = users.lock().expect("no panic inside");
        let authorization = exchange.field("authorization").unwrap_or_default();
        let challenge = |more: &str| {
            format!("HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: NTLM{more}\r\ncontent-length: 0\r\n\r\n")
        };
        let answer = match (authorization.strip_prefix("NTLM "), users.get(&exchange.connection)) {
            (Some("hello"), _) => {
                users.insert(exchange.connection, String::new());
                challenge(" challenge")
            }
            (Some(user), Some(_)) => {
                users.insert(exchange.connection, user.to_owned());
                page(user, exchange.connection)
            }
            (None, Some(user)) if !user.is_empty() => page(user, exchange.connection),
            _ => challenge(""),
        };
        exchange.write(answer);
        Next::KeepAlive
    })
}

fn page(user: &str, connection: usize) -> String {
    let body = format!("{user} on {connection}");
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

/// Logs in, and gives what the last answer says.
fn log_in(client: &mut Client, user: &str) -> String {
    client.get("/", "").expect(401);
    client.get("/", "authorization: NTLM hello\r\n").expect(401);
    client.get("/", &format!("authorization: NTLM {user}\r\n")).expect(200).text()
}

fn start(backend: &Backend, rest: &str) -> Gateway {
    Gateway::start(&(ONE_WORKER.to_owned() + &everything_to(backend, rest)))
}

#[test]
fn a_login_lasts_for_its_client_alone() {
    let backend = ntlm();
    let gateway = start(&backend, "");
    let (mut alice, mut bob) = (Client::connect(gateway.addr()), Client::connect(gateway.addr()));
    let page = log_in(&mut alice, "alice");
    assert_eq!(page, "alice on 0");
    bob.get("/", "").expect(401);
    for _ in 0..3 {
        assert_eq!(alice.get("/", "").expect(200).text(), page);
        bob.get("/", "").expect(401);
    }
    assert_eq!(log_in(&mut bob, "bob"), "bob on 1");
    assert_eq!(alice.get("/", "").expect(200).text(), page);
    drop((alice, bob));
    let mut carol = Client::connect(gateway.addr());
    carol.get("/", "").expect(401);
    assert_eq!(backend.connections(), 3);
}

#[test]
fn a_login_lasts_among_several_servers() {
    let backends = [ntlm(), ntlm(), ntlm()];
    let urls: Vec<_> = backends.iter().map(|backend| format!("\"{}\"", backend.url())).collect();
    let route = "[[routes]]\nname = \"all\"\npath = \"/*\"\nupstream = \"api\"\n";
    let upstream = format!("[upstreams.api]\nservers = [{}]\n", urls.join(", "));
    let gateway = Gateway::start(&format!("{ONE_WORKER}{upstream}{route}"));
    let (mut alice, mut bob) = (Client::connect(gateway.addr()), Client::connect(gateway.addr()));
    assert_eq!(log_in(&mut alice, "alice"), "alice on 0");
    assert_eq!(log_in(&mut bob, "bob"), "bob on 0");
    for _ in 0..5 {
        assert_eq!(alice.get("/", "").expect(200).text(), "alice on 0");
        assert_eq!(bob.get("/", "").expect(200).text(), "bob on 0");
    }
}

/// How many connections two clients need at a backend that answers with `head`, if they ask with `fields` and in turn.
fn connections(head: &str, fields: &str, rest: &str) -> usize {
    let backend = Backend::answering(format!("HTTP/1.1 {head}content-length: 2\r\n\r\nok"));
    let gateway = start(&backend, rest);
    let (mut one, mut other) = (Client::connect(gateway.addr()), Client::connect(gateway.addr()));
    for _ in 0..3 {
        assert_eq!(one.get("/", fields).text(), "ok");
        assert_eq!(other.get("/", fields).text(), "ok");
    }
    backend.connections()
}

#[test]
fn a_connection_is_private_by_any_sign_of_such_a_login() {
    for head in [
        "401 Unauthorized\r\nwww-authenticate: NTLM\r\n",
        "200 OK\r\nwww-authenticate: Negotiate oRQwEqADCgEAoQsGCSqGSIb3EgECAg==\r\n",
        "401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"a, b\", nTlM\r\n",
        "401 Unauthorized\r\nwww-authenticate: Basic realm=\"a\"\r\nx: y\r\nwww-authenticate: NEGOTIATE\r\n",
        "407 Proxy Authentication Required\r\nProxy-Authenticate: ,\tntlm\tabc\r\n",
        "103 Early Hints\r\nwww-authenticate: NTLM\r\n\r\nHTTP/1.1 200 OK\r\n",
    ] {
        assert_eq!(connections(head, "", ""), 2, "{head}");
    }
    for fields in ["authorization: NTLM TlRMTVNT\r\n", "Authorization: negotiate YII=\r\n"] {
        assert_eq!(connections("200 OK\r\n", fields, ""), 2, "{fields}");
    }
}

#[test]
fn other_logins_share_connections() {
    for head in [
        "200 OK\r\n",
        "401 Unauthorized\r\nwww-authenticate: Basic realm=\"NTLM\"\r\n",
        "401 Unauthorized\r\nwww-authenticate: Digest realm=\"a\", qop=\"auth\"\r\nx-ntlm: NTLM\r\n",
        "200 OK\r\nwarning: NTLM, Negotiate\r\n",
    ] {
        assert_eq!(connections(head, "authorization: Bearer NTLM\r\n", ""), 1, "{head}");
    }
}

#[test]
fn a_private_connection_that_died_is_replaced() {
    let backend = ntlm();
    let gateway = start(&backend, "");
    let mut alice = Client::connect(gateway.addr());
    log_in(&mut alice, "alice");
    backend.close_connections();
    alice.get("/", "").expect(401);
    assert_eq!(log_in(&mut alice, "alice"), "alice on 1");
    assert_eq!(alice.get("/", "").expect(200).text(), "alice on 1");
}

/// A stream of HTTP/2 or HTTP/3 has no connection that a login could last for.
#[test]
fn it_is_closed_behind_a_client_that_speaks_http2_or_http3() {
    let backend = ntlm();
    let gateway = AllVersions::start(&(ONE_WORKER.to_owned() + &everything_to(&backend, "")));
    let clients = gateway.clients();
    for (client, expected) in clients.iter().flat_map(|client| [client; 3]).zip(1..) {
        client.get("/").expect(401);
        assert_eq!(backend.connections(), expected, "{}", client.version());
    }
}

/// Streams of a client share connections with its PROXY protocol header, but no login.
#[test]
fn it_is_closed_behind_http2_with_proxy_protocol_too() {
    let backend = ntlm();
    let (url, route) = (backend.url(), "[[routes]]\nname = \"all\"\npath = \"/*\"\nupstream = \"api\"\n");
    let upstream = format!("[upstreams.api]\nservers = [\"{url}\"]\nsend_proxy_protocol = \"v1\"\n");
    let gateway = Gateway::start(&format!("{ONE_WORKER}{upstream}{route}"));
    let client = Http2::connect(gateway.addr());
    for expected in 1..4 {
        client.get("/").expect(401);
        assert_eq!(backend.connections(), expected);
    }
    // Over HTTP/1.1 the login lasts, on the connection that began with the header.
    let mut alice = Client::connect(gateway.addr());
    let page = log_in(&mut alice, "alice");
    assert_eq!(page, "alice on 3");
    assert_eq!(alice.get("/", "").expect(200).text(), page);
}

/// It would hold a place that others wait for.
#[test]
fn it_is_closed_where_connections_are_bounded() {
    let head = "401 Unauthorized\r\nwww-authenticate: NTLM\r\n";
    let backend = Backend::answering(format!("HTTP/1.1 {head}content-length: 0\r\n\r\n"));
    let (url, route) = (backend.url(), "[[routes]]\nname = \"all\"\npath = \"/*\"\nupstream = \"api\"\n");
    let upstream = format!("[upstreams.api]\nservers = [\"{url}\"]\nmax_connections = 1\n");
    let gateway = Gateway::start(&format!("{ONE_WORKER}{upstream}{route}"));
    let (mut one, mut other) = (Client::connect(gateway.addr()), Client::connect(gateway.addr()));
    for _ in 0..3 {
        one.get("/", "").expect(401);
        other.get("/", "").expect(401);
    }
    assert_eq!(backend.connections(), 6);
}
