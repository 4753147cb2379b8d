//! `POST /v1/decide`: an application asks.

use serde_json::{Value, json};

use crate::harness::{Gateway, Response, send};

const FILE: &str = "
[admin]
listen = \"127.0.0.1:0\"
[decisions]
listen = \"127.0.0.1:0\"
[upstreams]
echo = \"builtin:echo\"
[auth.keys]
type = \"api-key\"
from = \"header:x-api-key\"
file = \"CONSUMERS\"
[limits.few]
algorithm = \"fixed-window\"
align = \"first-request\"
key = \"ip\"
rate = \"3/h\"
[limits.many]
algorithm = \"token-bucket\"
key = \"ip\"
rate = \"100/h\"
[limits.plan]
algorithm = \"fixed-window\"
align = \"first-request\"
key = [\"consumer\", \"path\"]
rate = \"1/h\"
tiers.pro = { rate = \"4/h\" }
[limits.all]
algorithm = \"fixed-window\"
align = \"first-request\"
key = \"global\"
rate = \"50/h\"
[limits.queue]
algorithm = \"leaky-bucket\"
key = \"ip\"
rate = \"1/s\"
[[routes]]
path = \"/shop/*\"
upstream = \"echo\"
limits = [\"many\", \"few\"]
[[routes]]
path = \"/plans/*\"
upstream = \"echo\"
auth = \"keys\"
limits = [\"plan\"]
[[routes]]
path = \"/queue\"
upstream = \"echo\"
limits = [\"queue\"]
";

fn start() -> (Gateway, tempfile::TempDir) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let consumers = directory.path().join("consumers.csv");
    std::fs::write(&consumers, "key,name,tier\nkey-of-alice,alice,pro\nkey-of-bob00,bob,\n")
        .expect("it can be written");
    (Gateway::start(&FILE.replace("CONSUMERS", &consumers.display().to_string())), directory)
}

fn post(gateway: &Gateway, body: &str) -> Response {
    let (address, length) = (gateway.decisions_addr(), body.len());
    let head = format!("POST /v1/decide HTTP/1.1\r\nhost: {address}\r\ncontent-length: {length}\r\n\r\n");
    send(address, head + body)
}

#[track_caller]
fn ask(gateway: &Gateway, question: &Value) -> Value {
    post(gateway, &question.to_string()).expect(200).json()
}

fn request(url: &str) -> Value {
    json!({ "method": "GET", "url": url, "ip": "192.0.2.1" })
}

#[test]
fn an_answer_has_the_numbers_of_all_policies() {
    let (gateway, _files) = start();
    let answer = ask(&gateway, &request("https://shop.test/shop/a"));
    let policy = |name: &str, quota: u32, remaining: u32, reset: u32| json!({ "name": name, "quota": quota, "remaining": remaining, "reset": reset });
    let expected = json!({
        "allowed": true, "status": 200, "retry_after": null, "limit": "few",
        "policies": [policy("many", 100, 99, 36), policy("few", 3, 2, 3600)],
    });
    assert_eq!(answer, expected);
    ask(&gateway, &request("/shop/b"));
    ask(&gateway, &request("/shop/c"));
    let refused = ask(&gateway, &request("/shop/d"));
    assert_eq!((&refused["allowed"], &refused["status"]), (&json!(false), &json!(429)));
    assert_eq!(refused["limit"], "few");
    let wait = refused["retry_after"].as_u64().expect("seconds");
    assert!((3_590..=3_600).contains(&wait), "{refused}");
    assert_eq!(refused["policies"][1]["reset"], wait, "the wait is that of the limit that refuses");
    // `many` was not charged by the refused one.
    assert_eq!(refused["policies"][0]["remaining"], 97);
}

#[test]
fn a_credential_names_the_consumer_and_its_tier() {
    let (gateway, _files) = start();
    let with_key =
        |key: &str| json!({ "url": "/plans/a", "ip": "192.0.2.1", "headers": { "X-Api-Key": key } });
    let statuses: Vec<_> =
        (0..5).map(|_| ask(&gateway, &with_key("key-of-alice"))["status"].clone()).collect();
    assert_eq!(statuses, [200, 200, 200, 200, 429]);
    let statuses: Vec<_> =
        (0..2).map(|_| ask(&gateway, &with_key("key-of-bob00"))["status"].clone()).collect();
    assert_eq!(statuses, [200, 429]);
    let wrong = ask(&gateway, &with_key("key-of-nobody"));
    assert_eq!(
        (&wrong["allowed"], &wrong["status"], &wrong["limit"]),
        (&json!(false), &json!(401), &json!(null))
    );
    let nowhere = ask(&gateway, &request("/nowhere"));
    assert_eq!((&nowhere["status"], &nowhere["policies"]), (&json!(404), &json!([])));
}

fn limits(names: &[&str], key: &Value, peek: bool) -> Value {
    let limits: Vec<_> = names.iter().map(|name| json!({ "name": name })).collect();
    json!({ "limits": limits, "key": key, "peek": peek })
}

#[test]
fn limits_can_be_named_and_are_charged_all_or_none() {
    let (gateway, _files) = start();
    let key = json!({ "ip": "192.0.2.1" });
    // Requests and questions count together.
    gateway.get("/shop/a").expect(200);
    assert_eq!(ask(&gateway, &request("/shop/a"))["allowed"], true);
    for expected in [true, true, false] {
        let answer = ask(&gateway, &limits(&["few", "all"], &key, false));
        assert_eq!(answer["allowed"], expected, "{answer}");
    }
    let all = ask(&gateway, &limits(&["all"], &json!({}), true));
    assert_eq!(all["policies"][0]["remaining"], 48, "the refused question charged nothing: {all}");
    let costly =
        json!({ "limits": [{ "name": "all", "cost": 40 }, { "name": "many", "cost": 5 }], "key": key });
    let answer = ask(&gateway, &costly);
    assert_eq!(
        (&answer["policies"][0]["remaining"], &answer["policies"][1]["remaining"]),
        (&json!(8), &json!(94))
    );
    assert_eq!(ask(&gateway, &costly)["limit"], "all");
}

#[test]
fn a_named_consumer_has_the_numbers_of_its_tier() {
    let (gateway, _files) = start();
    let of = |consumer: &str| limits(&["plan"], &json!({ "consumer": consumer, "path": "/plans/x" }), false);
    let count = |consumer: &str| (0..6).filter(|_| ask(&gateway, &of(consumer))["allowed"] == true).count();
    assert_eq!((count("alice"), count("bob"), count("nobody")), (4, 1, 1));
}

#[test]
fn a_peek_charges_nothing_and_is_counted_nowhere() {
    let (gateway, _files) = start();
    let peeks = [
        limits(&["few"], &json!({ "ip": "192.0.2.1" }), true),
        json!({ "url": "/shop/a", "ip": "192.0.2.1", "peek": true }),
    ];
    for peek in &peeks {
        for _ in 0..5 {
            let answer = ask(&gateway, peek);
            assert_eq!(answer["allowed"], true);
            let few = answer["policies"].as_array().expect("a list").last().expect("a policy").clone();
            assert_eq!(few["remaining"], 3, "{answer}");
        }
    }
    assert_eq!(gateway.metric("tollgate_requests_total", &[]), 0.0);
    assert_eq!(gateway.metric("tollgate_decisions_total", &[]), 0.0);
    assert_eq!(gateway.metric("tollgate_requests_in_flight", &[]), 0.0);
    (0..3).for_each(|_| drop(ask(&gateway, &request("/shop/a"))));
    for peek in &peeks {
        let answer = ask(&gateway, peek);
        assert_eq!(answer["allowed"], false, "{answer}");
        assert!(answer["retry_after"].as_u64().is_some_and(|wait| wait > 3_500), "{answer}");
    }
}

#[test]
fn a_list_is_answered_in_order_each_for_itself() {
    let (gateway, _files) = start();
    let one = request("/shop/a");
    let questions = json!([one, one, limits(&["few"], &json!({ "ip": "192.0.2.1" }), false), one]);
    let answers = ask(&gateway, &questions);
    let allowed: Vec<_> =
        answers.as_array().expect("a list").iter().map(|answer| answer["allowed"].clone()).collect();
    assert_eq!(allowed, [true, true, true, false]);
    assert_eq!(ask(&gateway, &json!([])), json!([]));
    for (result, count) in [("result=\"allowed\"", 3), ("result=\"refused\"", 1)] {
        gateway.has_counted("tollgate_decision_calls_total", &["protocol=\"decide\"", result], count);
    }
}

#[test]
fn what_is_wrong_is_said_and_nothing_is_charged() {
    let (gateway, _files) = start();
    let too_many = json!(vec![request("/shop/a"); 101]).to_string();
    let second = json!([request("/shop/a"), { "url": "/shop/a" }]).to_string();
    let no_method = json!({ "method": "get", "url": "/shop/a", "ip": "192.0.2.1" });
    let no_request = json!([request("/shop/a"), no_method]).to_string();
    for (body, said) in [
        ("", "not a question"),
        ("{", "not a question"),
        ("{\"url\": 1}", "not a question"),
        ("{\"urls\": \"/\"}", "not a question"),
        ("{}", "neither `url` nor `limits`"),
        ("{\"url\": \"/shop/a\"}", "`ip` is missing"),
        ("{\"url\": \"/shop/a\", \"ip\": \"a\"}", "`ip` is not an address"),
        ("{\"url\": \"ftp://a/\", \"ip\": \"192.0.2.1\"}", "url is malformed"),
        ("{\"url\": \"/a b\", \"ip\": \"192.0.2.1\"}", "url is malformed"),
        ("{\"method\": \"GET /x\", \"url\": \"/\", \"ip\": \"192.0.2.1\"}", "`method` is none"),
        ("{\"method\": \"get\", \"url\": \"/\", \"ip\": \"192.0.2.1\"}", "would not take"),
        (
            "{\"url\": \"/\", \"ip\": \"192.0.2.1\", \"headers\": {\"a\": \"b\\r\\nc: d\"}}",
            "headers is malformed",
        ),
        ("{\"limits\": []}", "`limits` is empty"),
        ("{\"limits\": [{\"name\": \"none\"}]}", "no limit `none`"),
        ("{\"limits\": [{\"name\": \"queue\"}], \"key\": {\"ip\": \"192.0.2.1\"}}", "cannot be asked"),
        ("{\"limits\": [{\"name\": \"few\"}], \"key\": {}}", "`key` lacks `ip`"),
        ("{\"limits\": [{\"name\": \"few\"}], \"key\": {\"ip\": \"x\"}}", "is not an address"),
        ("{\"limits\": [{\"name\": \"few\"}], \"key\": {\"ips\": \"x\"}}", "`ips` is no part of a key"),
        (
            "{\"limits\": [{\"name\": \"few\", \"cost\": 0}], \"key\": {\"ip\": \"192.0.2.1\"}}",
            "`cost` of `few`",
        ),
        (
            "{\"limits\": [{\"name\": \"few\"}, {\"name\": \"few\"}], \"key\": {\"ip\": \"192.0.2.1\"}}",
            "`few` twice",
        ),
        ("{\"limits\": [{\"name\": \"few\"}], \"key\": {\"ip\": \"192.0.2.1\"}, \"url\": \"/\"}", "alone"),
        (&too_many, "at most 100"),
        (&second, "question 1: `ip` is missing"),
        (&no_request, "question 1: the gateway would not take"),
    ] {
        let answer = post(&gateway, body).expect(400);
        assert!(answer.text().contains(said), "{body}: {}", answer.text());
    }
    let address = gateway.decisions_addr();
    let answer = send(address, format!("GET /v1/decide HTTP/1.1\r\nhost: {address}\r\n\r\n")).expect(405);
    assert_eq!(answer.header("allow"), Some("POST"));
    let large = format!("\"{}\"", "a".repeat(1 << 20));
    post(&gateway, &large).expect(413);
    assert_eq!(gateway.metric("tollgate_requests_total", &[]), 0.0);
    let left = ask(&gateway, &limits(&["few"], &json!({ "ip": "192.0.2.1" }), true));
    assert_eq!(left["policies"][0]["remaining"], 3);
}
