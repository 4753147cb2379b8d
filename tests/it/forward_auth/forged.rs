//! Headers that a service grants, sent by a client; and fields that concern one connection.

use http::{HeaderMap, Request};

use super::{admitting, auth};
use crate::harness::config_folder::ConfigFolder;
use crate::harness::{AllVersions, Backend, Body, get_with, send};

const FORGED: &str =
    "x-user: forged\r\nX-User: forged\r\nX_User: forged\r\nx_groups: forged\r\nX-Groups: forged\r\n";

fn keys() -> ConfigFolder {
    ConfigFolder::new(&[("consumers.csv", "key,name\nkey-of-ann,ann\n")])
}

/// `/guarded` asks the service, `/keyed` takes API keys, `/open` is for all.
fn gateway(backend: &Backend, door: &Backend, files: &ConfigFolder) -> AllVersions {
    let route = |name: &str, rest: &str| {
        format!("[[routes]]\npath = \"/{name}\"\nname = \"{name}\"\nupstream = \"app\"\n{rest}\n")
    };
    let edits = "set_request_headers = { x-set = \"own\" }\nremove_request_headers = [\"x-removed\"]";
    AllVersions::start(&format!(
        "[upstreams]\napp = \"{}\"\n{}[auth.keys]\ntype = \"api-key\"\nfrom = \"header:x-api-key\"\nfile = \"{}\"\n{}{}{}",
        backend.url(),
        auth(door, "headers = [\"x-user\", \"x-groups\"]"),
        files.path("consumers.csv").display(),
        route("guarded", "auth = \"door\""),
        route("keyed", &format!("auth = \"keys\"\n{edits}")),
        route("open", edits),
    ))
}

#[test]
fn a_granted_header_of_a_client_reaches_no_backend_on_any_route() {
    let (backend, door, files) = (Backend::ok(), admitting("x-user: ann\r\n"), keys());
    let gateway = gateway(&backend, &door, &files);
    for (path, user) in [("/open", None), ("/keyed", None), ("/guarded", Some("ann"))] {
        get_with(gateway.addr(), path, &format!("x-api-key: key-of-ann\r\n{FORGED}connection: x-user\r\n"))
            .expect(200);
        let request = backend.latest();
        assert!(!request.head.contains("forged"), "{path}: {}", request.head);
        assert_eq!(request.header("x-user").as_deref(), user, "{path}");
    }
    assert!(!door.only().head.contains("forged"));
}

#[test]
fn trailers_carry_nothing_that_the_head_may_not() {
    let (backend, door, files) = (Backend::ok(), admitting(""), keys());
    let gateway = gateway(&backend, &door, &files);
    let trailers = "x-user: forged\r\nX_Groups: forged\r\nx-set: forged\r\nX_Removed: forged\r\nx-api-key: key-of-ann\r\n\
                    x_api_key: key-of-ann\r\nx-sum: 1\r\n";
    let names = "x-user, X_Groups, x-set, X_Removed, x-api-key, x_api_key, x-sum";
    for path in ["/keyed", "/open", "/guarded"] {
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: test\r\nx-api-key: key-of-ann\r\ntransfer-encoding: chunked\r\ntrailer: {names}\r\n\r\n\
             2\r\nhi\r\n0\r\n{trailers}\r\n"
        );
        send(gateway.addr(), request).expect(200);
        let passed = backend.latest().trailers;
        assert!(!passed.contains("x-user") && !passed.contains("X_Groups"), "{path}: {passed}");
        if path == "/keyed" {
            assert_eq!(passed, "x-sum: 1\r\n");
        }
    }
    let mut fields = HeaderMap::new();
    for line in trailers.lines() {
        let (name, value) = line.split_once(": ").expect("a field");
        fields.insert(http::HeaderName::try_from(name).expect("a name"), value.parse().expect("a value"));
    }
    let body = Body { bytes: b"hi".to_vec(), trailers: Some(fields) };
    for client in gateway.clients() {
        let request =
            Request::post("http://test/keyed").header("x-api-key", "key-of-ann").header("trailer", names);
        let answer = client.exchange(request.body(()).expect("a request"), body.clone());
        answer.expect("an answer").expect(200);
        assert_eq!(backend.latest().trailers, "x-sum: 1\r\n", "{}", client.version());
    }
}

#[test]
fn fields_of_the_services_connection_reach_neither_client_nor_backend() {
    let backend = Backend::ok();
    let hops = "connection: x-internal, close\r\nkeep-alive: timeout=5\r\nx-internal: secret\r\nproxy-authenticate: Basic\r\n";
    let door = Backend::start(move |exchange| {
        let status = if exchange.field("cookie").is_some() { "200 OK" } else { "401 Unauthorized" };
        exchange.write(format!("HTTP/1.1 {status}\r\n{hops}x-user: ann\r\ncontent-length: 0\r\n\r\n"));
        crate::harness::Next::Close
    });
    let gateway = super::guarded(&backend, &door, "headers = [\"x-internal\", \"x-user\"]");
    let response = get_with(gateway.addr(), "/", "").expect(401);
    for name in ["x-internal", "keep-alive", "proxy-authenticate"] {
        assert_eq!(response.header(name), None, "{name}");
    }
    assert_eq!(response.header("x-user"), Some("ann"));
    get_with(gateway.addr(), "/", "cookie: a=1\r\n").expect(200);
    let request = backend.only();
    assert_eq!((request.header("x-internal"), request.header("x-user").as_deref()), (None, Some("ann")));
}
