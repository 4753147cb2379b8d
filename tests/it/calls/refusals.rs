//! Refusals that repeat the `id` of the call, as JSON-RPC asks for.

use serde_json::{Value, json};

use super::{call, post};
use crate::harness::{Backend, Gateway, get_with, send};

const REJECT: &str = r#"
[limits.tool.reject]
content_type = "application/json"
body = '{"jsonrpc":"2.0","id":{json:/id},"error":{"code":-32029,"message":"wait {retry_after} s"}}'
"#;

fn gateway(backend: &Backend, key: &str) -> Gateway {
    Gateway::start(&format!(
        "[upstreams]\napi = \"{}\"\n[[routes]]\npath = \"/mcp\"\nupstream = \"api\"\nlimits = [\"tool\"]\n\
         [limits.tool]\nalgorithm = \"fixed-window\"\nkey = {key}\nrate = \"1/day\"\n{REJECT}",
        backend.url()
    ))
}

fn id_of(gateway: &Gateway, body: &str) -> Value {
    let refused = call(gateway, body).expect(429);
    assert!(refused.header("retry-after").is_some());
    refused.json()["id"].clone()
}

#[test]
fn a_refusal_has_the_id_of_its_call() {
    let backend = Backend::ok();
    let gateway = gateway(&backend, "[\"ip\", \"json:/method\"]");
    call(&gateway, r#"{"id":1,"method":"m"}"#).expect(200);
    let long = "x".repeat(2_000);
    for (id, repeated) in [
        ("7", json!(7)),
        ("\"7\"", json!("7")),
        ("\"a\\\"b\\u00e9<\\\\\"", json!("a\"b\u{e9}<\\")),
        ("true", json!(true)),
        ("null", Value::Null),
        ("[1]", Value::Null),
        ("{\"x\":1}", Value::Null),
        (&format!("\"{long}\""), Value::Null),
        ("1,\"id\":2", Value::Null),
    ] {
        let body = format!("{{\"id\":{id},\"method\":\"m\"}}");
        assert_eq!(id_of(&gateway, &body), repeated, "{id}");
    }
    assert_eq!(id_of(&gateway, r#"{"method":"m"}"#), Value::Null);
}

#[test]
fn without_a_body_that_was_read_the_id_is_null() {
    let backend = Backend::ok();
    let gateway = gateway(&backend, "\"header:mcp-name\"");
    let fields = "mcp-name: search\r\ncontent-type: application/json\r\n";
    post(&gateway, fields, r#"{"id":1}"#).expect(200);
    let refused = post(&gateway, fields, r#"{"id":1}"#).expect(429);
    assert_eq!(refused.json()["id"], Value::Null);
}

/// A success would admit the request to a proxy that asks.
#[test]
fn a_refusal_with_200_is_no_admission_to_a_proxy_that_asks() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&format!(
        "[decisions]\nlisten = \"127.0.0.1:0\"\n[upstreams]\napi = \"{}\"\n[[routes]]\npath = \"/*\"\n\
         upstream = \"api\"\nlimits = [\"l\"]\n[limits.l]\nalgorithm = \"fixed-window\"\nkey = \"global\"\n\
         rate = \"1/day\"\nreject = {{ status = 200, body = \"no\" }}\n",
        backend.url()
    ));
    gateway.get("/").expect(200);
    let refused = gateway.get("/").expect(200);
    assert_eq!(refused.text(), "no");
    assert!(refused.header("retry-after").is_some());
    let fields = "x-forwarded-method: GET\r\nx-forwarded-uri: /\r\nx-forwarded-host: a\r\nx-forwarded-for: 192.0.2.1\r\n";
    for path in ["/check/forwarded", "/check/forwarded?status=403"] {
        let status = get_with(gateway.decisions_addr(), path, fields).status;
        assert!((400..500).contains(&status), "{path}: {status}");
    }
    let address = gateway.decisions_addr();
    for question in
        [r#"{"limits":[{"name":"l"}],"key":{}}"#, r#"{"method":"GET","url":"/","ip":"192.0.2.1"}"#]
    {
        let length = question.len();
        let head = format!("POST /v1/decide HTTP/1.1\r\nhost: {address}\r\ncontent-length: {length}\r\n\r\n");
        let answer = send(address, head + question).expect(200).json();
        assert_eq!(
            (&answer["allowed"], &answer["status"]),
            (&false.into(), &429.into()),
            "{question}: {answer}"
        );
    }
    assert_eq!(backend.count(), 1);
}
