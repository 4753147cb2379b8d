//! The keys of limits: composites, missing parts, and exemptions.

use crate::harness::{Backend, Client, Gateway, everything_to, get_with, send};

/// A gateway whose one limit admits one request per key.
fn one_per(backend: &Backend, key: &str) -> Gateway {
    Gateway::start(&everything_to(
        backend,
        &format!(
            "limits = [\"one\"]
            [limits.one]
            algorithm = \"fixed-window\"
            rate = \"1/366day\"
            key = {key}"
        ),
    ))
}

/// Sends `requests` in order and compares the statuses with those that stand beside them.
#[track_caller]
fn play(gateway: &Gateway, requests: &[(&str, u16)]) {
    for (number, (request, status)) in requests.iter().enumerate() {
        let (line, fields) = request.split_once(" | ").unwrap_or((request, ""));
        let (method, target) = line.split_once(' ').expect("METHOD TARGET");
        let host = if fields.contains("host:") { "" } else { "host: test\r\n" };
        let fields: String = fields
            .split(" | ")
            .filter(|field| !field.is_empty())
            .map(|field| format!("{field}\r\n"))
            .collect();
        let response = send(gateway.addr(), format!("{method} {target} HTTP/1.1\r\n{host}{fields}\r\n"));
        assert_eq!(response.status, *status, "request {number}: {request}");
    }
}

#[test]
fn a_header_key_is_all_its_values_as_sent() {
    let backend = Backend::ok();
    let gateway = one_per(&backend, "\"header:X-Api-Key\"\nrepeated = \"join\"");
    play(
        &gateway,
        &[
            ("GET / | x-api-key: a", 200),
            ("GET / | X-API-KEY: a", 429),
            ("GET / | x-api-key:   a  ", 429),
            ("GET / | x-api-key: A", 200),
            ("GET / | x-api-key: a | x-api-key: b", 200),
            ("GET / | x-api-key: b | x-api-key: a", 200),
            ("GET / | x-api-key: a | x-api-key: b", 429),
        ],
    );
}

/// Each trick would get a fresh allowance while the backend still reads the one key.
#[test]
fn junk_beside_the_key_is_no_fresh_allowance() {
    let backend = Backend::ok();
    play(
        &one_per(&backend, "\"header:x-api-key\""),
        &[
            ("GET / | x-api-key: REAL", 200),
            ("GET / | x-api-key: REAL | x-api-key: junk", 400),
            ("GET / | x-api-key: junk | X-Api-Key: REAL", 400),
            ("GET / | x-api-key: REAL | x-api-key:", 400),
            ("GET / | x-api-key: REAL | x-api-key: REAL", 429),
        ],
    );
    play(
        &one_per(&backend, "\"query:api_key\""),
        &[
            ("GET /?api_key=REAL", 200),
            ("GET /?api_key=junk&api_key=REAL", 400),
            ("GET /?api_key=REAL&api%5fkey=junk", 400),
            ("GET /?api_key&api_key=REAL", 400),
            ("GET /?api_key=REAL&api_key=RE%41L", 429),
        ],
    );
    play(
        &one_per(&backend, "\"cookie:sid\""),
        &[
            ("GET / | cookie: sid=abc", 200),
            ("GET / | cookie: sid=%61bc", 429),
            ("GET / | cookie: sid=\"abc\"; sid=%61%62c", 429),
            // Treated as missing: the client's address stands in.
            ("GET / | cookie: sid=junk1; sid=abc", 200),
            ("GET / | cookie: sid=abc; sid=junk2", 429),
            ("GET / | cookie: sid=junk3 | cookie: sid=abc", 429),
            ("GET /", 429),
        ],
    );
}

