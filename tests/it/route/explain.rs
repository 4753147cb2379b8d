//! What `tollgate explain` says of a request.

use std::net::IpAddr;
use std::sync::LazyLock;

use proptest::prelude::*;
use tollgate::config;
use tollgate::explain::{ExplainFault, ExplainRequest, LimitStatus, explain};
use tollgate::plan::Plan;

const PLAN: &str = r#"
[server]
trusted_proxies = ["10.0.0.0/8"]
ipv4_prefix = 24

[upstreams]
demo = "builtin:echo"
api = "http://127.0.0.1:9001"

[limits.per-key]
algorithm = "token-bucket"
key = ["header:x-api-key", "path"]
rate = ["10/s", "100/min"]
exempt = ["ip:198.51.100.0/24", "header:x-internal=hunter2"]

[limits.everyone]
algorithm = "fixed-window"
key = "global"
rate = "1000/min"
mode = "shadow"

[limits.session]
algorithm = "gcra"
key = "cookie:sid"
rate = "1/s"
missing = "deny"

[limits.preview]
algorithm = "gcra"
key = "query:preview"
rate = "1/s"
missing = "skip"
reveal = true

[[routes]]
name = "search"
hosts = ["api.example.com", "*.example.com"]
path = "/search/*"
methods = ["GET", "POST"]
headers = { x-plan = "gold" }
upstream = "api"
cost = 5
strip_prefix = "/search"
limits = ["per-key", { name = "everyone", cost = 0 }]

[[routes]]
path = "/search/{id}"
name = "put"
methods = ["PUT"]
upstream = "demo"
limits = [{ name = "session", cost = 1 }, "preview"]

[[routes]]
path = "/login"
hosts = ["www.example.com"]
upstream = "demo"

[[routes]]
name = "rest"
path = "/search/*"
upstream = "demo"
"#;

fn plan(text: &str) -> Plan {
    match config::parse(text.as_bytes(), "gateway.toml", &|_| None) {
        Ok(loaded) => loaded.plan,
        Err(report) => panic!("{report:?}"),
    }
}

fn request(method: &str, url: &str, headers: &[&str], ip: &str) -> Result<ExplainRequest, ExplainFault> {
    let headers: Vec<String> = headers.iter().copied().map(str::to_owned).collect();
    ExplainRequest::new(method, url, &headers, ip.parse::<IpAddr>().ok())
}

fn told(method: &str, url: &str, headers: &[&str], ip: &str) -> String {
    explain(&plan(PLAN), &request(method, url, headers, ip).unwrap()).to_string()
}

#[test]
fn a_request_is_explained_at_a_glance() {
    let text = told("GET", "http://API.example.com:80//search/%61?q=1", &["x-plan: gold"], "203.0.113.9");
    let expected = "\
GET api.example.com//search/%61?q=1

client    203.0.113.9: the peer itself
  network 203.0.113.0 stands for it in keys
route     `search`
  path    `/search/a` matches `/search/*`
  host    `api.example.com` matches `api.example.com`
  method  `GET` is `GET` or `POST`
  field   `x-plan` has a value that the route asks for
rewritten to `/a?q=1` by strip_prefix
upstream  `api` (127.0.0.1:9001) gets `/a?q=1`
limit     `per-key` charges 5
  key     ip (header:x-api-key is missing) = 203.0.113.0
  key     path = /search/a
  absent  the client address stands in
  allows  token-bucket: 10 at once, then one every 100 ms
  allows  token-bucket: 100 at once, then one every 600 ms
limit     `everyone` (shadow: only counted, never refuses) charges nothing: the route costs 0 there
  key     global
  allows  fixed-window: 1000 in each minute (clock-aligned)

other routes
  `put`: the method is not `PUT`
  `/login`: the path is not `/login`
  `rest`: matches too, but `search` wins: its host is more specific
";
    assert_eq!(text, expected);
}

#[test]
fn no_route_is_a_404_with_reasons() {
    let text = told("GET", "/login", &[], "203.0.113.9");
    assert!(text.contains("\nroute     none matches: answered 404\n"), "{text}");
    assert!(text.contains("  `/login`: no host is named, and it must be `www.example.com`\n"), "{text}");
    assert!(text.contains("  `rest`: the path is not `/search/*`\n"), "{text}");
    let text = told("GET", "http://a.example.com/search/1", &["x-plan: tin"], "");
    assert!(text.contains("  `search`: the field `x-plan` has another value\n"), "{text}");
    let text = told("GET", "http://a.test/search/1", &[], "");
    let hosts = "  `search`: the host `a.test` is not `api.example.com` or `*.example.com`\n";
    assert!(text.contains(hosts), "{text}");
    let text = told("GET", "http://a.example.com/search/1", &[], "");
    assert!(text.contains("  `search`: the field `x-plan` is absent\n"), "{text}");
}

