//! The spans of real requests, as a collector sees them.

use crate::harness::{
    AllVersions, Backend, Body, Client, Collector, Gateway, GrpcClient, GrpcServer, Next, SpanKind, Told,
    everything_to, get_with, h2_get, only_span,
};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn server(told: &[Told]) -> &Told {
    only_span(told, SpanKind::Server)
}

fn client(told: &[Told]) -> &Told {
    only_span(told, SpanKind::Client)
}

/// The spans of the trace that a path belongs to.
fn of(told: &[Told], path: &str) -> Vec<Told> {
    let root = told.iter().find(|span| span.get("url.path") == path).unwrap_or_else(|| panic!("no {path}"));
    told.iter().filter(|span| span.trace == root.trace).cloned().collect()
}

#[test]
fn a_request_is_a_span_and_its_way_to_the_backend_another() {
    let (backend, collector) = (Backend::ok(), Collector::start());
    let rest = "limits = [\"most\"]\nstrip_prefix = \"/api\"\n[limits.most]\nalgorithm = \"fixed-window\"\nkey = \"ip\"\nrate = \"10/day\"\n";
    let toml = everything_to(
        &backend,
        &format!("{rest}{}", collector.section("sample = 1\nservice_name = \"edge\"")),
    );
    let gateway = Gateway::start(&toml);
    gateway.get("/api/orders?token=hush").expect(200);
    let told = collector.exactly(2);
    let (server, client) = (server(&told), client(&told));
    assert_eq!((server.name.as_str(), server.service.as_str()), ("GET /*", "edge"));
    assert_eq!((server.trace.len(), server.span.len(), server.parent.as_str()), (32, 16, ""));
    assert_eq!(server.flags & 0xff, 1);
    for (name, value) in [
        ("http.request.method", "GET"),
        ("url.path", "/api/orders"),
        ("url.scheme", "http"),
        ("server.address", "test"),
        ("client.address", "127.0.0.1"),
        ("http.route", "/*"),
        ("http.response.status_code", "200"),
        ("network.protocol.version", "1.1"),
        ("error.type", ""),
        ("tollgate.route", "all"),
        ("tollgate.limit", "most"),
        ("tollgate.decision", "allowed"),
        ("tollgate.remaining", "9"),
        ("tollgate.cost", "1"),
    ] {
        assert_eq!(server.get(name), value, "{name}");
    }
    assert_eq!((client.name.as_str(), &client.trace, &client.parent), ("GET", &server.trace, &server.span));
    for (name, value) in [
        ("http.request.method", "GET"),
        ("server.address", "127.0.0.1"),
        ("server.port", backend.addr().port().to_string().as_str()),
        ("url.full", format!("{}/orders", backend.url()).as_str()),
        ("http.response.status_code", "200"),
        ("tollgate.upstream", "api"),
        ("tollgate.attempts", "1"),
        ("http.request.resend_count", ""),
    ] {
        assert_eq!(client.get(name), value, "{name}");
    }
    assert!(!server.failed && !client.failed);
    assert!(server.since <= client.since && client.since < client.until && client.until <= server.until);
    let seen = backend.only();
    assert_eq!(seen.header("traceparent"), Some(client.traceparent("01")));
    assert_eq!(seen.header("x-request-id").as_deref(), Some(server.get("tollgate.request_id")));
    assert!(!format!("{told:?}").contains("hush"), "no query, no secret");
}

#[test]
fn a_parent_that_is_recorded_is_followed_and_one_that_is_not_never() {
    let (backend, collector) = (Backend::ok(), Collector::start());
    for sample in ["0", "1"] {
        let gateway =
            Gateway::start(&everything_to(&backend, &collector.section(&format!("sample = {sample}"))));
        let before = collector.told().len();
        get_with(gateway.addr(), "/", &format!("traceparent: {}00\r\n", &PARENT[..53])).expect(200);
        assert!(backend.latest().header("traceparent").is_some_and(|sent| sent.ends_with("-00")));
        get_with(
            gateway.addr(),
            "/",
            &format!("traceparent: {PARENT}\r\ntracestate: a=1\r\ntracestate: b=2\r\n"),
        )
        .expect(200);
        let told = collector.exactly(before + 2)[before..].to_vec();
        let (server, client) = (server(&told), client(&told));
        assert_eq!(server.trace, "0af7651916cd43dd8448eb211c80319c");
        assert_eq!((server.parent.as_str(), server.state.as_str()), ("b7ad6b7169203331", "a=1,b=2"));
        assert_eq!((&client.parent, &client.state), (&server.span, &server.state));
        assert_eq!(backend.latest().header("traceparent"), Some(client.traceparent("01")));
    }
}

