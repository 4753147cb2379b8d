//! `respond = { usage = […] }`: a client asks what it has used.

use serde_json::{Value, json};

use crate::harness::{Backend, Gateway, Redis, get_with};

fn gateway(backend: &Backend, store: &str) -> Gateway {
    Gateway::start(&format!(
        "[upstreams]\napi = \"{}\"\n{store}\n\
         [limits.tokens]\nalgorithm = \"fixed-window\"\nkey = \"header:x-client\"\nmissing = \"skip\"\n\
         rate = [\"100/day\", \"1000/month\"]\n\
         [limits.places]\nalgorithm = \"concurrency\"\nkey = \"header:x-client\"\nmissing = \"skip\"\nmax = 3\n\
         [limits.asking]\nalgorithm = \"fixed-window\"\nkey = \"header:x-client\"\nrate = \"5/day\"\n\
         [[routes]]\npath = \"/*\"\nupstream = \"api\"\ncost = 7\nlimits = [\"tokens\"]\n\
         [[routes]]\npath = \"/usage\"\nlimits = [\"tokens\", {{ name = \"asking\", cost = 1 }}]\n\
         respond = {{ usage = [\"tokens\", \"places\"], headers = {{ x-a = \"b\" }} }}\n",
        backend.url()
    ))
}

fn usage(gateway: &Gateway, client: &str) -> Value {
    let response = get_with(gateway.addr(), "/usage", &format!("x-client: {client}\r\n")).expect(200);
    assert_eq!(response.header("content-type"), Some("application/json"));
    assert_eq!((response.header("cache-control"), response.header("x-a")), (Some("no-store"), Some("b")));
    response.json()
}

fn tells_what_a_client_has_used(gateway: &Gateway) {
    let numbers = |client: &str| {
        let report = usage(gateway, client);
        let policies = report["policies"].as_array().expect("a list").clone();
        let number = |policy: &Value| ["quota", "used", "remaining"].map(|name| policy[name].as_u64());
        policies.iter().map(number).collect::<Vec<_>>()
    };
    let some = |numbers: [u64; 3]| numbers.map(Some);
    assert_eq!(numbers("ann"), [some([100, 0, 100]), some([1_000, 0, 1_000]), some([3, 0, 3])]);
    for _ in 0..2 {
        get_with(gateway.addr(), "/call", "x-client: ann\r\n").expect(200);
    }
    assert_eq!(numbers("ann"), [some([100, 14, 86]), some([1_000, 14, 986]), some([3, 0, 3])]);
    assert_eq!(numbers("bob")[0], some([100, 0, 100]), "each client has its own");
    let report = usage(gateway, "ann");
    assert_eq!(report["policies"][0]["name"], json!("tokens:100/day"));
    assert_eq!(report["policies"][0]["window"], json!(86_400));
    assert!(report["policies"][0]["reset"].as_u64().is_some_and(|reset| reset <= 86_400), "{report}");
    assert_eq!(report["policies"][2]["reset"], Value::Null);
    // The limits of the route hold, and those without a cost of their own are not charged.
    usage(gateway, "ann");
    usage(gateway, "ann");
    get_with(gateway.addr(), "/usage", "x-client: ann\r\n").expect(429);
    let anonymous = get_with(gateway.addr(), "/usage", "").expect(200);
    assert_eq!(anonymous.json(), json!({"policies": []}), "no limit applies");
}

#[test]
fn a_client_is_told_what_it_has_used() {
    let backend = Backend::ok();
    tells_what_a_client_has_used(&gateway(&backend, ""));
}

#[test]
fn a_client_is_told_what_it_has_used_of_shared_limits() {
    let (backend, redis) = (Backend::ok(), Redis::start());
    let store = format!("[store]\nbackend = \"redis\"\nurl = \"{}\"\ntimeout = \"2s\"\n", redis.url());
    let gateway = gateway(&backend, &store);
    tells_what_a_client_has_used(&gateway);
    drop(redis);
    get_with(gateway.addr(), "/usage", "x-client: eve\r\n").expect(503);
}