#[test]
fn a_repeated_key_is_a_bad_request_that_names_the_limit() {
    let backend = Backend::ok();
    let reject = "reject = { status = 503, body = \"no\" }\n[admin]\nlisten = \"127.0.0.1:0\"";
    let gateway = one_per(&backend, &format!("\"header:x-api-key\"\n{reject}"));
    let response = get_with(gateway.addr(), "/", "x-api-key: a\r\nx-api-key: b\r\n").expect(400);
    assert_eq!(response.header("content-type"), Some("application/problem+json"));
    assert_eq!(response.header("retry-after"), None);
    let detail = "the key of limit `one` is given more than once, with different values";
    assert!(response.text().contains(detail), "{}", response.text());
    let record = &gateway.access_log(1)[0];
    assert_eq!(
        [&record["status"], &record["error"], &record["limit"], &record["decision"], &record["route"]],
        [&serde_json::json!(400), &"repeated_key".into(), &"one".into(), &"limited".into(), &"all".into()]
    );
    assert_eq!(gateway.metric("tollgate_decisions_total", &["limit=\"one\"", "decision=\"limited\""]), 1.0);
    assert_eq!(backend.count(), 0);
    let explain = Client::connect(gateway.admin_addr()).exchange({
        let body = r#"{"url":"/","headers":{"x-api-key":["a","b"]}}"#;
        let host = gateway.admin_addr();
        let length = body.len();
        format!("POST /api/v1/explain HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer test-token\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}")
    });
    let told: serde_json::Value = serde_json::from_str(&explain.text()).expect("JSON");
    assert_eq!((&told["status"], &told["verdict"]), (&400.into(), &"refused".into()), "{told}");
    assert_eq!(told["limits"][0]["standing"], "repeated", "{told}");
    assert_eq!(told["limits"][0]["detail"], "header:x-api-key has several values", "{told}");
}

#[test]
fn exempt_requests_and_shadow_limits_take_repeated_keys() {
    let backend = Backend::ok();
    let exempt = one_per(&backend, "\"header:x-api-key\"\nexempt = [\"path:/free\"]");
    play(
        &exempt,
        &[("GET /free | x-api-key: a | x-api-key: b", 200), ("GET /a | x-api-key: a | x-api-key: b", 400)],
    );
    let shadow = "\"header:x-api-key\"\nmode = \"shadow\"\n[admin]\nlisten = \"127.0.0.1:0\"";
    let shadow = one_per(&backend, shadow);
    play(
        &shadow,
        &[("GET / | x-api-key: a | x-api-key: b", 200), ("GET / | x-api-key: a | x-api-key: b", 200)],
    );
    let counted = |decision: &str| {
        shadow.metric("tollgate_decisions_total", &["limit=\"one\"", &format!("decision=\"{decision}\"")])
    };
    assert_eq!([counted("shadow_limited"), counted("limited"), counted("allowed")], [2.0, 0.0, 0.0]);
}

#[test]
fn long_keys_that_differ_only_at_the_end_are_two() {
    let backend = Backend::ok();
    let gateway = one_per(&backend, "\"header:x-api-key\"");
    let long = "k".repeat(4_000);
    let spend = |last: &str| get_with(gateway.addr(), "/", &format!("x-api-key: {long}{last}\r\n")).status;
    assert_eq!([spend("a"), spend("b"), spend("a"), spend("b")], [200, 200, 429, 429]);
}

#[test]
fn bytes_beyond_ascii_are_kept() {
    let backend = Backend::ok();
    let gateway = one_per(&backend, "\"header:x-api-key\"");
    let spend = |byte: u8| {
        let mut request = b"GET / HTTP/1.1\r\nhost: test\r\nx-api-key: ".to_vec();
        request.push(byte);
        request.extend_from_slice(b"\r\n\r\n");
        send(gateway.addr(), request).status
    };
    assert_eq!([spend(0xE9), spend(0xE8), spend(0xE9)], [200, 200, 429]);
}

