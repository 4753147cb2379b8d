//! Connections to servers that begin with a PROXY protocol header.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use tollgate::plan::ProxyProtocolVersion;
use tollgate::proxy::proxy_protocol::parse;
use tollgate::upstream::proxy_protocol::client_header;

use crate::harness::servers::ALONE;
use crate::harness::{Client, Gateway, Http2, TIMEOUT, eventually};

/// A request, and the connection that it came on.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    connection: usize,
    /// What the header said: the client and the address that it connected to; `None`: nothing.
    ends: Option<(SocketAddr, SocketAddr)>,
    /// Method and target.
    request: String,
}

/// A server that reads a PROXY protocol header on each connection, then answers requests without a body.
struct Server {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    /// Connections that the gateway has closed.
    ended: Arc<AtomicUsize>,
}

impl Server {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let seen = Arc::<Mutex<Vec<Seen>>>::default();
        let (shared, ended) = (Arc::clone(&seen), Arc::<AtomicUsize>::default());
        let counted = Arc::clone(&ended);
        std::thread::spawn(move || {
            for (connection, stream) in listener.incoming().flatten().enumerate() {
                let (shared, counted) = (Arc::clone(&shared), Arc::clone(&counted));
                std::thread::spawn(move || {
                    serve(stream, connection, &shared);
                    counted.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        Self { address, seen, ended }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The requests so far, but for health checks.
    fn seen(&self) -> Vec<Seen> {
        let seen = self.seen.lock().expect("no panic inside");
        seen.iter().filter(|seen| seen.request != "GET /up").cloned().collect()
    }

    fn checks(&self) -> Vec<Seen> {
        let seen = self.seen.lock().expect("no panic inside");
        seen.iter().filter(|seen| seen.request == "GET /up").cloned().collect()
    }
}

fn serve(mut stream: TcpStream, connection: usize, seen: &Mutex<Vec<Seen>>) {
    stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
    let Some(ends) = read_header(&mut stream) else { return };
    loop {
        let Some(head) = read_until(&mut stream, b"\r\n\r\n") else { return };
        let head = String::from_utf8_lossy(&head).into_owned();
        let request = head.split(" HTTP/").next().unwrap_or_default().to_owned();
        let status = if request == "GET /fail" { "503 Service Unavailable" } else { "200 OK" };
        seen.lock().expect("no panic inside").push(Seen { connection, ends, request });
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\nok");
        if stream.write_all(answer.as_bytes()).is_err() || head.contains("connection: close") {
            return;
        }
    }
}

/// Reads byte by byte, so that nothing after the end is touched.
fn read_until(stream: &mut TcpStream, end: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    while !bytes.ends_with(end) {
        bytes.extend_from_slice(&read_bytes::<1>(stream)?);
    }
    Some(bytes)
}

fn read_bytes<const N: usize>(stream: &mut TcpStream) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).ok().map(|()| bytes)
}

/// A reader of its own for both versions, from the specification. `None`: there is no header.
fn read_header(stream: &mut TcpStream) -> Option<Option<(SocketAddr, SocketAddr)>> {
    let first = read_bytes::<1>(stream)?;
    if first == *b"P" {
        let line = String::from_utf8(read_until(stream, b"\r\n")?).expect("version 1 is text");
        let words: Vec<&str> = line.trim_end().split(' ').collect();
        return match words[..] {
            ["ROXY", "UNKNOWN"] => Some(None),
            ["ROXY", "TCP4" | "TCP6", source, destination, source_port, destination_port] => {
                let end = |host: &str, port: &str| {
                    SocketAddr::new(host.parse().expect("an address"), port.parse().expect("a port"))
                };
                Some(Some((end(source, source_port), end(destination, destination_port))))
            }
            _ => panic!("{line:?} is not a header"),
        };
    }
    assert_eq!([&first[..], &read_bytes::<11>(stream)?].concat(), b"\r\n\r\n\0\r\nQUIT\n");
    let [command, family, high, low] = read_bytes::<4>(stream)?;
    assert_eq!(
        [high, low],
        [
            0,
            match family {
                0x11 => 12,
                0x21 => 36,
                _ => 0,
            }
        ]
    );
    let port = |stream: &mut TcpStream| read_bytes(stream).map(u16::from_be_bytes);
    match (command, family) {
        (0x20, 0) => Some(None),
        (0x21, 0x11) => {
            let [source, destination] = [(); 2].map(|()| read_bytes(stream).map(Ipv4Addr::from));
            let [from, to] = [(); 2].map(|()| port(stream));
            Some(Some(((source?, from?).into(), (destination?, to?).into())))
        }
        (0x21, 0x21) => {
            let [source, destination] = [(); 2].map(|()| read_bytes(stream).map(Ipv6Addr::from));
            let [from, to] = [(); 2].map(|()| port(stream));
            Some(Some(((source?, from?).into(), (destination?, to?).into())))
        }
        other => panic!("{other:?} is not a header"),
    }
}

/// Everything to these servers, with further lines of the upstream and of the file.
fn to(servers: &[&Server], version: &str, lines: &str, rest: &str) -> String {
    let urls: Vec<_> = servers.iter().map(|server| server.url()).collect();
    format!(
        "{ALONE}{rest}\n[upstreams.app]\nservers = {urls:?}\nsend_proxy_protocol = \"{version}\"\n{lines}\n\
         [[routes]]\nname = \"all\"\npath = \"/*\"\nupstream = \"app\"\n"
    )
}

#[test]
fn connections_name_clients() {
    for version in ["v1", "v2"] {
        let server = Server::start();
        let gateway = Gateway::start(&to(&[&server], version, "", ""));
        let (mut one, mut other) = (Client::connect(gateway.addr()), Client::connect(gateway.addr()));
        for _ in 0..3 {
            one.get("/one", "").expect(200);
            other.get("/other", "").expect(200);
        }
        let expected = |client: &Client, connection, path: &str| Seen {
            connection,
            ends: Some((client.local_addr(), gateway.addr())),
            request: format!("GET {path}"),
        };
        let (one, other) = (expected(&one, 0, "/one"), expected(&other, 1, "/other"));
        let turn = [one, other];
        assert_eq!(server.seen(), [&turn[..], &turn, &turn].concat(), "{version}");
    }
}

/// Streams of one client's connection share server connections, as its requests do one after the other.
#[test]
fn clients_with_http2_keep_their_connections_too() {
    let server = Server::start();
    let gateway = Gateway::start(&to(&[&server], "v2", "", ""));
    let (one, other) = (Http2::connect(gateway.addr()), Http2::connect(gateway.addr()));
    for _ in 0..3 {
        one.get("/one").expect(200);
        other.get("/other").expect(200);
    }
    let seen = server.seen();
    let of = |request: &str| seen.iter().filter(|seen| seen.request == request).cloned().collect::<Vec<_>>();
    let (one, other) = (of("GET /one"), of("GET /other"));
    assert!(one.windows(2).all(|pair| pair[0] == pair[1]) && one.len() == 3, "{one:?}");
    assert!(other.windows(2).all(|pair| pair[0] == pair[1]) && other.len() == 3, "{other:?}");
    let client = |seen: &Seen| seen.ends.expect("a client").0;
    assert!(one[0].connection != other[0].connection && client(&one[0]) != client(&other[0]));
    assert_eq!(one[0].ends.expect("a client").1, gateway.addr());
}

/// A proxy in front carries requests of many clients on one connection.
#[test]
fn clients_behind_a_trusted_proxy_never_share_a_connection() {
    let server = Server::start();
    let trust = "trusted_proxies = [\"127.0.0.1/32\"]";
    let gateway = Gateway::start(&to(&[&server], "v1", "", trust));
    let mut proxy = Client::connect(gateway.addr());
    for client in ["192.0.2.1", "192.0.2.2", "192.0.2.1", "2001:db8::7", "192.0.2.2"] {
        proxy.get("/", &format!("x-forwarded-for: {client}\r\n")).expect(200);
    }
    let seen: Vec<_> =
        server.seen().iter().map(|seen| (seen.connection, seen.ends.expect("a client").0)).collect();
    let client = |text: &str| text.parse::<SocketAddr>().expect("an address");
    assert_eq!(
        seen,
        [
            (0, client("192.0.2.1:0")),
            (1, client("192.0.2.2:0")),
            (0, client("192.0.2.1:0")),
            (2, client("[2001:db8::7]:0")),
            (1, client("192.0.2.2:0")),
        ]
    );
}

/// The proxy names a client that cannot be read: it is not announced as the proxy.
#[test]
fn a_client_that_is_not_identified_has_no_address() {
    for version in ["v1", "v2"] {
        let server = Server::start();
        let gateway = Gateway::start(&to(&[&server], version, "", "trusted_proxies = [\"127.0.0.1/32\"]"));
        let mut proxy = Client::connect(gateway.addr());
        for client in ["junk", "192.0.2.1", "junk", "junk, 127.0.0.1"] {
            proxy.get("/", &format!("x-forwarded-for: {client}\r\n")).expect(200);
        }
        let seen = server.seen();
        let named: Vec<_> = seen.iter().map(|seen| (seen.connection, seen.ends.is_some())).collect();
        assert_eq!(named, [(0, false), (1, true), (0, false), (0, false)], "{version}");
    }
}

#[test]
fn a_received_header_is_sent_on() {
    let server = Server::start();
    let listen = "listen = [{ address = \"127.0.0.1:0\", proxy_protocol = true }]\ntrusted_proxies = [\"127.0.0.1/32\"]";
    let gateway = Gateway::start(&to(&[&server], "v2", "", listen));
    let mut client = Client::connect(gateway.addr());
    client.write("PROXY TCP4 192.0.2.7 198.51.100.1 5555 443\r\n");
    client.get("/", "").expect(200);
    let ends = Some((
        "192.0.2.7:5555".parse().expect("an address"),
        "198.51.100.1:443".parse().expect("an address"),
    ));
    assert_eq!(server.seen()[0].ends, ends);
}

#[test]
fn a_retry_names_the_client_at_the_other_server() {
    let (one, other) = (Server::start(), Server::start());
    let gateway = Gateway::start(&to(&[&one, &other], "v2", "retry = { on = [\"503\"] }", ""));
    let mut client = Client::connect(gateway.addr());
    client.get("/fail", "").expect(503);
    let ends = Some((client.local_addr(), gateway.addr()));
    assert_eq!([one.seen()[0].ends, other.seen()[0].ends], [ends; 2]);
}

#[test]
fn health_checks_name_no_client() {
    for version in ["v1", "v2"] {
        let server = Server::start();
        let health = "health = { path = \"/up\", interval = \"20ms\" }";
        let _gateway = Gateway::start(&to(&[&server], version, health, ""));
        eventually("two checks", || (server.checks().len() >= 2).then_some(()));
        assert!(server.checks().iter().all(|check| check.ends.is_none()), "{version}");
    }
}

#[test]
fn connections_end_with_their_client() {
    let server = Server::start();
    let gateway = Gateway::start(&to(&[&server], "v1", "", "[admin]\nlisten = \"127.0.0.1:0\"\n"));
    for expected in 0..3 {
        let mut client = Client::connect(gateway.addr());
        client.get("/", "").expect(200);
        client.get("/", "").expect(200);
        assert_eq!(server.seen().last().expect("a request").connection, expected);
        assert_eq!(server.ended.load(Ordering::SeqCst), expected, "it is kept as long as its client");
        drop(client);
        eventually("its end", || (server.ended.load(Ordering::SeqCst) == expected + 1).then_some(()));
    }
}

/// It goes before the TLS handshake, where a load balancer in front of the server looks for it.
#[test]
fn the_header_is_before_tls() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("https://{}", listener.local_addr().expect("bound"));
    let upstream = format!("[upstreams.app]\nservers = [\"{url}\"]\nsend_proxy_protocol = \"v2\"\n");
    let gateway = Gateway::start(&format!("{upstream}[[routes]]\npath = \"/*\"\nupstream = \"app\"\n"));
    let mut client = Client::connect(gateway.addr());
    client.write("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
    let (mut stream, _) = listener.accept().expect("the gateway connects");
    assert_eq!(read_header(&mut stream), Some(Some((client.local_addr(), gateway.addr()))));
    assert_eq!(read_bytes::<2>(&mut stream), Some([22, 3]), "a record of a handshake (RFC 8446 §5.1)");
}

#[test]
fn a_reload_changes_the_version() {
    let server = Server::start();
    let gateway = Gateway::start(&to(&[&server], "v1", "", ""));
    let mut client = Client::connect(gateway.addr());
    client.get("/", "").expect(200);
    gateway.reload(&to(&[&server], "v2", "", ""), "send_proxy_protocol");
    client.get("/", "").expect(200);
    let seen = server.seen();
    assert_eq!(
        (seen[0].connection, seen[1].connection),
        (0, 1),
        "the other version needs another connection"
    );
    assert_eq!(seen[0].ends, seen[1].ends);
}

/// An address without its form: an IPv4 address may be sent as one of IPv6.
fn canonical(end: SocketAddr) -> SocketAddr {
    SocketAddr::new(end.ip().to_canonical(), end.port())
}

proptest! {
    /// The gateway's own reader, which accepts headers from other proxies, reads what its writer sends.
    #[test]
    fn the_reader_and_the_writer_agree(client: SocketAddr, local: SocketAddr) {
        for version in [ProxyProtocolVersion::V1, ProxyProtocolVersion::V2] {
            let header = client_header(version, client, Some(local));
            let read = parse(&header).expect("a header").expect("a whole one");
            let ends = read.ends.map(|(client, local)| (canonical(client), canonical(local)));
            prop_assert_eq!((read.length, ends), (header.len(), Some((canonical(client), canonical(local)))));
        }
    }
}
