//! What it costs to normalise a path, to find a route among ten and among ten thousand, to see whether a request is
//! exempt, to claim a key, to find a consumer among a million and an address in a million networks.
//!
//! `cargo bench --bench routes`. Where no allocation is shown, there was none.
#![expect(clippy::expect_used, reason = "a benchmark that cannot be set up should stop")]

#[path = "../tests/it/harness/logs/field_list.rs"]
mod field_list;

use divan::{AllocProfiler, Bencher, black_box};
use http::header::{COOKIE, USER_AGENT};
use http::{HeaderName, Method};
use tollgate::config;
use tollgate::http1::fields::Fields;
use tollgate::limit::units::Cost;
use tollgate::plan::Plan;
use tollgate::plan::admission::{Applicability, RequestCharges};
use tollgate::route::client::ClientRule;
use tollgate::route::condition::{Condition, ValuePattern};
use tollgate::route::consumers::{Consumers, KeyForm};
use tollgate::route::key::{Key, KeySecret, Part};
use tollgate::route::networks::Networks;
use tollgate::route::path::{Path, PathMatching};
use tollgate::route::pattern::{HostPattern, PathMatcher};
use tollgate::route::{Conditions, RouteIndex, RouteRequest, RouteTable};

use field_list::FieldList;

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

/// Routes that differ only in the value of one header; the request's fields are those of a browser.
#[divan::bench(args = [1, 5_000])]
fn find_by_header(bencher: Bencher<'_, '_>, count: usize) {
    let routes = (0..count).map(|number| with_tenant(route("", "/api/v1/*"), number));
    let table = RouteTable::new(routes.collect(), PathMatching::Lenient);
    let headers = browser(count / 2);
    with_request("api.example.com", "/api/v1/users/12345/posts", headers.fields(), |request| {
        assert!(table.find(request).is_some(), "there is a route for each tenant");
        bencher.bench_local(|| table.find(black_box(request)));
    });
}

/// Routes that differ only in the value of a parameter of the query, in the beginning of a header's value, or in the
/// client's network.
#[divan::bench(args = [("query", 1), ("query", 10_000), ("prefix", 1), ("prefix", 10_000), ("client", 1), ("client", 10_000)])]
fn find_by_value(bencher: Bencher<'_, '_>, (kind, count): (&str, usize)) {
    let condition = |number: usize| match kind {
        "query" => Condition::query("page", [pattern(&number.to_string())]),
        "prefix" => tenant_condition(&format!("t{number:05}*")),
        _ => {
            let network = format!("10.{}.{}.0/24", number / 256, number % 256);
            Condition::clients([network.parse().expect("a network")])
        }
    };
    let routes = (0..count).map(|number| {
        // The last one is the request's.
        let number = count - 1 - number;
        Conditions { values: vec![condition(number + 2)], ..route("", "/api/v1/*") }
    });
    let table = RouteTable::new(routes.collect(), PathMatching::Lenient);
    let mut headers = FieldList::default();
    headers.push(&HeaderName::from_static("x-tenant"), b"t00002-eu");
    with_request("api.example.com", "/api/v1/users/12345/posts", headers.fields(), |request| {
        let request = RouteRequest { client: ClientRule::default().client([10, 0, 2, 1].into()), ..*request };
        assert_eq!(table.find(&request), Some(RouteIndex(count - 1)));
        bencher.bench_local(|| table.find(black_box(&request)));
    });
}

/// Patterns for the values of `x-tenant`, each required by a route of its own, or all by one route; the last one is the
/// request's. `exact` is what the others are measured by.
#[divan::bench(args = PATTERNS)]
fn find_by_pattern(bencher: Bencher<'_, '_>, (kind, count): (&str, usize)) {
    let routes = (0..count).map(|number| {
        let value = tenant_condition(&tenant_pattern(kind, count + 1 - number));
        Conditions { values: vec![value], ..route("", "/api/v1/*") }
    });
    bench_tenant(bencher, routes.collect(), RouteIndex(count - 1));
}

