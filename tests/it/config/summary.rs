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
