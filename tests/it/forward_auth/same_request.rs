//! The service is asked about the request that the backend gets: the same method, host, path, query and client.

use std::net::IpAddr;

use http::Request;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};

use rustls::version::TLS13;

use super::{admitting, auth};
use crate::harness::config_folder::ConfigFolder;
use crate::harness::{
    AllVersions, Authority, Backend, Body, Client, Gateway, Multiplexed, Next, Recorded, everything_to,
    get_with, send,
};

/// A service for `/admin` and `admin.test` that admits nobody there, and everybody elsewhere.
fn watchman() -> Backend {
    Backend::start(|exchange| {
        let field = |name| exchange.field(name).unwrap_or_default();
        let is_admin =
            field("x-forwarded-uri").starts_with("/admin") || field("x-forwarded-host") == "admin.test";
        let status = if is_admin { "403 Forbidden" } else { "200 OK" };
        exchange.write(format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n"));
        Next::KeepAlive
    })
}

fn status(gateway: &Gateway, target: &str, host: &str) -> u16 {
    send(gateway.addr(), format!("GET {target} HTTP/1.1\r\nhost: {host}\r\n\r\n")).status
}

#[test]
fn no_spelling_of_a_path_is_asked_about_as_another_one() {
    let (backend, door) = (Backend::ok(), watchman());
    let gateway = super::guarded(&backend, &door, "");
    for path in [
        "/admin",
        "/public/../admin",
        "/public/%2e%2e/admin",
        "/public/.%2E/admin",
        "//admin",
        "/./admin",
        "/%61dmin",
    ] {
        assert_eq!(status(&gateway, path, "test"), 403, "{path}");
        assert_eq!(door.latest().header("x-forwarded-uri").as_deref(), Some("/admin"), "{path}");
    }
    assert_eq!(status(&gateway, "/public;/../admin?a=%2e", "test"), 403);
    assert_eq!(door.latest().header("x-original-url").as_deref(), Some("http://test/admin?a=%2e"));
    assert_eq!(backend.count(), 0);
    assert_eq!(status(&gateway, "/public/./a", "test"), 200);
    assert_eq!(
        (backend.only().target(), door.latest().header("x-original-uri").as_deref()),
        ("/public/a", Some("/public/a"))
    );
}

#[test]
fn one_host_is_that_of_the_route_the_service_and_the_backend() {
    let (backend, door) = (Backend::ok(), watchman());
    let gateway = super::guarded(&backend, &door, "");
    for host in
        ["admin.test", "ADMIN.test", "admin.test.", "admin.test:80", "Admin.Test.:0080", "admin.test:"]
    {
        assert_eq!(status(&gateway, "/", host), 403, "{host}");
        assert_eq!(door.latest().header("x-forwarded-host").as_deref(), Some("admin.test"), "{host}");
    }
    let absolute = "GET http://ADMIN.test.:80/a/../b HTTP/1.1\r\nhost: ADMIN.test.:80\r\n\r\n";
    send(gateway.addr(), absolute).expect(403);
    assert_eq!(door.latest().header("x-original-url").as_deref(), Some("http://admin.test/b"));
    assert_eq!(backend.count(), 0);
    for (sent, seen) in [
        ("Shop.Test", "shop.test"),
        ("shop.test.:08080", "shop.test:8080"),
        ("shop.test:443", "shop.test:443"),
        ("[2001:DB8:0::1]:80", "[2001:db8::1]"),
        ("192.0.2.1:81", "192.0.2.1:81"),
    ] {
        assert_eq!(status(&gateway, "/", sent), 200, "{sent}");
        let request = backend.latest();
        assert_eq!(request.header("host").as_deref(), Some(seen), "{sent}");
        assert_eq!(request.header("x-forwarded-host").as_deref(), Some(seen), "{sent}");
        assert_eq!(door.latest().header("x-forwarded-host").as_deref(), Some(seen), "{sent}");
    }
}

/// A backend that drops one dot would serve `admin.test`, which no route has decided about.
#[test]
fn a_host_with_an_empty_label_is_refused() {
    let backend = Backend::ok();
    let gateway = AllVersions::start(&everything_to(&backend, ""));
    for host in ["admin.test..", "admin.test..:80", "admin..test", ".admin.test", ".", "..", ".:80"] {
        assert_eq!(status(&gateway, "/", host), 400, "{host}");
        let absolute = format!("GET http://{host}/ HTTP/1.1\r\nhost: {host}\r\n\r\n");
        send(gateway.addr(), absolute).expect(400);
        for client in gateway.clients() {
            let request = Request::get(format!("{}://{host}/", client.scheme())).body(());
            // Not every client sends such a name.
            let Ok(request) = request else { continue };
            let answer = client.exchange(request, Body::default());
            assert!(answer.is_err() || answer.is_ok_and(|answer| answer.status == 400), "{host}");
        }
    }
    assert_eq!(backend.count(), 0);
}

/// Also where no service is asked: the Host that the routes have seen is that of the backend.
#[test]
fn a_backend_gets_the_host_of_the_route() {
    let backend = Backend::ok();
    let gateway = AllVersions::start(&everything_to(&backend, "hosts = [\"a.test\"]"));
    for host in ["A.TEST", "a.test.", "a.test:80", "a.test.:80"] {
        assert_eq!(status(&gateway, "/", host), 200, "{host}");
        assert_eq!(backend.latest().header("host").as_deref(), Some("a.test"), "{host}");
    }
    for client in gateway.clients() {
        let port = if client.scheme() == "http" { 80 } else { 443 };
        let request = Request::get(format!("http://A.test.:{port}/")).body(()).expect("a request");
        client.exchange(request, Body::default()).expect("an answer").expect(200);
        assert_eq!(backend.latest().header("host").as_deref(), Some("a.test"), "{}", client.version());
    }
}

/// What is asked is what the route has matched, before the route changes it, and without the credentials that the
/// backend does not get.
#[test]
fn the_question_is_about_the_path_before_it_is_rewritten() {
    let (backend, door) = (Backend::ok(), admitting(""));
    let files = ConfigFolder::new(&[("consumers.csv", "key,name\nkey-of-ann,ann\n")]);
    let csv = files.path("consumers.csv");
    let keys = format!("[auth.keys]\ntype = \"api-key\"\nfrom = \"query:k\"\nfile = \"{}\"\n", csv.display());
    let route = "strip_prefix = \"/api\"\nauth = [\"keys\", \"door\"]\n";
    let gateway = Gateway::start(&everything_to(&backend, &format!("{route}{}{keys}", auth(&door, ""))));
    assert_eq!(status(&gateway, "/api/x/../a?k=&b=1", "test"), 200);
    assert_eq!(door.only().header("x-forwarded-uri").as_deref(), Some("/api/a?b=1"));
    assert_eq!(backend.only().target(), "/a?b=1");
}

/// Names under which services and applications read the request: the client's own reach neither.
#[test]
fn a_client_names_no_other_request() {
    let (backend, door) = (Backend::ok(), admitting(""));
    let server = "[server]\ntrusted_proxies = [\"127.0.0.0/8\"]\nclient_ip = \"header:cf-connecting-ip\"\n";
    for server in ["", server] {
        let gateway = Gateway::start(&format!(
            "{server}{}",
            everything_to(&backend, &format!("auth = \"door\"\n{}", auth(&door, "")))
        ));
        let forged = "x-forwarded-uri: /forged\r\nX_Forwarded-Uri: /forged\r\nx-forwarded-method: FORGED\r\n\
                      x-original-url: http://forged/\r\nX-Original-Uri: /forged\r\nx-original-method: FORGED\r\n\
                      x-forwarded-host: forged\r\nx_forwarded_host: forged\r\n";
        // Not the name of the header that a proxy writes.
        let twin = if server.is_empty() { "" } else { "CF_Connecting_IP: 6.6.6.6\r\n" };
        send(gateway.addr(), format!("GET /a HTTP/1.1\r\nhost: test\r\n{forged}{twin}\r\n")).expect(200);
        for request in [backend.latest(), door.latest()] {
            let head = request.head.to_ascii_lowercase();
            assert!(!head.contains("forged") && !head.contains("6.6.6.6"), "{server}{}", request.head);
        }
    }
    let gateway = super::guarded(&backend, &door, "");
    send(gateway.addr(), "GET /a HTTP/1.1\r\nhost: test\r\nx-forwarded-proto: https\r\n\r\n").expect(200);
    assert_eq!(door.latest().header("x-forwarded-proto").as_deref(), Some("http"));
}

/// What the backend gets from the gateway alone, the service gets from the gateway alone.
#[test]
fn a_client_shows_the_service_no_certificate_and_no_id_of_its_own() {
    let (authority, backend, door) = (Authority::new(), Backend::ok(), admitting(""));
    for file in ["server", "one"] {
        authority.certify(file, &["a.test"]);
    }
    let ca = format!("client_ca = {:?}\nclient_auth = \"optional\"\n", authority.path("ca.pem"));
    let forged = "client-cert: :Zm9y:\r\nClient-Cert-Chain: :Zm9y:\r\nclient_cert: :Zm9y:\r\n\
                  x-request-id: Zm9y\r\nx_request_id: Zm9y\r\nx-tollgate-mirror: Zm9y\r\n";
    for forwards in [true, false] {
        let lines =
            format!("auth = \"door\"\nforward_client_cert = {forwards}\n{}", auth(&door, "cache = \"1h\""));
        let tls = authority.server("server");
        let gateway = Gateway::start(&everything_to(&backend, &format!("{lines}{tls}{ca}")));
        for certificate in [None, Some("one")] {
            let config = authority.client_of(certificate, &[&TLS13]);
            Client::connect_tls(gateway.addr(), &config, "a.test").get("/", forged).expect(200);
            let (at_backend, at_door) = (backend.latest(), door.latest());
            assert!(!at_backend.head.contains("Zm9y") && !at_door.head.contains("Zm9y"), "{}", at_door.head);
            let shown = at_backend.header("client-cert");
            assert_eq!(shown.is_some(), forwards && certificate.is_some());
            assert_eq!(at_door.header("client-cert"), shown);
        }
    }
    // A trusted proxy is believed, and two certificates are two questions.
    let trusted = "[server]\ntrusted_proxies = [\"127.0.0.0/8\"]\n";
    let rest = format!("auth = \"door\"\n{}", auth(&door, "cache = \"1h\""));
    let gateway = Gateway::start(&(trusted.to_owned() + &everything_to(&backend, &rest)));
    for (value, id) in [(":b25l:", "id-1"), (":dHdv:", "id-2")] {
        let fields = format!("client-cert: {value}\r\nx-request-id: {id}\r\n");
        get_with(gateway.addr(), "/", &fields).expect(200);
        for request in [backend.latest(), door.latest()] {
            assert_eq!(request.header("client-cert").as_deref(), Some(value));
            assert_eq!(request.header("x-request-id").as_deref(), Some(id));
        }
    }
}

#[derive(Clone, Debug)]
struct Sent {
    method: &'static str,
    host: String,
    target: String,
    absolute: bool,
    /// HTTP/1.1, or one of the versions with streams.
    version: usize,
    /// A trusted proxy sends it, for this client.
    behind_proxy: bool,
    fields: Vec<&'static str>,
}

/// Segments of paths; the empty one is frequent.
const SEGMENTS: [&str; 26] = [
    "a",
    "admin",
    "Public",
    "",
    "",
    ".",
    "..",
    "%2e",
    "%2E%2e",
    ".%2e",
    "x;y=1",
    ";",
    "..a",
    "%2f",
    "a%2Fb",
    "%41",
    "%7e",
    "~",
    "%25",
    "%252e%252e",
    "%3B",
    "a+b",
    "a:b",
    "@",
    "$",
    "%c3%a9",
];

fn sent() -> impl Strategy<Value = Sent> {
    let segment = prop::sample::select(&SEGMENTS[..]);
    let path = prop::collection::vec(segment, 1..6).prop_map(|segments| format!("/{}", segments.join("/")));
    let query =
        prop::sample::select(vec!["", "", "?", "?a=1", "?a=%2e%2e/&b=/../x", "?/../a", "?a=b?c", "?%41=;"]);
    let name = prop::sample::select(vec![
        "a.test",
        "A.Test",
        "admin.TEST",
        "xn--a",
        "127.0.0.1",
        "[::1]",
        "[2001:DB8::A]",
    ]);
    let dot = prop::sample::select(vec!["", "", "."]);
    let port = prop::sample::select(vec!["", "", ":80", ":443", ":8080", ":00080", ":080", ":"]);
    let host = (name, dot, port).prop_map(|(name, dot, port)| {
        let dot = if name.starts_with('[') { "" } else { dot };
        format!("{name}{dot}{port}")
    });
    let field = prop::sample::select(vec![
        "x-forwarded-host: forged.test\r\n",
        "x-forwarded-uri: /forged\r\n",
        "x-original-url: http://forged/\r\n",
        "x-real-ip: 6.6.6.6\r\n",
        "x-forwarded-for: 6.6.6.6\r\n",
        "forwarded: for=6.6.6.6;host=forged\r\n",
        "connection: x-forwarded-host\r\n",
        "X_Forwarded_For: 6.6.6.6\r\n",
    ]);
    let method = prop::sample::select(vec!["GET", "HEAD", "DELETE", "PURGE", "OPTIONS"]);
    let flags = (any::<bool>(), 0..4_usize, any::<bool>());
    let fields = prop::collection::vec(field, 0..3);
    (method, host, path, query, flags, fields).prop_map(|(method, host, path, query, flags, fields)| {
        let (absolute, version, behind_proxy) = flags;
        Sent {
            method,
            host,
            target: path + query,
            absolute,
            version,
            behind_proxy: behind_proxy && version == 0,
            fields,
        }
    })
}

const PROXY: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 2));