/// The same patterns in the list of one route.
#[divan::bench(args = PATTERNS)]
fn find_by_list(bencher: Bencher<'_, '_>, (kind, count): (&str, usize)) {
    let patterns = (0..count).map(|number| pattern(&tenant_pattern(kind, count + 1 - number)));
    let value = Condition::header(HeaderName::from_static("x-tenant"), patterns);
    let routes = vec![Conditions { values: vec![value], ..route("", "/api/v1/*") }];
    bench_tenant(bencher, routes, RouteIndex(0));
}

/// As [`find_by_pattern`], for the whole user agent of a browser, which no pattern matches.
#[divan::bench(args = PATTERNS)]
fn find_no_pattern(bencher: Bencher<'_, '_>, (kind, count): (&str, usize)) {
    let routes = (0..count).map(|number| {
        let patterns = [pattern(&tenant_pattern(kind, number))];
        let value = Condition::header(USER_AGENT, patterns);
        Conditions { values: vec![value], ..route("", "/api/v1/*") }
    });
    let table = RouteTable::new(routes.collect(), PathMatching::Lenient);
    let headers = browser(7);
    with_request("api.example.com", "/api/v1/users/12345/posts", headers.fields(), |request| {
        assert_eq!(table.find(request), None);
        bencher.bench_local(|| table.find(black_box(request)));
    });
}

const PATTERNS: &[(&str, usize)] = &[
    ("exact", 1),
    ("exact", 10_000),
    ("prefix", 1),
    ("prefix", 10_000),
    ("suffix", 1),
    ("suffix", 10_000),
    ("inner", 1),
    ("inner", 10_000),
    ("regex", 1),
    ("regex", 10_000),
];

/// A pattern for the values `t00002-eu`, …
fn tenant_pattern(kind: &str, number: usize) -> String {
    match kind {
        "exact" => format!("t{number:05}-eu"),
        "prefix" => format!("t{number:05}*"),
        "suffix" => format!("*{number:05}-eu"),
        "inner" => format!("*{number:05}-*"),
        _ => format!("~^t{number:05}-(eu|us)$"),
    }
}

fn bench_tenant(bencher: Bencher<'_, '_>, routes: Vec<Conditions>, expected: RouteIndex) {
    let table = RouteTable::new(routes, PathMatching::Lenient);
    let mut headers = FieldList::default();
    headers.push(&HeaderName::from_static("x-tenant"), b"t00002-eu");
    with_request("api.example.com", "/api/v1/users/12345/posts", headers.fields(), |request| {
        assert_eq!(table.find(request), Some(expected));
        bencher.bench_local(|| table.find(black_box(request)));
    });
}

/// Routes by regular expression: each with a text of its own, or all with the same.
#[divan::bench(args = [("own", 1), ("own", 10_000), ("inner", 1), ("inner", 10_000), ("none", 1), ("none", 100)])]
fn find_by_regex(bencher: Bencher<'_, '_>, (kind, count): (&str, usize)) {
    let expression = |number: usize| match kind {
        "own" => format!("~^/service{number}/v[0-9]+/search$"),
        "inner" => format!("~^/[a-z]+/v[0-9]+/svc{number}x$"),
        _ => format!("~^/[a-z]{{{}}}/v[0-9]+$", number + 1),
    };
    let routes = (0..count).map(|number| route("", &expression(number)));
    let table = RouteTable::new(routes.collect(), PathMatching::Lenient);
    let path = match kind {
        "own" => format!("/service{}/v2/search", count - 1),
        "inner" => format!("/users/v2/svc{}x", count - 1),
        _ => format!("/{}/v2", "a".repeat(count)),
    };
    with_request("api.example.com", &path, Fields::NONE, |request| {
        assert_eq!(table.find(request), Some(RouteIndex(count - 1)));
        bencher.bench_local(|| table.find(black_box(request)));
    });
}

/// A request from its route to its charges, where the last of the limit's exemptions holds.
#[divan::bench(args = EXEMPTIONS)]
fn exempt(bencher: Bencher<'_, '_>, entries: (&str, usize)) {
    bench_exempt(bencher, entries, Applicability::Exempt);
}

/// The same where no exemption holds.
#[divan::bench(args = EXEMPTIONS)]
fn not_exempt(bencher: Bencher<'_, '_>, entries: (&str, usize)) {
    bench_exempt(bencher, entries, Applicability::Charged(Cost::ONE, 0));
}

