//! Routes with conditions on the body.

use http::Request;

use super::{call, post, tool};
use crate::harness::{AllVersions, Backend, Body, Client, get_with};

/// Calls of `search`, those of other tools, and all other requests have routes of their own, told in a header.
fn gateway(backend: &Backend, more: &str) -> AllVersions {
    let route = |name: &str, rest: &str| {
        format!(
            "[[routes]]\nname = \"{name}\"\npath = \"/mcp\"\nupstream = \"api\"\n\
             set_response_headers = {{ x-route = \"{name}\" }}\n{rest}\n"
        )
    };
    AllVersions::start(&format!(
        "[upstreams]\napi = \"{}\"\n{more}\n{}{}{}{}",
        backend.url(),
        route(
            "search",
            "body = { \"/method\" = \"tools/call\", \"/params/name\" = [\"search\", \"find*\"] }"
        ),
        route("tools", "body = { \"/method\" = \"tools/call\" }\nmax_key_body = \"2KiB\""),
        route(
            "anonymous",
            "not = { body = { \"/params/user\" = true } }\nheaders = { x-user-needed = true }"
        ),
        route("rest", ""),
    ))
}

#[test]
fn a_request_has_the_route_of_its_body() {
    let backend = Backend::ok();
    let gateway = gateway(&backend, "");
    for (body, route) in [
        (tool("search"), "search"),
        (tool("find_user"), "search"),
        (tool("write"), "tools"),
        (r#"{"method":"tools\/call","params":{"n\u0061me":"se\u0061rch"}}"#.to_owned(), "search"),
        (r#"{"Method":"tools/call","PARAMS":{"name":"search"}}"#.to_owned(), "search"),
        (r#"{"method":"tools/list"}"#.to_owned(), "rest"),
        (r#"{"method":null,"params":[]}"#.to_owned(), "rest"),
        ("7".to_owned(), "rest"),
    ] {
        let response = call(&gateway, &body).expect(200);
        assert_eq!(response.header("x-route"), Some(route), "{body}");
        assert_eq!(backend.latest().body, body.as_bytes(), "the body arrives unchanged");
    }
    let empty = get_with(gateway.addr(), "/mcp", "").expect(200);
    assert_eq!(empty.header("x-route"), Some("rest"));
}

#[test]
fn what_must_not_hold_in_a_body_is_looked_for_there() {
    let backend = Backend::ok();
    let gateway = gateway(&backend, "");
    let fields = "x-user-needed: 1\r\ncontent-type: application/json\r\n";
    for (body, route) in [(r#"{"params":{"user":"a"}}"#, "rest"), (r#"{"params":{}}"#, "anonymous")] {
        assert_eq!(post(&gateway, fields, body).expect(200).header("x-route"), Some(route), "{body}");
    }
}

/// A body that says no single thing is not sent to a route with fewer limits.
#[test]
fn a_body_that_leaves_the_route_open_is_refused() {
    let backend = Backend::ok();
    let gateway = gateway(&backend, "");
    let json = "content-type: application/json\r\n";
    let gzip = "content-type: application/json\r\ncontent-encoding: gzip\r\n";
    let long = format!(r#"{{"method":"tools/list","text":"{}"}}"#, "x".repeat(70_000));
    for (fields, body, status) in [
        (json, r#"{"method":"tools/list","method":"tools/call"}"#, 400),
        (json, r#"{"method":"tools/list","Method":"tools/call"}"#, 400),
        (json, r#"{"method":["tools/call"]}"#, 400),
        (json, r#"{"method":"tools/list""#, 400),
        (json, r#"{"method":"tools/list"} {}"#, 400),
        (json, &long, 413),
        (gzip, "{}", 415),
        ("content-type: text/plain\r\n", "{}", 415),
        ("", "{}", 415),
        ("content-type: application/json\r\ncontent-type: text/plain\r\n", "{}", 415),
    ] {
        assert_eq!(post(&gateway, fields, body).status, status, "{fields} {}", &body[..body.len().min(60)]);
    }
    assert_eq!(backend.count(), 0);
}

#[test]
fn a_body_may_come_in_parts_over_each_version() {
    let backend = Backend::ok();
    let gateway = gateway(&backend, "");
    let body = tool("search");
    for cut in 0..body.len() {
        let mut client = Client::connect(gateway.addr());
        let head = "POST /mcp HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\nexpect: 100-continue\r\n\
                    transfer-encoding: chunked\r\n\r\n";
        client.write(head);
        assert_eq!(client.read_head().expect("an interim response").status, 100);
        for part in [&body[..cut], &body[cut..]].iter().filter(|part| !part.is_empty()) {
            client.write(format!("{:x}\r\n{part}\r\n", part.len()));
        }
        client.write("0\r\n\r\n");
        assert_eq!(client.read().expect(200).header("x-route"), Some("search"), "{cut}");
    }
    for client in gateway.clients() {
        let request = Request::post("http://a/mcp").header("content-type", "application/json");
        let sent = Body { bytes: body.clone().into_bytes(), trailers: None };
        let response = client.exchange(request.body(()).expect("a request"), sent);
        assert_eq!(response.expect("an answer").header("x-route"), Some("search"));
        assert_eq!(backend.latest().body, body.as_bytes());
    }
}

/// The body is read before the credential is looked at, since the route says which one is needed; what is refused by its head
/// alone is refused before.
#[test]
fn what_the_head_refuses_costs_no_reading() {
    let backend = Backend::ok();
    let gateway = gateway(&backend, "[server]\ndeny = [\"127.0.0.0/8\"]");
    let mut client = Client::connect(gateway.addr());
    client.write(
        "POST /mcp HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n",
    );
    assert_eq!(client.read().status, 403, "without a byte of the body");
}
