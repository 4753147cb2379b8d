//! Equal requests, one after the other: the gateway does less for them, and clients see no difference.

use std::collections::HashSet;

use http::HeaderMap;

use crate::harness::ratelimit::members;
use crate::harness::{AllVersions, Backend, Client, Gateway, Next, Response, everything_to};

/// A refusal, whichever protocol it came over.
struct Seen {
    fields: Vec<(String, String)>,
    body: serde_json::Value,
}

impl Seen {
    fn http1(response: &Response) -> Self {
        let lines = response.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        Self {
            fields: lines.map(|(name, value)| (name.into(), value.into())).collect(),
            body: response.json(),
        }
    }

    fn http2(headers: &HeaderMap, body: &[u8]) -> Self {
        let text = |value: &http::HeaderValue| value.to_str().expect("text").to_owned();
        let fields = headers.iter().map(|(name, value)| (name.as_str().into(), text(value)));
        Self { fields: fields.collect(), body: serde_json::from_slice(body).expect("JSON") }
    }

    fn field(&self, name: &str) -> &str {
        let found: Vec<_> = self.fields.iter().filter(|(one, _)| one == name).collect();
        assert_eq!(found.len(), 1, "`{name}` in {:?}", self.fields);
        &found[0].1
    }

    /// The seconds to wait, which the refusal says five times, and its id. All other values are those of this limit.
    fn checked(&self, limit: &str, quota: i64) -> (i64, String) {
        let wait: i64 = self.field("retry-after").parse().expect("seconds");
        let (name, numbers) = members(self.field("ratelimit")).remove(0);
        let number = |name: &str| numbers.iter().find(|(one, _)| one == name).expect("a number").1;
        assert_eq!((&*name, number("t")), (limit, wait));
        let policy = members(self.field("ratelimit-policy")).remove(0);
        assert_eq!((&*policy.0, &policy.1[0]), (limit, &("q".to_owned(), quota)));
        assert_eq!(self.field("x-ratelimit-limit"), quota.to_string());
        assert_eq!(self.field("x-ratelimit-reset"), wait.to_string());
        assert_eq!(self.field("x-ratelimit-remaining"), number("r").to_string());
        assert_eq!(self.body["retry_after"], wait);
        assert_eq!(self.body["violated-policies"][0], limit);
        let detail = self.body["detail"].as_str().expect("text");
        assert!(detail.starts_with(&format!("limit `{limit}`")), "{detail}");
        assert!(detail.ends_with(&format!("; retry after {wait} s")), "{detail}");
        assert_eq!(self.field("date").len(), "Wed, 25 Nov 2026 20:00:00 GMT".len());
        assert_eq!(self.field("content-type"), "application/problem+json");
        let id = self.field("x-request-id").to_owned();
        assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
        (wait, id)
    }
}