#[test]
fn the_share_that_begins_a_trace_is_right() {
    let (backend, collector) = (Backend::ok(), Collector::start());
    let gateway = Gateway::start(&everything_to(&backend, &collector.section("sample = 0.1")));
    let mut client = Client::connect(gateway.addr());
    (0..500).for_each(|_| drop(client.get("/", "").expect(200)));
    let recorded = backend
        .requests()
        .iter()
        .filter(|seen| seen.header("traceparent").is_some_and(|sent| sent.ends_with("-01")))
        .count();
    assert!((45..=55).contains(&recorded), "{recorded} of 500");
    collector.exactly(2 * recorded);
}

#[test]
fn strangers_force_only_so_many_spans_and_trusted_proxies_any_number() {
    for (server, min, max) in
        [("", 100, 400), ("[server]\ntrusted_proxies = [\"127.0.0.1\"]\n", 1_000, 1_000)]
    {
        let (backend, collector) = (Backend::ok(), Collector::start());
        let toml = everything_to(&backend, &collector.section("sample = 0"));
        let gateway = Gateway::start(&format!("{server}{toml}"));
        let started = std::time::Instant::now();
        let mut client = Client::connect(gateway.addr());
        let request = format!("GET / HTTP/1.1\r\nhost: test\r\ntraceparent: {PARENT}\r\n\r\n");
        for _ in 0..1_000 {
            client.exchange(&request).expect(200);
        }
        let seconds = usize::try_from(started.elapsed().as_secs()).expect("some") + 2;
        let flagged = |flags: &str| {
            backend
                .requests()
                .iter()
                .filter(|seen| seen.header("traceparent").is_some_and(|sent| sent.ends_with(flags)))
                .count()
        };
        let (recorded, others) = (flagged("-01"), flagged("-00"));
        assert_eq!(recorded + others, 1_000);
        assert!((min..=max.max(seconds * 100)).contains(&recorded), "{recorded}");
        collector.exactly(2 * recorded);
    }
}

/// Every way in which a request ends without a backend's good answer.
fn every_way(backends: &str, collector: &Collector) -> String {
    format!(
        "[upstreams]\ndemo = \"builtin:echo\"\n{backends}
        [limits.one]\nalgorithm = \"fixed-window\"\nkey = \"global\"\nrate = \"1/day\"
        [limits.queue]\nalgorithm = \"leaky-bucket\"\nkey = \"global\"\nrate = \"1/s\"
        [[routes]]\npath = \"/limited\"\nupstream = \"demo\"\nlimits = [\"one\"]
        [[routes]]\npath = \"/delayed\"\nupstream = \"demo\"\nlimits = [\"queue\"]
        [[routes]]\npath = \"/failing/{{id}}\"\nupstream = \"failing\"
        [[routes]]\npath = \"/gone\"\nupstream = \"gone\"\n{}",
        collector.section("sample = 1")
    )
}

