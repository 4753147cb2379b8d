//! The identity of a client: no trick changes it, or hides the path of a request.

use crate::harness::{Backend, Client, Gateway, Recorded, everything_to, get_with, send};

const ONE_PER_CLIENT: &str = "limits = [\"one\"]
    [limits.one]
    algorithm = \"fixed-window\"
    key = \"ip\"
    rate = \"1/366day\"
    [server]
    trusted_proxies = [TRUSTED]";

fn one_per_client(backend: &Backend, trusted: &str) -> Gateway {
    Gateway::start(&everything_to(backend, &ONE_PER_CLIENT.replace("TRUSTED", trusted)))
}

#[test]
fn an_untrusted_peer_cannot_say_that_it_is_another() {
    let backend = Backend::ok();
    let gateway = one_per_client(&backend, "");
    get_with(gateway.addr(), "/", "").expect(200);
    for spoof in [
        "x-forwarded-for: 10.9.9.9\r\n",
        "X-Forwarded-For: 10.9.9.8, 127.0.0.1\r\n",
        "forwarded: for=10.9.9.7\r\n",
        "x-real-ip: 10.9.9.6\r\n",
        "x-client-ip: 10.9.9.5\r\n",
        "true-client-ip: 10.9.9.4\r\n",
        "connection: x-forwarded-for\r\nx-forwarded-for: 10.9.9.3\r\n",
    ] {
        get_with(gateway.addr(), "/", spoof).expect(429);
    }
    assert_eq!(backend.count(), 1);
}

#[test]
fn what_an_untrusted_peer_says_of_itself_is_replaced() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let spoof = "x-forwarded-for: 10.9.9.9\r\nx-forwarded-proto: https\r\nx-forwarded-host: evil\r\n\
                 forwarded: for=10.9.9.7\r\nx-real-ip: 10.9.9.6\r\nx-request-id: mine\r\n";
    get_with(gateway.addr(), "/", spoof).expect(200);
    let seen = backend.only();
    assert_eq!(seen.header("x-forwarded-for").as_deref(), Some("127.0.0.1"));
    assert_eq!(seen.header("x-forwarded-proto").as_deref(), Some("http"));
    assert_eq!(seen.header("x-forwarded-host").as_deref(), Some("test"));
    assert_eq!((seen.header("forwarded"), seen.header("x-real-ip")), (None, None));
    let id = seen.header("x-request-id").expect("an id");
    assert!(id != "mine" && id.len() >= 16, "a fresh id, not {id}");
    get_with(gateway.addr(), "/", "").expect(200);
    assert_ne!(backend.latest().header("x-request-id"), Some(id), "ids differ");
}

#[test]
fn a_trusted_proxy_is_believed_and_appended_to() {
    let backend = Backend::ok();
    let gateway = one_per_client(&backend, "\"127.0.0.0/8\"");
    let said = "x-forwarded-for: 192.0.2.1\r\nx-forwarded-proto: https\r\nx-forwarded-host: shop.example\r\nx-request-id: kept-1\r\n";
    get_with(gateway.addr(), "/", said).expect(200);
    let seen = backend.only();
    assert_eq!(appended(&seen), "192.0.2.1, 127.0.0.1");
    assert_eq!(seen.header("x-forwarded-proto").as_deref(), Some("https"));
    assert_eq!(seen.header("x-forwarded-host").as_deref(), Some("shop.example"));
    assert_eq!(seen.header("x-request-id").as_deref(), Some("kept-1"));
    assert_eq!(gateway.access_log(1)[0]["client"], "192.0.2.1");
    get_with(gateway.addr(), "/", said).expect(429);
    get_with(gateway.addr(), "/", "x-forwarded-for: 192.0.2.2\r\n").expect(200);
}

/// The value as one list, however many lines it came on.
fn appended(seen: &Recorded) -> String {
    seen.header_all("x-forwarded-for").join(", ")
}

