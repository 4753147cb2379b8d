//! A gateway after traffic of every kind, and its page of metrics.

use std::net::IpAddr;
use std::path::Path;

use crate::harness::acme_server::AcmeServer;
use crate::harness::clients::exposition::Page;
use crate::harness::{Authority, Backend, Client, Gateway, Redis, eventually, get, get_with, send};

/// A route's name that needs escapes.
pub(crate) const NAMED: &str = "a \"quoted\" \\name";

/// What no label may hold: the clients' keys, addresses and words.
pub(crate) const SECRETS: [&str; 6] =
    ["key-of-a-client", "page-of-a-client", "127.9.8.7", "host-of-a-client", "query", "name-of-a-consumer"];

/// What its backend answers.
const OF_TEXT: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 2\r\n\r\nok";

/// A gateway that has served something of everything, and what it needs to live.
pub(crate) struct Busy {
    pub(crate) gateway: Gateway,
    /// How many requests were sent; all are counted.
    pub(crate) sent: usize,
    _authority: Authority,
    _certificates: Certificates,
    _backend: Backend,
    _redis: Redis,
    _unreachable: socket2::Socket,
    _consumers: tempfile::NamedTempFile,
}

/// The authority of the names of `acme`, and the state directory.
struct Certificates {
    server: AcmeServer,
    state: tempfile::TempDir,
}

impl Certificates {
    fn lines(&self) -> String {
        let (directory, state) = (self.server.directory(), self.state.path().display());
        format!(
            "[[server.tls]]\nacme = [\"b.test\"]\n\
             [acme]\ndirectory = \"{directory}\"\nstate = \"{state}\"\nagree_tos = true\n"
        )
    }
}

fn file(
    backend: &Backend,
    away: std::net::SocketAddr,
    redis: &Redis,
    authority: &Authority,
    certificates: &Certificates,
    consumers: &Path,
) -> String {
    let consumers = consumers.display();
    let (api, tls, store) = (backend.url(), authority.server("a") + &certificates.lines(), redis.url());
    let route = |name: &str, path: &str, upstream: &str, limits: &str| {
        let name = toml::Value::from(name);
        format!(
            "[[routes]]\nname = {name}\npath = \"{path}\"\nupstream = \"{upstream}\"\nlimits = [{limits}]\n"
        )
    };
    let routes = [
        route(NAMED, "/named/*", "api", ""),
        route("limited", "/limited", "api", "\"two\""),
        route("queued", "/queued", "api", "\"in-turn\""),
        route("trial", "/trial", "api", "\"shadow\""),
        route("staff", "/staff", "api", "\"exempted\"")
            + "compress = { types = [\"text/plain\"], min = 1 }\n",
        route("away", "/away", "away", ""),
        route("checked", "/checked", "checked", ""),
        route("bounded", "/bounded", "bounded", ""),
        route("retried", "/retried", "retried", "") + "mirror = { upstream = \"away\" }\n",
        route("tripped", "/tripped", "tripped", ""),
        route("tiered", "/tiered", "api", "\"tiered\"") + "auth = \"keys\"\n",
        route("in-flight", "/in-flight", "api", "\"in-flight\""),
        route("waits", "/waits", "api", "\"places\""),
        route("settled", "/settled", "bounded", "\"settled\"")
            + "cost = { reserve = 5, settle = \"bytes\", per = 1000 }\n",
    ];
    format!(
        "[server]\nlisten = [{{ address = \"127.0.0.1:0\", tls = false }}, \"127.0.0.1:0\"]\nworkers = 2\n\
         {tls}[admin]\nlisten = \"127.0.0.1:0\"\n[decisions]\nlisten = \"127.0.0.1:0\"\n[trace]\notlp = \"http://127.0.0.1:1\"\nsample = 0\n[store]\nbackend = \"redis\"\nurl = \"{store}\"\ntimeout = \"5s\"\n\
         [upstreams]\napi = \"{api}\"\naway = \"http://{away}\"\n\
         checked = {{ servers = [\"{api}\"], health = {{ path = \"/up\", interval = \"20ms\" }} }}\n\
         bounded = {{ servers = [\"{api}\"], max_connections = 4 }}\n\
         tripped = {{ servers = [\"http://{away}\"], breaker = {{ requests = 1, for = \"1h\" }} }}\n\
         retried = {{ servers = [\"http://{away}\", \"{api}\"] }}\n\
         [limits]\ntwo = {{ algorithm = \"gcra\", key = \"header:x-api-key\", rate = \"1/day\", burst = 2, max_keys = 500 }}\n\
         in-turn = {{ algorithm = \"leaky-bucket\", key = \"global\", rate = \"30/min\", queue = 5 }}\n\
         shadow = {{ algorithm = \"gcra\", key = \"ip\", rate = \"1/day\", burst = 1, mode = \"shadow\" }}\n\
         exempted = {{ algorithm = \"gcra\", key = \"ip\", rate = \"1/day\", burst = 1, exempt = [\"ip:127.0.0.0/8\"] }}\n\
         in-flight = {{ algorithm = \"concurrency\", key = \"ip\", max = 5, ban = {{ after = 9, within = \"1min\", for = \"1h\" }} }}\n\
         places = {{ algorithm = \"concurrency\", key = \"upstream\", max = 1, queue = 1, max_wait = \"50ms\" }}\n\
         settled = {{ algorithm = \"gcra\", key = \"ip\", rate = \"1/day\", burst = 5 }}\n\
         tiered = {{ algorithm = \"gcra\", key = \"consumer\", rate = \"1/day\", tiers = {{ pro = {{ burst = 2 }} }} }}\n\
         [auth.keys]\ntype = \"api-key\"\nfrom = \"header:x-api-key\"\nfile = \"{consumers}\"\n{}",
        routes.concat()
    )
}

