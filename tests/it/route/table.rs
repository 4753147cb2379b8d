//! Which route a request takes.

use std::cmp::Reverse;

use proptest::prelude::*;
use tollgate::route::path::{Path, PathMatching};
use tollgate::route::pattern::{PathMatcher, PathPattern};
use tollgate::route::{Conditions, Criterion, Match, RouteIndex, RouteTable};

use crate::harness::sample_request::{Sample, get, narrow, route, with_header};

fn find(routes: &[Conditions], sample: &Sample) -> Option<usize> {
    let table = RouteTable::new(routes.to_vec(), PathMatching::Strict);
    sample.ask(|request| table.find(request)).map(|index| index.0)
}

#[test]
fn exact_beats_parameter_beats_the_longest_prefix() {
    let routes = ["/*", "/users/*", "/users/{id}/*", "/users/{id}", "/users/me"].map(route);
    let cases = [
        ("/", 0),
        ("/other", 0),
        ("/users", 1),
        ("/users/", 1),
        ("/users/7", 3),
        ("/users/7/posts", 2),
        ("/users/7/", 2),
        ("/users/me", 4),
        ("/users/me/posts", 2),
        ("//users/./me", 4),
        ("/x/../users/%6De", 4),
    ];
    for (path, expected) in cases {
        assert_eq!(find(&routes, &get(path)), Some(expected), "{path}");
    }
}

#[test]
fn paths_of_one_kind_are_compared_segment_by_segment_from_the_left() {
    let routes = ["/{x}/b/{z}", "/a/{y}/{z}", "/a/*", "/{x}/b/*", "/{x}/c"].map(route);
    assert_eq!(find(&routes, &get("/a/b/c")), Some(1));
    assert_eq!(find(&routes, &get("/a/b/c/d")), Some(3), "the longer prefix");
    assert_eq!(find(&routes, &get("/a/c")), Some(4), "a parameter beats a prefix");
    assert_eq!(find(&routes, &get("/a/d")), Some(2));
    assert_eq!(find(&routes, &get("/d")), None);
}

#[test]
fn exact_hosts_beat_wildcards_beat_any() {
    let routes = [
        narrow("", "/only-here", ""),
        narrow("*.example.com", "/*", ""),
        narrow("*.b.example.com", "/*", ""),
        narrow("a.b.example.com x.test", "/*", ""),
        narrow("", "/*", ""),
    ];
    let cases = [
        ("a.b.example.com", "/only-here", 3),
        ("c.b.example.com", "/only-here", 2),
        ("c.example.com", "/only-here", 1),
        ("example.com", "/only-here", 0),
        ("example.com", "/", 4),
        ("x.test", "/", 3),
        ("y.x.test", "/", 4),
        ("", "/", 4),
        (".", "/", 4),
        ("..example.com", "/", 1),
    ];
    for (host, path, expected) in cases {
        assert_eq!(find(&routes, &get(path).host(host)), Some(expected), "{host}{path}");
    }
}

#[test]
fn a_route_that_fails_by_any_condition_is_passed_over() {
    let routes = [
        narrow("a.test", "/x/{id}", "GET"),
        with_header(narrow("*.test", "/x/*", ""), "x-plan", "gold"),
        narrow("", "/x/1", "PUT"),
        narrow("", "/*", "GET POST"),
    ];
    let request = |method: &str| get("/x/1").method(method).host("a.test");
    assert_eq!(find(&routes, &request("GET")), Some(0));
    assert_eq!(find(&routes, &request("POST").header("x-plan", "gold")), Some(1), "a wider host");
    assert_eq!(find(&routes, &request("POST").header("x-plan", "Gold")), Some(3), "a wider path");
    assert_eq!(find(&routes, &request("POST").header("x-plan", "no").header("x-plan", "gold")), Some(1));
    assert_eq!(find(&routes, &request("PUT")), Some(2));
    assert_eq!(find(&routes, &request("HEAD")), Some(0), "GET includes HEAD");
}

