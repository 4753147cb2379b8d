//! Routes by query, client, patterns for values, exclusions and regular expression; and what `explain` and the API tell of them.

use tollgate::config;
use tollgate::explain::{ExplainRequest, explain};

use crate::harness::config::parse;
use crate::harness::{AllVersions, Body, Gateway, get, get_with, h2_get, send};

const ROUTES: &str = "[server]\ntrusted_proxies = [\"127.0.0.0/8\"]\n\
    [[routes]]\nname = \"exact\"\npath = \"/v1/search\"\nrespond = { body = \"exact\" }\n\
    [[routes]]\nname = \"prefix\"\npath = \"/v1/*\"\nrespond = { body = \"prefix\" }\n\
    [[routes]]\nname = \"second\"\npath = \"~^/v[0-9]+/(search|find)$\"\nrespond = { body = \"second\" }\nmethods = [\"GET\"]\n\
    [[routes]]\nname = \"third\"\npath = \"~^/v[0-9]+/.*\"\nrespond = { body = \"third\" }\n\
    [[routes]]\nname = \"parameter\"\npath = \"/v1/{x}\"\nquery = { page = \"*\" }\nrespond = { body = \"parameter\" }\n\
    [[routes]]\nname = \"inside\"\npath = \"/by\"\nclients = [\"10.0.0.0/8\", \"2001:db8::/32\"]\nrespond = { body = \"inside\" }\n\
    [[routes]]\nname = \"tenant\"\npath = \"/by\"\nheaders = { x-tenant = \"blue*\" }\nrespond = { body = \"tenant\" }\n\
    [[routes]]\nname = \"sorted\"\npath = \"/by\"\nquery = { sort = \"name\", page = \"1*\" }\nrespond = { body = \"sorted\" }\n\
    [[routes]]\nname = \"outside\"\npath = \"/by\"\nrespond = { body = \"outside\" }\n";

#[test]
fn the_order_is_exact_parameters_expressions_prefixes() {
    let gateway = Gateway::start(ROUTES);
    for (path, expected) in [
        ("/v1/search", "exact"),
        ("/V1/Search/", "exact"),
        ("/v1/find", "second"),
        ("/v1/FIND;x", "second"),
        ("/v1/find?page=", "parameter"),
        ("/v1/other", "third"),
        ("/v2/search/", "second"),
        ("/v1", "prefix"),
    ] {
        assert_eq!(get(gateway.addr(), path).expect(200).text(), expected, "{path}");
    }
}

#[test]
fn query_client_and_header_decide() {
    let gateway = Gateway::start(ROUTES);
    for (query, fields, expected) in [
        ("", "", "outside"),
        ("", "x-forwarded-for: 10.1.2.3\r\n", "inside"),
        ("", "x-forwarded-for: 2001:db8::7\r\n", "inside"),
        ("", "x-forwarded-for: 192.0.2.1\r\n", "outside"),
        ("", "x-forwarded-for: unknown\r\n", "outside"),
        ("", "x-tenant: blue-1\r\n", "tenant"),
        ("", "x-tenant: red\r\nX-Tenant: blue\r\n", "tenant"),
        ("", "x-tenant: Blue\r\n", "outside"),
        ("?sort=name&page=12", "", "sorted"),
        ("?page=2&page=%31&sor%74=n%61me", "", "sorted"),
        ("?sort=name", "", "outside"),
        ("?sort=name&page=1", "x-tenant: blue\r\nx-forwarded-for: 10.0.0.1\r\n", "sorted"),
        ("", "x-tenant: blue\r\nx-forwarded-for: 10.0.0.1\r\n", "inside"),
    ] {
        let answer = get_with(gateway.addr(), &format!("/by{query}"), fields).expect(200);
        assert_eq!(answer.text(), expected, "{query} {fields}");
    }
}