#[test]
fn the_walk_goes_from_the_right_and_ends_at_the_first_stranger() {
    let backend = Backend::ok();
    let gateway = one_per_client(&backend, "\"127.0.0.0/8\", \"10.0.0.0/8\"");
    let spend = |fields: &str| get_with(gateway.addr(), "/", fields).status;
    let many = format!("x-forwarded-for: {}192.0.2.10\r\n", "198.51.100.1, ".repeat(300));
    let table = [
        ("x-forwarded-for: 192.0.2.1\r\n", 200),
        ("x-forwarded-for: 203.0.113.5, 192.0.2.1\r\n", 429),
        ("x-forwarded-for: 203.0.113.6, 192.0.2.1, 10.1.1.1\r\n", 429),
        ("x-forwarded-for: 203.0.113.6\r\nx-forwarded-for: 192.0.2.1, 10.1.1.1\r\n", 429),
        ("x-forwarded-for: 192.0.2.1:4711\r\n", 429),
        ("x-forwarded-for: ::ffff:192.0.2.1\r\n", 429),
        ("x-forwarded-for: 203.0.113.7, 10.1.1.1, 192.0.2.2\r\n", 200),
        ("forwarded: for=192.0.2.3\r\n", 200),
        ("forwarded: for=192.0.2.4\r\n", 429),
        ("x-forwarded-for: [2001:db8::1]:80\r\n", 200),
        ("x-forwarded-for: 2001:db8::2\r\n", 429),
        ("x-forwarded-for: 2001:db8:0:1::2\r\n", 200),
        (many.as_str(), 200),
        ("x-forwarded-for: 192.0.2.10\r\n", 429),
        ("forwarded: for=192.0.2.77\r\nx-forwarded-for: 192.0.2.88\r\n", 200),
        ("x-forwarded-for: 192.0.2.88\r\n", 429),
    ];
    for (fields, status) in table {
        let shown = &fields[..fields.len().min(80)];
        assert_eq!(spend(fields), status, "{shown}");
    }
}

#[test]
fn garbage_ends_the_walk_at_the_last_good_hop() {
    let backend = Backend::ok();
    let gateway = one_per_client(&backend, "\"127.0.0.0/8\", \"10.0.0.0/8\"");
    let spend = |fields: &str| get_with(gateway.addr(), "/", fields).status;
    assert_eq!(spend("x-forwarded-for: 10.0.0.1\r\n"), 200, "all trusted: the last hop is the client");
    for garbage in ["unknown", "_hidden", "999.1.1.1", "<script>", "1.2.3.4.5", "a b"] {
        assert_eq!(spend(&format!("x-forwarded-for: 192.0.2.1, {garbage}, 10.0.0.1\r\n")), 429, "{garbage}");
    }
    assert_eq!(spend("x-forwarded-for: \r\n"), 200, "nothing said: the peer itself");
    assert_eq!(spend("x-forwarded-for: ,,\r\n"), 429);
    assert_eq!(spend(""), 429);
}

/// A stranger's word is not believed even while a proxy's is.
#[test]
fn only_the_trusted_are_believed() {
    let backend = Backend::ok();
    let gateway = one_per_client(&backend, "\"127.0.0.2\"");
    let from = |last: u8, fields: &str| {
        Client::connect_from([127, 0, 0, last].into(), gateway.addr()).get("/", fields).status
    };
    assert_eq!(from(2, "x-forwarded-for: 192.0.2.1\r\n"), 200);
    assert_eq!(from(2, "x-forwarded-for: 192.0.2.2\r\n"), 200);
    assert_eq!(from(3, "x-forwarded-for: 192.0.2.3\r\n"), 200);
    assert_eq!(from(3, "x-forwarded-for: 192.0.2.4\r\n"), 429);
}

