//! What clients are told: refusals, the RateLimit fields, honest waits, shadow limits.

use std::time::Duration;

use serde_json::json;

use crate::harness::ratelimit::{member, members};
use crate::harness::{Backend, Client, Gateway, Response, everything_to};

/// A gateway with one limit, `per-client`, on everything.
fn limited(backend: &Backend, limit: &str) -> Gateway {
    let rest = format!("limits = [\"per-client\"]\n[limits.per-client]\nkey = \"ip\"\n{limit}");
    Gateway::start(&everything_to(backend, &rest))
}

#[test]
fn a_refusal_is_exactly_as_promised() {
    let backend = Backend::ok();
    let gateway = limited(&backend, "algorithm = \"token-bucket\"\nrate = \"10/h\"\nburst = 50");
    let mut client = Client::connect(gateway.addr());
    for _ in 0..50 {
        client.get("/", "").expect(200);
    }
    let refusal = client.get("/", "").expect(429);
    assert!(refusal.head.starts_with("HTTP/1.1 429 Too Many Requests\r\n"), "{}", refusal.head);
    let field =
        |name: &str| refusal.header(name).unwrap_or_else(|| panic!("no `{name}` in {}", refusal.head));
    assert_eq!(field("content-type"), "application/problem+json");
    assert_eq!(field("cache-control"), "no-store");
    let wait: i64 = field("retry-after").parse().expect("whole seconds");
    assert!((355..=360).contains(&wait), "one every 360 s, and the test takes little of it: {wait}");
    assert_eq!(members(field("ratelimit-policy")), [member("per-client", &[("q", 50), ("w", 18_000)])]);
    assert_eq!(members(field("ratelimit")), [member("per-client", &[("r", 0), ("t", wait)])]);
    assert_eq!(field("x-ratelimit-limit"), "50");
    assert_eq!(field("x-ratelimit-remaining"), "0");
    assert_eq!(field("x-ratelimit-reset"), wait.to_string());
    let mut body = refusal.json();
    let detail = body.as_object_mut().and_then(|body| body.remove("detail")).expect("a detail");
    assert!(detail.as_str().is_some_and(|text| !text.is_empty()), "{detail}");
    let expected = json!({
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "Too Many Requests",
        "status": 429,
        "error": "Too Many Requests",
        "violated-policies": ["per-client"],
        "retry_after": wait,
    });
    assert_eq!(body, expected);
    assert!(!refusal.closed, "the connection stays open");
    client.get("/", "").expect(429);
    assert_eq!(backend.count(), 50);
}

/// Not that the limit is used up: something is left. What resets sooner is of no use to this request.
#[test]
fn a_request_that_costs_more_than_is_left_is_told_so() {
    let backend = Backend::ok();
    let limit =
        "[limits.per-client]\nkey = \"ip\"\nalgorithm = \"token-bucket\"\nrate = \"10/h\"\nburst = 11";
    let rest = format!("limits = [{{ name = \"per-client\", cost = 10 }}]\n{limit}");
    let gateway = Gateway::start(&everything_to(&backend, &rest));
    let mut client = Client::connect(gateway.addr());
    client.get("/", "").expect(200);
    let refusal = client.get("/", "").expect(429);
    let wait: i64 = refusal.header("retry-after").and_then(|text| text.parse().ok()).expect("whole seconds");
    assert!((3_235..=3_240).contains(&wait), "nine units, one every 360 s: {wait}");
    let detail = format!("limit `per-client`: costs 10, 1 left; retry after {wait} s");
    assert_eq!(refusal.json()["detail"], detail);
    assert_eq!(refusal.header("x-ratelimit-reset"), Some(&*wait.to_string()));
    let told = members(refusal.header("ratelimit").expect("numbers"));
    assert_eq!(told, [member("per-client", &[("r", 1), ("t", wait)])]);
}

#[test]
fn a_refused_head_request_has_no_body() {
    let backend = Backend::ok();
    let gateway = limited(&backend, "algorithm = \"gcra\"\nrate = \"1/h\"");
    let mut client = Client::connect(gateway.addr());
    client.get("/", "").expect(200);
    let refusal = client.exchange("HEAD / HTTP/1.1\r\nhost: test\r\n\r\n").expect(429);
    assert_eq!(refusal.body.len(), 0);
    client.get("/", "").expect(429);
}

