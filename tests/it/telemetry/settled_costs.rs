//! What users see of costs that are settled after the response: logs, metrics, samples, top keys, traces, explanations.

use serde_json::{Value, json};

use crate::harness::api::{api, ask, samples_with, sum};
use crate::harness::{Backend, Collector, Gateway, SpanKind, eventually, everything_to, get_with, only_span};

const ANSWER: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 29\r\n\r\n{\"usage\":{\"total_tokens\":50}}";

fn config(backend: &Backend, more: &str) -> String {
    let rest = format!(
        "limits = [\"tokens\"]\ncost = {{ reserve = 20, settle = \"json:/usage/total_tokens\" }}\n\
         [[routes]]\nname = \"search\"\npath = \"/search\"\nupstream = \"api\"\nlimits = [\"calls\", {{ name = \"tokens\", cost = 0 }}]\n\
         cost = {{ from = \"query:limit\", per = 10, min = 1, max = 20 }}\n\
         [limits.tokens]\nalgorithm = \"fixed-window\"\nkey = \"header:x-key\"\nreveal = true\nrate = \"100/366day\"\n\
         [limits.calls]\nalgorithm = \"fixed-window\"\nkey = \"ip\"\nrate = \"1000/366day\"\n\
         [admin]\nlisten = \"127.0.0.1:0\"\n{more}"
    );
    everything_to(backend, &rest)
}

fn ask_for(gateway: &Gateway, key: &str) -> u16 {
    get_with(gateway.addr(), "/v1/chat", &format!("x-key: {key}\r\n")).status
}

#[test]
fn the_access_log_names_reserved_and_settled_units() {
    let backend = Backend::answering(ANSWER);
    let gateway = Gateway::start(&config(&backend, ""));
    assert_eq!([ask_for(&gateway, "a"), ask_for(&gateway, "a"), ask_for(&gateway, "a")], [200, 200, 429]);
    get_with(gateway.addr(), "/search?limit=95", "").expect(200);
    let lines = gateway.access_log(4);
    let fields =
        |line: &Value| ["cost", "reserved", "settled", "settlement"].map(|name| line.get(name).cloned());
    let settled = [json!(20), json!(20), json!(50), json!("measured")].map(Some);
    assert_eq!([fields(&lines[0]), fields(&lines[1])], [settled.clone(), settled]);
    let none = |cost: u32| [json!(cost), Value::Null, Value::Null, Value::Null].map(Some);
    assert_eq!([fields(&lines[2]), fields(&lines[3])], [none(20), none(10)]);
    // Without such routes the lines have no such fields.
    let plain = Gateway::start(&everything_to(&backend, ""));
    plain.get("/").expect(200);
    let line = &plain.access_log(1)[0];
    assert!(["reserved", "settled", "settlement"].iter().all(|name| line.get(name).is_none()), "{line}");
}

#[test]
fn units_are_counted_by_second_and_by_key() {
    let backend = Backend::answering(ANSWER);
    let gateway = Gateway::start(&config(&backend, ""));
    for (key, status) in [("a", 200), ("a", 200), ("b", 200), ("a", 429)] {
        assert_eq!(ask_for(&gateway, key), status, "{key}");
    }
    get_with(gateway.addr(), "/search?limit=95", "x-key: c\r\n").expect(200);
    let samples = samples_with(&gateway, 5);
    let tokens = &samples["limits"]["tokens"];
    assert_eq!((sum(&tokens["units"]), sum(&tokens["settled"]), sum(&tokens["refused"])), (150, 3, 1));
    assert_eq!(tokens["units"].as_array().map(Vec::len), tokens["refused"].as_array().map(Vec::len));
    assert!(samples["limits"]["calls"].get("units").is_none(), "it settles nothing");
    let listed = api(&gateway, "limits");
    let settles: Vec<_> =
        listed["limits"].as_array().unwrap().iter().map(|limit| &limit["settles"]).collect();
    assert_eq!(settles, [true, false]);
    let keys = |path: &str| {
        let told = api(&gateway, path);
        let keys = told["keys"].as_array().unwrap().iter();
        keys.map(|one| (one["key"][0].clone(), one["units"].clone())).collect::<Vec<_>>()
    };
    let by_units = [(json!("a"), json!(100)), (json!("b"), json!(50))];
    assert_eq!(keys("limits/tokens/keys?by=units"), by_units);
    assert_eq!(keys("limits/calls/keys?by=units"), [(json!("127.0.0.1"), Value::Null)]);
    assert_eq!(ask(&gateway, "GET limits/tokens/keys?by=cost", "").0, 400);
    let key = api(&gateway, "limits/tokens/keys/a");
    assert_eq!((&key["units"], &key["policies"][0]["used"]), (&json!(100), &json!(100)));
    assert_eq!(api(&gateway, "limits/calls/keys/127.0.0.1")["units"], Value::Null);
}

#[test]
fn counters_of_settlements_survive_a_reload() {
    let backend = Backend::answering(ANSWER);
    let gateway = Gateway::start(&config(&backend, ""));
    assert_eq!(ask_for(&gateway, "a"), 200);
    let total = |name: &str, label: &str| gateway.metric(name, &["limit=\"tokens\"", label]);
    let sums = || {
        [
            total("tollgate_reserved_units_total", ""),
            total("tollgate_settled_units_total", "charged"),
            total("tollgate_settled_units_total", "refunded"),
            total("tollgate_settlements_total", "measured"),
        ]
    };
    eventually("the settlement to be counted", || (sums() == [20.0, 30.0, 0.0, 1.0]).then_some(()));
    gateway.reload(&config(&backend, "").replace("reserve = 20", "reserve = 60"), "reserve");
    assert_eq!(ask_for(&gateway, "b"), 200);
    eventually("both to be counted", || (sums() == [80.0, 30.0, 10.0, 2.0]).then_some(()));
    assert_eq!(sum(&samples_with(&gateway, 2)["limits"]["tokens"]["units"]), 100);
}

#[test]
fn a_span_has_the_settled_cost() {
    let (backend, collector) = (Backend::answering(ANSWER), Collector::start());
    let gateway = Gateway::start(&config(&backend, &collector.section("sample = 1")));
    assert_eq!(ask_for(&gateway, "a"), 200);
    let told = collector.exactly(2);
    let span = only_span(&told, SpanKind::Server);
    for (name, value) in [
        ("tollgate.cost", "20"),
        ("tollgate.reserved", "20"),
        ("tollgate.settled", "50"),
        ("tollgate.settlement", "measured"),
    ] {
        assert_eq!(span.get(name), value, "{name}");
    }
}

#[test]
fn an_explanation_tells_where_the_cost_comes_from() {
    let backend = Backend::answering(ANSWER);
    let gateway = Gateway::start(&config(&backend, ""));
    let explained = |url: &str| {
        let body = json!({ "url": url, "headers": { "x-key": "a" } }).to_string();
        let (status, told) = ask(&gateway, "POST explain", &body);
        assert_eq!(status, 200, "{told}");
        let limits = told["limits"].as_array().unwrap();
        let cost = |limit: &Value| {
            ["name", "standing", "cost", "measured", "settled_by"].map(|name| limit[name].clone())
        };
        limits.iter().map(cost).collect::<Vec<_>>()
    };
    let tokens = |by: &str| [json!("tokens"), json!("charged"), json!(20), Value::Null, json!(by)];
    assert_eq!(explained("/v1/chat"), [tokens("json:/usage/total_tokens")]);
    for (url, cost, measured) in [
        ("/search?limit=95", 10, "query:limit is 95 per 10, 1 to 20"),
        ("/search?limit=1000", 20, "query:limit is 1000 per 10, 1 to 20"),
        ("/search", 20, "query:limit is missing"),
        ("/search?limit=x", 20, "query:limit is not one whole number from 0 on"),
        ("/search?limit=1&limit=2", 20, "query:limit is not one whole number from 0 on"),
    ] {
        let calls = [json!("calls"), json!("charged"), json!(cost), json!(measured), Value::Null];
        let free = [json!("tokens"), json!("free"), json!(0), Value::Null, Value::Null];
        assert_eq!(explained(url), [calls, free], "{url}");
    }
    let routes = api(&gateway, "routes");
    let rule = "20 reserved, settled by json:/usage/total_tokens";
    assert_eq!(routes["routes"][0]["cost_rule"], rule);
    assert_eq!(backend.count(), 0, "nothing was sent");
}