#[test]
fn it_says_how_the_client_was_found() {
    let client = |headers: &[&str], ip: &str| {
        let text = told("GET", "/search/1", headers, ip);
        text.lines().find_map(|line| line.strip_prefix("client    ").map(str::to_owned)).unwrap()
    };
    let xff = "x-forwarded-for: 6.6.6.6, 192.0.2.1";
    assert_eq!(client(&[], ""), "127.0.0.1: the peer itself");
    assert_eq!(client(&[], "10.0.0.1"), "10.0.0.1: the peer itself, a trusted proxy that names no client");
    assert_eq!(
        client(&[xff], "10.0.0.1"),
        "192.0.2.1: named in X-Forwarded-For by the trusted proxy 10.0.0.1"
    );
    assert_eq!(
        client(&["forwarded: for=192.0.2.1"], "::ffff:10.0.0.1"),
        "10.0.0.1: the peer itself, a trusted proxy that names a client in `forwarded`, but `client_ip` is `x-forwarded-for`"
    );
    let not_believed =
        "192.0.2.9: the peer itself, no trusted proxy: what it says in X-Forwarded-For is not believed";
    assert_eq!(client(&[xff], "192.0.2.9"), not_believed);
    assert_eq!(
        client(&[xff, "forwarded: for=6.6.6.6"], "10.0.0.1"),
        "192.0.2.1: named in X-Forwarded-For by the trusted proxy 10.0.0.1"
    );
    let unidentified = "10.1.1.1: the last trusted hop in X-Forwarded-For of the trusted proxy 10.0.0.1, unidentified: what \
                        stands before it is not an address, so no exemption by `ip:` holds";
    assert_eq!(client(&["x-forwarded-for: 192.0.2.1, x, 10.1.1.1"], "10.0.0.1"), unidentified);
}

#[test]
fn each_limit_says_where_it_stands() {
    let standings = |method, url: &str, headers: &[&str], ip| {
        let explanation = explain(&plan(PLAN), &request(method, url, headers, ip).unwrap());
        explanation.route.unwrap().limits.into_iter().map(|limit| limit.status).collect::<Vec<_>>()
    };
    assert_eq!(standings("PUT", "/search/1", &[], ""), [LimitStatus::Missing, LimitStatus::Skipped]);
    let charged = standings("PUT", "/search/1?preview=x", &["cookie: sid=1"], "");
    assert!(matches!(charged.as_slice(), [LimitStatus::Charged(_), LimitStatus::Charged(_)]));
    let gold =
        |more, ip| standings("GET", "http://a.example.com/search/", &["x-plan: gold", more], ip)[0].clone();
    assert_eq!(gold("x-a: 1", "198.51.100.7"), LimitStatus::Exempt("ip:198.51.100.0/24".into()));
    assert_eq!(gold("x-internal: hunter2", ""), LimitStatus::Exempt("header:x-internal=…".into()));
}

#[test]
fn secrets_stay_secret_unless_a_limit_reveals_them() {
    let headers = ["x-plan: gold", "x-internal: hunter2", "x-api-key: 1234567890abcdef"];
    let text = told("GET", "http://a.example.com/search/", &headers, "");
    assert!(text.contains("header:x-api-key = …cdef\n"), "{text}");
    assert!(!text.contains("hunter2") && !text.contains("gold") && !text.contains("1234"), "{text}");
    let text = told("PUT", "/search/1?preview=abcdef", &["cookie: sid=0123456789abcdef"], "");
    assert!(text.contains("query:preview = abcdef\n") && text.contains("cookie:sid = …cdef\n"), "{text}");
}

