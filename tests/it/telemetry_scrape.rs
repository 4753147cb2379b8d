//! The page that the binary serves after traffic of every kind, read as Prometheus reads it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::harness::{Authority, Backend, Client, Gateway, Redis, eventually, get, get_with, promtool, send};
use crate::telemetry_exposition::Page;

/// A route's name that needs escapes.
const NAMED: &str = "a \"quoted\" \\name";
/// What no label may hold: the clients' keys, addresses and words.
const SECRETS: [&str; 5] = ["key-of-a-client", "page-of-a-client", "127.9.8.7", "host-of-a-client", "query"];

/// A gateway that has served something of everything, and what it needs to live.
pub(crate) struct Busy {
    pub(crate) gateway: Gateway,
    /// How many requests were sent; all are counted.
    sent: usize,
    _authority: Authority,
    _backend: Backend,
    _redis: Redis,
    _unreachable: socket2::Socket,
}

fn file(backend: &Backend, away: std::net::SocketAddr, redis: &Redis, authority: &Authority) -> String {
    let (api, tls, store) = (backend.url(), authority.server("a"), redis.url());
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
        route("staff", "/staff", "api", "\"exempted\""),
        route("away", "/away", "away", ""),
        route("checked", "/checked", "checked", ""),
        route("bounded", "/bounded", "bounded", ""),
        route("retried", "/retried", "retried", ""),
    ];
    format!(
        "[server]\nlisten = [{{ address = \"127.0.0.1:0\", tls = false }}, \"127.0.0.1:0\"]\nworkers = 2\n\
         {tls}[admin]\nlisten = \"127.0.0.1:0\"\n[trace]\notlp = \"http://127.0.0.1:1\"\nsample = 0\n[store]\nbackend = \"redis\"\nurl = \"{store}\"\ntimeout = \"5s\"\n\
         [upstreams]\napi = \"{api}\"\naway = \"http://{away}\"\n\
         checked = {{ servers = [\"{api}\"], health = {{ path = \"/up\", interval = \"20ms\" }} }}\n\
         bounded = {{ servers = [\"{api}\"], max_connections = 4 }}\n\
         retried = {{ servers = [\"http://{away}\", \"{api}\"] }}\n\
         [limits]\ntwo = {{ algorithm = \"gcra\", key = \"header:x-api-key\", rate = \"1/day\", burst = 2 }}\n\
         in-turn = {{ algorithm = \"leaky-bucket\", key = \"global\", rate = \"30/min\", queue = 5 }}\n\
         shadow = {{ algorithm = \"gcra\", key = \"ip\", rate = \"1/day\", burst = 1, mode = \"shadow\" }}\n\
         exempted = {{ algorithm = \"gcra\", key = \"ip\", rate = \"1/day\", burst = 1, exempt = [\"ip:127.0.0.0/8\"] }}\n{}",
        routes.concat()
    )
}

