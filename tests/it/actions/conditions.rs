//! Routes by query, client, header prefix and regular expression; and what `explain` and the API tell of them.

use tollgate::config;
use tollgate::explain::{ExplainRequest, explain};

use crate::harness::config::parse;
use crate::harness::{Gateway, get, get_with};

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