#[test]
fn refused_delayed_and_failed_requests_are_spans_too() {
    let failing = Backend::answering("HTTP/1.1 503 Busy\r\ncontent-length: 2\r\n\r\nno");
    let ((gone, _held), collector) = (Backend::refusing(), Collector::start());
    let upstreams = format!("failing = \"{}\"\ngone = \"http://{gone}\"", failing.url());
    let gateway = Gateway::start(&every_way(&upstreams, &collector));
    let mut connection = Client::connect(gateway.addr());
    for (path, status) in [
        ("/limited", 200),
        ("/limited", 429),
        ("/delayed", 200),
        ("/delayed", 200),
        ("/failing/7", 503),
        ("/gone", 502),
        ("/nowhere", 404),
    ] {
        connection.get(path, "").expect(status);
    }
    connection.exchange("BREW /nowhere HTTP/1.1\r\nhost: test\r\n\r\n").expect(404);
    connection.exchange("NON\0SENSE\r\n\r\n").expect(400);
    let told = collector.exactly(11);
    let refused = told.iter().find(|span| span.get("http.response.status_code") == "429").expect("refused");
    assert_eq!((refused.name.as_str(), refused.failed), ("GET /limited", false));
    assert_eq!((refused.get("tollgate.limit"), refused.get("tollgate.decision")), ("one", "limited"));
    assert_eq!((refused.get("tollgate.remaining"), refused.get("tollgate.cost")), ("0", "1"));
    let delayed = told.iter().find(|span| span.get("tollgate.decision") == "delayed").expect("delayed");
    let took = std::time::Duration::from_nanos(delayed.until - delayed.since);
    let wait: f64 = delayed.get("tollgate.delay_ms").parse().expect("a number");
    assert!(wait > 0.0 && wait <= 1_000.0 && took.as_secs_f64() * 1e3 >= wait, "{delayed:?}");
    let failed = of(&told, "/failing/7");
    assert_eq!((server(&failed).name.as_str(), server(&failed).failed), ("GET /failing/{id}", true));
    assert_eq!((server(&failed).get("error.type"), client(&failed).get("error.type")), ("503", "503"));
    assert!(client(&failed).failed);
    let gone = of(&told, "/gone");
    assert_eq!(
        (server(&gone).get("error.type"), server(&gone).get("http.response.status_code")),
        ("connect", "502")
    );
    assert_eq!(
        (client(&gone).get("error.type"), client(&gone).get("http.response.status_code")),
        ("connect", "")
    );
    assert!(server(&gone).failed && client(&gone).failed);
    let nowhere = of(&told, "/nowhere");
    let [nowhere] = nowhere.as_slice() else { panic!("{nowhere:?}") };
    assert_eq!(
        (nowhere.name.as_str(), nowhere.failed, nowhere.get("error.type")),
        ("GET", false, "no_route")
    );
    let brewed = told.iter().find(|span| span.get("http.request.method_original") == "BREW").expect("brewed");
    assert_eq!((brewed.name.as_str(), brewed.get("http.request.method")), ("HTTP", "_OTHER"));
    let bad =
        told.iter().find(|span| span.get("http.response.status_code") == "400").expect("refused unread");
    assert_eq!((bad.name.as_str(), bad.failed), ("HTTP", false));
}

#[test]
fn a_retry_is_told_of() {
    let (good, collector) = (Backend::ok(), Collector::start());
    let bad = Backend::start(|_| Next::Reset);
    let toml = format!(
        "[server]\nworkers = 1\n[upstreams.two]\nservers = [\"{}\", \"{}\"]\n[[routes]]\npath = \"/*\"\nupstream = \"two\"\n{}",
        bad.url(),
        good.url(),
        collector.section("sample = 1")
    );
    let gateway = Gateway::start(&toml);
    (0..2).for_each(|_| drop(gateway.get("/").expect(200)));
    let told = collector.exactly(4);
    let way = told
        .iter()
        .find(|span| span.get("tollgate.attempts") == "2")
        .expect("one of two goes to the bad one first");
    assert_eq!(way.get("server.port"), good.addr().port().to_string());
    assert_eq!((way.get("http.request.resend_count"), way.failed), ("1", false));
}