impl Sent {
    /// The client of a version with streams that sends it.
    fn client<'c>(&self, others: &'c [Multiplexed]) -> Option<&'c Multiplexed> {
        (self.version > 0).then(|| &others[self.version % others.len()])
    }

    /// The status of the response.
    fn send(&self, gateway: &Gateway, others: &[Multiplexed]) -> Option<u16> {
        let Self { method, host, target, .. } = self;
        if let Some(client) = self.client(others) {
            let mut request = Request::builder().method(*method).uri(format!("http://{host}{target}"));
            for field in self.fields.iter().filter(|field| !field.starts_with("connection")) {
                let (name, value) = field.trim_end().split_once(": ").expect("a field");
                request = request.header(name, value);
            }
            // The crate makes no request of some targets.
            let request = request.body(()).ok()?;
            return client.exchange(request, Body::default()).ok().map(|answer| answer.status);
        }
        let mut client = match self.behind_proxy {
            true => Client::connect_from(PROXY, gateway.addr()),
            false => Client::connect(gateway.addr()),
        };
        let own = if self.behind_proxy { "x-forwarded-for: 192.0.2.7\r\n" } else { "" };
        let fields = self.fields.concat();
        let start = if self.absolute { format!("http://{host}") } else { String::new() };
        client.write(format!("{method} {start}{target} HTTP/1.1\r\nhost: {host}\r\n{fields}{own}\r\n"));
        Some(client.read_for(method).status)
    }

    fn compare(&self, question: &Recorded, request: &Recorded, scheme: &str) -> Result<(), TestCaseError> {
        let asked = |name: &str| question.header(name).unwrap_or_default();
        let got = |name: &str| request.header(name).unwrap_or_default();
        let method = request.request_line().split(' ').next().unwrap_or_default().to_owned();
        prop_assert_eq!([asked("x-forwarded-method"), asked("x-original-method")], [method.clone(), method]);
        let host = got("host");
        prop_assert_eq!([&asked("x-forwarded-host"), &got("x-forwarded-host")], [&host; 2]);
        let default_port = if scheme == "https" { ":443" } else { ":80" };
        let is_normal =
            host == host.to_ascii_lowercase() && !host.ends_with(['.', ':']) && !host.ends_with(default_port);
        prop_assert!(is_normal && !host.contains(".:"), "{}", host);
        let target = request.target();
        prop_assert_eq!([&*asked("x-forwarded-uri"), &*asked("x-original-uri")], [target; 2]);
        prop_assert_eq!(asked("x-original-url"), format!("{scheme}://{host}{target}"));
        prop_assert_eq!([asked("x-forwarded-proto"), got("x-forwarded-proto")], [scheme; 2]);
        // The list is read from the right, up to the first that is not a trusted proxy.
        let list = got("x-forwarded-for");
        let trusted = PROXY.to_string();
        let client = list.rsplit(", ").find(|hop| *hop != trusted).unwrap_or(&trusted);
        prop_assert_eq!(client, if self.behind_proxy { "192.0.2.7" } else { "127.0.0.1" });
        prop_assert_eq!([&*asked("x-forwarded-for"), &*asked("x-real-ip")], [client; 2]);
        let all = format!("{}{}", question.head, request.head);
        prop_assert!(!all.contains("forged"), "{}", all);
        Ok(())
    }
}

