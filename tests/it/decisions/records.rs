//! Calls in the access log, the metrics, the admin API and a reload: under a name like that of a route.

use serde_json::json;

use crate::harness::api::good;
use crate::harness::{Gateway, RateLimitClient, Redis, descriptor, message, send};

const FILE: &str = "
[admin]
listen = \"127.0.0.1:0\"
[log]
access = \"json\"
[decisions]
listen = \"127.0.0.1:0\"
[upstreams]
echo = \"builtin:echo\"
[limits.per-address]
algorithm = \"fixed-window\"
align = \"first-request\"
key = \"descriptor:remote_address\"
rate = \"1/h\"
[limits.per-key]
algorithm = \"fixed-window\"
align = \"first-request\"
key = \"descriptor:api_key\"
rate = \"5/h\"
[limits.few]
algorithm = \"fixed-window\"
align = \"first-request\"
key = \"ip\"
rate = \"1/h\"
[[routes]]
path = \"/*\"
upstream = \"echo\"
limits = [\"few\"]
[[descriptors]]
domain = \"shop\"
match = { generic_key = \"search\", remote_address = \"*\" }
limits = [\"per-address\"]
[[descriptors]]
match = { api_key = \"*\" }
limits = [\"per-key\"]
";
const SEARCH: &str = "shop/generic_key=search,remote_address=*";

fn called() -> Gateway {
    let gateway = Gateway::start(FILE);
    let client = RateLimitClient::connect(gateway.decisions_addr());
    let search = descriptor(&[("generic_key", "search"), ("remote_address", "192.0.2.1")], None);
    let key = descriptor(&[("api_key", "a-secret-of-a-client")], Some(2));
    client.ask(&message("shop", &[search.clone(), key])).expect("an answer");
    client.ask(&message("shop", &[search])).expect("an answer");
    gateway
}

#[test]
fn the_access_log_has_descriptors_in_place_of_a_path_and_no_secret() {
    let gateway = called();
    let records = gateway.access_log(2);
    let first = &records[0];
    assert_eq!(
        (&first["method"], &first["host"], &first["status"]),
        (&json!("descriptors"), &json!("shop"), &json!(200))
    );
    let path = first["path"].as_str().expect("text");
    assert!(path.starts_with("/generic_key=search,remote_address=192.0.2.1;api_key=…"), "{path}");
    assert!(path.ends_with("*2") && !path.contains("secret"), "{path}");
    let second = &records[1];
    assert_eq!((&second["route"], &second["status"]), (&json!(SEARCH), &json!(429)));
    assert_eq!((&second["limit"], &second["decision"]), (&json!("per-address"), &json!("limited")));
}

#[test]
fn metrics_and_views_have_a_name_like_that_of_a_route() {
    let gateway = called();
    let route = format!("route=\"{SEARCH}\"");
    let decisions =
        |decision| gateway.metric("tollgate_decisions_total", &[&route, "limit=\"per-address\"", decision]);
    assert_eq!((decisions("\"allowed\""), decisions("\"limited\"")), (1.0, 1.0));
    gateway.has_counted("tollgate_requests_total", &[&route, "code=\"429\""], 1);
    gateway.has_counted("tollgate_requests_total", &["route=\"*/api_key=*\"", "code=\"200\""], 1);
    let routes = good(&gateway, "GET routes", "");
    let names: Vec<_> =
        routes["routes"].as_array().expect("a list").iter().map(|route| route["name"].clone()).collect();
    assert_eq!(names, ["/*", SEARCH, "*/api_key=*", "decisions/limits"]);
    let refusals = good(&gateway, "GET refusals", "");
    let refusal = &refusals["refusals"][0];
    assert_eq!((&refusal["route"], &refusal["limit"]), (&json!(SEARCH), &json!("per-address")));
    assert_eq!(refusal["key"], json!(["192.0.2.1"]));
    let key = good(&gateway, "GET limits/per-address/keys/192.0.2.1", "");
    assert_eq!(key["policies"][0]["used"], 1);
    let top = good(&gateway, "GET limits/per-key/keys", "");
    assert!(!top.to_string().contains("secret"), "{top}");
}

#[test]
fn requests_that_are_asked_about_are_logged_as_requests() {
    let gateway = Gateway::start(FILE);
    let address = gateway.decisions_addr();
    let about = "x-forwarded-method: POST\r\nx-forwarded-proto: https\r\nx-forwarded-host: shop.test\r\nx-forwarded-uri: /cart?a=b\r\nx-forwarded-for: 192.0.2.7\r\n";
    let call = format!("GET /check/forwarded?status=403 HTTP/1.1\r\nhost: {address}\r\n{about}\r\n");
    send(address, &call).expect(200);
    send(address, &call).expect(403);
    let records = gateway.access_log(2);
    for (record, status) in records.iter().zip([200, 429]) {
        assert_eq!((&record["method"], &record["host"]), (&json!("POST"), &json!("shop.test")));
        assert_eq!((&record["path"], &record["route"]), (&json!("/cart?a=b"), &json!("/*")));
        assert_eq!((&record["client"], &record["status"]), (&json!("192.0.2.7"), &json!(status)));
    }
}

#[test]
fn without_the_store_calls_are_logged_as_requests_are() {
    let mut redis = Redis::start();
    let store = format!("[store]\nbackend = \"redis\"\nurl = \"{}\"\non_error = \"deny\"\n", redis.url());
    redis.kill();
    let gateway = Gateway::start(&format!("{store}{FILE}"));
    gateway.get("/").expect(503);
    let address = gateway.decisions_addr();
    let body = r#"{"limits":[{"name":"few"}],"key":{"ip":"192.0.2.1"}}"#;
    let length = body.len();
    let call =
        format!("POST /v1/decide HTTP/1.1\r\nhost: {address}\r\ncontent-length: {length}\r\n\r\n{body}");
    assert_eq!(send(address, call).expect(200).json()["status"], 503);
    let search = descriptor(&[("api_key", "of-a-client")], None);
    RateLimitClient::connect(address).ask(&message("shop", &[search])).expect("an answer");
    for record in gateway.access_log(3) {
        assert_eq!((&record["status"], &record["error"]), (&json!(503), &json!("store")), "{record}");
    }
}

#[test]
fn a_reload_keeps_the_counters_and_tells_what_changed() {
    let gateway = called();
    let file = FILE.replace("rate = \"1/h\"\n[limits.per-key]", "rate = \"2/h\"\n[limits.per-key]");
    let file = file.replace("match = { api_key = \"*\" }", "report = true\nmatch = { api_key = \"*\" }");
    gateway.reload(&file, "reloaded");
    gateway.wait_for_log("limit per-address: rate 1/h → 2/h");
    gateway.wait_for_log("descriptors */api_key=*: report false → true");
    let client = RateLimitClient::connect(gateway.decisions_addr());
    let search = descriptor(&[("generic_key", "search"), ("remote_address", "192.0.2.1")], None);
    let codes: Vec<_> = (0..2)
        .map(|_| client.ask(&message("shop", std::slice::from_ref(&search))).expect("an answer").overall_code)
        .collect();
    assert_eq!(codes, [1, 2], "one of two is used");
}