#[test]
fn admitted_responses_tell_what_remains() {
    let backend = Backend::ok();
    let gateway = limited(&backend, "algorithm = \"token-bucket\"\nrate = \"6/min\"\nburst = 3");
    let mut client = Client::connect(gateway.addr());
    for remaining in [2, 1, 0] {
        let response = client.get("/", "").expect(200);
        let field = |name: &str| response.header(name).expect("the field").to_owned();
        assert_eq!(members(&field("ratelimit-policy")), [member("per-client", &[("q", 3), ("w", 30)])]);
        let told = members(&field("ratelimit"));
        assert_eq!((told[0].0.as_str(), told[0].1[0].1), ("per-client", remaining));
        assert!(told[0].1[1].0 == "t" && (0..=10).contains(&told[0].1[1].1), "{told:?}");
        assert_eq!(field("x-ratelimit-limit"), "3");
        assert_eq!(field("x-ratelimit-remaining"), remaining.to_string());
        assert_eq!(field("x-ratelimit-reset"), told[0].1[1].1.to_string());
        assert_eq!(response.header("retry-after"), None);
        assert_eq!(response.text(), "ok");
    }
}

/// The tightest limit is the one with the least remaining ÷ cost.
#[test]
fn the_tightest_limit_is_told_and_the_longest_wait_refuses() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(
        &backend,
        "limits = [\"a\", { name = \"b\", cost = 10 }]
        [limits.a]
        algorithm = \"token-bucket\"
        key = \"ip\"
        rate = [\"4/min\", \"8/h\"]
        [limits.b]
        algorithm = \"token-bucket\"
        key = \"global\"
        rate = \"30/day\"",
    ));
    let mut client = Client::connect(gateway.addr());
    let told = |response: &Response| members(response.header("ratelimit").expect("the field"));
    let first = client.get("/", "").expect(200);
    assert_eq!((told(&first)[0].0.as_str(), told(&first)[0].1[0].1), ("b", 20), "20 ÷ 10 < 3 ÷ 1");
    client.get("/", "").expect(200);
    client.get("/", "").expect(200);
    let refusal = client.get("/", "").expect(429);
    assert_eq!(refusal.json()["violated-policies"], json!(["b"]), "4/min still has one, 8/h five");
    let wait: u64 = refusal.header("retry-after").and_then(|text| text.parse().ok()).expect("seconds");
    assert!((28_700..=28_800).contains(&wait), "10 of 30 a day are back after 8 h, not {wait}");
}

#[test]
fn all_that_refuse_are_named_longest_wait_first() {
    let backend = Backend::ok();
    let gateway =
        limited(&backend, "algorithm = \"sliding-log\"\nrate = [\"1/min\", \"1/day\", \"1/h\", \"9/h\"]");
    let mut client = Client::connect(gateway.addr());
    client.get("/", "").expect(200);
    let refusal = client.get("/", "").expect(429);
    let names = refusal.json()["violated-policies"].clone();
    assert_eq!(names, json!(["per-client:1/day", "per-client:1/h", "per-client:1/min"]));
    let wait: u64 = refusal.header("retry-after").and_then(|text| text.parse().ok()).expect("seconds");
    assert!((86_300..=86_400).contains(&wait), "{wait}");
    for field in ["ratelimit", "ratelimit-policy"] {
        members(refusal.header(field).expect("the field"));
    }
}

/// A client alone on its key that waits as told is admitted: the one test of limits that waits a real second.
#[test]
fn the_wait_is_honest() {
    let backend = Backend::ok();
    let algorithms = ["token-bucket", "gcra", "fixed-window", "sliding-window", "sliding-log"];
    std::thread::scope(|scope| {
        for algorithm in algorithms {
            let gateway = limited(&backend, &format!("algorithm = \"{algorithm}\"\nrate = \"1/s\""));
            scope.spawn(move || waits_as_told(&gateway, algorithm));
        }
    });
}

fn waits_as_told(gateway: &Gateway, algorithm: &str) {
    let mut client = Client::connect(gateway.addr());
    for round in 0..2 {
        let mut response = client.get("/", "");
        for _ in 0..5 {
            if response.status == 429 {
                break;
            }
            response = client.get("/", "");
        }
        let wait: u64 =
            response.header("retry-after").and_then(|text| text.parse().ok()).unwrap_or_else(|| {
                panic!("{algorithm}: six at once were never refused:\n{}", response.head);
            });
        assert!((1..=2).contains(&wait), "{algorithm}: {wait}");
        std::thread::sleep(Duration::from_secs(wait));
        let status = client.get("/", "").status;
        assert_eq!(status, 200, "{algorithm}, round {round}: waited {wait} s as told");
    }
}

#[test]
fn a_cost_that_can_never_pass_has_no_retry_after() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(
        &backend,
        "limits = [\"wide\", \"strict\"]
        [limits.wide]
        algorithm = \"gcra\"
        key = \"ip\"
        rate = \"10/h\"
        [limits.strict]
        algorithm = \"gcra\"
        key = \"header:x-key\"
        missing = \"deny\"
        rate = \"10/h\"",
    ));
    let refusal = gateway.get("/").expect(429);
    assert_eq!(refusal.header("retry-after"), None, "{}", refusal.head);
    assert!(refusal.json().get("retry_after").is_none_or(serde_json::Value::is_null));
}

