//! `explain` and a running gateway go one way: the same random requests get the same route and the same status from both.

use tollgate::config;
use tollgate::explain::{ExplainRequest, ExplainedAction, Explanation, LimitStatus, explain};
use tollgate::plan::{Mode, Plan};

use crate::harness::{Client, Gateway, Response};

const CONFIG: &str = r#"
[server]
workers = 1
max_body_bytes = "1KiB"
trusted_proxies = ["127.0.0.0/8"]
deny = ["10.66.0.0/16"]
[log]
access = "json"
[upstreams]
demo = "builtin:echo"
[[routes]]
name = "search"
path = "/search/{id}"
methods = ["GET", "POST"]
upstream = "demo"
limits = ["by-key", "many"]
[[routes]]
name = "gold"
path = "/search/*"
headers = { x-plan = "gold" }
upstream = "demo"
strip_prefix = "/search"
[[routes]]
name = "script"
path = "/script/*"
hosts = ["*.example.com", "a.test"]
upstream = "demo"
[routes.cors]
origins = ["https://app.example.com"]
[[routes]]
name = "secure"
path = "/secure"
upstream = "demo"
redirect = "https"
[routes.cors]
origins = ["https://app.example.com"]
[[routes]]
name = "keyed"
path = "/keyed/*"
upstream = "demo"
auth = ["keys", "links"]
limits = ["tiered"]
[routes.cors]
origins = ["https://app.example.com"]
[[routes]]
name = "open"
path = "/open/*"
upstream = "demo"
auth = ["links", "keys"]
auth_optional = true
forward_credentials = true
limits = ["tiered"]
[[routes]]
name = "inside"
path = "/inside"
upstream = "demo"
auth = "links"
allow = ["10.1.0.0/16", "127.0.0.1"]
deny = ["10.1.9.0/24"]
[[routes]]
name = "rest"
path = "/x/*"
upstream = "demo"
[[routes]]
name = "exact"
path = "/a/b"
upstream = "demo"
merge_slashes = false
limits = ["twice"]
[[routes]]
name = "users"
path = "/users/{id}/*"
upstream = "demo"
rewrite = "/u/{*}?id={id}"
[[routes]]
name = "dots"
path = "~^/dots/(.)[a-z]*(.)(.*)$"
upstream = "demo"
rewrite = "/d/{1}{2}{3}"
[[routes]]
name = "expression"
path = "~^/(users|fixed)/[a-z]+$"
methods = ["GET", "HEAD", "DELETE"]
headers = { x-plan = "go*" }
upstream = "demo"
[[routes]]
name = "moved"
path = "/moved/*"
redirect = { to = "/new/{*}", status = 302 }
limits = ["by-key"]
[[routes]]
name = "away"
path = "~^/away/?(.*)$"
redirect = { to = "https://a.test/{1}", status = 301 }
[[routes]]
name = "gone"
path = "/gone/*"
auth = ["keys", "links"]
redirect = { to = "https://a.test/{*}?gone", status = 307 }
limits = ["tiered"]
[routes.cors]
origins = ["https://app.example.com"]
[[routes]]
name = "asked"
path = "/fixed/*"
query = { q = "*", k = "1*" }
respond = { status = 422, body = "{path}" }
[[routes]]
name = "fixed"
path = "/fixed/*"
query = { k = "1" }
respond = { status = 418, body = "{client}" }
limits = ["many"]
[[routes]]
name = "near"
path = "/fixed/*"
clients = ["10.1.0.0/16", "10.66.0.0/16"]
respond = { status = 201 }
[[routes]]
name = "sealed"
path = "/fixed/*"
respond = { status = 203 }
redirect = "https"
deny = ["9.9.9.9"]
[auth.keys]
type = "api-key"
from = "header:x-api-key"
file = "CSV"
[auth.links]
type = "api-key"
from = "query:key"
file = "CSV"
[limits.tiered]
algorithm = "token-bucket"
key = "consumer"
rate = "1000000/s"
[limits.tiered.tiers.pro]
rate = "2000000/s"
[limits.tiered.tiers.free]
[limits.by-key]
algorithm = "token-bucket"
key = "header:x-key"
missing = "deny"
rate = "1000000/s"
exempt = ["header:x-internal=1", "ip:10.1.0.0/16"]
[limits.many]
algorithm = "fixed-window"
key = ["ip", "path"]
rate = "1000000/s"
[limits.twice]
algorithm = "gcra"
key = ["query:k", "cookie:c"]
rate = "1000000/s"
burst = 1000000
"#;

const CSV: &str = "key,name,tier\nkey-pro-1,ada,pro\nkey-free-1,bob,free\nkey-none-1,eve,\n";

/// A random source of its own: a failure is the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).expect("31 bits") % bound
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }
}

struct Asked {
    method: String,
    url: String,
    headers: Vec<String>,
}