impl Busy {
    pub(crate) fn start() -> Self {
        let backend = Backend::answering(OF_TEXT);
        let (authority, redis) = (Authority::new(), Redis::start());
        authority.certify("a", &["a.test"]);
        let (away, unreachable) = Backend::refusing();
        let consumers = tempfile::NamedTempFile::new().expect("a temporary file");
        let csv = "key,name,tier\nkey-of-a-client,name-of-a-consumer,pro\n";
        std::fs::write(consumers.path(), csv).expect("the file can be written");
        let state = tempfile::tempdir().expect("a temporary directory");
        let certificates = Certificates { server: AcmeServer::start(), state };
        let toml = file(&backend, away, &redis, &authority, &certificates, consumers.path());
        let gateway = Gateway::start(&toml);
        gateway.wait_for_log("certificate for b.test: issued by");
        let sent = traffic(&gateway, &authority);
        Self {
            gateway,
            sent,
            _authority: authority,
            _certificates: certificates,
            _backend: backend,
            _redis: redis,
            _unreachable: unreachable,
            _consumers: consumers,
        }
    }

    /// The page, once all requests are counted, which is a moment after the last answer was read.
    pub(crate) fn text(&self) -> String {
        eventually("all requests to be counted", || {
            let text = self.gateway.admin("/metrics").expect(200).text();
            (Page::parse(&text).sum("tollgate_requests_total", &[]) >= self.sent as f64).then_some(text)
        })
    }
}

/// Sends something of everything, most of it over connections of its own, and says how many requests it was.
fn traffic(gateway: &Gateway, authority: &Authority) -> usize {
    let [plain, secure] = *gateway.addresses() else { panic!("two listeners") };
    for number in 0..20 {
        get_with(plain, &format!("/named/page-of-a-client-{number}?query"), "").expect(200);
    }
    for expected in [200, 200, 429, 429, 429] {
        get_with(plain, "/limited", "x-api-key: key-of-a-client\r\n").expect(expected);
    }
    for (key, expected) in [("key-of-a-client", 200), ("another", 401)] {
        get_with(plain, "/tiered", &format!("x-api-key: {key}\r\n")).expect(expected);
    }
    for (path, status) in [
        ("/queued", 200),
        ("/queued", 200),
        ("/trial", 200),
        ("/trial", 200),
        ("/staff", 200),
        ("/in-flight", 200),
        ("/away", 502),
        ("/checked", 200),
        ("/bounded", 200),
        ("/settled", 200),
        ("/retried", 200),
        ("/tripped", 502),
        ("/nowhere", 404),
    ] {
        get_with(plain, path, "accept-encoding: gzip\r\n").expect(status);
    }
    send(plain, "POST /named/b HTTP/1.1\r\nhost: host-of-a-client\r\ncontent-length: 5\r\n\r\nhello")
        .expect(200);
    let mut holds = Client::connect(plain);
    holds.write("POST /waits HTTP/1.1\r\nhost: test\r\ncontent-length: 2\r\n\r\n");
    eventually("its place", || {
        (gateway.metric("tollgate_concurrency_held", &["limit=\"places\""]) > 0.5).then_some(())
    });
    get(plain, "/waits").expect(503);
    holds.write("ok");
    holds.read().expect(200);
    let elsewhere: IpAddr = "127.9.8.7".parse().expect("an address");
    Client::connect_from(elsewhere, plain).get("/named/c", "").expect(200);
    let mut encrypted = Client::connect_tls(secure, &authority.client(), "a.test");
    encrypted.get("/named/d", "").expect(200);
    let asked = "GET /check/envoy/nowhere HTTP/1.1\r\nhost: localhost\r\nx-forwarded-for: 127.0.0.1\r\n\r\n";
    send(gateway.decisions_addr(), asked).expect(404);
    // A connection without TLS is rejected there; it counts as no request.
    let mut confused = Client::connect(secure);
    confused.write("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
    eventually("it to be counted", || {
        (gateway.metric("tollgate_connections_refused_total", &["reason=\"tls\""]) > 0.5).then_some(())
    });
    20 + 5 + 2 + 13 + 4 + 2
}
