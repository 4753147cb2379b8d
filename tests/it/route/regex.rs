//! Paths as regular expressions: the index, the spellings, and the time.

use proptest::prelude::*;
use tollgate::route::path::Path;
use tollgate::route::path::PathMatching::{self, Lenient, Strict};
use tollgate::route::pattern::PathMatcher;
use tollgate::route::{Conditions, RouteTable};

use crate::harness::sample_request::{Sample, get, narrow, route};

fn with_path(path: &str, matching: PathMatching) -> Conditions {
    Conditions { path: PathMatcher::parse(path, matching).expect("a path"), ..route("/") }
}

fn find(routes: &[Conditions], sample: &Sample, matching: PathMatching) -> Option<usize> {
    let table = RouteTable::new(routes.to_vec(), matching);
    sample.clone().matched(matching).ask(|request| table.find(request)).map(|index| index.0)
}

fn takes(path: &str, request: &str, matching: PathMatching) -> bool {
    find(&[with_path(path, matching)], &get(request), matching).is_some()
}

/// Letter case, a trailing slash and `;parameters` do not count, wherever the expression ends.
#[test]
fn no_spelling_escapes_an_expression() {
    for expression in ["~^/v[0-9]+/login$", "~^/v1/login", "~/login$", "~^/V1/LOGIN$", "~^/v[0-9]+/[a-z]+$"] {
        for request in [
            "/v1/login",
            "/V1/Login",
            "/v1/login/",
            "/v1/login;x",
            "/v1;a=b/LOGIN;x=/",
            "/v1//login//",
            "/v1/;x/login/;y",
            "/%761/lo%67in",
            "/x/../v1/./login",
        ] {
            assert!(takes(expression, request, Lenient), "{expression} {request}");
        }
    }
    // An expression for all below a directory takes the directory's own page, too.
    for request in ["/admin/", "/ADMIN/", "/admin;x/", "/admin;x/users", "/admin/;x", "/admin//"] {
        assert!(takes("~^/admin/", request, Lenient), "{request}");
    }
    assert!(!takes("~^/admin/", "/admin", Lenient), "the slash is required");
    for request in ["/V1/login", "/v1/login/", "/v1/login;x"] {
        assert!(!takes("~^/v1/login$", request, Strict), "{request}");
    }
    // What the expression names counts.
    assert!(takes("~;version=2$", "/a;version=2", Lenient));
    assert!(!takes("~^/a%3Bx$", "/a;x", Lenient) && takes("~^/a%3Bx$", "/a%3bx", Lenient));
}

/// With backtracking, each of these needs more steps than there are atoms for the longest path.
#[test]
fn time_is_linear_in_the_path() {
    let long = "a".repeat(8_000);
    for expression in
        ["~^/(a+)+$", "~^/(a|a)*$", "~^/(a|aa)+$", "~^/(.*)*$", "~(x+x+)+y", "~^/(a?){50}a{50}!"]
    {
        for end in ["!", "", "/b;x/"] {
            let request = format!("/{long}{end}");
            let matched = takes(expression, &request, Lenient);
            assert_eq!(matched, takes(expression, &request, Lenient), "{expression}");
        }
    }
    for expression in [r"~^/(a)\1$", "~^/(?=a)", "~^/(?!a)", "~^/(?<=a)b", "~^/a++b(?>c)"] {
        assert!(PathMatcher::parse(expression, Lenient).is_err(), "{expression} needs more than linear time");
    }
    let huge =
        [format!("~{}", "a".repeat(1_025)), "~^/[a-z]{1000}{1000}$".into(), r"~^(\w{100}){100}$".into()];
    for expression in &huge {
        assert!(PathMatcher::parse(expression, Lenient).is_err(), "{expression} is too large");
    }
}

/// Expressions with and without a text that each match contains.
fn expression() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "a",
        "B",
        "ab",
        "/",
        "/a",
        "/b",
        "[ab]+",
        "(a|b)",
        "(?:ab|ba)?",
        ".*",
        "(a/)+",
        "b{2}",
        ";x",
        "(?i)A",
        "(?-i)B",
        "(?i:b)",
        "[^/]*",
        r"\.",
        "(?:)",
        "x*",
        r"\w",
    ]);
    let pieces = prop::collection::vec(piece, 1..5);
    (any::<bool>(), pieces, any::<bool>()).prop_map(|(from_start, pieces, to_end)| {
        let start = if from_start { "^/" } else { "" };
        format!("~{start}{}{}", pieces.concat(), if to_end { "$" } else { "" })
    })
}

fn requests() -> impl Strategy<Value = Vec<String>> {
    let path = "(/(a|b|A|B|ab|ba|x|\\.a|;x|b;x|)){1,4}".prop_filter("a dot segment", |path| {
        Path::parse(path, Lenient).is_ok() && Path::parse(path, Strict).is_ok()
    });
    prop::collection::vec(path, 1..8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The index finds the first expression that matches: as many tables of one route each do.
    #[test]
    fn the_index_equals_trying_each_in_turn(
        expressions in prop::collection::vec(expression(), 1..40),
        requests in requests(),
        posts in prop::collection::vec(any::<bool>(), 40),
    ) {
        for matching in [Lenient, Strict] {
            let routes: Vec<_> = expressions.iter().zip(&posts).filter_map(|(expression, post)| {
                let path = PathMatcher::parse(expression, matching).ok()?;
                Some(Conditions { path, ..narrow("", "/", if *post { "POST" } else { "" }) })
            }).collect();
            for request in &requests {
                let sample = get(request);
                let alone = |route: &Conditions| find(std::slice::from_ref(route), &sample, matching).is_some();
                let first = routes.iter().position(alone);
                prop_assert_eq!(find(&routes, &sample, matching), first, "{} of {:?}", request, expressions);
            }
        }
    }
}
