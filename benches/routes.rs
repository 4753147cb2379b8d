//! What it costs to normalise a path, to find a route among ten and among ten thousand, and to claim a key.
//!
//! `cargo bench --bench routes`. Where no allocation is shown, there was none.
#![expect(clippy::expect_used, reason = "a benchmark that cannot be set up should stop")]

use divan::{AllocProfiler, Bencher, black_box};
use http::header::COOKIE;
use http::{HeaderName, Method};
use tollgate::http1::fields::{FieldList, Fields};
use tollgate::route::client::ClientRule;
use tollgate::route::folding::PathMatching;
use tollgate::route::key::{Key, Missing, Part, Secret};
use tollgate::route::path::Path;
use tollgate::route::pattern::{HostPattern, PathPattern};
use tollgate::route::{Conditions, Request, RouteTable};

#[global_allocator]
static ALLOCATOR: AllocProfiler = AllocProfiler::system();

fn main() {
    divan::main();
}

const PATHS: &[&str] =
    &["/api/v1/users/12345/posts", "/api//v1/./users/%31", "/.well-known/x", "/API/v1/Users;v=1/"];

#[divan::bench(args = PATHS)]
fn normalise(path: &str) -> bool {
    black_box(Path::parse(black_box(path), PathMatching::Lenient)).is_ok()
}

/// Half of the routes are exact paths, half have a parameter.
#[divan::bench(args = [10, 10_000])]
fn find_by_path(bencher: Bencher<'_, '_>, count: usize) {
    let pattern = |number: usize| match number % 2 {
        0 => format!("/api/v1/service{number}/list"),
        _ => format!("/api/v1/service{number}/{{id}}/*"),
    };
    let table = RouteTable::new(
        (0..count).map(|number| route("", &pattern(number))).collect(),
        PathMatching::Lenient,
    );
    let path = format!("/api/v1/service{}/42/posts", count / 2 * 2 - 1);
    bench_find(bencher, &table, "api.example.com", &path);
}

#[divan::bench(args = [10, 10_000])]
fn find_by_host(bencher: Bencher<'_, '_>, count: usize) {
    let host = |number: usize| format!("tenant{number}.example.com");
    let table =
        RouteTable::new((0..count).map(|number| route(&host(number), "/*")).collect(), PathMatching::Lenient);
    bench_find(bencher, &table, &host(count / 2), "/api/v1/users/12345/posts");
}

/// No path is in the table: the walk tries what it can and finds nothing.
#[divan::bench(args = [10, 10_000])]
fn find_nothing(bencher: Bencher<'_, '_>, count: usize) {
    let pattern = |number: usize| format!("/api/{{version}}/service{number}/list");
    let table = RouteTable::new(
        (0..count).map(|number| route("", &pattern(number))).collect(),
        PathMatching::Lenient,
    );
    bench_find(bencher, &table, "api.example.com", "/api/v1/service5/nothing");
}

#[divan::bench(args = ["ip", "header:x-api-key", "cookie:sid", "query:key", "header:x-api-key ip path"])]
fn claim(bencher: Bencher<'_, '_>, parts: &str) {
    let parts = parts.split(' ').map(|part| Part::parse(part).expect("a part")).collect();
    let key = Key { parts, missing: Missing::Ip, repeated: None };
    let mut headers = FieldList::default();
    headers.push(&HeaderName::from_static("x-api-key"), b"0123456789abcdef0123456789abcdef");
    headers.push(&COOKIE, b"theme=dark; sid=0123456789abcdef0123456789abcdef");
    with_request("api.example.com", "/api/v1/users/12345/posts", headers.fields(), |request| {
        bencher.bench_local(|| key.claim(&Secret::Process([7; 16]), black_box(request), "users", true));
    });
}

fn bench_find(bencher: Bencher<'_, '_>, table: &RouteTable, host: &str, path: &str) {
    with_request(host, path, Fields::NONE, |request| {
        bencher.bench_local(|| table.find(black_box(request)));
    });
}

fn with_request(host: &str, path: &str, headers: Fields<'_>, ask: impl FnOnce(&Request<'_>)) {
    let path = Path::parse(path, PathMatching::Lenient).expect("a good path");
    let client = ClientRule::default().client([192, 0, 2, 1].into());
    let query = Some("page=2&key=0123456789abcdef");
    ask(&Request { method: &Method::GET, host, path: &path, query, headers, client, tls_subject: None });
}

fn route(host: &str, path: &str) -> Conditions {
    let hosts = host.split_whitespace().map(|host| HostPattern::parse(host).expect("a host"));
    Conditions {
        hosts: hosts.collect(),
        path: PathPattern::parse(path).expect("a path pattern"),
        methods: vec![Method::GET],
        headers: Vec::new(),
        merge_slashes: true,
    }
}