/// Waits of one to five digits, by two limits in turn, over all versions: each refusal is all of one piece.
#[test]
fn the_numbers_of_each_refusal_of_a_flood_agree() {
    let backend = Backend::ok();
    let gateway = AllVersions::start(&everything_to(
        &backend,
        "limits = [{ name = \"seconds\", cost = { from = \"query:n\" } }]
        [[routes]]
        path = \"/day\"
        upstream = \"api\"
        limits = [\"day\"]
        [limits.seconds]
        algorithm = \"token-bucket\"
        key = \"query:key\"
        rate = \"1/s\"
        burst = 20000
        [limits.day]
        algorithm = \"gcra\"
        key = \"ip\"
        rate = \"1/day\"
        [server]
        workers = 1",
    ));
    let (mut client, others) = (Client::connect(gateway.addr()), gateway.clients());
    client.get("/day", "").expect(200);
    let mut ids = HashSet::new();
    for round in 0..20 {
        // A key of its own, so that a slow machine waits for none of the costs.
        client.get(&format!("/?n=20000&key={round}"), "").expect(200);
        for cost in [3, 30, 40, 300, 3_000, 4, 5, 15_000] {
            let path = format!("/?n={cost}&key={round}");
            let of_http1 = Seen::http1(&client.get(&path, "").expect(429));
            let of_others = others.iter().map(|client| {
                let answer = client.get(&path).expect(429);
                Seen::http2(&answer.headers, &answer.body)
            });
            for refusal in of_others.chain([of_http1]) {
                let (wait, id) = refusal.checked("seconds", 20_000);
                assert!((1..=cost).contains(&wait), "{wait} of {cost}");
                assert!(ids.insert(id));
            }
            if (round + cost) % 3 == 0 {
                let (wait, id) = Seen::http1(&client.get("/day", "").expect(429)).checked("day", 1);
                assert!((86_000..=86_400).contains(&wait), "{wait}");
                assert!(ids.insert(id));
            }
        }
    }
    assert_eq!(backend.count(), 21);
}

/// Requests whose refusals have another form come between those of the usual one.
#[test]
fn each_refusal_has_the_form_of_its_own_request() {
    let backend = Backend::ok();
    let limit = "limits = [\"x\"]\n[limits.x]\nalgorithm = \"gcra\"\nkey = \"ip\"\nrate = \"1/day\"\n";
    let gateway = Gateway::start(&everything_to(
        &backend,
        &format!("{limit}[server]\nworkers = 1\ntrusted_proxies = [\"127.0.0.1\"]"),
    ));
    let mut client = Client::connect(gateway.addr());
    client.get("/", "").expect(200);
    for round in 0..5 {
        let usual = client.get("/", "").expect(429);
        Seen::http1(&usual).checked("x", 1);
        let own = "x-request-id: a;t=1;r=2\r\n";
        let named = client.get("/", own).expect(429);
        assert_eq!(named.header("x-request-id"), Some("a;t=1;r=2"));
        assert_eq!(members(named.header("ratelimit").expect("numbers"))[0].0, "x");
        assert_eq!(named.json()["violated-policies"][0], "x");
        let long = format!("x-request-id: {}\r\n", "f".repeat(32 + round));
        let named = client.get("/", &long).expect(429);
        assert_eq!(named.header("x-request-id").map(str::len), Some(32 + round));
        let head = client.exchange("HEAD / HTTP/1.1\r\nhost: test\r\n\r\n").expect(429);
        assert_eq!((head.body.len(), head.header("content-length")), (0, usual.header("content-length")));
        let mut closing = Client::connect(gateway.addr());
        let closed = closing.get("/", "connection: close\r\n").expect(429);
        assert_eq!(closed.header("connection"), Some("close"));
        let mut old = Client::connect(gateway.addr());
        old.write("GET / HTTP/1.0\r\nhost: test\r\nconnection: keep-alive\r\n\r\n");
        assert_eq!(old.read().expect(429).header("connection"), Some("keep-alive"));
    }
}

const ROUTES: &str = "
    [server]
    workers = 1
    [[routes]]
    path = \"/a\"
    respond = { status = 200, body = \"a\" }
    [[routes]]
    path = \"/b\"
    respond = { status = 200, body = \"b\" }
    [[routes]]
    name = \"gold\"
    path = \"/a\"
    headers = { x-tier = \"gold\" }
    respond = { status = 200, body = \"gold\" }
    [[routes]]
    name = \"options\"
    path = \"/a\"
    methods = [\"OPTIONS\"]
    respond = { status = 200, body = \"options\" }
    ";

/// Heads of one length, in any order and on any connection, and a reload between equal ones.
#[test]
fn an_equal_head_has_the_same_route_and_any_other_its_own() {
    let gateway = Gateway::start(ROUTES);
    let mut clients = [Client::connect(gateway.addr()), Client::connect(gateway.addr())];
    let head = |method: &str, path: &str, tier: &str| {
        format!("{method} {path} HTTP/1.1\r\nhost: test\r\nx-tier: {tier}\r\n\r\n")
    };
    let cases = [
        (head("GET", "/a", "none"), "a"),
        (head("GET", "/b", "none"), "b"),
        (head("GET", "/a", "gold"), "gold"),
        (head("OPTIONS", "/a", "none"), "options"),
        (head("OPTIONS", "/c", "none"), ""),
    ];
    for order in [&[0, 0, 0, 1, 1, 1, 0, 2, 2, 2, 0][..], &[3, 3, 3, 4, 4, 4, 3, 3], &[0, 1, 2, 0, 1, 2, 3]] {
        for (turn, case) in order.iter().enumerate() {
            let (head, expected) = &cases[*case];
            let response = clients[turn / 2 % 2].exchange(head);
            let expected_status = if expected.is_empty() { 404 } else { 200 };
            let response = response.expect(expected_status);
            assert!(expected.is_empty() || response.text() == *expected, "{} for {head}", response.text());
        }
    }
    for _ in 0..4 {
        assert_eq!(clients[0].exchange(&cases[0].0).text(), "a");
    }
    gateway.reload(&ROUTES.replace("body = \"a\"", "body = \"new\""), "reload");
    let unchanged = |text: &String| text == "a";
    let mut answers = (0..).map(|_| clients[0].exchange(&cases[0].0).text());
    assert!(answers.by_ref().take(1_000).any(|text| !unchanged(&text)), "the new plan answers");
    assert!(answers.take(5).all(|text| text == "new"));
    // The same heads, and the routes depend on the client too.
    for clients_of_two in ["clients = [\"127.0.0.2\"]", "not = { clients = [\"127.0.0.1\"] }"] {
        let two = format!(
            "[[routes]]\nname = \"two\"\npath = \"/a\"\n{clients_of_two}\nrespond = {{ body = \"two\" }}"
        );
        gateway.reload(&format!("{ROUTES}{two}"), "reload");
        let mut other = Client::connect_from([127, 0, 0, 2].into(), gateway.addr());
        for _ in 0..4 {
            for _ in 0..3 {
                assert_eq!(other.exchange(&cases[0].0).text(), "two");
            }
            for _ in 0..3 {
                assert_eq!(clients[1].exchange(&cases[0].0).text(), "a");
            }
        }
    }
}

/// Equal heads with bodies: each body is that of its own request.
#[test]
fn equal_heads_have_bodies_of_their_own() {
    let backend = Backend::start(|exchange| {
        let body = exchange.read_body();
        exchange.write(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len()));
        exchange.write(body);
        Next::KeepAlive
    });
    let gateway = Gateway::start(&everything_to(&backend, "[server]\nworkers = 1"));
    let mut client = Client::connect(gateway.addr());
    for round in 0..30 {
        let body = format!("{round:0>8}");
        let head = "POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 8\r\n\r\n";
        if round % 2 == 0 {
            client.write(format!("{head}{body}"));
        } else {
            client.write(head);
            client.write(&body);
        }
        assert_eq!(client.read().expect(200).text(), body);
    }
    let pipelined: String = (0..20).map(|_| "GET / HTTP/1.1\r\nhost: test\r\n\r\n").collect();
    client.write(pipelined);
    for _ in 0..20 {
        client.read().expect(200);
    }
}