/// What a browser asks before a script's request, or nearly that.
fn preflight(random: &mut Random) -> Asked {
    let method = random.one(&["OPTIONS", "OPTIONS", "GET"]).to_owned();
    let url = format!(
        "http://a.test{}",
        random.one(&["/script/x", "/secure", "/keyed/x", "/search/1", "/nowhere"])
    );
    let origin = format!("origin: {}", random.one(&["https://app.example.com", "https://evil.test"]));
    let asks = format!("access-control-request-method: {}", random.one(&["PUT", "GET", "(", ""]));
    Asked { method, url, headers: vec![origin, asks] }
}

const QUERIES: [&str; 15] = [
    "",
    "",
    "",
    "?q=1",
    "?%71=&k=1x",
    "?k=1",
    "?k=1&k=2",
    "?k=1&k=1",
    "?key=key-pro-1",
    "?key=key-free-1",
    "?a&key=k%2Dnone",
    "?key=",
    "?key=wrong",
    "?key=key-pro-1&key=key-pro-1",
    "?key=key-pro-1&%6bey=key-free-1",
];

const HEADERS: [&str; 25] = [
    "x-key: one",
    "x-key: two",
    "x-plan: gold",
    "x-plan: Gold",
    "x-internal: 1",
    "cookie: c=1",
    "cookie: c=1; c=2",
    "content-length: 0",
    "content-length: 1000000",
    "origin: https://app.example.com",
    "origin: https://evil.test",
    "access-control-request-method: GET",
    "x-forwarded-for: 10.1.2.3",
    "x-forwarded-for: 10.1.9.9",
    "x-forwarded-for: 10.66.1.1",
    "x-api-key: key-pro-1",
    "x-api-key: key-free-1",
    "x-api-key: key-none-1",
    "x-api-key: wrong",
    "x-api-key:",
    "x_api_key: key-pro-1",
    "x-forwarded-for: 9.9.9.9, 127.0.0.1",
    "x-forwarded-proto: https",
    "connection: x-plan",
    "expect: more",
];

const ODD_HEADERS: [&str; 5] =
    ["host: other.test", "bad name: 1", "x: \u{1}", "transfer-encoding: gzip, chunked", "content-length: x"];

/// One in three is odd in some way.
fn random_request(random: &mut Random) -> Asked {
    if random.below(10) == 0 {
        return preflight(random);
    }
    let odd = random.below(3) == 0;
    let pick = |random: &mut Random, good: &[&str], odd_ones: &[&str]| {
        let of = if odd && random.below(3) == 0 { odd_ones } else { good };
        random.one(of).to_owned()
    };
    let methods = ["GET", "GET", "POST", "HEAD", "OPTIONS", "DELETE"];
    let method = pick(random, &methods, &["get", "TRACE", "X-Y", "G(T", "PRI"]);
    let mut url = String::from("http://");
    url += &pick(
        random,
        &["a.test", "b.example.com", "A.TEST:80"],
        &["a.test.", "x@a.test", "a..test", "[::1]", "é"],
    );
    let paths =
        ["/search", "/Search", "/secure", "/script", "/a/b", "/a//b", "/7", "/x", "/%61", "/.", "/;x"];
    if random.below(3) == 0 {
        url += random.one(&["/keyed", "/keyed/", "/open", "/inside"]);
    }
    if random.below(3) == 0 {
        url += random.one(&["/users/7", "/Users/a&b", "/dots/.", "/dots/a", "/moved", "/away", "/gone"]);
    } else if random.below(3) == 0 {
        url += random.one(&["/fixed", "/fixed/x", "/FIXED/abc;y"]);
    }
    for _ in 0..random.below(4) {
        url += &pick(
            random,
            &paths,
            &[
                "/..", "/%zz", "/<", "/%2e%2e", "/a b", "/é", "#f", "*", "/%00", "/..;/x", "/..%2fx",
                "/x%5C..",
            ],
        );
    }
    url += &pick(random, &QUERIES, &["?", "?a b", "?#"]);
    let headers = (0..random.below(5)).map(|_| pick(random, &HEADERS, &ODD_HEADERS)).collect();
    Asked { method, url, headers }
}

/// The same as bytes on a connection.
fn on_the_wire(asked: &Asked) -> String {
    let rest = asked.url.strip_prefix("http://").expect("a URL");
    let (authority, target) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let slash = if target.starts_with('/') { "" } else { "/" };
    let lines: String = asked.headers.iter().map(|line| format!("{line}\r\n")).collect();
    format!("{} {slash}{target} HTTP/1.1\r\nhost: {authority}\r\n{lines}\r\n", asked.method)
}