#[test]
fn a_client_that_leaves_ends_both_spans() {
    let (backend, collector) = (
        Backend::start(|exchange| {
            exchange.hang();
            Next::Close
        }),
        Collector::start(),
    );
    let gateway = Gateway::start(&everything_to(&backend, &collector.section("sample = 1")));
    let mut leaving = Client::connect(gateway.addr());
    leaving.write("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
    backend.wait_for(1);
    leaving.reset();
    let told = collector.exactly(2);
    assert_eq!(
        (server(&told).get("error.type"), client(&told).get("error.type")),
        ("client_gone", "client_gone")
    );
    assert_eq!(server(&told).get("http.response.status_code"), "");
    assert_eq!(backend.only().header("traceparent"), Some(client(&told).traceparent("01")));
}

#[test]
fn requests_of_http2_and_http3_are_traced_alike() {
    for index in 0..2 {
        let (backend, collector) = (Backend::ok(), Collector::start());
        let gateway = AllVersions::start(&everything_to(&backend, &collector.section("sample = 0")));
        let clients = gateway.clients();
        let Some(asking) = clients.get(index) else { continue };
        let mut request = h2_get("/streams");
        request.headers_mut().insert("traceparent", PARENT.parse().expect("a value"));
        assert_eq!(asking.exchange(request, Body::default()).expect("an answer").status, 200);
        let told = collector.exactly(2);
        let version = ["2", "3"][index];
        assert_eq!(
            (server(&told).get("network.protocol.version"), server(&told).get("url.path")),
            (version, "/streams")
        );
        assert_eq!(server(&told).parent, "b7ad6b7169203331");
        assert_eq!(backend.only().header("traceparent"), Some(client(&told).traceparent("01")));
    }
}

#[test]
fn calls_of_grpc_are_traced_over_http2_on_both_sides() {
    let (backend, collector) = (GrpcServer::start(), Collector::start());
    let toml = format!(
        "[upstreams.api]\nservers = [\"{}\"]\nprotocol = \"http2\"\n[[routes]]\npath = \"/test.Echo/*\"\nupstream = \"api\"\n\
         max_body_bytes = 0\n{}",
        backend.url(),
        collector.section("sample = 1")
    );
    let gateway = Gateway::start(&toml);
    GrpcClient::start(&gateway, &backend, None, &["unary", "both_streaming"]).finishes();
    let told = collector.wait(4);
    for span in told.iter().filter(|span| span.kind == SpanKind::Server) {
        assert_eq!((span.name.as_str(), span.get("network.protocol.version")), ("POST /test.Echo/*", "2"));
        let way = told.iter().find(|way| way.parent == span.span).expect("each goes to the server");
        assert_eq!(
            (way.kind, way.get("http.response.status_code"), way.failed),
            (SpanKind::Client, "200", false)
        );
    }
}

#[test]
fn the_access_log_names_the_trace_where_it_is_asked_to() {
    let (backend, collector) = (Backend::ok(), Collector::start());
    let log = "[log]\nfields = [\"path\", \"trace_id\"]\n";
    let gateway =
        Gateway::start(&everything_to(&backend, &format!("{log}{}", collector.section("sample = 1"))));
    gateway.get("/a").expect(200);
    let record = &gateway.access_log(1)[0];
    let told = collector.exactly(2);
    assert_eq!(record["trace_id"].as_str(), Some(server(&told).trace.as_str()));
    // A trace does not need an access log.
    gateway.reload(
        &everything_to(&backend, &format!("[log]\naccess = \"off\"\n{}", collector.section("sample = 1"))),
        "INFO reloaded",
    );
    gateway.get("/b").expect(200);
    assert_eq!(of(&collector.exactly(4), "/b").len(), 2);
    assert_eq!(gateway.stdout_lines().len(), 1);
    let usual = Gateway::start(&everything_to(&backend, &collector.section("")));
    usual.get("/").expect(200);
    assert!(usual.access_log(1)[0].get("trace_id").is_none(), "only where it is asked for");
}

#[test]
fn the_echo_is_no_backend() {
    let collector = Collector::start();
    let toml = format!(
        "[upstreams]\ndemo = \"builtin:echo\"\n[[routes]]\npath = \"/*\"\nupstream = \"demo\"\n{}",
        collector.section("sample = 1")
    );
    let gateway = Gateway::start(&toml);
    let shown = gateway.get("/").expect(200).text();
    let told = collector.exactly(1);
    assert!(shown.contains(&format!("traceparent: {}", told[0].traceparent("01"))), "{shown}");
}

#[test]
fn what_a_client_sends_is_cut() {
    let (backend, collector) = (Backend::ok(), Collector::start());
    let trusting = "[server]\ntrusted_proxies = [\"127.0.0.1\"]\n";
    let gateway =
        Gateway::start(&format!("{trusting}{}", everything_to(&backend, &collector.section("sample = 1"))));
    let long = "X".repeat(5_000);
    let request = format!(
        "{} /{long} HTTP/1.1\r\nhost: test\r\nx-request-id: {long}\r\ntraceparent: {PARENT}\r\ntracestate: a={long}\r\n\r\n",
        &long[..200]
    );
    Client::connect(gateway.addr()).exchange(&request).expect(200);
    let told = collector.exactly(2);
    let (server, client) = (server(&told), client(&told));
    assert_eq!(server.get("http.request.method_original"), &long[..32]);
    assert_eq!((server.get("url.path").len(), server.get("tollgate.request_id").len()), (1_024, 1_024));
    assert_eq!((server.state.len(), client.state.len()), (1_024, 1_024));
    assert!(client.get("url.full").len() < 1_100);
    assert_eq!(backend.only().header("tracestate"), Some(format!("a={long}")), "the backend sees it whole");
}