const EXEMPTIONS: &[(&str, usize)] = &[
    ("header", 1),
    ("header", 5_000),
    ("header-inner", 5_000),
    ("ip", 1),
    ("ip", 5_000),
    ("path", 1),
    ("path", 5_000),
];

fn bench_exempt(bencher: Bencher<'_, '_>, (kind, count): (&str, usize), expected: Applicability) {
    let entry = |number: usize| match kind {
        "header" => format!("'header:x-tenant=t{number}'"),
        "header-inner" => format!("'header:x-tenant=*t{number}*'"),
        "ip" => format!("'ip:10.{}.{}.0/24'", number / 256, number % 256),
        _ => format!("'path:/api/v1/users/{number}/*'"),
    };
    // Number 0 is the request's.
    let last = usize::from(expected != Applicability::Exempt);
    let entries: Vec<_> = (last..last + count).rev().map(entry).collect();
    let plan = plan(&entries.join(", "));
    let (headers, secret) = (browser(0), KeySecret::Process([7; 16]));
    with_request("api.example.com", "/api/v1/users/0/posts", headers.fields(), |request| {
        let request = RouteRequest { client: ClientRule::default().client([10, 0, 0, 1].into()), ..*request };
        let stand = |request: &RouteRequest<'_>| {
            let route = plan.route(plan.table.find(request).expect("a route for all"));
            RequestCharges::new(&plan, route, request, &secret).checks[0].applicability
        };
        assert_eq!(stand(&request), expected);
        bencher.bench_local(|| stand(black_box(&request)));
    });
}

/// One route with one limit that has these exemptions.
fn plan(exempt: &str) -> Plan {
    let text = format!(
        "[[routes]]\npath = '/*'\nupstream = 'echo'\nlimits = ['all']\n\
         [upstreams]\necho = 'builtin:echo'\n\
         [limits.all]\nalgorithm = 'gcra'\nrate = '10/s'\nkey = 'ip'\nexempt = [{exempt}]\n"
    );
    config::parse(text.as_bytes(), "gateway.toml", &|_| None).expect("a good file").plan
}

/// The fields that a browser sends, and the number of a tenant.
fn browser(tenant: usize) -> FieldList {
    let fields = [
        ("host", "api.example.com"),
        ("user-agent", "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"),
        ("accept", "application/json"),
        ("accept-language", "en-US,en;q=0.5"),
        ("accept-encoding", "gzip, deflate, br, zstd"),
        ("referer", "https://www.example.com/"),
        ("origin", "https://www.example.com"),
        ("sec-fetch-dest", "empty"),
        ("sec-fetch-mode", "cors"),
        ("sec-fetch-site", "same-site"),
    ];
    let mut list = FieldList::default();
    for (name, value) in fields {
        list.push(&HeaderName::from_static(name), value.as_bytes());
    }
    list.push(&HeaderName::from_static("x-tenant"), format!("t{tenant}").as_bytes());
    list
}

fn pattern(text: &str) -> ValuePattern {
    ValuePattern::parse(text).expect("a pattern")
}

fn tenant_condition(value: &str) -> Condition {
    Condition::header(HeaderName::from_static("x-tenant"), [pattern(value)])
}

fn with_tenant(mut route: Conditions, tenant: usize) -> Conditions {
    route.values.push(tenant_condition(&format!("t{tenant}")));
    route
}

#[divan::bench(args = ["ip", "header:x-api-key", "cookie:sid", "query:key", "header:x-api-key ip path"])]
fn claim(bencher: Bencher<'_, '_>, parts: &str) {
    let parts = parts.split(' ').map(|part| Part::parse(part).expect("a part")).collect();
    let key = Key::new(parts);
    let mut headers = FieldList::default();
    headers.push(&HeaderName::from_static("x-api-key"), b"0123456789abcdef0123456789abcdef");
    headers.push(&COOKIE, b"theme=dark; sid=0123456789abcdef0123456789abcdef");
    with_request("api.example.com", "/api/v1/users/12345/posts", headers.fields(), |request| {
        bencher.bench_local(|| {
            key.claim(&KeySecret::Process([7; 16]), black_box(request).matched_by("users", true))
        });
    });
}