#[test]
fn a_key_is_read_before_anything_is_stripped() {
    let backend = Backend::ok();
    let gateway = one_per(&backend, "\"header:x-api-key\"");
    play(
        &gateway,
        &[
            ("GET / | connection: x-api-key | x-api-key: a", 200),
            ("GET / | x-api-key: a", 429),
            ("GET / | connection: x-api-key | x-api-key: a", 429),
        ],
    );
    assert_eq!(backend.only().header("x-api-key"), None, "the nominated field is not forwarded");
}

#[test]
fn cookies_and_queries_are_keys() {
    let backend = Backend::ok();
    let cookie = one_per(&backend, "\"cookie:session\"");
    play(
        &cookie,
        &[
            ("GET / | cookie: session=a", 200),
            ("GET / | cookie: theme=dark; session=a", 429),
            ("GET / | cookie: session=b; theme=dark", 200),
            ("GET / | cookie: xsession=c", 200),
            ("GET /", 429),
        ],
    );
    let query = one_per(&backend, "\"query:user\"");
    play(
        &query,
        &[
            ("GET /?user=a", 200),
            ("GET /?page=2&user=a", 429),
            ("GET /?user=%61", 429),
            ("GET /?user=b", 200),
            ("GET /?xuser=c", 200),
            ("GET /", 429),
        ],
    );
}

#[test]
fn host_path_method_route_and_global_are_keys() {
    let backend = Backend::ok();
    play(
        &one_per(&backend, "\"host\""),
        &[
            ("GET / | host: a.example", 200),
            ("GET / | host: A.Example", 429),
            ("GET / | host: a.example:8080", 429),
            ("GET / | host: a.example.", 429),
            ("GET / | host: b.example", 200),
        ],
    );
    play(
        &one_per(&backend, "\"path\""),
        &[("GET /a", 200), ("GET /a?x=1", 429), ("GET /b", 200), ("GET //a", 429)],
    );
    play(
        &one_per(&backend, "\"method\""),
        &[("GET /", 200), ("DELETE /", 200), ("GET /b", 429), ("DELETE /", 429)],
    );
    play(&one_per(&backend, "\"route\""), &[("GET /a", 200), ("DELETE /b", 429)]);
    play(&one_per(&backend, "\"global\""), &[("GET /a | x: 1", 200), ("DELETE /b | host: c", 429)]);
}

#[test]
fn composite_keys_never_run_together() {
    let backend = Backend::ok();
    let gateway = one_per(&backend, "[\"header:x-a\", \"header:x-b\"]");
    play(
        &gateway,
        &[
            ("GET / | x-a: a:b | x-b: c", 200),
            ("GET / | x-a: a | x-b: b:c", 200),
            ("GET / | x-a: ab | x-b: c", 200),
            ("GET / | x-a: a | x-b: bc", 200),
            ("GET / | x-b: c | x-a: a:b", 429),
            ("GET / | x-a: a | x-b: bc", 429),
        ],
    );
}

#[test]
fn what_happens_without_the_field_is_chosen_by_missing() {
    let backend = Backend::ok();
    let with = |missing: &str| one_per(&backend, &format!("\"header:x-key\"\nmissing = \"{missing}\""));
    let other =
        |gateway: &Gateway| Client::connect_from([127, 0, 0, 7].into(), gateway.addr()).get("/", "").status;
    let ip = with("ip");
    play(&ip, &[("GET /", 200), ("GET /", 429), ("GET / | x-key: 127.0.0.1", 200)]);
    assert_eq!(other(&ip), 200, "each address has its own");
    let shared = with("shared");
    play(&shared, &[("GET /", 200), ("GET /", 429), ("GET / | x-key: ", 429), ("GET / | x-key: a", 200)]);
    assert_eq!(other(&shared), 429, "all share one");
    play(
        &with("skip"),
        &[("GET /", 200), ("GET /", 200), ("GET / | x-key: a", 200), ("GET / | x-key: a", 429)],
    );
    let deny = with("deny");
    play(&deny, &[("GET /", 429), ("GET / | x-key: a", 200)]);
    let refusal = get_with(deny.addr(), "/", "").expect(429);
    assert_eq!(refusal.header("retry-after"), None, "waiting cannot help");
    assert_eq!(refusal.json()["violated-policies"], serde_json::json!(["one"]));
}