/// A route that names HEAD takes it, whichever others fit the same request.
#[test]
fn get_includes_head_unless_a_route_that_fits_names_it() {
    let head = |path: &str| get(path).method("HEAD");
    let guarded = [narrow("", "/a", "GET"), narrow("", "/*", "")];
    assert_eq!(find(&guarded, &head("/a")), Some(0), "no wider route takes it");
    assert_eq!(find(&guarded, &head("/b")), Some(1));
    let named = [narrow("", "/a", "GET"), narrow("", "/a", "HEAD"), narrow("", "/*", "")];
    assert_eq!(find(&named, &head("/a")), Some(1));
    assert_eq!(find(&named, &get("/a")), Some(0));
    let wider = [narrow("", "/a", "GET"), narrow("a.test", "/*", "GET HEAD"), narrow("", "/*", "")];
    assert_eq!(find(&wider, &head("/a").host("a.test")), Some(1));
    assert_eq!(
        find(&wider, &head("/a").host("b.test")),
        Some(0),
        "the route that names it is for another host"
    );
    let gold = [narrow("", "/a", "GET"), with_header(narrow("", "/a", "HEAD"), "x-plan", "gold")];
    assert_eq!(find(&gold, &head("/a").header("x-plan", "gold")), Some(1));
    assert_eq!(find(&gold, &head("/a")), Some(0));
    let posts = [narrow("", "/a", "POST"), narrow("", "/*", "")];
    assert_eq!(find(&posts, &head("/a")), Some(1), "POST does not include HEAD");
    assert_eq!(find(&posts[..1], &head("/a")), None);
    let told =
        head("/a").ask(|request| RouteTable::new(guarded.to_vec(), PathMatching::Strict).explain(request));
    assert_eq!(told[0], Match::Chosen);
}

#[test]
fn methods_then_headers_then_file_order_break_ties() {
    let plan = |route| with_header(route, "x-plan", "gold");
    let routes = [
        plan(plan(narrow("", "/a", ""))),
        narrow("", "/a", "GET"),
        plan(narrow("", "/a", "GET POST")),
        plan(narrow("", "/a", "GET")),
        narrow("", "/a", ""),
        narrow("", "/a", ""),
    ];
    let gold = get("/a").header("x-plan", "gold");
    assert_eq!(find(&routes, &gold), Some(2));
    assert_eq!(find(&routes, &gold.clone().method("PUT")), Some(0));
    assert_eq!(find(&routes, &get("/a")), Some(1));
    assert_eq!(find(&routes, &get("/a").method("PUT")), Some(4));
}

#[test]
fn double_slashes_matter_to_routes_that_keep_them() {
    let kept = |path| Conditions { merge_slashes: false, ..route(path) };
    let routes = [kept("/a//b"), route("/a/b"), kept("/a/*"), route("/x//y")];
    assert_eq!(find(&routes, &get("/a//b")), Some(0));
    assert_eq!(find(&routes, &get("/a/b")), Some(1));
    assert_eq!(find(&routes, &get("/a///b")), Some(1), "merged, and more specific than the prefix");
    assert_eq!(find(&routes, &get("/a//c")), Some(2));
    assert_eq!(find(&routes, &get("//a//c")), None, "kept, this path does not begin with `/a`");
    assert_eq!(find(&routes, &get("/x/y")), Some(3), "the pattern is merged as requests are");
}

#[test]
fn explain_says_why_for_each_route() {
    let routes = vec![
        narrow("a.test", "/x", ""),
        narrow("", "/y", ""),
        narrow("", "/x", "POST"),
        with_header(route("/x"), "x-plan", "gold"),
        route("/*"),
        route("/x"),
    ];
    let table = RouteTable::new(routes, PathMatching::Strict);
    let told = get("/x").host("b.test").ask(|request| table.explain(request));
    let expected = [
        Match::Host,
        Match::Path,
        Match::Method,
        Match::Header("x-plan".parse().unwrap()),
        Match::LessSpecific(RouteIndex(5), Criterion::Path),
        Match::Chosen,
    ];
    assert_eq!(told, expected);
    assert_eq!(told[3].to_string(), "the field `x-plan` is absent or differs");
}

#[test]
fn explain_says_by_what_a_route_wins() {
    let won_by = |winner: Conditions, loser: Conditions| {
        let table = RouteTable::new(vec![loser, winner], PathMatching::Strict);
        let sample = get("/a").host("x.a.test").header("x-plan", "gold");
        match sample.ask(|request| table.explain(request)).as_slice() {
            [Match::LessSpecific(RouteIndex(1), criterion), Match::Chosen] => *criterion,
            other => panic!("{other:?}"),
        }
    };
    let plan = |route| with_header(route, "x-plan", "gold");
    assert_eq!(won_by(narrow("*.test x.a.test", "/*", ""), narrow("*.a.test", "/a", "")), Criterion::Host);
    assert_eq!(won_by(narrow("*.a.test", "/*", ""), narrow("*.test", "/a", "")), Criterion::Host);
    assert_eq!(won_by(narrow("*.test", "/*", ""), route("/a")), Criterion::Host);
    assert_eq!(won_by(route("/{p}"), narrow("", "/*", "GET")), Criterion::Path);
    assert_eq!(won_by(narrow("", "/a", "GET"), plan(route("/a"))), Criterion::Methods);
    assert_eq!(won_by(plan(route("/a")), route("/a")), Criterion::Values);
    let table = RouteTable::new(vec![route("/a"), route("/a")], PathMatching::Strict);
    let told = get("/a").ask(|request| table.explain(request));
    assert_eq!(told[1], Match::LessSpecific(RouteIndex(0), Criterion::Order));
}

