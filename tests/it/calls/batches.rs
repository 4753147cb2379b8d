//! JSON lists: several calls in one request.

use super::{call, post, tool};
use crate::harness::api::{api, ask};
use crate::harness::{Backend, Gateway};

const LIMITS: &str = "[limits.tool]\nalgorithm = \"fixed-window\"\nkey = \"json:/params/name\"\nrate = \"10/day\"\nreveal = true\n\
    [limits.client]\nalgorithm = \"fixed-window\"\nkey = \"ip\"\nrate = \"100/day\"\n\
    [admin]\nlisten = \"127.0.0.1:0\"\n[log]\nfields = [\"key\", \"decision\"]\n";

fn gateway(backend: &Backend, rest: &str) -> Gateway {
    Gateway::start(&format!(
        "[upstreams]\napi = \"{}\"\n[[routes]]\npath = \"/mcp\"\nupstream = \"api\"\n{rest}\n{LIMITS}",
        backend.url()
    ))
}

fn list(names: &[&str]) -> String {
    format!("[{}]", names.iter().map(|name| tool(name)).collect::<Vec<_>>().join(","))
}

fn used_by(gateway: &Gateway, limit: &str, key: &str) -> u64 {
    let report = api(gateway, &format!("limits/{limit}/keys/{key}"));
    report["policies"][0]["used"].as_u64().expect("a number")
}

#[test]
fn each_call_of_a_batch_is_charged() {
    let backend = Backend::ok();
    let gateway = gateway(&backend, "batch = \"each\"\nlimits = [\"client\", \"tool\"]");
    call(&gateway, &list(&["a", "b", "a"])).expect(200);
    assert_eq!(backend.latest().body, list(&["a", "b", "a"]).as_bytes());
    call(&gateway, &tool("a")).expect(200);
    assert_eq!((used_by(&gateway, "tool", "a"), used_by(&gateway, "tool", "b")), (3, 1));
    assert_eq!(used_by(&gateway, "client", "127.0.0.1"), 4);
    // All or none: 7 of `a` are left.
    let refused = call(&gateway, &list(&["a", "a", "a", "a", "b", "a", "a", "a", "a"])).expect(429);
    assert!(refused.header("retry-after").is_some());
    assert_eq!((used_by(&gateway, "tool", "a"), used_by(&gateway, "tool", "b")), (3, 1));
    assert_eq!(used_by(&gateway, "client", "127.0.0.1"), 4);
    let (_, top) = ask(&gateway, "GET limits/tool/keys?by=requests", "");
    let keys: Vec<_> =
        top["keys"].as_array().expect("a list").iter().map(|key| key["key"][0].clone()).collect();
    assert_eq!(keys.len(), 2, "{top}");
    assert!(keys.contains(&"a".into()) && keys.contains(&"b".into()), "{top}");
    let refused = gateway.access_log(3).into_iter().find(|line| line["decision"] == "limited");
    assert_eq!(refused.map(|line| line["key"].clone()), Some("a".into()));
    call(&gateway, &list(&["a"; 7])).expect(200);
    call(&gateway, &tool("a")).expect(429);
    // More than the limit can ever admit at once: no wait helps.
    let never = call(&gateway, &list(&["c"; 11])).expect(429);
    assert_eq!(never.header("retry-after"), None);
}

#[test]
fn a_list_is_refused_where_calls_are_not_charged_one_by_one() {
    let backend = Backend::ok();
    for (route, body, status) in [
        ("limits = [\"tool\"]", list(&["a"]), 400),
        ("limits = [\"tool\"]", " \n[]".into(), 400),
        ("limits = [{ name = \"client\", cost = { from = \"json:/n\", max = 5 } }]", list(&["a"]), 400),
        ("limits = [\"client\"]\nbody = { \"/method\" = true }", list(&["a"]), 400),
        // The body is of no interest.
        ("limits = [\"client\"]", list(&["a"]), 200),
        // Pointers lead into the list itself.
        ("limits = [{ name = \"client\", cost = { from = \"json:/0/n\", max = 5 } }]", list(&["a"]), 200),
        ("batch = \"each\"\nlimits = [\"client\"]", "[]".into(), 400),
        ("batch = \"each\"\nlimits = [\"client\"]", "[{},7]".into(), 200),
        ("batch = \"each\"\nlimits = [\"tool\"]", "[{},[{}]]".into(), 400),
        ("batch = \"each\"\nlimits = [\"client\"]", "[{}".into(), 400),
        ("batch = \"each\"\nlimits = [\"client\"]", "{".into(), 200),
    ] {
        let gateway = gateway(&backend, route);
        assert_eq!(call(&gateway, &body).status, status, "{route}: {body}");
    }
}

/// Conditions on the body of a route for other requests change nothing.
#[test]
fn a_list_is_a_document_where_no_route_for_the_same_head_reads_calls() {
    let backend = Backend::ok();
    for (more, status) in [
        ("path = \"/rpc\"\nbody = { \"/method\" = \"x\" }", 200),
        ("path = \"/mcp\"\nhosts = [\"other.test\"]\nbody = { \"/method\" = \"x\" }", 200),
        ("path = \"/rpc\"\nnot = { body = { \"/method\" = \"x\" } }", 200),
        ("path = \"/mcp\"\nbody = { \"/method\" = \"x\" }", 400),
        ("path = \"/mcp\"\nnot = { body = { \"/method\" = \"x\" } }", 400),
    ] {
        for limit in ["key = \"json:/user\"\nunreadable = \"missing\"", "key = \"json:/0/user\""] {
            let route = format!(
                "limits = [\"user\"]\n[[routes]]\nname = \"other\"\n{more}\nupstream = \"api\"\n\
                 [limits.user]\nalgorithm = \"token-bucket\"\nrate = \"100/day\"\n{limit}"
            );
            let gateway = gateway(&backend, &route);
            assert_eq!(call(&gateway, "[{\"user\":1}]").status, status, "{more}, {limit}");
        }
    }
}

#[test]
fn a_batch_has_a_bound() {
    let backend = Backend::ok();
    let gateway = gateway(&backend, "batch = \"each\"\nlimits = [\"client\", \"tool\"]");
    let names: Vec<String> = (0..33).map(|number| format!("tool-{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    call(&gateway, &list(&names[..31])).expect(200);
    call(&gateway, &list(&names[..32])).expect(400);
    call(&gateway, &list(&names)).expect(400);
    call(&gateway, &list(&["a"; 101])).expect(400);
    post(&gateway, "content-type: text/plain\r\n", &list(&["a"])).expect(415);
    assert_eq!(backend.count(), 1);
}

/// The calls of a batch could have routes with different limits.
#[test]
fn the_calls_of_a_batch_have_one_route() {
    let backend = Backend::ok();
    let gateway = gateway(
        &backend,
        "name = \"dear\"\nbatch = \"each\"\nlimits = [\"client\"]\nbody = { \"/params/name\" = \"dear\" }\ncost = 10\n\
         [[routes]]\npath = \"/mcp\"\nbatch = \"each\"\nupstream = \"api\"\nlimits = [\"client\"]",
    );
    call(&gateway, &list(&["dear", "dear"])).expect(200);
    call(&gateway, &list(&["cheap", "cheap"])).expect(200);
    assert_eq!(used_by(&gateway, "client", "127.0.0.1"), 22);
    for mixed in [list(&["dear", "cheap"]), list(&["cheap", "dear"])] {
        let refused = call(&gateway, &mixed).expect(400);
        assert!(refused.text().contains("different routes"), "{}", refused.text());
    }
    assert_eq!(used_by(&gateway, "client", "127.0.0.1"), 22);
}