const PATTERNS: &str = r#"
    [[routes]]
    name = "list"
    path = "/p"
    headers = { user-agent = ["*bot*", "~*^(curl|wget)/"], x-tenant = false }
    respond = { body = "list" }

    [[routes]]
    name = "suffix"
    path = "/p"
    query = { file = "*.pdf" }
    respond = { body = "suffix" }

    [[routes]]
    name = "star"
    path = "/p"
    headers = { x-mark = ["\\*", "\\~"] }
    respond = { body = "star" }

    [[routes]]
    name = "session"
    path = "/p"
    cookies = { session = true, theme = "~^(dark|light)$" }
    respond = { body = "session" }

    [[routes]]
    name = "socket"
    path = "/p"
    headers = { upgrade = "websocket" }
    respond = { body = "socket" }

    [[routes]]
    name = "other"
    path = "/p"
    respond = { body = "other" }

    [[routes]]
    name = "open"
    path = "/n/*"
    hosts = ["a.example", "b.example"]
    not = { hosts = ["b.example"], path = "/n/secret/*", methods = ["PUT"], headers = { x-internal = true, x-plan = "g*" }, query = { debug = "1" }, cookies = { beta = ["1", "2"] } }
    respond = { body = "open" }

    [[routes]]
    path = "/n/*"
    respond = { body = "excluded" }
"#;

#[test]
fn patterns_of_values_cookies_and_exclusions_decide() {
    let gateway = Gateway::start(PATTERNS);
    for (query, fields, expected) in [
        ("", "", "other"),
        ("", "user-agent: Googlebot/2.1\r\n", "list"),
        ("", "user-agent: Curl/8\r\n", "list"),
        ("", "user-agent: not curl/8\r\n", "other"),
        ("", "user-agent: bot\r\nx-tenant: blue\r\n", "other"),
        ("", "user-agent: bot\r\nx-tenant:\r\n", "other"),
        ("?file=a.pdf", "", "suffix"),
        ("?file=a%2Epdf", "", "suffix"),
        ("?file=a.pdf.exe", "", "other"),
        ("", "x-mark: *\r\n", "star"),
        ("", "x-mark: ~\r\n", "star"),
        ("", "x-mark: ~*\r\n", "other"),
        ("", "cookie: session=1; theme=dark\r\n", "session"),
        ("", "cookie: a=b; theme=light\r\ncookie: c=d; session=\r\n", "session"),
        ("", "cookie: a=session=1; theme=dark\r\n", "other"),
        ("", "cookie: session=1; theme=darker\r\n", "other"),
        ("", "upgrade: WebSocket\r\nconnection: upgrade\r\n", "socket"),
        // Two cookies are one condition, as the query is: the first of the file wins.
        ("?file=a.pdf", "cookie: session=1; theme=dark\r\n", "suffix"),
        // Two headers are two.
        ("?file=a.pdf", "user-agent: bot\r\ncookie: session=1; theme=dark\r\n", "list"),
    ] {
        let answer = get_with(gateway.addr(), &format!("/p{query}"), fields).expect(200);
        assert_eq!(answer.text(), expected, "{query} {fields}");
    }
    for (line, fields, expected) in [
        ("GET /n/a", "host: a.example\r\n", "open"),
        ("GET /n/a", "host: b.example\r\n", "excluded"),
        ("GET /n/Secret/x/", "host: a.example\r\n", "excluded"),
        ("GET /n//secret", "host: a.example\r\n", "excluded"),
        ("PUT /n/a", "host: a.example\r\ncontent-length: 0\r\n", "excluded"),
        ("GET /n/a", "host: a.example\r\nx-internal:\r\n", "excluded"),
        ("GET /n/a", "host: a.example\r\nx-plan: free\r\n", "open"),
        ("GET /n/a", "host: a.example\r\nx-plan: gold\r\n", "excluded"),
        ("GET /n/a?debug=1", "host: a.example\r\n", "excluded"),
        ("GET /n/a?debug=10", "host: a.example\r\n", "open"),
        ("GET /n/a", "host: a.example\r\ncookie: beta=2\r\n", "excluded"),
        ("GET /n/a", "host: a.example\r\ncookie: beta=3\r\n", "open"),
    ] {
        let answer = send(gateway.addr(), format!("{line} HTTP/1.1\r\n{fields}\r\n")).expect(200);
        assert_eq!(answer.text(), expected, "{line} {fields}");
    }
}