/// The status that `explain` expects of the gateway.
fn expected(explanation: &Explanation) -> u16 {
    if let Some(answer) = &explanation.answer {
        return answer.status.as_u16();
    }
    let enforced =
        explanation.route.iter().flat_map(|route| &route.limits).filter(|limit| limit.mode == Mode::Enforce);
    let refuses = |limit: &tollgate::explain::LimitExplanation| match limit.status {
        LimitStatus::Missing => Some(429),
        LimitStatus::Repeated => Some(400),
        _ => None,
    };
    // A request that can be read in two ways is malformed, whatever else is missing.
    let admitted = match explanation.route.as_ref().map(|route| &route.action) {
        Some(ExplainedAction::Redirect { status, .. } | ExplainedAction::Respond { status, .. }) => {
            status.as_u16()
        }
        Some(ExplainedAction::Forward { .. }) | None => 200,
    };
    enforced.filter_map(refuses).min().unwrap_or(admitted)
}

/// What `explain` expects of an admitted response: the location, or the target that the built-in echo names.
fn assert_action(explanation: &Explanation, answer: &Response, number: usize) {
    let Some(route) = &explanation.route else { return };
    match &route.action {
        ExplainedAction::Redirect { location, status } if answer.status == status.as_u16() => {
            let sent = answer.header("location").expect("a location");
            assert!(same(sent, location), "request {number}: {sent}, and not {location}");
        }
        ExplainedAction::Forward { target, .. } if answer.status == 200 => {
            let text = answer.text();
            let sent = text.split(' ').nth(1).unwrap_or(target);
            assert!(same(sent, target), "request {number}: {sent}, and not {target}");
        }
        _ => {}
    }
}

/// Whether two targets are the same. `explain` leaves out credentials, which some routes forward.
fn same(sent: &str, explained: &str) -> bool {
    sent == explained || sent.contains("ey=") && sent.split('?').next() == explained.split('?').next()
}

#[test]
fn ten_thousand_random_requests_get_what_explain_tells() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("consumers.csv");
    std::fs::write(&file, CSV).expect("it can be written");
    let toml = CONFIG.replace("CSV", &file.display().to_string());
    let gateway = Gateway::start(&toml);
    let plan: Plan = match config::parse(toml.as_bytes(), "gateway.toml", &|_| None) {
        Ok(loaded) => loaded.plan,
        Err(report) => panic!("{report:?}"),
    };
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let mut client = Client::connect(gateway.addr());
    let (mut routes, mut seen) = (Vec::new(), std::collections::BTreeMap::new());
    let mut tiers = std::collections::BTreeSet::new();
    for number in 0..10_000 {
        let asked = random_request(&mut random);
        let request = ExplainRequest::new(&asked.method, &asked.url, &asked.headers, None);
        let request = request.unwrap_or_else(|fault| panic!("{} {}: {fault}", asked.method, asked.url));
        let explanation = explain(&plan, &request);
        client.write(on_the_wire(&asked));
        let answer = client.try_read(&asked.method).unwrap_or_else(|fault| {
            panic!("request {number}, {:?}: {fault:?}", on_the_wire(&asked));
        });
        let expected = expected(&explanation);
        assert_eq!(answer.status, expected, "request {number}, {:?}\n{explanation}", on_the_wire(&asked));
        assert_action(&explanation, &answer, number);
        *seen.entry(expected).or_insert(0) += 1;
        let consumer = explanation.consumer.map(|consumer| (consumer.name, consumer.tier));
        let route = explanation.route;
        let tiered = route.iter().flat_map(|route| &route.limits).find(|limit| limit.name == "tiered");
        if let (Some(tiered), 200) = (tiered, answer.status) {
            let pro = tiered.tier_name.as_deref() == Some("pro");
            let quota = if pro { "2000000" } else { "1000000" };
            assert_eq!(answer.header("x-ratelimit-limit"), Some(quota), "request {number}: {consumer:?}");
            tiers.insert((tiered.tier_name.clone(), consumer.is_some()));
        }
        // A redirect comes before the credential.
        let consumer = consumer.filter(|_| expected != 308);
        routes.push((route.map(|route| route.name).unwrap_or_default(), consumer));
        if answer.header("connection") == Some("close") {
            client = Client::connect(gateway.addr());
        }
    }
    assert_eq!(tiers.len(), 4, "three kinds of consumers, and anonymous requests: {tiers:?}");
    for status in
        [200, 201, 203, 204, 301, 302, 307, 308, 400, 401, 403, 404, 405, 413, 417, 418, 422, 429, 501]
    {
        assert!(seen.contains_key(&status), "no request was answered {status}: {seen:?}");
    }
    let log = gateway.access_log(routes.len());
    for (number, (record, (route, consumer))) in log.iter().zip(&routes).enumerate() {
        assert_eq!(record["route"].as_str().unwrap_or_default(), route, "request {number}: {record}");
        let (name, tier) =
            consumer.as_ref().map_or((None, None), |(name, tier)| (Some(&**name), tier.as_deref()));
        assert_eq!(
            (record["consumer"].as_str(), record["tier"].as_str()),
            (name, tier),
            "request {number}: {record}"
        );
    }
}