impl Busy {
    pub(crate) fn start() -> Self {
        let (authority, backend, redis) = (Authority::new(), Backend::ok(), Redis::start());
        authority.certify("a", &["a.test"]);
        let (away, unreachable) = Backend::refusing();
        let gateway = Gateway::start(&file(&backend, away, &redis, &authority));
        let sent = traffic(&gateway, &authority);
        Self {
            gateway,
            sent,
            _authority: authority,
            _backend: backend,
            _redis: redis,
            _unreachable: unreachable,
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
    for (path, status) in [
        ("/queued", 200),
        ("/queued", 200),
        ("/trial", 200),
        ("/trial", 200),
        ("/staff", 200),
        ("/away", 502),
        ("/checked", 200),
        ("/bounded", 200),
        ("/retried", 200),
        ("/nowhere", 404),
    ] {
        get(plain, path).expect(status);
    }
    send(plain, "POST /named/b HTTP/1.1\r\nhost: host-of-a-client\r\ncontent-length: 5\r\n\r\nhello")
        .expect(200);
    let elsewhere: IpAddr = "127.9.8.7".parse().expect("an address");
    Client::connect_from(elsewhere, plain).get("/named/c", "").expect(200);
    let mut encrypted = Client::connect_tls(secure, &authority.client(), "a.test");
    encrypted.get("/named/d", "").expect(200);
    // Whoever speaks no TLS there is turned away; that is no request.
    let mut confused = Client::connect(secure);
    confused.write("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
    eventually("it to be counted", || {
        (gateway.metric("tollgate_connections_refused_total", &["reason=\"tls\""]) > 0.5).then_some(())
    });
    20 + 5 + 10 + 3
}

#[test]
fn prometheus_own_tool_takes_the_page_and_warns_of_nothing() {
    let busy = Busy::start();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("metrics");
    std::fs::write(&file, busy.text()).expect("it can be written");
    assert_eq!(promtool(&["check", "metrics"], &file), "");
}

#[test]
fn every_request_is_counted_once_over_all_workers() {
    let busy = Busy::start();
    let page = Page::parse(&busy.text());
    let requests = |route, code| page.sum("tollgate_requests_total", &[("route", route), ("code", code)]);
    assert_eq!(page.sum("tollgate_requests_total", &[]), busy.sent as f64);
    assert_eq!(page.sum("tollgate_request_duration_seconds_count", &[]), busy.sent as f64);
    for (route, code, count) in [
        (NAMED, "200", 23.0),
        ("limited", "200", 2.0),
        ("limited", "429", 3.0),
        ("away", "502", 1.0),
        ("none", "404", 1.0),
    ] {
        assert_eq!(requests(route, code), count, "{route} {code}");
    }
    let decisions =
        |limit, decision| page.sum("tollgate_decisions_total", &[("limit", limit), ("decision", decision)]);
    for (limit, decision, count) in [
        ("two", "allowed", 2.0),
        ("two", "limited", 3.0),
        ("in-turn", "allowed", 1.0),
        ("in-turn", "delayed", 1.0),
        ("shadow", "allowed", 1.0),
        ("shadow", "shadow_limited", 1.0),
        ("exempted", "exempt", 1.0),
    ] {
        assert_eq!(decisions(limit, decision), count, "{limit} {decision}");
    }
    for (name, labels, count) in [
        ("tollgate_upstream_duration_seconds_count", &[("upstream", "api")][..], 30.0),
        ("tollgate_upstream_failures_total", &[("upstream", "away"), ("error", "connect")], 1.0),
        ("tollgate_upstream_failures_total", &[("upstream", "retried")], 0.0),
        ("tollgate_upstream_retries_total", &[("upstream", "retried"), ("reason", "connect")], 1.0),
        ("tollgate_upstream_responses_total", &[("upstream", "retried"), ("class", "2xx")], 1.0),
        ("tollgate_upstream_responses_total", &[("upstream", "api"), ("class", "2xx")], 30.0),
        ("tollgate_upstream_responses_total", &[("class", "5xx")], 0.0),
        ("tollgate_request_body_bytes_total", &[], 5.0),
        ("tollgate_response_body_bytes_total", &[("route", NAMED)], 46.0),
        ("tollgate_connections_accepted_total", &[], busy.sent as f64 + 1.0),
    ] {
        assert_eq!(page.sum(name, labels), count, "{name} {labels:?}");
    }
}

#[test]
fn labels_hold_what_the_file_says_and_nothing_of_a_client() {
    let busy = Busy::start();
    let text = busy.text();
    let page = Page::parse(&text);
    assert!(page.label_values().contains(NAMED));
    assert!(text.contains("route=\"a \\\"quoted\\\" \\\\name\""), "{text}");
    for secret in SECRETS {
        assert!(!text.contains(secret), "{secret} in\n{text}");
    }
}

#[test]
fn the_documents_name_every_metric() {
    let busy = Busy::start();
    let page = Page::parse(&busy.text());
    let documents = ["operations.md", "shared-limits.md"].map(|file| {
        let place = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(file);
        std::fs::read_to_string(place).expect("it can be read")
    });
    let rows = documents.iter().flat_map(|text| text.lines()).filter(|line| line.starts_with("| `"));
    let first_cells = rows.filter_map(|row| row.split('|').nth(1)).flat_map(|cell| cell.split('`'));
    let named: BTreeSet<&str> = first_cells
        .map(|word| word.split('{').next().unwrap_or_default())
        .filter(|word| word.starts_with("tollgate_") || word.starts_with("process_"))
        .collect();
    assert_eq!(page.kinds().into_iter().map(|(name, _)| name).collect::<BTreeSet<_>>(), named);
}

#[test]
fn the_process_tells_of_itself() {
    let busy = Busy::start();
    let page = Page::parse(&busy.text());
    let value = |name| page.get(name, &[]).unwrap_or_else(|| panic!("no {name}"));
    let now =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs_f64();
    let age = now - value("process_start_time_seconds");
    assert!((-2.0..600.0).contains(&age), "{age} s");
    let resident = busy.gateway.resident_kib() as f64 * 1024.0;
    let told = value("process_resident_memory_bytes");
    assert!(told > resident / 2.0 && told < resident * 2.0, "{told} of {resident}");
    let open = std::fs::read_dir(format!("/proc/{}/fd", busy.gateway.pid())).expect("it runs").count() as f64;
    assert!((value("process_open_fds") - open).abs() < 20.0, "{open}");
    assert!(value("process_open_fds") < value("process_max_fds"));
    assert!(value("process_cpu_seconds_total") > 0.0 && value("process_cpu_seconds_total") < 600.0);
    let left = value("tollgate_certificate_expiry_timestamp_seconds") - now;
    assert!(left > 86_400.0, "{left}");
}
