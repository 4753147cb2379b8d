//! TLS to backends.

use std::io::{Read as _, Write as _};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::harness::servers::{is_up, over};
use crate::harness::{Authority, Backend, Client, Gateway, Next, eventually};

/// An authority that has signed `file.pem` for `a.test` and for the address of all backends.
fn authority(file: &str) -> Authority {
    let authority = Authority::new();
    authority.certify(file, &["a.test", "127.0.0.1"]);
    authority
}

fn error(gateway: &Gateway, index: usize) -> String {
    gateway.access_log(index)[index - 1]["error"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn requests_go_over_tls_and_connections_are_kept() {
    let authority = authority("server");
    let backend = Backend::ok_tls(authority.backend("server"));
    let gateway = Gateway::start(&over(&[&backend], &authority.trusted("")));
    let mut client = Client::connect(gateway.addr());
    for _ in 0..5 {
        client.get("/", "").expect(200);
    }
    let body = client.exchange("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 3\r\n\r\nabc");
    assert_eq!((body.expect(200).text().as_str(), backend.latest().body.as_slice()), ("ok", &b"abc"[..]));
    assert_eq!((backend.count(), backend.connections()), (6, 1));
    let handshake = &backend.handshakes()[0];
    assert_eq!((&handshake.name, handshake.certified), (&None, false), "an address is not a name");
    assert_eq!(handshake.protocol.as_deref(), Some("http/1.1"));
}

/// With TLS 1.3 a server may speak of keys and tickets at any time.
#[test]
fn what_tls_says_for_itself_ends_no_kept_connection() {
    let authority = authority("server");
    let backend = Backend::start_tls(authority.backend("server"), |exchange| {
        exchange.read_body();
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        exchange.renew_keys();
        Next::KeepAlive
    });
    let gateway = Gateway::start(&over(&[&backend], &authority.trusted("")));
    let mut client = Client::connect(gateway.addr());
    for _ in 0..3 {
        client.get("/", "").expect(200);
        client.exchange("POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 1\r\n\r\na").expect(200);
    }
    assert_eq!((backend.count(), backend.connections()), (6, 1));
}

#[test]
fn large_bodies_pass_both_ways() {
    let authority = authority("server");
    let backend = Backend::start_tls(authority.backend("server"), |exchange| {
        let body = exchange.read_body();
        exchange.write(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len()));
        exchange.write(&body);
        Next::KeepAlive
    });
    let gateway = Gateway::start(&over(&[&backend], &authority.trusted("")));
    let body: Vec<u8> = (0..3_000_000_u32).map(|index| (index % 251) as u8).collect();
    let mut client = Client::connect(gateway.addr());
    for _ in 0..2 {
        let mut request =
            format!("PUT / HTTP/1.1\r\nhost: test\r\ncontent-length: {}\r\n\r\n", body.len()).into_bytes();
        request.extend_from_slice(&body);
        let writer = client.write_in_background(request);
        assert!(client.read().expect(200).body == body, "it comes back as it went");
        writer.join().expect("it was written");
    }
    assert_eq!(backend.connections(), 1);
}

#[test]
fn sessions_are_resumed_in_both_versions() {
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let authority = authority("server");
        let config = authority.backend_of("server", &[version], false);
        let backend = Backend::start_tls(config.into(), |exchange| {
            exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
            Next::Close
        });
        let lines = authority.trusted(", server_name = \"a.test\"");
        let gateway = Gateway::start(&over(&[&backend], &lines));
        for _ in 0..4 {
            gateway.get("/").expect(200);
        }
        let handshakes = backend.handshakes();
        let resumed: Vec<bool> = handshakes.iter().map(|handshake| handshake.resumed).collect();
        assert_eq!(resumed, [false, true, true, true], "{version:?}, whichever worker");
        assert_eq!(handshakes[3].name.as_deref(), Some("a.test"));
    }
}