/// An API key of 32 characters, among those of as many consumers.
#[divan::bench(args = [10, 10_000, 1_000_000])]
fn find_consumer(bencher: Bencher<'_, '_>, count: u32) {
    let columns = ["name", "tier"].map(str::to_owned).to_vec();
    let mut consumers = Consumers::new(columns, 0, Some(1), false, [7; 16]);
    let key = |number: u32| format!("{number:032x}");
    for number in 0..count {
        let name = format!("customer-{number}");
        let pushed = consumers.push(KeyForm::Plain(key(number).as_bytes()), [&*name, "pro"].into_iter());
        pushed.expect("a new key");
    }
    let consumers = consumers.finish(count as usize);
    // Another one at each turn, so that none is in the cache because of the turn before.
    let keys: Vec<_> = (0..1_024).map(|number| key(number * 7_919 % count)).collect();
    let mut turn = 0;
    bencher.bench_local(|| {
        turn = (turn + 1) % keys.len();
        consumers.find(black_box(keys[turn].as_bytes())).map(|consumer| consumer.tier().is_some())
    });
}

/// Whether one of as many networks contains an address; the networks are spread over all addresses.
#[divan::bench(args = [1, 1_000_000])]
fn deny(bencher: Bencher<'_, '_>, count: u32) {
    let network = |number: u32| std::net::Ipv4Addr::from_bits(number.wrapping_mul(2_654_435_761) & !255);
    let network = |number| ipnet::Ipv4Net::new(network(number), 24).expect("a prefix");
    let networks: Networks = (0..count).map(|number| network(number).into()).collect();
    let mut address = 0_u32;
    bencher.bench_local(|| {
        address = address.wrapping_add(2_246_822_519);
        networks.contain(black_box(std::net::Ipv4Addr::from_bits(address).into()))
    });
}

/// A file of a million consumers, from its bytes to the table: the two seconds that a reload may take.
#[divan::bench(sample_count = 5, sample_size = 1)]
fn load_a_million_consumers(bencher: Bencher<'_, '_>) {
    let folder = tempfile::tempdir().expect("a folder");
    let rows: String = (0..1_000_000)
        .map(|number| {
            format!("{number:032x},customer-{number},{},org{}\n", ["free", "pro"][number % 2], number % 999)
        })
        .collect();
    std::fs::write(folder.path().join("consumers.csv"), format!("key,name,tier,org\n{rows}"))
        .expect("it can be written");
    let toml = "[upstreams]\necho = 'builtin:echo'\n[[routes]]\npath = '/*'\nupstream = 'echo'\nauth = 'keys'\n\
                [auth.keys]\ntype = 'api-key'\nfrom = 'bearer'\nfile = 'consumers.csv'\n";
    let path = folder.path().join("gateway.toml").display().to_string();
    let load = || config::parse(toml.as_bytes(), &path, &|_| None).expect("a good file");
    bencher.bench_local(load);
}

fn bench_find(bencher: Bencher<'_, '_>, table: &RouteTable, host: &str, path: &str) {
    with_request(host, path, Fields::NONE, |request| {
        bencher.bench_local(|| table.find(black_box(request)));
    });
}

fn with_request(host: &str, path: &str, headers: Fields<'_>, ask: impl FnOnce(&RouteRequest<'_>)) {
    let path = Path::parse(path, PathMatching::Lenient).expect("a good path");
    let client = ClientRule::default().client([192, 0, 2, 1].into());
    let query = Some("page=2&key=0123456789abcdef");
    ask(&RouteRequest {
        method: &Method::GET,
        host,
        path: &path,
        query,
        headers,
        body: tollgate::http1::request::Body::EMPTY,
        client,
        certificate: None,
        listener: None,
        content: &tollgate::route::content::RequestContent::Unknown,
        consumer: None,
        upstream: None,
    });
}

fn route(host: &str, path: &str) -> Conditions {
    let hosts = host.split_whitespace().map(|host| HostPattern::parse(host).expect("a host"));
    Conditions {
        hosts: hosts.collect(),
        path: PathMatcher::parse(path, PathMatching::Lenient).expect("a path"),
        methods: vec![Method::GET],
        values: Vec::new(),
        merge_slashes: true,
    }
}