#[test]
fn exemptions_hold_by_address_field_and_path() {
    let backend = Backend::ok();
    let exempt = "\"global\"\nexempt = [\"ip:127.0.0.8/29\", \"header:x-internal=1\", \"path:/status/*\"]";
    let gateway = one_per(&backend, exempt);
    play(
        &gateway,
        &[
            ("GET / | x-internal: 1", 200),
            ("GET /status", 200),
            ("GET /status/deep", 200),
            ("GET /x/../status", 200),
            ("GET /", 200),
            ("GET /", 429),
            ("GET / | x-internal: 1", 200),
            ("GET / | x-internal: 2", 429),
            ("GET / | x-internal: 11", 429),
            ("GET /statuses", 429),
        ],
    );
    let from = |last: u8| Client::connect_from([127, 0, 0, last].into(), gateway.addr()).get("/", "").status;
    assert_eq!([from(8), from(15), from(16), from(7)], [200, 200, 429, 429]);
    let exempted = get_with(gateway.addr(), "/", "x-internal: 1\r\n").expect(200);
    assert_eq!(exempted.header("ratelimit"), None, "an exempt request has no allowance to tell of");
}

#[test]
fn routes_are_chosen_by_the_most_specific_conditions() {
    let backend = Backend::start(|exchange| {
        let name = exchange.field("x-route").unwrap_or_default();
        exchange.write(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{name}", name.len()));
        crate::harness::Next::KeepAlive
    });
    let route = |name: &str, conditions: &str| {
        format!(
            "[[routes]]\nname = \"{name}\"\nupstream = \"api\"\nset_request_headers = {{ x-route = \"{name}\" }}\n{conditions}\n"
        )
    };
    let routes = [
        route("rest", "path = \"/*\""),
        route("get-only", "path = \"/items\"\nmethods = [\"GET\"]"),
        route("item", "path = \"/items/{id}\""),
        route("new", "path = \"/items/new\""),
        route("gold", "path = \"/items/new\"\nheaders = { x-plan = \"gold\" }"),
        route("below", "path = \"/items/deep/*\""),
        route("wild", "path = \"/*\"\nhosts = [\"*.example.com\"]"),
        route("exact", "path = \"/*\"\nhosts = [\"api.example.com\"]"),
    ];
    let gateway = Gateway::start(&format!("[upstreams]\napi = \"{}\"\n{}", backend.url(), routes.concat()));
    let chosen = |line: &str, fields: &str| {
        send(gateway.addr(), format!("{line} HTTP/1.1\r\n{fields}\r\n")).expect(200).text()
    };
    let table = [
        ("GET /items", "host: a\r\n", "get-only"),
        ("POST /items", "host: a\r\n", "rest"),
        ("GET /items/", "host: a\r\n", "get-only"),
        ("GET /items/7", "host: a\r\n", "item"),
        ("GET /items/new", "host: a\r\n", "new"),
        ("GET /items/new", "host: a\r\nx-plan: gold\r\n", "gold"),
        ("GET /Items/new", "host: a\r\n", "new"),
        ("GET /items/deep", "host: a\r\n", "item"),
        ("GET /items/deep/er", "host: a\r\n", "below"),
        ("GET /items/new", "host: x.example.com\r\n", "wild"),
        ("GET /items/new", "host: API.example.com.:80\r\n", "exact"),
        ("GET /items/new", "host: example.com\r\n", "new"),
    ];
    for (line, fields, name) in table {
        assert_eq!(chosen(line, fields), name, "{line} with {fields:?}");
    }
}