/// Every spelling of `/search` spends what `/search` spends, and is `/search` to the backend.
#[test]
fn spellings_of_a_path_are_one_path() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&format!(
        "[upstreams]
        api = \"{0}\"
        [[routes]]
        path = \"/search\"
        upstream = \"api\"
        limits = [\"search\"]
        [[routes]]
        path = \"/*\"
        upstream = \"api\"
        [limits.search]
        algorithm = \"fixed-window\"
        key = \"ip\"
        rate = \"100/366day\"",
        backend.url()
    ));
    let spellings = [
        "/search",
        "//search",
        "///search",
        "/%73earch",
        "/s%65arc%68",
        "/./search",
        "/x/../search",
        "/x/%2e%2e/search",
        "/x/.%2E/search",
        "/%2e/search",
        "//x//..//search",
        "/search?q=1",
    ];
    for (number, target) in spellings.into_iter().enumerate() {
        let response = get_with(gateway.addr(), target, "").expect(200);
        let remaining = response.header("x-ratelimit-remaining").and_then(|text| text.parse().ok());
        assert_eq!(remaining, Some(99 - number), "{target} spends from the same allowance");
        let seen = backend.latest();
        assert_eq!(seen.target().split('?').next(), Some("/search"), "{target} is forwarded as matched");
    }
}

#[test]
fn what_is_not_the_same_path_stays_another() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let forwarded = [
        ("/a%2fb", "/a%2fb"),
        ("/a%5cb", "/a%5cb"),
        ("/a;x=1", "/a;x=1"),
        ("/a/", "/a/"),
        ("/A", "/A"),
        ("/a/...;/b", "/a/...;/b"),
        ("/a?x=//b/../c&y=%73", "/a?x=//b/../c&y=%73"),
        ("/%7Euser", "/~user"),
        ("/a/.", "/a/"),
        ("/a/b/..", "/a/"),
        ("/?", "/?"),
    ];
    for (sent, seen) in forwarded {
        get_with(gateway.addr(), sent, "").expect(200);
        let target = backend.latest().target().to_owned();
        assert!(target.eq_ignore_ascii_case(seen) && (sent != "/A" || target == "/A"), "{sent}: {target}");
    }
    for refused in ["/a%00", "/%", "/%4", "/%zz", "/../a", "/a/../../b", "/a\\b", "/%2e%2e/a", "/a/..;/b"] {
        let response = get_with(gateway.addr(), refused, "");
        assert_eq!(response.status, 400, "{refused}");
    }
    assert_eq!(backend.count(), forwarded.len());
}

#[test]
fn double_slashes_can_be_significant() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, "merge_slashes = false"));
    get_with(gateway.addr(), "/a//b/../c", "").expect(200);
    assert_eq!(backend.only().target(), "/a//c");
}

#[test]
fn fields_that_rewrite_the_request_are_not_honoured() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(
        &backend,
        "[[routes]]\npath = \"/secret\"\nupstream = \"api\"\nlimits = [\"none\"]
        [limits.none]
        algorithm = \"gcra\"
        key = \"header:x-none\"
        missing = \"deny\"
        rate = \"1/h\"",
    ));
    let fields = "x-http-method-override: DELETE\r\nx-original-url: /secret\r\nx-rewrite-url: /secret\r\n";
    get_with(gateway.addr(), "/open", fields).expect(200);
    assert_eq!(backend.only().request_line(), "GET /open HTTP/1.1");
    get_with(gateway.addr(), "/secret", "").expect(429);
}

#[test]
fn an_absolute_target_names_the_host() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, ""));
    let ask = |target: &str, host: &str| {
        send(gateway.addr(), format!("GET {target} HTTP/1.1\r\nhost: {host}\r\n\r\n"))
    };
    ask("http://shop.example/a", "shop.example").expect(200);
    let seen = backend.latest();
    assert_eq!(
        (seen.request_line(), seen.header("host").as_deref()),
        ("GET /a HTTP/1.1", Some("shop.example"))
    );
    ask("http://other.example/a", "shop.example").expect(400);
    assert_eq!(backend.count(), 1);
}
