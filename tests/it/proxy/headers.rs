//! Fields: what is dropped, what is added, what the file edits.

use crate::harness::{Backend, Client, Gateway, Recorded, everything_to, get_with};

/// The request as the backend sees it when the client sends `fields`, under a route with `rest`.
fn seen_with(rest: &str, fields: &str) -> Recorded {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, rest));
    get_with(gateway.addr(), "/", fields).expect(200);
    backend.only()
}

#[test]
fn hop_by_hop_fields_go_no_further() {
    let fields = "connection: keep-alive, x-foo, X-Bar\r\nkeep-alive: timeout=5\r\nproxy-connection: keep-alive\r\n\
                  te: gzip\r\nproxy-authorization: Basic eA==\r\nx-foo: 1\r\nx-bar: 2\r\nx-baz: 3\r\nupgrade-insecure-requests: 1\r\n";
    let seen = seen_with("", fields);
    for name in ["connection", "keep-alive", "proxy-connection", "te", "x-foo", "x-bar", "upgrade"] {
        assert!(
            seen.header_all(name).iter().all(|value| value == "keep-alive" && name == "connection"),
            "`{name}` in\n{}",
            seen.head
        );
    }
    assert_eq!(seen.header("x-baz").as_deref(), Some("3"));
    assert_eq!(seen.header("upgrade-insecure-requests").as_deref(), Some("1"));
}

#[test]
fn what_the_gateway_adds_cannot_be_nominated_away() {
    let fields =
        "connection: x-forwarded-for, x-request-id, x-forwarded-proto, host, content-length, close\r\n";
    let seen = seen_with("", fields);
    for name in ["x-forwarded-for", "x-request-id", "x-forwarded-proto", "host"] {
        assert!(seen.header(name).is_some(), "`{name}` is missing in\n{}", seen.head);
    }
    assert!(!seen.header_all("connection").iter().any(|value| value.contains("close")), "{}", seen.head);
}

#[test]
fn the_backends_hop_by_hop_fields_go_no_further() {
    let backend = Backend::answering(
        "HTTP/1.1 200 OK\r\nconnection: x-hop, keep-alive\r\nx-hop: 1\r\nkeep-alive: timeout=5\r\nproxy-authenticate: Basic\r\n\
         set-cookie: a=1\r\nset-cookie: b=2\r\nserver: origin\r\nx-end: 2\r\ncontent-length: 2\r\n\r\nok",
    );
    let response = Gateway::start(&everything_to(&backend, "")).get("/").expect(200);
    for name in ["x-hop", "keep-alive"] {
        assert_eq!(response.header(name), None, "{}", response.head);
    }
    assert!(
        response.header_all("connection").iter().all(|value| *value == "keep-alive"),
        "{}",
        response.head
    );
    assert_eq!(response.header_all("set-cookie"), ["a=1", "b=2"]);
    assert_eq!((response.header("server"), response.header("x-end")), (Some("origin"), Some("2")));
}

#[test]
fn other_fields_pass_unchanged_and_in_order() {
    let fields = "user-agent: a/1\r\nx-twice: 1\r\naccept: */*\r\nx-twice: 2\r\ncookie: a=b; c=d\r\nauthorization: Bearer x\r\nx-bytes: \u{e9}\r\nx-empty:\r\n";
    let seen = seen_with("", fields);
    assert_eq!(seen.header_all("x-twice"), ["1", "2"]);
    for (name, value) in [
        ("user-agent", "a/1"),
        ("accept", "*/*"),
        ("cookie", "a=b; c=d"),
        ("authorization", "Bearer x"),
        ("x-bytes", "\u{e9}"),
        ("x-empty", ""),
        ("host", "test"),
    ] {
        assert_eq!(seen.header(name).as_deref(), Some(value), "`{name}`");
    }
    assert!(
        seen.head.lines().nth(1).is_some_and(|line| line.to_ascii_lowercase().starts_with("host:")),
        "{}",
        seen.head
    );
}

/// Names keep case and order, but for those of the headers that the gateway writes itself.
#[test]
fn names_keep_case_and_order_but_for_host_and_lengths() {
    let names = |head: &str| {
        let lines = head.split("\r\n").skip(1).filter_map(|line| line.split_once(':'));
        lines.map(|(name, _)| name.to_owned()).collect::<Vec<_>>()
    };
    let backend = Backend::answering(
        "HTTP/1.1 200 OK\r\nX-B: 1\r\nContent-Length: 2\r\nServer: a\r\nx-A: 2\r\nDATE: x\r\n\r\nok",
    );
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let mut client = Client::connect(gateway.addr());
    let answer = client.exchange(
        "POST / HTTP/1.1\r\nX-B: 1\r\nContent-Length: 2\r\nHOST: test\r\nx-A: 2\r\nX-Forwarded-For: 192.0.2.1\r\nUser-Agent: c\r\n\r\nhi",
    );
    let answer = answer.expect(200);
    assert_eq!(names(&answer.head), ["X-B", "Server", "x-A", "DATE", "content-length"]);
    let added = [
        "content-length",
        "x-request-id",
        "cdn-loop",
        "x-forwarded-for",
        "x-forwarded-proto",
        "x-forwarded-host",
    ];
    let expected: Vec<_> = ["host", "X-B", "x-A", "User-Agent"].into_iter().chain(added).collect();
    assert_eq!(names(&backend.only().head), expected);
}

