//! Patterns of hosts and paths as written in the file.

use proptest::prelude::*;
use tollgate::http1::request::is_authority;
use tollgate::route::path::{Path, PathMatching};
use tollgate::route::pattern::{HostPattern, PathPattern, bare_host};

#[test]
fn path_patterns_match_whole_segments() {
    let cases = [
        ("/", "/", "/a //"),
        ("/a", "/a", "/ /a/ /a/b /A /ab"),
        ("/a/", "/a/", "/a /a// /a/b"),
        ("/*", "/ /a /a/ /a/b // /a//b", ""),
        ("/a/*", "/a /a/ /a/b /a/b/c /a//", "/ /ab /b/a"),
        ("/a/{id}", "/a/1 /a/x;y=1 /a/%2F", "/a /a/ /a/1/ /a/1/2"),
        ("/a/{id}/b", "/a/1/b", "/a//b /a/b /a/1/b/"),
        ("/{x}/{y}/*", "/1/2 /1/2/ /1/2/3", "/1 /1/ //2"),
        ("/{x}/", "/1/", "/1 // /1/2"),
        ("/a//b", "/a//b", "/a/b /a///b"),
        ("/%61/%2fb/../%7Bc%7D", "/a/%7Bc%7D", "/a/{c}"),
    ];
    for (pattern, matching, others) in cases {
        let parsed = PathPattern::parse(pattern).unwrap();
        for path in matching.split_whitespace() {
            assert!(parsed.matches(path), "{pattern} matches {path}");
        }
        for path in others.split_whitespace() {
            assert!(!parsed.matches(path), "{pattern} does not match {path}");
        }
    }
}

#[test]
fn faults_of_path_patterns_say_what_would_be_right() {
    let cases = [
        ("a/b", "`a/b` is not a path pattern: the path does not begin with `/`", "write `/a/b`"),
        ("/a*b", "`*` in `/a*b` is not the whole last segment", "write `/*` at the end"),
        ("/a/*/b", "`*` in `/a/*/b` is not the whole last segment", "write `/*` at the end"),
        ("/a/**", "`*` in `/a/**` is not the whole last segment", "write `/*` at the end"),
        ("/a/{}", "`` in `/a/{}` is not a parameter's name", "write letters"),
        ("/a/{*rest}", "`*` in `/a/{*rest}` is not the whole", "write `/*` at the end"),
        ("/a/{b c}", "`/a/{b c}` is not a path pattern", "write it as requests carry it"),
        ("/a/{b.c}", "`b.c` in `/a/{b.c}` is not a parameter's name", "write letters"),
        ("/a/x{id}", "`x{id}` in `/a/x{id}` is not a whole parameter", "a parameter is a whole segment"),
        ("/a/{id", "`{id` in `/a/{id` is not a whole parameter", "a parameter is a whole segment"),
        ("/{a}/{b}/{a}", "the parameter `{a}` stands twice in `/{a}/{b}/{a}`", "give each parameter its own"),
        ("/a?b", "`/a?b` is not a path pattern", "write the path alone"),
        ("/100%", "`/100%` is not a path pattern", "write `%25`"),
        (
            "/..",
            "`/..` is not a path pattern: the path leads above the root",
            "write the path as it is after",
        ),
        ("/a//../b", "`..` beside `//` in `/a//../b` has two meanings", "write the path as it is after"),
    ];
    for (pattern, message, help) in cases {
        let fault = PathPattern::parse(pattern).unwrap_err();
        assert!(fault.message.starts_with(message), "{pattern}: {}", fault.message);
        assert!(fault.help.starts_with(help), "{pattern}: {}", fault.help);
    }
    assert!(PathPattern::parse(&"/a".repeat(PathPattern::MAX_SEGMENTS)).is_ok());
    let fault = PathPattern::parse(&"/a".repeat(PathPattern::MAX_SEGMENTS + 1)).unwrap_err();
    assert_eq!(fault.message, "the path pattern has 65 segments");
}

