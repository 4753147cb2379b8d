//! Routes that no request can reach.

use http::HeaderName;
use proptest::prelude::*;
use tollgate::route::condition::{Condition, ValuePattern};
use tollgate::route::path::PathMatching;
use tollgate::route::{Conditions, RouteIndex, RouteTable};

use crate::harness::sample_request::{get, narrow, route, with_header};

fn unreachable(routes: Vec<Conditions>) -> Vec<(usize, usize)> {
    RouteTable::new(routes, PathMatching::Strict)
        .unreachable()
        .into_iter()
        .map(|(route, taker)| (route.0, taker.0))
        .collect()
}

/// A route for requests whose `x-plan` does not match.
fn without(pattern: &str) -> Conditions {
    let pattern = ValuePattern::parse(pattern).unwrap();
    let condition = Condition::header(HeaderName::from_static("x-plan"), [pattern]).negated();
    Conditions { values: vec![condition], ..route("/a") }
}

#[test]
fn a_route_is_unreachable_behind_one_that_takes_all_of_its_requests() {
    let plan = |route, value| with_header(route, "x-plan", value);
    let cases = [
        (vec![route("/a"), route("/a")], vec![(1, 0)]),
        (vec![route("/a/{x}"), route("/a/{y}")], vec![(1, 0)]),
        (vec![route("/a/*"), route("//a/./*"), route("/a/*")], vec![(1, 0), (2, 0)]),
        (vec![narrow("a.test b.test", "/a", "GET PUT"), narrow("b.test", "/a", "PUT")], vec![(1, 0)]),
        (vec![narrow("*.t x.t", "/a", ""), narrow("x.t *.t", "/a", "")], vec![(1, 0)]),
        (vec![plan(route("/a"), "gold"), plan(route("/a"), "gold")], vec![(1, 0)]),
        (vec![without("a*"), plan(route("/a"), "gold"), without("a*")], vec![(2, 0)]),
    ];
    for (routes, expected) in cases {
        let text = format!("{routes:?}");
        assert_eq!(unreachable(routes), expected, "{text}");
    }
}

#[test]
fn routes_that_some_request_reaches_are_left_alone() {
    let plan = |route, value| with_header(route, "x-plan", value);
    let kept = Conditions { merge_slashes: false, ..route("/a") };
    let cases = [
        vec![route("/*"), route("/a"), route("/{x}"), route("/a/"), route("/a/*")],
        vec![narrow("", "/a", ""), narrow("", "/a", "GET")],
        vec![narrow("", "/a", "GET"), narrow("", "/a", "GET PUT"), narrow("", "/a", "")],
        vec![narrow("*.t", "/a", ""), narrow("x.t", "/a", ""), narrow("", "/a", "")],
        vec![narrow("x.t", "/a", ""), narrow("x.t y.t", "/a", "")],
        vec![route("/a"), plan(route("/a"), "gold"), plan(route("/a"), "tin")],
        vec![
            plan(route("/a"), "gold"),
            plan(route("/a"), "gold*"),
            plan(route("/a"), "*gold"),
            plan(route("/a"), "~gold"),
        ],
        vec![plan(route("/a"), "gold*"), without("gold*"), without("\\*gold*")],
        vec![route("/a"), kept],
    ];
    for routes in cases {
        let text = format!("{routes:?}");
        assert_eq!(unreachable(routes), [], "{text}");
    }
}

#[test]
fn ten_thousand_routes_are_checked_at_once() {
    let mut routes: Vec<_> = (0..5_000).map(|number| route(&format!("/r{number}/{{id}}"))).collect();
    routes.extend((0..5_000).map(|number| narrow(&format!("h{number}.test"), "/*", "")));
    routes.push(route("/r77/{other}"));
    routes.push(narrow("h78.test", "/*", ""));
    assert_eq!(unreachable(routes), [(10_000, 77), (10_001, 5_078)]);
}

proptest! {
    /// No request finds a route that is said to be unreachable.
    #[test]
    fn unreachable_routes_are_never_found(
        routes in prop::collection::vec((0..4_usize, 0..5_usize, 0..4_usize, any::<bool>()), 2..8),
        requests in prop::collection::vec((0..4_usize, 0..4_usize, 0..3_usize), 1..20),
    ) {
        let conditions = routes.iter().map(|&(hosts, path, methods, merge_slashes)| {
            let hosts = ["", "a.t", "*.t", "a.t *.t"][hosts];
            let path = ["/a", "/{p}", "/{q}", "/*", "/a/*"][path];
            Conditions { merge_slashes, ..narrow(hosts, path, ["", "GET", "PUT", "PUT GET"][methods]) }
        });
        let table = RouteTable::new(conditions.collect(), PathMatching::Lenient);
        let dead: Vec<RouteIndex> = table.unreachable().into_iter().map(|(route, _)| route).collect();
        for &(host, path, method) in &requests {
            let sample = get(["/a", "/b", "//a", "/a/b"][path]).host(["a.t", "b.t", "t", "b.a.t"][host]);
            let sample = sample.method(["GET", "PUT", "DELETE"][method]);
            let found = sample.ask(|request| table.find(request));
            prop_assert!(!found.is_some_and(|found| dead.contains(&found)), "{:?} found {:?}", sample, found);
        }
    }
}