/// 10,000 routes whose parameters and literals branch at every segment, and paths that fit nearly all branches: a lookup
/// that tried each way anew would not end.
#[test]
fn hostile_paths_do_not_blow_up() {
    let mixed = |number: u32| -> String {
        let segment = |bit: u32| if number >> bit & 1 == 1 { "/a".into() } else { format!("/{{p{bit}}}") };
        (0..13).map(segment).collect::<String>() + &"/{x}".replace('x', "q") + "/end"
    };
    let mut routes: Vec<_> = (0..8192).map(|number| route(&mixed(number))).collect();
    let deep =
        |start: usize| (start..62).map(|at| if at % 2 == 0 { "/a".into() } else { format!("/{{p{at}}}") });
    routes.extend((0..1808).map(|number| route(&format!("/a{}", deep(number % 40).collect::<String>()))));
    let table = RouteTable::new(routes, PathMatching::Strict);
    for length in [12, 13, 14, 15, 16, 63, 64, 4000] {
        let sample = get(&"/a".repeat(length));
        for _ in 0..20 {
            sample.ask(|request| table.find(request));
        }
    }
    let fits = format!("{}/a/end", "/a".repeat(13));
    assert_eq!(get(&fits).ask(|request| table.find(request)), Some(RouteIndex(8191)));
}

#[test]
fn hosts_of_many_labels_do_not_blow_up() {
    let table = RouteTable::new(
        vec![narrow("*.a.example.com", "/*", ""), narrow("*.com", "/*", "")],
        PathMatching::Strict,
    );
    let host = format!("{}com", "a.".repeat(30_000));
    for _ in 0..100 {
        assert_eq!(get("/").host(&host).ask(|request| table.find(request)), Some(RouteIndex(1)));
    }
}

#[derive(Clone, Debug)]
struct Written {
    hosts: Vec<&'static str>,
    path: String,
    methods: Vec<&'static str>,
    headers: Vec<(&'static str, &'static str)>,
    merge_slashes: bool,
}

impl Written {
    fn conditions(&self, matching: PathMatching) -> Conditions {
        let bare = narrow(&self.hosts.join(" "), "/", &self.methods.join(" "));
        let path = PathMatcher::parse(&self.path, matching).unwrap();
        let bare = Conditions { path, ..bare };
        let full = self.headers.iter().fold(bare, |route, (name, value)| with_header(route, name, value));
        Conditions { merge_slashes: self.merge_slashes, ..full }
    }

    /// The path as it is compared, by the words of the contract.
    fn compared(&self, matching: PathMatching) -> String {
        let (path, below) = self.path.strip_suffix("/*").map_or((&*self.path, ""), |path| (path, "/*"));
        match below {
            // What is below is no trailing slash.
            "/*" => compared(&format!("{path}/x"), self.merge_slashes, matching).replace("/x", "/*"),
            _ => compared(path, self.merge_slashes, matching),
        }
    }

    /// Whether the path matches, by the words of the contract. Expressions are matched by the library alone.
    fn has_path(&self, path: &str, matching: PathMatching) -> bool {
        let compared_path = compared(path, self.merge_slashes, matching);
        let Some(expression) = self.path.strip_prefix('~') else {
            return PathPattern::parse(&self.compared(matching)).unwrap().matches(&compared_path);
        };
        let lenient = matching == PathMatching::Lenient;
        let regex = regex::RegexBuilder::new(expression).case_insensitive(lenient).build().unwrap();
        let bare = regex::Regex::new(";[^/]*").unwrap().replace_all(path, "");
        let bare = match self.merge_slashes {
            true => regex::Regex::new("//+").unwrap().replace_all(&bare, "/").into_owned(),
            false => bare.into_owned(),
        };
        regex.is_match(path) || lenient && (regex.is_match(&compared_path) || regex.is_match(&bare))
    }