#[test]
fn of_many_routes_only_near_misses_are_told() {
    let route = |number: usize| {
        let path = if number < 30 { "/near".to_owned() } else { format!("/far/{number}") };
        let host = format!("h{number}.test");
        format!(
            "[[routes]]\nname = \"r{number}\"\nhosts = [\"{host}\"]\npath = \"{path}\"\nupstream = \"demo\"\n"
        )
    };
    let text: String = (0..1000).map(route).collect();
    let plan = plan(&format!("[upstreams]\ndemo = \"builtin:echo\"\n{text}"));
    let near = explain(&plan, &request("GET", "http://h7.test/near", &[], "").unwrap());
    assert_eq!((near.others.len(), near.untold), (20, 979));
    assert_eq!(near.route.as_ref().map(|route| &*route.name), Some("r7"));
    assert!(near.to_string().ends_with("  `r20`: the host `h7.test` is not `h20.test`\n  and 979 more\n"));
    let none = explain(&plan, &request("GET", "http://h7.test/nowhere", &[], "").unwrap());
    assert!(none.to_string().ends_with("answered 404\n\n1000 other routes, none for this path\n"));
}

#[test]
fn a_url_may_be_a_path_or_absolute() {
    let heads = [
        ("/search", &[][..], "GET /search"),
        ("/search", &["Host: API.example.com:80"], "GET api.example.com/search"),
        ("https://api.example.com", &[], "GET api.example.com/"),
        ("HTTP://api.example.com:8080?q=1", &["host: API.example.com:8080"], "GET api.example.com/?q=1"),
        ("http://[2001:DB8::1]:80/a", &[], "GET [2001:db8::1]/a"),
    ];
    for (url, headers, head) in heads {
        assert_eq!(told("GET", url, headers, "").lines().next(), Some(head), "{url}");
    }
}

#[test]
fn what_no_client_could_send_is_refused_with_a_remedy() {
    let cases = [
        ("GET", "api.test/x", "", "`api.test/x` is neither a URL nor a path", "write `http://host/path`"),
        (
            "GET",
            "ftp://api.test/x",
            "",
            "`ftp://api.test/x` is neither a URL nor a path",
            "write `http://host/path`",
        ),
        ("GET", "*", "", "`*` is neither a URL nor a path", "write `http://host/path`"),
        ("GET", "http:///x", "", "`http:///x` names no host", "write `http://host/path`"),
        ("GET", "/", "x-key", "`x-key` is not a header", "write `name: value`"),
        ("GET", "/", "x: 1\nhost: b", "`x: 1\\nhost: b` is not a header", "write `name: value`"),
        ("GET", "/a\r\nx: 1", "", "`GET /a\\r\\nx: 1` has a line end", "percent-encode"),
    ];
    for (method, url, header, message, help) in cases {
        let headers: &[&str] = if header.is_empty() { &[] } else { &[header] };
        let fault = request(method, url, headers, "").unwrap_err();
        assert!(fault.message.starts_with(message), "{}", fault.message);
        assert!(fault.help.starts_with(help), "{url}: {}", fault.help);
    }
}

/// The gateway's own words: its parser and its `resolve` are asked.
#[test]
fn what_the_gateway_refuses_is_told_with_its_status() {
    let cases: [(&str, &str, &[&str], &str); 10] = [
        ("get", "/", &[], "answer    400: "),
        ("G T", "/", &[], "answer    400: "),
        ("TRACE", "/", &[], "answer    405: "),
        ("GET", "http://u:p@a.test/", &[], "answer    400: "),
        ("GET", "/a b", &[], "answer    400: "),
        ("GET", "/a%", &[], "answer    400: the path contains a `%`"),
        ("GET", "/a#b", &[], "answer    400: "),
        ("GET", "/", &["x key: 1"], "answer    400: a field name is not a token"),
        ("GET", "http://a.test/", &["host: b.test"], "answer    400: "),
        (
            "GET",
            "/search/a",
            &["host: api.example.com", "expect: more"],
            "answer    417: this expectation cannot be met",
        ),
    ];
    for (method, url, headers, expected) in cases {
        let text = told(method, url, headers, "");
        assert!(text.contains(expected) && text.contains("; no limit is asked\n"), "{method} {url}: {text}");
    }
}

static SHARED: LazyLock<Plan> = LazyLock::new(|| plan(PLAN));

proptest! {
    #[test]
    fn no_arguments_panic(method in "[A-Za-z ]{0,4}", url in "(http://|/|\\?|#|%|:|@|\\[|\\]|a|é| ){0,8}", header in "[a-z: é]{0,8}") {
        if let Ok(request) = request(&method, &url, &[&header], "") {
            let _ = explain(&SHARED, &request).to_string();
        }
    }
}