#[test]
fn the_service_and_the_backend_see_the_same_request() {
    for merge_slashes in [true, false] {
        let (backend, door) = (Backend::ok(), admitting(""));
        let route = format!("merge_slashes = {merge_slashes}\nauth = \"door\"\n{}", auth(&door, ""));
        let server = format!("[server]\ntrusted_proxies = [\"{PROXY}/32\"]\n");
        let gateway = AllVersions::start(&format!("{server}{}", everything_to(&backend, &route)));
        let others = gateway.clients();
        let config = Config { cases: 300, failure_persistence: None, ..Config::default() };
        let mut admitted = 0;
        TestRunner::new(config)
            .run(&sent(), |sent| {
                let before = (door.count(), backend.count());
                let status = sent.send(&gateway, &others);
                let scheme = sent.client(&others).map_or("http", Multiplexed::scheme);
                let (asked, got) = (door.count() - before.0, backend.count() - before.1);
                if status == Some(200) {
                    prop_assert_eq!((asked, got), (1, 1));
                    return sent.compare(&door.latest(), &backend.latest(), scheme);
                }
                prop_assert_eq!((asked, got), (0, 0), "{:?}", status);
                Ok(())
            })
            .unwrap_or_else(|fault| panic!("{fault}"));
        admitted += backend.count();
        assert!(admitted > 100, "{admitted}");
    }
}
