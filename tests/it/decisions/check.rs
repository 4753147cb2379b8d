//! `/check/…`: the answers are those of a gateway in front.

use std::net::SocketAddr;

use crate::harness::{Gateway, Response, get_with, send};

/// A gateway that both forwards and decides: each route has counters of its own, so that the two can be compared.
const FILE: &str = "
[admin]
listen = \"127.0.0.1:0\"
[decisions]
listen = \"127.0.0.1:0\"
[upstreams]
echo = \"builtin:echo\"
[limits.few]
algorithm = \"fixed-window\"
align = \"first-request\"
key = [\"ip\", \"route\"]
rate = \"2/h\"
[limits.costly]
algorithm = \"token-bucket\"
key = \"header:x-user\"
rate = \"10/h\"
[[routes]]
path = \"/front/*\"
upstream = \"echo\"
limits = [\"few\"]
[[routes]]
path = \"/asked/*\"
upstream = \"echo\"
limits = [\"few\"]
[[routes]]
path = \"/search\"
upstream = \"echo\"
limits = [\"costly\"]
cost = { from = \"query:units\", max = 10 }
[[routes]]
path = \"/shut\"
respond = { status = 410, body = \"gone\" }
[[routes]]
path = \"/private\"
upstream = \"echo\"
allow = [\"10.0.0.0/8\"]
[[routes]]
hosts = [\"other.test\"]
path = \"/*\"
redirect = \"https\"
upstream = \"echo\"
";

/// Asks by `x-forwarded-*` about this request of the client 192.0.2.7. `fields`: further lines.
fn forwarded(address: SocketAddr, method: &str, target: &str, fields: &str) -> Response {
    let about = format!(
        "x-forwarded-method: {method}\r\nx-forwarded-proto: https\r\nx-forwarded-host: shop.test\r\nx-forwarded-uri: {target}\r\nx-forwarded-for: 198.51.100.9, 192.0.2.7\r\n{fields}"
    );
    ask(address, "/check/forwarded", &about)
}

fn ask(address: SocketAddr, path: &str, fields: &str) -> Response {
    send(address, format!("GET {path} HTTP/1.1\r\nhost: {address}\r\n{fields}\r\n"))
}

/// What a client is told: status, waits and what is left.
fn told(response: &Response) -> Vec<Option<&str>> {
    let fields =
        ["retry-after", "ratelimit", "ratelimit-policy", "x-ratelimit-limit", "x-ratelimit-remaining"];
    let fields = fields.into_iter().chain(["content-type"].into_iter().filter(|_| response.status != 200));
    fields.map(|name| response.header(name)).collect()
}

#[test]
fn the_answers_are_those_of_a_gateway_in_front() {
    let gateway = Gateway::start(FILE);
    for expected in [200, 200, 429, 429] {
        let front = gateway.get("/front/a").expect(expected);
        let asked = forwarded(gateway.decisions_addr(), "GET", "/asked/a", "").expect(expected);
        assert_eq!(told(&front), told(&asked));
        if expected == 429 {
            assert_eq!(front.text(), asked.text());
        } else {
            assert_eq!(asked.text(), "");
        }
    }
    for result in ["result=\"allowed\"", "result=\"refused\""] {
        gateway.has_counted("tollgate_decision_calls_total", &["protocol=\"forwarded\"", result], 2);
    }
    gateway.has_counted("tollgate_requests_total", &["route=\"/asked/*\"", "code=\"429\""], 2);
}

#[test]
fn every_family_asks_about_the_same_counters() {
    let gateway = Gateway::start(FILE);
    let decisions = gateway.decisions_addr();
    forwarded(decisions, "GET", "/asked/a", "").expect(200);
    let client = "x-real-ip: 192.0.2.7\r\n";
    let url = format!("x-original-method: GET\r\nx-original-url: https://shop.test/asked/b\r\n{client}");
    ask(decisions, "/check/original", &url).expect(200);
    ask(decisions, "/check/envoy/asked/c", "x-forwarded-for: 192.0.2.7\r\n").expect(429);
    let path = format!("x-original-method: GET\r\nx-original-uri: /asked/d\r\n{client}");
    ask(decisions, "/check/original", &path).expect(429);
    // Another client has its own counter.
    ask(decisions, "/check/envoy/asked/c", "x-forwarded-for: 192.0.2.8\r\n").expect(200);
}

#[test]
fn method_target_and_headers_are_those_of_the_client() {
    let gateway = Gateway::start(FILE);
    let decisions = gateway.decisions_addr();
    let search =
        |units: &str| forwarded(decisions, "GET", &format!("/search?units={units}"), "x-user: a\r\n");
    assert_eq!(search("4").expect(200).header("x-ratelimit-remaining"), Some("6"));
    assert_eq!(search("7").expect(429).header("x-ratelimit-remaining"), Some("6"));
    assert_eq!(search("6").expect(200).header("x-ratelimit-remaining"), Some("0"));
    let other = forwarded(decisions, "GET", "/search?units=10", "x-user: b\r\n");
    assert_eq!(other.expect(200).header("x-ratelimit-remaining"), Some("0"));
}

#[test]
fn refusals_of_no_limit_and_answers_of_routes_are_told_whole() {
    let gateway = Gateway::start(FILE);
    let decisions = gateway.decisions_addr();
    assert_eq!(forwarded(decisions, "GET", "/shut", "").expect(410).text(), "gone");
    forwarded(decisions, "GET", "/private", "").expect(403);
    forwarded(decisions, "GET", "/nowhere", "").expect(404);
    forwarded(decisions, "TRACE", "/front/a", "").expect(405);
    let plain = "x-original-method: GET\r\nx-original-url: http://other.test/a?b\r\nx-real-ip: 192.0.2.1\r\n";
    let redirect = ask(decisions, "/check/original", plain).expect(308);
    assert_eq!(redirect.header("location"), Some("https://other.test/a?b"));
}

#[test]
fn refusals_are_told_as_403_where_the_proxy_asks_for_it() {
    let gateway = Gateway::start(FILE);
    let decisions = gateway.decisions_addr();
    let about = |target: &str| {
        format!(
            "x-original-method: GET\r\nx-original-url: http://shop.test{target}\r\nx-real-ip: 192.0.2.7\r\n"
        )
    };
    let asked = |target: &str| ask(decisions, "/check/original?a=b&status=403", &about(target));
    for _ in 0..2 {
        assert_eq!(asked("/asked/a").expect(200).header("x-tollgate-status"), None);
    }
    let refused = asked("/asked/a").expect(403);
    assert_eq!(refused.header("x-tollgate-status"), Some("429"));
    assert!(refused.header("retry-after").is_some() && refused.text().contains("`few` is used up"));
    for (target, status) in [("/nowhere", "404"), ("/shut", "410"), ("/private", "403")] {
        assert_eq!(asked(target).expect(403).header("x-tollgate-status"), Some(status), "{target}");
    }
    let missing = ask(decisions, "/check/original?status=403", "");
    assert_eq!(missing.expect(403).header("x-tollgate-status"), Some("400"));
}

#[test]
fn what_is_missing_is_said_and_nothing_is_charged() {
    let gateway = Gateway::start(FILE);
    let decisions = gateway.decisions_addr();
    for (path, fields, said) in [
        ("/check/forwarded", "", "x-forwarded-method is missing"),
        ("/check/original", "x-original-method: GET\r\n", "x-original-url is missing"),
        ("/check/envoy/asked/a", "", "the client is not named"),
        ("/check/envoy/asked/a", "x-forwarded-for: unknown\r\n", "the client is not named"),
    ] {
        let answer = ask(decisions, path, fields).expect(400);
        assert!(answer.text().contains(said), "{path}: {}", answer.text());
    }
    gateway.has_counted("tollgate_decision_calls_total", &["result=\"error\""], 4);
    assert_eq!(gateway.metric("tollgate_requests_total", &[]), 0.0);
}

/// nginx passes on what the client sends under the name that nginx does not set.
#[test]
fn a_client_that_names_another_request_in_the_other_field_is_refused() {
    let gateway = Gateway::start(FILE);
    let asked = |url: &str, uri: &str| {
        let fields = format!(
            "x-original-method: GET\r\nx-original-url: {url}\r\nx-original-uri: {uri}\r\nx-real-ip: 192.0.2.7\r\n"
        );
        ask(gateway.decisions_addr(), "/check/original", &fields)
    };
    for url in
        ["http://shop.test/asked/a", "http://shop.test/", "http://shop.test", "https://other.test/private"]
    {
        let answer = asked(url, "/private").expect(400);
        assert!(answer.text().contains("name different requests"), "{}", answer.text());
    }
    assert_eq!(gateway.metric("tollgate_requests_total", &[]), 0.0);
    asked(&format!("https://{}/asked/a", gateway.decisions_addr()), "/asked/a").expect(200);
}

#[test]
fn limits_that_cannot_be_asked_are_left_out() {
    let gateway = Gateway::start(
        "[decisions]
listen = \"127.0.0.1:0\"
[upstreams]
echo = \"builtin:echo\"
[limits.queue]
algorithm = \"leaky-bucket\"
key = \"ip\"
rate = \"1/h\"
queue = 1
[limits.places]
algorithm = \"concurrency\"
key = \"ip\"
max = 1
[limits.tokens]
algorithm = \"token-bucket\"
key = \"ip\"
rate = \"1/h\"
[limits.users]
algorithm = \"token-bucket\"
key = \"json:/user\"
rate = \"1/h\"
[limits.few]
algorithm = \"token-bucket\"
key = \"ip\"
rate = \"3/h\"
[[routes]]
path = \"/*\"
upstream = \"echo\"
limits = [\"queue\", \"places\", { name = \"tokens\", cost = { reserve = 1, settle = \"bytes\" } }, \"users\", \"few\"]
",
    );
    for expected in [200, 200, 200, 429] {
        let asked = forwarded(gateway.decisions_addr(), "POST", "/", "").expect(expected);
        assert!(asked.header("ratelimit").is_some_and(|field| field.starts_with("\"few\"")));
    }
}

#[test]
fn a_call_with_a_body_leaves_the_connection_in_order() {
    let gateway = Gateway::start(FILE);
    let address = gateway.decisions_addr();
    let about = "x-forwarded-method: GET\r\nx-forwarded-proto: https\r\nx-forwarded-host: a\r\nx-forwarded-uri: /asked/a\r\nx-forwarded-for: 192.0.2.7\r\n";
    let mut client = crate::harness::Client::connect(address);
    let call =
        format!("POST /check/forwarded HTTP/1.1\r\nhost: {address}\r\ncontent-length: 5\r\n{about}\r\nhello");
    assert_eq!(client.exchange(&call).status, 200);
    assert_eq!(client.exchange(&call).status, 200);
    assert_eq!(client.exchange(&call).status, 429);
    let http2 = crate::harness::Http2::connect(address);
    let request = http::Request::get(format!("http://{address}/check/envoy/asked/a"))
        .header("x-forwarded-for", "192.0.2.7")
        .body(())
        .expect("a request");
    assert_eq!(http2.exchange(request, crate::harness::Body::default()).expect("an answer").status, 429);
}

#[test]
fn the_gateways_own_listener_has_none_of_these_calls() {
    let gateway = Gateway::start(FILE);
    let about = "x-forwarded-method: GET\r\nx-forwarded-proto: https\r\nx-forwarded-host: a\r\nx-forwarded-uri: /asked/a\r\nx-forwarded-for: 192.0.2.7\r\n";
    get_with(gateway.addr(), "/check/forwarded", about).expect(404);
    get_with(gateway.decisions_addr(), "/front/a", "").expect(404);
}