    /// How specific the route is for a request of this host, smallest first, by the words of the contract. `index`: its
    /// place in the file.
    fn order(&self, host: &str, matching: PathMatching, index: usize) -> impl Ord + use<> {
        let fits = |pattern: &&str| {
            pattern.strip_prefix('*').is_none_or(|suffix| host.ends_with(suffix))
                && (pattern.starts_with('*') || *pattern == host)
        };
        let best = self.hosts.iter().filter(|pattern| fits(pattern));
        let best = best.map(|pattern| (pattern.starts_with('*'), Reverse(pattern.len()))).min();
        if self.path.starts_with('~') {
            return (
                (best.is_none(), best),
                (2, Reverse(usize::MAX - index), Vec::new()),
                (false, Reverse(0)),
            );
        }
        let compared = self.compared(matching);
        let (prefix, path) = compared.strip_suffix("/*").map_or((false, &*compared), |path| (true, path));
        let kinds: Vec<bool> = path.split('/').skip(1).map(|segment| segment.starts_with('{')).collect();
        let class = if prefix { 3 } else { u8::from(kinds.contains(&true)) };
        let path = (class, Reverse(kinds.len()), kinds);
        ((best.is_none(), best), path, (self.methods.is_empty(), Reverse(self.headers.len())))
    }
}

/// A normalised path as it is compared, by the words of the contract.
fn compared(path: &str, merge_slashes: bool, matching: PathMatching) -> String {
    if matching == PathMatching::Strict {
        return path.into();
    }
    let names = path.to_lowercase();
    let mut names: Vec<_> =
        names.split('/').skip(1).filter_map(|segment| segment.split(';').next()).collect();
    if merge_slashes {
        names.retain(|name| !name.is_empty());
    } else if names.last() == Some(&"") {
        names.pop();
    }
    if names.is_empty() { "/".into() } else { names.iter().flat_map(|name| ["/", name]).collect() }
}

fn written() -> impl Strategy<Value = Written> {
    let hosts = prop::sample::subsequence(vec!["a.t", "b.a.t", "*.t", "*.a.t"], 0..=2);
    let path =
        prop::collection::vec(prop::sample::select(vec!["/a", "/b", "/A", "/b;x", "/;x", "/{p}"]), 0..4);
    let end = prop::sample::select(vec!["", "/", "/*"]);
    let expressions = ["~^/a/[^/]+$", "~/b", "~^/(?:a|B)/?$", "~^/.*;x", "~A", "~^/[a-z]+$", "~//", "~."];
    let expression = prop::option::weighted(0.3, prop::sample::select(expressions.to_vec()));
    let methods = prop::sample::subsequence(vec!["GET", "POST", "HEAD"], 0..=1);
    let headers = prop::sample::subsequence(vec![("x", "1"), ("x", "2"), ("y", "1"), ("y", "*")], 0..=2);
    ((hosts, path, end, expression), methods, headers, any::<bool>()).prop_map(
        |((hosts, path, end, expression), methods, headers, merge_slashes)| {
            if let Some(expression) = expression {
                return Written { hosts, path: expression.into(), methods, headers, merge_slashes };
            }
            let numbered =
                path.iter().enumerate().map(|(place, segment)| segment.replace('p', &format!("p{place}")));
            let path = numbered.collect::<String>() + end;
            let path = if path.is_empty() { "/".into() } else { path };
            Written { hosts, path, methods, headers, merge_slashes }
        },
    )
}

fn sample() -> impl Strategy<Value = Sample> {
    let host = prop::sample::select(vec!["", "a.t", "b.a.t", "c.b.a.t", "c.t", "t", "z"]);
    let path = "/(a|b|c|/){0,4}(/a|/b|/A|/\\.\\.)?(/(a|B|c|b;x|;x)){0,2}(/|;y)?";
    let method = prop::sample::select(vec!["GET", "POST", "HEAD"]);
    let headers = prop::sample::subsequence(vec![("x", "1"), ("x", "2"), ("y", "1")], 0..=3);
    let possible = path.prop_filter("a fault", |path| {
        Path::parse(path, PathMatching::Lenient).is_ok_and(|path| !path.has_encoded_dots())
    });
    (host, possible, method, headers).prop_map(|(host, path, method, headers)| {
        let bare = get(&path).host(host).method(method);
        headers.into_iter().fold(bare, |sample, (name, value)| sample.header(name, value))
    })
}

/// Routes of few paths that differ above all by header.
fn crowded() -> impl Strategy<Value = Written> {
    let hosts = prop::sample::subsequence(vec!["a.t", "*.t"], 0..=1);
    let path = prop::sample::select(vec!["/a", "/A", "/a/", "/{p}", "/*"]);
    let methods = prop::sample::subsequence(vec!["GET", "POST", "HEAD"], 0..=2);
    (hosts, path, methods, headers(4)).prop_map(|(hosts, path, methods, headers)| Written {
        hosts,
        path: path.into(),
        methods,
        headers,
        merge_slashes: true,
    })
}