/// HTTP/2 and HTTP/3 may send each cookie on a line of its own (RFC 9113 §8.2.3, RFC 9114 §4.2.1).
#[test]
fn cookies_of_several_lines_are_found() {
    let gateway = AllVersions::start(PATTERNS);
    for client in gateway.clients() {
        let get = |cookies: &[&str]| {
            let mut request = h2_get("/p");
            for cookie in cookies {
                request.headers_mut().append("cookie", cookie.parse().expect("a value"));
            }
            client.exchange(request, Body::default()).expect("an answer").expect(200).body
        };
        assert_eq!(get(&["a=b", "session=1", "theme=light"]), b"session");
        assert_eq!(get(&["a=b", "session=1"]), b"other");
    }
}

#[test]
fn explain_check_and_the_api_tell_of_patterns_and_exclusions() {
    let plan = parse(PATTERNS).expect("a good file").plan;
    let summary = config::summary(&plan, "gateway.toml");
    for words in [
        "route `list`: /p with `user-agent` and no `x-tenant` → ",
        "route `session`: /p with the cookie `session` and the cookie `theme` → ",
        "a.example/n/* or b.example/n/* unless the method PUT or the host b.example or the path /n/secret/* or \
         `x-internal` or `x-plan` or `?debug` or the cookie `beta` → ",
    ] {
        assert!(summary.contains(words), "{summary}");
    }
    let told = |url: &str, fields: &[&str]| {
        let fields: Vec<String> = fields.iter().copied().map(str::to_owned).collect();
        explain(&plan, &ExplainRequest::new("GET", url, &fields, None).expect("a request")).to_string()
    };
    let text = told("/p", &["user-agent: bot", "cookie: session=1"]);
    for words in [
        "`user-agent` has a value that the route asks for",
        "`x-tenant` is absent, as the route asks",
        "`session`: the cookie `theme` is absent\n",
        "`suffix`: the parameter `file` of the query is absent\n",
        "`socket`: the field `upgrade` is absent\n",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let text = told("/p", &["user-agent: bot", "x-tenant: a", "cookie: theme=x", "cookie: session=1"]);
    assert!(text.contains("`list`: the field `x-tenant` is there\n"), "{text}");
    assert!(text.contains("`session`: the cookie `theme` has another value\n"), "{text}");
    for (url, field, words) in [
        ("http://a.example/n/a", "x-plan: gold", "`open`: `not` excludes the value of the field `x-plan`\n"),
        ("http://b.example/n/a", "x-a: b", "`open`: `not` excludes the host `b.example`\n"),
        ("http://a.example/n/secret/a", "x-a: b", "`not` excludes the path, which matches `/n/secret/*`\n"),
    ] {
        assert!(told(url, &[field]).contains(words), "{words}: {}", told(url, &[field]));
    }
    let text = told("http://a.example/n/a", &[]);
    assert!(text.contains("not     the field `x-plan` is not excluded\n"), "{text}");
}

/// `path_matching = "strict"`: case, slashes and parameters count for expressions, too.
#[test]
fn strict_expressions_match_as_spelled() {
    let gateway = Gateway::start(
        "[server]\npath_matching = \"strict\"\n[[routes]]\npath = \"~^/A/[a-z]$\"\nrespond = {}\n",
    );
    get(gateway.addr(), "/A/b").expect(200);
    for path in ["/a/b", "/A/B", "/A/b/", "/A/b;x", "/A;x/b"] {
        get(gateway.addr(), path).expect(404);
    }
}

#[test]
fn check_and_explain_show_the_order_of_expressions() {
    let plan = parse(ROUTES).expect("a good file").plan;
    let summary = config::summary(&plan, "gateway.toml");
    assert!(summary.contains("before prefixes, in this order:\n  `second`\n  `third`\n"), "{summary}");
    let told = |path: &str| {
        let request = ExplainRequest::new("GET", path, &[], None).expect("a request");
        explain(&plan, &request).to_string()
    };
    let text = told("/v1/other");
    assert!(text.contains("order   expression 2 of 2: they are tried in file order"), "{text}");
    assert!(text.contains("answer    200 with `text/plain; charset=utf-8`"), "{text}");
    let text = told("/v1/find");
    assert!(
        text.contains("`third`: matches too, but `second` wins: it stands earlier in the file"),
        "{text}"
    );
    assert!(text.contains("`prefix`: matches too, but `second` wins: its path is more specific"), "{text}");
}