#[test]
fn ratelimit_headers_are_chosen_by_the_server_table() {
    let backend = Backend::ok();
    for (mode, standard, legacy) in
        [("standard", true, false), ("legacy", false, true), ("both", true, true), ("off", false, false)]
    {
        let rest = format!(
            "limits = [\"one\"]\n[limits.one]\nalgorithm = \"gcra\"\nkey = \"ip\"\nrate = \"1/h\"
            [server]\nratelimit_headers = \"{mode}\""
        );
        let gateway = Gateway::start(&everything_to(&backend, &rest));
        for status in [200, 429] {
            let response = gateway.get("/").expect(status);
            for name in ["ratelimit", "ratelimit-policy"] {
                assert_eq!(response.header(name).is_some(), standard, "{mode}: {}", response.head);
            }
            for name in ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"] {
                assert_eq!(response.header(name).is_some(), legacy, "{mode}: {}", response.head);
            }
            assert_eq!(response.header("retry-after").is_some(), status == 429, "{mode}");
        }
    }
}

/// A limit that settles counts tokens, and the tightest of the others requests.
#[test]
fn the_headers_may_have_openais_names() {
    let own = "HTTP/1.1 200 OK\r\nx-ratelimit-remaining-tokens: 7\r\nx-ratelimit-limit: 9\r\nx-cost: 30\r\n\
               content-length: 0\r\n\r\n";
    let backend = Backend::answering(own);
    let rest = "limits = [{ name = \"tokens\", cost = { reserve = 40, settle = \"header:x-cost\" } }, \"many\", \"few\", \"places\"]\n\
        [limits.tokens]\nalgorithm = \"fixed-window\"\nkey = \"ip\"\nrate = \"100/day\"\nalign = \"first-request\"\n\
        [limits.many]\nalgorithm = \"fixed-window\"\nkey = \"ip\"\nrate = \"100/min\"\nalign = \"first-request\"\n\
        [limits.few]\nalgorithm = \"fixed-window\"\nkey = \"ip\"\nrate = \"5/h\"\nalign = \"first-request\"\n\
        [limits.places]\nalgorithm = \"concurrency\"\nkey = \"ip\"\nmax = 3\n\
        [server]\nratelimit_headers = \"openai\"\n";
    let gateway = Gateway::start(&everything_to(&backend, rest));
    let header = |response: &Response, kind: &str, what: &str| {
        let name = format!("x-ratelimit-{what}-{kind}");
        let mut found = response.head.lines().filter_map(|line| line.strip_prefix(&format!("{name}: ")));
        let value = found.next().map(str::to_owned);
        assert_eq!(found.next(), None, "{name} stands once: {}", response.head);
        value.unwrap_or_else(|| panic!("{name}: {}", response.head))
    };
    let first = gateway.get("/").expect(200);
    for (kind, what, value) in [
        ("tokens", "limit", "100"),
        ("tokens", "remaining", "60"),
        ("tokens", "reset", "24h0m0s"),
        ("requests", "limit", "5"),
        ("requests", "remaining", "4"),
        ("requests", "reset", "1h0m0s"),
    ] {
        assert_eq!(header(&first, kind, what), value, "{}", first.head);
    }
    assert_eq!(first.header("ratelimit"), None);
    assert_eq!(first.header("x-ratelimit-limit"), Some("9"), "the backend's own");
    gateway.get("/").expect(200);
    gateway.get("/").expect(200);
    let refused = gateway.get("/").expect(429);
    assert_eq!(header(&refused, "tokens", "remaining"), "10", "of 100, 90 are settled");
    assert!(refused.header("retry-after").is_some());
}

#[test]
fn the_upstreams_own_fields_win_only_where_the_gateway_sets_none() {
    let head =
        "HTTP/1.1 200 OK\r\nratelimit: \"own\";r=9\r\nx-ratelimit-limit: 99\r\ncontent-length: 0\r\n\r\n";
    let backend = Backend::answering(head);
    let free = Gateway::start(&everything_to(&backend, "")).get("/").expect(200);
    assert_eq!(
        (free.header("ratelimit"), free.header("x-ratelimit-limit")),
        (Some("\"own\";r=9"), Some("99"))
    );
    let gateway = limited(&backend, "algorithm = \"gcra\"\nrate = \"5/h\"\nburst = 5");
    let limited = gateway.get("/").expect(200);
    assert_eq!(limited.header("x-ratelimit-limit"), Some("5"), "one value, the gateway's");
    assert_eq!(members(limited.header("ratelimit").expect("one value"))[0].0, "per-client");
}