fn request_of_crowd() -> impl Strategy<Value = Sample> {
    let host = prop::sample::select(vec!["a.t", "b.t", "z"]);
    let path = prop::sample::select(vec!["/a", "/A", "/a/", "/a;x", "/b", "/b/c"]);
    let method = prop::sample::select(vec!["GET", "POST", "PUT", "HEAD"]);
    let twice = (headers(6), headers(2)).prop_map(|(mut headers, again)| {
        headers.extend(again);
        headers
    });
    (host, path, method, twice.prop_shuffle()).prop_map(|(host, path, method, headers)| {
        let bare = get(path).host(host).method(method);
        headers.into_iter().fold(bare, |sample, (name, value)| sample.header(name, value))
    })
}

fn headers(max: usize) -> impl Strategy<Value = Vec<(&'static str, &'static str)>> {
    let all =
        [("x", "1"), ("x", "2"), ("x", "3"), ("y", "1"), ("y", "2"), ("z", "1"), ("z", "Z"), ("z", "z")];
    prop::sample::subsequence(all.to_vec(), 0..=max)
}

/// The table against the contract's words: filter all routes by all conditions, sort, take the first.
fn check_against_every_route(
    routes: &[Written],
    samples: Vec<Sample>,
    matching: PathMatching,
) -> Result<(), TestCaseError> {
    let conditions: Vec<_> = routes.iter().map(|route| route.conditions(matching)).collect();
    let table = RouteTable::new(conditions.clone(), matching);
    for sample in samples.into_iter().map(|sample| sample.matched(matching)) {
        let (found, told) = sample.ask(|request| (table.find(request), table.explain(request)));
        let expected = sample.ask(|request| {
            let fits = |index: usize| {
                let route = &conditions[index];
                (route.hosts.is_empty() || route.hosts.iter().any(|host| host.matches(request.host)))
                    && routes[index].has_path(request.path.form(route.merge_slashes), matching)
                    && routes[index].headers.iter().all(|(name, value)| {
                        let name = http::HeaderName::from_static(name);
                        let sent = request.headers.all(&name);
                        sent.iter().any(|sent| match value.strip_suffix('*') {
                            Some(prefix) => sent.starts_with(prefix.as_bytes()),
                            None => sent == value.as_bytes(),
                        })
                    })
            };
            let names = |index: usize| conditions[index].methods.contains(request.method);
            let is_get = request.method == http::Method::HEAD
                && !(0..routes.len()).any(|index| fits(index) && names(index));
            let holds = |index: usize| {
                let methods = &conditions[index].methods;
                let takes =
                    methods.is_empty() || names(index) || is_get && methods.contains(&http::Method::GET);
                takes && fits(index)
            };
            let spelled = |index: usize| {
                let route = &routes[index];
                let path = request.path.form(route.merge_slashes);
                route.path.starts_with('~') || PathPattern::parse(&route.path).unwrap().matches(path)
            };
            let order = |index: usize| (routes[index].order(request.host, matching, index), !spelled(index));
            (0..routes.len()).filter(|&index| holds(index)).min_by_key(|&index| order(index)).map(RouteIndex)
        });
        prop_assert_eq!(found, expected, "{:?}", sample);
        let chosen: Vec<_> =
            (0..told.len()).filter(|&index| told[index] == Match::Chosen).map(RouteIndex).collect();
        prop_assert_eq!(chosen, expected.into_iter().collect::<Vec<_>>());
    }
    Ok(())
}

proptest! {
    #[test]
    fn the_table_equals_trying_every_route(
        routes in prop::collection::vec(written(), 1..12),
        samples in prop::collection::vec(sample(), 1..8),
        matching in prop::sample::select(vec![PathMatching::Lenient, PathMatching::Strict]),
    ) {
        check_against_every_route(&routes, samples, matching)?;
    }

    /// Enough routes of one path that they are found by the values of headers.
    #[test]
    fn a_crowded_table_equals_trying_every_route(
        routes in prop::collection::vec(crowded(), 30..120),
        samples in prop::collection::vec(request_of_crowd(), 1..16),
        matching in prop::sample::select(vec![PathMatching::Lenient, PathMatching::Strict]),
    ) {
        check_against_every_route(&routes, samples, matching)?;
    }
}