#[test]
fn an_untrusted_server_gets_no_request() {
    let (ours, theirs) = (authority("server"), authority("server"));
    let backend = Backend::ok_tls(theirs.backend("server"));
    let gateway = Gateway::start(&over(&[&backend], &ours.trusted("")));
    gateway.get("/").expect(502);
    assert_eq!((error(&gateway, 1).as_str(), backend.count()), ("tls", 0));
    gateway.wait_for_log("no TLS: invalid peer");
    let gateway = Gateway::start(&over(&[&backend], &theirs.trusted(", server_name = \"b.test\"")));
    gateway.get("/").expect(502);
    assert_eq!((error(&gateway, 1).as_str(), backend.count()), ("tls", 0), "the name must fit");
    let gateway = Gateway::start(&over(&[&backend], &theirs.trusted("")));
    gateway.get("/").expect(200);
}

#[test]
fn a_server_without_tls_gets_no_request() {
    let authority = authority("server");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("https://{}", listener.local_addr().expect("bound"));
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        assert!(stream.read(&mut [0; 1_000]).expect("a hello") > 0);
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").expect("an answer");
        stream.read_to_end(&mut Vec::new()).ok();
    });
    let route = "[[routes]]\npath = \"/*\"\nupstream = \"api\"\n";
    let tls = authority.trusted("");
    let gateway = Gateway::start(&format!("[upstreams.api]\nservers = [\"{url}\"]\n{tls}{route}"));
    gateway.get("/").expect(502);
    assert_eq!(error(&gateway, 1), "tls");
}

#[test]
fn silence_in_the_handshake_ends_with_connect_timeout() {
    let authority = authority("server");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("https://{}", listener.local_addr().expect("bound"));
    let lines = format!("servers = [\"{url}\"]\nconnect_timeout = \"100ms\"\n{}", authority.trusted(""));
    let route = "[[routes]]\npath = \"/*\"\nupstream = \"api\"\n";
    let gateway = Gateway::start(&format!("[upstreams.api]\n{lines}{route}"));
    gateway.get("/").expect(504);
    assert_eq!(error(&gateway, 1), "connect_timeout");
}

/// Nothing was sent, so that any method goes to another server; and so often in a row, it is ejected.
#[test]
fn a_failed_handshake_is_a_failure_to_connect() {
    let (ours, theirs) = (authority("server"), authority("server"));
    let (bad, good) = (Backend::ok_tls(theirs.backend("server")), Backend::ok_tls(ours.backend("server")));
    let lines = format!("eject = {{ failures = 3, for = \"1h\" }}\n{}", ours.trusted(""));
    let gateway = Gateway::start(&over(&[&bad, &good], &lines));
    for _ in 0..20 {
        let post = "POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 1\r\n\r\na";
        Client::connect(gateway.addr()).exchange(post).expect(200);
    }
    assert_eq!((bad.connections(), bad.count(), good.count()), (3, 0, 20));
    assert!(!is_up(&gateway, &bad));
}

#[test]
fn our_certificate_is_shown_where_it_is_asked_for() {
    let authority = authority("server");
    authority.certify("gateway", &["gateway.test"]);
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let backend = Backend::ok_tls(authority.backend_of("server", &[version], true).into());
        let path = |file: &str| authority.path(file).display().to_string();
        let own = format!(", cert = \"{}\", key = \"{}\"", path("gateway.pem"), path("gateway.key"));
        let gateway = Gateway::start(&over(&[&backend], &authority.trusted(&own)));
        gateway.get("/").expect(200);
        assert!(backend.handshakes()[0].certified);
        let gateway = Gateway::start(&over(&[&backend], &authority.trusted("")));
        gateway.get("/").expect(502);
        assert_eq!((error(&gateway, 1).as_str(), backend.count()), ("tls", 1), "{version:?}");
    }
}

#[test]
fn servers_with_and_without_tls_stand_side_by_side() {
    let authority = authority("server");
    let (secure, plain) = (Backend::ok_tls(authority.backend("server")), Backend::ok());
    let gateway = Gateway::start(&over(&[&secure, &plain], &authority.trusted("")));
    let mut client = Client::connect(gateway.addr());
    for _ in 0..10 {
        client.get("/", "").expect(200);
    }
    assert_eq!((secure.count(), plain.count()), (5, 5));
}