#[test]
fn via_is_added_only_on_request() {
    assert_eq!(seen_with("", "").header("via"), None);
    assert_eq!(seen_with("", "via: 1.0 fred\r\n").header("via").as_deref(), Some("1.0 fred"));
    let seen = seen_with("[server]\nvia = true", "via: 1.0 fred\r\n");
    let via = seen.header_all("via").join(", ");
    assert!(via.starts_with("1.0 fred, 1.1 "), "{via}");
}

#[test]
fn the_host_is_the_clients_or_the_files() {
    let backend = Backend::ok();
    let url = backend.url();
    let gateway = Gateway::start(&format!(
        "[upstreams.own]
        servers = [\"{url}\"]
        [upstreams.fixed]
        servers = [\"{url}\"]
        host = \"search.internal\"
        [[routes]]
        path = \"/own\"
        upstream = \"own\"
        [[routes]]
        path = \"/fixed\"
        upstream = \"fixed\""
    ));
    get_with(gateway.addr(), "/own", "").expect(200);
    assert_eq!(backend.latest().header("host").as_deref(), Some("test"));
    get_with(gateway.addr(), "/fixed", "").expect(200);
    assert_eq!(backend.latest().header("host").as_deref(), Some("search.internal"));
    assert_eq!(backend.latest().header("x-forwarded-host").as_deref(), Some("test"));
}

#[test]
fn a_prefix_is_stripped_and_the_rest_kept() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&format!(
        "[upstreams]
        api = \"{}\"
        [[routes]]
        path = \"/search/*\"
        upstream = \"api\"
        strip_prefix = \"/search\"",
        backend.url()
    ));
    for (sent, seen) in [
        ("/search/a/b?q=/search", "/a/b?q=/search"),
        ("/search", "/"),
        ("/search/", "/"),
        ("/search?q=1", "/?q=1"),
        ("//search//a", "/a"),
        ("/search/%2e%2e/search/x", "/x"),
        ("/search/search", "/search"),
    ] {
        get_with(gateway.addr(), sent, "").expect(200);
        assert_eq!(backend.latest().target(), seen, "{sent}");
    }
    get_with(gateway.addr(), "/searching", "").expect(404);
}

#[test]
fn fields_are_edited_both_ways() {
    let backend = Backend::answering(
        "HTTP/1.1 200 OK\r\nserver: origin\r\nx-keep: 1\r\nx-served-by: origin\r\ncontent-length: 0\r\n\r\n",
    );
    let gateway = Gateway::start(&everything_to(
        &backend,
        "set_request_headers = { x-env = \"prod\", user-agent = \"gate\" }
        remove_request_headers = [\"x-debug\"]
        set_response_headers = { x-served-by = \"tollgate\" }
        remove_response_headers = [\"server\"]",
    ));
    let fields = "x-debug: 1\r\nX-Debug: 2\r\nx-env: client\r\nx-other: 3\r\nuser-agent: curl\r\n";
    let response = get_with(gateway.addr(), "/", fields).expect(200);
    let seen = backend.only();
    assert_eq!(seen.header("x-env").as_deref(), Some("prod"), "the file's value, once");
    assert_eq!(seen.header("user-agent").as_deref(), Some("gate"));
    assert_eq!((seen.header("x-debug"), seen.header("x-other").as_deref()), (None, Some("3")));
    assert_eq!((response.header("server"), response.header("x-keep")), (None, Some("1")));
    assert_eq!(response.header("x-served-by"), Some("tollgate"));
}

#[test]
fn unknown_methods_are_forwarded_as_they_are() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, ""));
    for method in ["PROPFIND", "M-SEARCH", "QUERY", "X!#$%&'*+.^_`|~9"] {
        let response =
            crate::harness::send(gateway.addr(), format!("{method} /a HTTP/1.1\r\nhost: test\r\n\r\n"));
        if method.bytes().any(|byte| byte.is_ascii_lowercase()) {
            response.expect(400);
        } else {
            response.expect(200);
            assert_eq!(backend.latest().request_line(), format!("{method} /a HTTP/1.1"));
        }
    }
    let options = crate::harness::send(gateway.addr(), "OPTIONS * HTTP/1.1\r\nhost: test\r\n\r\n");
    assert!([200, 404].contains(&options.status), "{}", options.head);
}

#[test]
fn the_body_of_a_compressed_answer_is_not_touched() {
    let bytes: Vec<u8> = (0..=255).collect();
    let mut answer =
        b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\nvary: accept-encoding\r\ncontent-length: 256\r\n\r\n"
            .to_vec();
    answer.extend_from_slice(&bytes);
    let backend = Backend::answering(answer);
    let response = Gateway::start(&everything_to(&backend, "")).get("/").expect(200);
    assert_eq!(response.body, bytes);
    assert_eq!(
        (response.header("content-encoding"), response.header("vary")),
        (Some("gzip"), Some("accept-encoding"))
    );
}
