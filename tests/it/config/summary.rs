//! What `check` says of a good file: each route and limit in words, and no secret.

use tollgate::config;

use crate::harness::config::parse;

const FILE: &str = r#"
[upstreams]
api = "http://127.0.0.1:9001"
demo = "builtin:echo"

[limits.per-client]
algorithm = "token-bucket"
key = "ip"
rate = "10/s"
burst = 50

[limits.per-key]
algorithm = "sliding-window"
key = ["header:x-api-key", "path"]
missing = "shared"
rate = ["10/s", "100/min"]
exempt = ["ip:10.0.0.0/8", "header:x-internal=${SECRET}"]

[limits.trial]
algorithm = "leaky-bucket"
key = "global"
rate = "4/s"
queue = 8
mode = "shadow"

[limits.exports]
algorithm = "concurrency"
key = "ip"
max = 5
queue = 10
max_wait = "2s"
ban = { after = 20, within = "10min", for = ["1h", "1day"] }

[limits.exports.tiers.pro]
max = 20

[[routes]]
name = "search"
hosts = ["api.example.com", "*.example.com"]
path = "/search/*"
methods = ["GET", "HEAD"]
headers = { x-plan = "${SECRET}" }
upstream = "api"
cost = 10
limits = ["per-client", { name = "per-key", cost = 1 }, { name = "trial", cost = 2 }]

[[routes]]
path = "/*"
upstream = "demo"
cost = 0
limits = [{ name = "per-client", cost = 50 }, "per-key"]

[[routes]]
path = "/export"
upstream = "demo"
limits = ["exports"]

[[routes]]
path = "/health"
upstream = "demo"

[trace]
otlp = "https://collector.example.com/otlp"
sample = 0.25
headers = { authorization = "Bearer ${SECRET}" }
"#;

const WORDS: &str = "\
gateway.toml is good: 4 routes, 4 limits, 2 upstreams.
Listener 127.0.0.1:8080: HTTP/1.1 and HTTP/2 without TLS.
Traces go to https://collector.example.com:443/otlp as `tollgate`; a share of 0.25 of the requests begins one.

route `search`: GET or HEAD api.example.com/search/* or *.example.com/search/* with `x-plan` → `api` (1 server), cost 10
  limit `per-client` (token-bucket): 50 at once, then one every 100 ms, per client address; a request spends 10, so 5 pass at once
  limit `per-key` (sliding-window): 10 in any second, weighted; and 100 in any minute, weighted, per header `x-api-key` and path (without it all such requests share one counter); exempt: `ip:10.0.0.0/8`, `header:x-internal=…`
  limit `trial` (leaky-bucket, shadow: counts, never refuses): one every 250 ms in turn, up to 8 waiting, at most 10 s, for everybody together; a request here spends 2

route `/*`: /* → `demo` (the built-in echo), never charged
  limit `per-client` (token-bucket): 50 at once, then one every 100 ms, per client address; a request here spends 50, so one passes at once
  limit `per-key` (sliding-window): 10 in any second, weighted; and 100 in any minute, weighted, per header `x-api-key` and path (without it all such requests share one counter); free here; exempt: `ip:10.0.0.0/8`, `header:x-internal=…`

route `/export`: /export → `demo` (the built-in echo), cost 1
  limit `exports` (concurrency): 5 at the same time, up to 10 waiting, at most 2 s, per client address; tier `pro`: 20 at the same time, up to 10 waiting, at most 2 s; ban: 20 refusals in 10 minutes: banned for an hour, then a day

route `/health`: /health → `demo` (the built-in echo), cost 1
  no limit
";

#[test]
fn a_good_file_is_told_in_words() {
    let loaded = parse(FILE).unwrap_or_else(|report| panic!("{report}"));
    assert_eq!(config::summary(&loaded.plan, "gateway.toml"), WORDS);
}

#[test]
fn listeners_are_told_with_what_they_speak_and_routes_with_what_they_leave() {
    let summary = |listen: &str, route: &str| {
        let file = format!(
            "[server]\nlisten = [{listen}]\ntrusted_proxies = [\"10.0.0.0/8\"]\n[[server.tls]]\n\
             cert = \"tests/config/certificates/server.pem\"\nkey = \"tests/config/certificates/server.key\"\n\
             [admin]\nlisten = \"127.0.0.1:9900\"\ntoken_env = \"SECRET\"\n\
             [upstreams]\ndemo = \"builtin:echo\"\n[[routes]]\nupstream = \"demo\"\n{route}\n"
        );
        let loaded = parse(file).unwrap_or_else(|report| panic!("{report}"));
        config::summary(&loaded.plan, "gateway.toml")
    };
    let listen = "\"0.0.0.0:443\", { address = \"[::]:8080\", tls = false, proxy_protocol = true }";
    let words = summary(listen, "path = \"/a/*\"");
    let expected = "\
gateway.toml is good: 1 route, 0 limits, 1 upstream.
Listener 0.0.0.0:443: HTTP/1.1 and HTTP/2 over TLS.
Listener [::]:8080: HTTP/1.1 and HTTP/2 without TLS, after a PROXY protocol header.
Admin listener 127.0.0.1:9900: HTTP/1.1 without TLS, with a token.

route `/a/*`: /a/* → `demo` (the built-in echo), cost 1
  no limit

all other requests: 404
";
    assert_eq!(words, expected);
    for (route, has_others) in [
        ("path = \"/*\"", false),
        ("path = \"~^/\"", false),
        ("path = \"/*\"\nmethods = [\"GET\"]", true),
        ("path = \"/*\"\nhosts = [\"a.example\"]", true),
        ("path = \"/*\"\nheaders = { x-plan = \"gold\" }", true),
        ("path = \"/\"", true),
    ] {
        assert_eq!(summary(listen, route).ends_with("\nall other requests: 404\n"), has_others, "{route}");
    }
}

/// The places of a maximum that is found are counted in the gateway alone, with a store and without one.
#[test]
fn only_limits_on_shared_counters_are_told_what_they_do_without_the_store() {
    let summary = |max: &str| {
        let file = format!(
            "[store]\nbackend = \"redis\"\nurl = \"redis://127.0.0.1\"\n[upstreams]\ndemo = \"builtin:echo\"\n\
             [limits.places]\nalgorithm = \"concurrency\"\nkey = \"upstream\"\nmax = {max}\n\
             [[routes]]\npath = \"/*\"\nupstream = \"demo\"\nlimits = [\"places\"]\n"
        );
        let loaded = parse(file).unwrap_or_else(|report| panic!("{report}"));
        config::summary(&loaded.plan, "gateway.toml")
    };
    assert!(summary("4").contains("; without the store it counts in memory"), "{}", summary("4"));
    assert!(!summary("\"auto\"").contains("without the store"), "{}", summary("\"auto\""));
}