#[test]
fn health_is_asked_over_tls() {
    let authority = authority("server");
    let other = self::authority("server");
    let (well, ill) =
        (Backend::ok_tls(authority.backend("server")), Backend::ok_tls(other.backend("server")));
    let health =
        "health = { path = \"/healthz\", interval = \"20ms\", unhealthy = 1 }\neject = { failures = 0 }";
    let gateway = Gateway::start(&over(&[&well, &ill], &format!("{health}\n{}", authority.trusted(""))));
    eventually("one is ill", || (!is_up(&gateway, &ill)).then_some(()));
    well.wait_for(3);
    assert!(is_up(&gateway, &well) && well.latest().target() == "/healthz");
    gateway.wait_for_log("is unhealthy: no TLS");
}

#[test]
fn a_websocket_passes_through() {
    let authority = authority("server");
    let backend = Backend::start_tls(authority.backend("server"), |exchange| {
        let switch =
            "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\nhello";
        exchange.write(switch);
        while let bytes @ [_, ..] = exchange.read_some().as_slice() {
            exchange.write(bytes);
        }
        Next::Close
    });
    let gateway = Gateway::start(&over(&[&backend], &authority.trusted("")));
    let mut client = Client::connect(gateway.addr());
    client.write("GET / HTTP/1.1\r\nhost: test\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n");
    client.read_head().expect("an answer").expect(101);
    assert_eq!(client.read_exact(5).expect("what came with it"), b"hello");
    for part in [&b"ping"[..], &[7; 100_000]] {
        client.write(part);
        assert!(client.read_exact(part.len()).expect("the echo") == part);
    }
    client.finish();
    assert!(client.closes());
}

/// The same names in `gateway.toml`, other files behind them.
#[test]
fn a_reload_reads_renewed_files_and_keeps_what_has_not_changed() {
    let (before, after) = (authority("server"), authority("server"));
    let backend = Backend::ok_tls(after.backend("server"));
    let toml = over(&[&backend], &before.trusted(""));
    let gateway = Gateway::start(&toml);
    gateway.get("/").expect(502);
    std::fs::copy(after.path("ca.pem"), before.path("ca.pem")).expect("it can be copied");
    gateway.reload(&toml, "reloaded: ");
    gateway.get("/").expect(200);
    let gateway = Gateway::start(&toml.replace("[admin]", "[server]\nworkers = 1\n[admin]"));
    gateway.get("/").expect(200);
    let connections = backend.connections();
    gateway.reload(&toml.replace("30s", "31s"), "reloaded: ");
    gateway.get("/").expect(200);
    assert_eq!(backend.connections(), connections, "the connection is kept");
}

/// What is cut must not look whole: here an answer whose only end is that of the connection.
#[test]
fn an_answer_that_ends_without_a_goodbye_is_cut() {
    let authority = authority("server");
    let backend = Backend::start_tls(authority.backend("server"), |exchange| {
        exchange.write("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nhal");
        if exchange.target() == "/whole" { Next::Close } else { Next::Reset }
    });
    let gateway = Gateway::start(&over(&[&backend], &authority.trusted("")));
    assert_eq!(gateway.get("/whole").expect(200).text(), "hal");
    let mut client = Client::connect(gateway.addr());
    client.write("GET /cut HTTP/1.1\r\nhost: test\r\n\r\n");
    assert!(client.try_read("GET").is_err());
    assert_eq!(error(&gateway, 2), "response_cut");
}

/// Not every stale connection is noticed before it is used.
#[test]
fn a_kept_connection_that_was_closed_is_no_failure() {
    let authority = authority("server");
    let turns = AtomicUsize::new(0);
    let backend = Backend::start_tls(authority.backend("server"), move |exchange| {
        exchange.read_body();
        exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        if turns.fetch_add(1, Ordering::SeqCst) % 2 == 1 { Next::Close } else { Next::KeepAlive }
    });
    let gateway = Gateway::start(&over(&[&backend], &authority.trusted("")));
    let mut client = Client::connect(gateway.addr());
    for _ in 0..10 {
        client.get("/", "").expect(200);
    }
    assert_eq!(backend.count(), 10);
}
