//! `x-request-id`: which answers carry it, and that the access log has the id of every request.

use serde_json::Value;

use crate::harness::{AllVersions, Backend, Client, everything_to, get_with, send};

/// A backend that gives answers an id of its own.
fn backend() -> Backend {
    Backend::answering("HTTP/1.1 200 OK\r\nx-request-id: theirs\r\ncontent-length: 2\r\n\r\nok")
}

/// A route to `backend`, one that is refused from its second request on, one to the echo, and one that a redirect answers.
fn gateway(server: &str, backend: &Backend) -> AllVersions {
    let rest = "[upstreams.echo]\nservers = [\"builtin:echo\"]\n[[routes]]\nname = \"echo\"\npath = \"/echo\"\nupstream = \"echo\"\n\
        [[routes]]\nname = \"secure\"\npath = \"/secure\"\nupstream = \"echo\"\nredirect = \"https\"\n\
        [[routes]]\nname = \"once\"\npath = \"/once\"\nupstream = \"echo\"\nlimits = [\"once\"]\n\
        [limits.once]\nalgorithm = \"fixed-window\"\nkey = \"global\"\nrate = \"1/day\"\n";
    let all = everything_to(backend, rest).replace("path = \"/*\"", "path = \"/api/*\"");
    AllVersions::start(&format!("[server]\n{server}{all}"))
}

fn is_ours(id: &str) -> bool {
    id.len() == 32 && id.bytes().all(|digit| digit.is_ascii_hexdigit())
}

/// The id that the log has of the requests with this status.
fn logged(lines: &[Value], status: u16) -> Vec<&str> {
    let of_status = lines.iter().filter(|line| line["status"] == status);
    of_status.map(|line| line["request_id"].as_str().expect("text")).collect()
}

#[test]
fn answers_of_the_gateways_own_carry_the_id_that_is_logged() {
    let backend = backend();
    let gateway = gateway("", &backend);
    let get = |path: &str| get_with(gateway.addr(), path, "");
    assert_eq!(get("/api/a").expect(200).header("x-request-id"), Some("theirs"));
    assert_eq!(get("/once").expect(200).header_all("x-request-id").len(), 1);
    let answers = [
        get("/nowhere").expect(404),
        get("/once").expect(429),
        get("/secure").expect(308),
        send(gateway.addr(), "GET / HTTP/1.1\r\n\r\n").expect(400),
        send(gateway.addr(), "GET / HTTP/1.7\r\nhost: a\r\n\r\n").expect(505),
        send(gateway.addr(), "OPTIONS * HTTP/1.1\r\nhost: a\r\n\r\n").expect(200),
    ];
    let lines = gateway.access_log(8);
    for answer in &answers {
        let id = answer.header("x-request-id").expect("an id");
        assert!(is_ours(id) && answer.header_all("x-request-id").len() == 1, "{}", answer.head);
        assert!(logged(&lines, answer.status).contains(&id), "{}", answer.head);
    }
    let ids: std::collections::HashSet<_> = lines.iter().map(|line| line["request_id"].to_string()).collect();
    assert_eq!(ids.len(), 8, "each has its own: {lines:?}");
    let forwarded = backend.only().header("x-request-id").expect("an id");
    assert!(logged(&lines, 200).contains(&&*forwarded));
    for client in gateway.clients() {
        let refused = client.get("/once");
        assert!(refused.status == 429 && is_ours(refused.header("x-request-id").expect("an id")));
    }
}

#[test]
fn all_answers_carry_it_or_none() {
    let backend = backend();
    let all = gateway("request_id = \"all\"\n", &backend);
    let answer = get_with(all.addr(), "/api/a", "x-request-id: spoofed\r\n").expect(200);
    let sent = backend.latest().header("x-request-id");
    assert_eq!(answer.header_all("x-request-id"), [sent.as_deref().expect("an id")]);
    assert_eq!(get_with(all.addr(), "/echo", "").expect(200).header_all("x-request-id").len(), 1);
    assert!(get_with(all.addr(), "/nowhere", "").expect(404).header("x-request-id").is_some());

    let off = gateway("request_id = \"off\"\n", &backend);
    assert_eq!(get_with(off.addr(), "/api/a", "").expect(200).header("x-request-id"), Some("theirs"));
    for path in ["/echo", "/nowhere", "/secure"] {
        assert_eq!(get_with(off.addr(), path, "").header("x-request-id"), None, "{path}");
    }
    let refused = off.access_log(4);
    assert!(is_ours(logged(&refused, 404)[0]), "the log has it nevertheless");
}

#[test]
fn the_id_of_a_trusted_proxy_is_kept_in_refusals_too() {
    let backend = backend();
    let gateway = gateway("trusted_proxies = [\"127.0.0.1\"]\nrequest_id = \"all\"\n", &backend);
    let long = "0123456789abcdef".repeat(20);
    for id in ["kept-1", &long] {
        let fields = format!("x-request-id: {id}\r\n");
        let mut client = Client::connect(gateway.addr());
        assert_eq!(client.get("/nowhere", &fields).expect(404).header("x-request-id"), Some(id));
        assert_eq!(client.get("/api/a", &fields).expect(200).header_all("x-request-id"), [id]);
        assert_eq!(backend.latest().header("x-request-id").as_deref(), Some(id));
    }
    let lines = gateway.access_log(4);
    assert_eq!(logged(&lines, 404), ["kept-1", &long]);
    let fresh = get_with(gateway.addr(), "/nowhere", "x-request-id:\r\n").expect(404);
    assert!(is_ours(fresh.header("x-request-id").expect("an id")), "an empty one is none");
}

#[test]
fn what_the_file_says_of_the_field_has_the_last_word() {
    let backend = backend();
    let config =
        everything_to(&backend, "remove_response_headers = [\"x-request-id\"]\nlimits = [\"once\"]\n")
            + "[limits.once]\nalgorithm = \"fixed-window\"\nkey = \"global\"\nrate = \"1/day\"\n\
           reject = { headers = { x-request-id = \"none\" } }\n";
    let gateway = AllVersions::start(&format!("[server]\nrequest_id = \"all\"\n{config}"));
    assert_eq!(get_with(gateway.addr(), "/", "").expect(200).header("x-request-id"), None);
    assert_eq!(get_with(gateway.addr(), "/", "").expect(429).header_all("x-request-id"), ["none"]);
}