#[test]
fn a_shadow_limit_counts_and_never_shows() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(
        &backend,
        "limits = [\"shadow\", \"slow\", \"real\"]
        [limits.shadow]
        mode = \"shadow\"
        algorithm = \"gcra\"
        key = \"ip\"
        rate = \"2/h\"
        burst = 2
        [limits.slow]
        mode = \"shadow\"
        algorithm = \"leaky-bucket\"
        key = \"ip\"
        rate = \"1/h\"
        max_wait = \"2h\"
        [limits.real]
        algorithm = \"gcra\"
        key = \"ip\"
        rate = \"5/h\"
        burst = 5
        [admin]
        listen = \"127.0.0.1:0\"",
    ));
    let mut client = Client::connect(gateway.addr());
    for _ in 0..5 {
        let response = client.get("/", "").expect(200);
        assert!(!response.head.contains("shadow") && !response.head.contains("slow"), "{}", response.head);
        assert_eq!(response.header("x-ratelimit-limit"), Some("5"));
    }
    let refusal = client.get("/", "").expect(429);
    assert_eq!(refusal.json()["violated-policies"], json!(["real"]));
    assert!(!refusal.head.contains("shadow"), "{}", refusal.head);
    let count = |limit: &str, decision: &str| {
        let labels = [format!("limit=\"{limit}\""), format!("decision=\"{decision}\"")];
        gateway.metric("tollgate_decisions_total", &[&labels[0], &labels[1]])
    };
    assert!((count("shadow", "allowed") - 2.0).abs() < 0.5, "two were in its allowance");
    assert!(count("shadow", "shadow_limited") > 2.5, "three would have been refused");
    assert!((count("real", "limited") - 1.0).abs() < 0.5);
    assert!(
        (count("shadow", "limited") + count("slow", "limited")).abs() < 0.5,
        "a shadow refuses no request"
    );
}

#[test]
fn reject_says_how_a_refusal_looks_and_the_routes_wins() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&format!(
        "[upstreams]
        api = \"{}\"
        [[routes]]
        path = \"/limit\"
        upstream = \"api\"
        limits = [\"none\"]
        [[routes]]
        path = \"/route\"
        upstream = \"api\"
        limits = [\"none\"]
        reject = {{ status = 503 }}
        [limits.none]
        algorithm = \"gcra\"
        key = [\"route\", \"ip\"]
        rate = \"1/h\"
        reject = {{ status = 420, content_type = \"text/plain\", body = \"calm down\", headers = {{ x-why = \"limit\" }} }}",
        backend.url()
    ));
    let mut client = Client::connect(gateway.addr());
    client.get("/limit", "").expect(200);
    client.get("/route", "").expect(200);
    let limit = client.get("/limit", "").expect(420);
    assert_eq!((limit.header("content-type"), limit.header("x-why")), (Some("text/plain"), Some("limit")));
    assert_eq!(limit.text(), "calm down");
    assert!(limit.header("retry-after").is_some() && limit.header("ratelimit").is_some(), "{}", limit.head);
    assert_eq!(limit.header("cache-control"), Some("no-store"));
    let route = client.get("/route", "").expect(503);
    assert_eq!(route.header("content-type"), Some("application/problem+json"));
    assert_eq!(route.json()["status"], 503);
}

#[test]
fn refusals_and_admissions_are_logged_with_their_limit() {
    let backend = Backend::ok();
    let gateway = limited(&backend, "algorithm = \"gcra\"\nrate = \"2/h\"\nburst = 2");
    let mut client = Client::connect(gateway.addr());
    client.get("/a?b=c", "x-request-id: spoofed\r\n").expect(200);
    client.get("/", "").expect(200);
    client.get("/", "").expect(429);
    let log = gateway.access_log(3);
    let first = &log[0];
    for (field, value) in [
        ("method", json!("GET")),
        ("host", json!("test")),
        ("path", json!("/a?b=c")),
        ("route", json!("all")),
        ("status", json!(200)),
        ("bytes_in", json!(0)),
        ("bytes_out", json!(2)),
        ("client", json!("127.0.0.1")),
        ("limit", json!("per-client")),
        ("decision", json!("allowed")),
        ("remaining", json!(1)),
        ("cost", json!(1)),
        ("error", json!(null)),
    ] {
        assert_eq!(first.get(field), Some(&value), "`{field}` in {first}");
    }
    let id = backend.requests()[0].header("x-request-id").expect("an id");
    assert_eq!(first["request_id"], json!(id));
    assert!(first["duration_ms"].is_number() && first["upstream_ms"].is_number(), "{first}");
    assert!(first["upstream"].as_str().is_some_and(|upstream| upstream.contains("api")), "{first}");
    assert!(first["time"].as_str().is_some_and(|time| time.contains('T')), "{first}");
    assert_eq!((&log[2]["status"], &log[2]["decision"]), (&json!(429), &json!("limited")));
    assert_eq!(log[2]["upstream"], json!(null), "a refusal never reaches the backend");
}