#[test]
fn host_patterns_name_one_host_or_all_below() {
    let cases = [
        ("api.example.com", "api.example.com", "example.com x.api.example.com"),
        ("API.Example.com.", "api.example.com", "api.example.com."),
        ("*.example.com", "a.example.com a.b.example.com", "example.com .example.com aexample.com"),
        ("localhost", "localhost", "x.localhost"),
        ("192.0.2.1", "192.0.2.1", "192.0.2.10"),
        ("[2001:DB8:0::1]", "[2001:db8::1]", "2001:db8::1"),
        ("2001:db8::1", "[2001:db8::1]", "[2001:db8::2]"),
        ("my_service", "my_service", "my-service"),
    ];
    for (pattern, matching, others) in cases {
        let parsed = HostPattern::parse(pattern).unwrap();
        assert!(matching.split_whitespace().all(|host| parsed.matches(host)), "{pattern}: {matching}");
        assert!(!others.split_whitespace().any(|host| parsed.matches(host)), "{pattern}: {others}");
    }
    assert_eq!(HostPattern::parse("*.Example.com").unwrap().to_string(), "*.example.com");
}

#[test]
fn faults_of_host_patterns_say_what_would_be_right() {
    let cases = [
        ("*", "the host `*` has no effect", "leave `hosts` out"),
        ("", "`` is not a host name", "write a name"),
        (
            "api.example.com:8080",
            "the host `api.example.com:8080` has a port",
            "write `api.example.com`: hosts",
        ),
        ("[::1]:80", "the host `[::1]:80` has a port", "write `[::1]`: hosts"),
        ("http://a.example", "the host `http://a.example` is a URL", "write a name"),
        ("a.example/x", "the host `a.example/x` is a URL", "write a name"),
        ("bücher.example", "the host `bücher.example` is not ASCII", "write it as clients send it"),
        ("a.*.example", "`*` in the host `a.*.example` is not a whole label", "write a name"),
        ("*a.example", "`*` in the host `*a.example` is not a whole label", "write a name"),
        ("a..example", "`a..example` is not a host name", "write a name"),
        ("*.", "`*.` is not a host name", "write a name"),
        ("a b", "`a b` is not a host name", "write a name"),
    ];
    for (pattern, message, help) in cases {
        let fault = HostPattern::parse(pattern).unwrap_err();
        assert!(fault.message.starts_with(message), "{pattern}: {}", fault.message);
        assert!(fault.help.starts_with(help), "{pattern}: {}", fault.help);
    }
}

#[test]
fn an_authority_is_compared_without_case_port_and_final_dot() {
    let cases = [
        ("a.example", "a.example"),
        ("A.Example.:8080", "a.example"),
        ("a.example:", "a.example"),
        ("[::1]:80", "[::1]"),
        ("[0:0::0001]", "[::1]"),
        ("[::FFFF:192.0.2.1]", "[::ffff:192.0.2.1]"),
        ("[nonsense", "[nonsense"),
        ("", ""),
    ];
    for (authority, host) in cases {
        assert_eq!(bare_host(authority), host, "{authority}");
    }
}

proptest! {
    /// A host that is normal once cannot be read as another one by a backend that makes it normal once more.
    #[test]
    fn the_normal_form_of_a_host_is_its_own(text in "([a-cA-C.:~_-]|\\.\\.|:80|[0-9]|\\[::1\\]){0,10}") {
        if is_authority(text.as_bytes()) {
            let host = bare_host(&text);
            prop_assert!(!host.is_empty() && !host.ends_with('.'), "{text}");
            prop_assert_eq!(bare_host(&host), host.clone());
            prop_assert!(is_authority(host.as_bytes()), "{text}");
        }
    }

    #[test]
    fn no_pattern_panics(text in "(/|\\*|\\{|\\}|a|%2e|:|\\[|\\]|\\.|é){0,16}") {
        if let Ok(pattern) = PathPattern::parse(&text) {
            prop_assert_eq!(PathPattern::parse(&pattern.to_string()).unwrap(), pattern);
        }
        if let Ok(pattern) = HostPattern::parse(&text) {
            prop_assert_eq!(HostPattern::parse(&pattern.to_string()).unwrap(), pattern);
        }
        let _ = bare_host(&text);
    }

    #[test]
    fn a_pattern_without_wildcards_matches_what_it_was_normalised_to(text in "(/|a|b|%61|%2f|/\\./|/c/\\.\\.){1,8}") {
        if let (Ok(pattern), Ok(path)) = (PathPattern::parse(&text), Path::parse(&text, PathMatching::Strict)) {
            prop_assert!(pattern.matches(path.form(false)));
        }
    }
}
