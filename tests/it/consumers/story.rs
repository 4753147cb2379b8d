//! Story A: a free and a pro plan by API key in front of a service in Python.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{Files, MISSING, UNKNOWN, assert_unauthorized, key};
use crate::harness::api::api;
use crate::harness::{Client, Gateway, Load, Redis, Response, eventually, get_with, tools};

/// Answers with the consumer that the gateway named, on keep-alive connections.
const SERVICE: &str = r#"
import http.server

class Service(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self):
        body = f"{self.path} for {self.headers['x-consumer']} ({self.headers['x-consumer-tier']})".encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Service)
server.daemon_threads = True
print(server.server_port, flush=True)
server.serve_forever()
"#;

/// A service in Python on a free port, killed when dropped.
struct Service {
    child: Child,
    port: u16,
}

impl Service {
    fn start() -> Self {
        let mut child =
            tools::python(&[]).args(["-c", SERVICE]).stdout(Stdio::piped()).spawn().expect("Python starts");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("piped");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        Self { child, port: line.trim().parse().expect("a port") }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// The plans of the story. In a window that begins with the first request, every count is exact.
fn configuration(service: &Service, files: &Files, rest: &str) -> String {
    let auth = files.auth("customers", "header:x-api-key", "");
    format!(
        "[admin]\nlisten = \"127.0.0.1:0\"\n[upstreams]\nservice = \"http://127.0.0.1:{}\"\n{auth}\
         [limits.api]\nalgorithm = \"fixed-window\"\nalign = \"first-request\"\nkey = \"consumer\"\nrate = \"10/min\"\n\
         [limits.api.tiers.free]\n[limits.api.tiers.pro]\nrate = \"1000/min\"\n\
         [[routes]]\nname = \"api\"\npath = \"/*\"\nupstream = \"service\"\nauth = \"customers\"\nlimits = [\"api\"]\n{rest}\n",
        service.port
    )
}

const BOTH_FREE: &str = "key,name,tier\nkey-acme,acme,free\nkey-zeta,zeta,free\n";
const ACME_IS_PRO: &str = "key,name,tier\nkey-acme,acme,pro\nkey-zeta,zeta,free\n";

/// Tells the story until it takes less than the minute of its windows: once, unless the machine is very busy.
fn within_a_minute<T>(story: impl Fn() -> T) -> T {
    for _ in 0..3 {
        let started = Instant::now();
        let told = story();
        if started.elapsed() < Duration::from_secs(55) {
            return told;
        }
    }
    panic!("the machine is too busy: the story takes a minute each time");
}

fn ask(gateway: &Gateway, one: &str) -> Response {
    get_with(gateway.addr(), "/report", &key(one))
}

/// Replaces the file of consumers and waits for the reload.
fn edit(gateways: &[Gateway], files: &Files, csv: &str) {
    let reloads =
        |gateway: &Gateway| gateway.metric("tollgate_config_reloads_total", &["result=\"success\""]);
    let before: Vec<f64> = gateways.iter().map(reloads).collect();
    files.write("consumers.csv", csv);
    for (gateway, before) in gateways.iter().zip(before) {
        gateway.signal(Signal::HUP);
        eventually("a reload", || (reloads(gateway) > before).then_some(()));
    }
}

fn request(one: &str) -> String {
    format!("GET /report HTTP/1.1\r\nhost: test\r\n{}\r\n", key(one))
}

#[test]
fn plans_are_told_apart_by_key() {
    let (service, files) = (Service::start(), Files::with_consumers(ACME_IS_PRO));
    let gateway = Gateway::start(&configuration(&service, &files, ""));
    let pro = ask(&gateway, "key-acme").expect(200);
    assert_eq!(pro.text(), "/report for acme (pro)");
    assert_eq!(
        (pro.header("x-ratelimit-limit"), pro.header("x-ratelimit-remaining")),
        (Some("1000"), Some("999"))
    );
    assert_eq!(pro.header("ratelimit-policy"), Some("\"api\";q=1000;w=60"));
    let free = ask(&gateway, "key-zeta").expect(200);
    assert_eq!(free.text(), "/report for zeta (free)");
    assert_eq!(
        (free.header("x-ratelimit-limit"), free.header("x-ratelimit-remaining")),
        (Some("10"), Some("9"))
    );
    assert_unauthorized(&ask(&gateway, "key-nope"), "ApiKey realm=\"customers\"", UNKNOWN);
    assert_unauthorized(&gateway.get("/report"), "ApiKey realm=\"customers\"", MISSING);
}

/// 10 of 10 used as free; then 990 of 1000 are left as pro; then none as free.
fn moves(between: impl Fn(&Gateway, &Files, &str), arguments: &[&str]) {
    type Told = (BTreeMap<u16, usize>, Option<String>, BTreeMap<u16, usize>, u16, u16);
    let (service, load) = (Service::start(), Load { requests: 1_100, concurrency: 4 });
    let told: Told = within_a_minute(|| {
        let files = Files::with_consumers(BOTH_FREE);
        let gateway = Gateway::start_with(&configuration(&service, &files, ""), arguments);
        let free = Load { requests: 15, ..load }.run(gateway.addr(), |_| request("key-acme"));
        between(&gateway, &files, ACME_IS_PRO);
        let first = ask(&gateway, "key-acme");
        let remaining = first.header("x-ratelimit-remaining").map(str::to_owned);
        let pro = load.run(gateway.addr(), |_| request("key-acme"));
        between(&gateway, &files, BOTH_FREE);
        let back = ask(&gateway, "key-acme").status;
        (free, remaining, pro, back, ask(&gateway, "key-zeta").status)
    });
    let expected = (
        BTreeMap::from([(200, 10), (429, 5)]),
        Some("989".to_owned()),
        BTreeMap::from([(200, 989), (429, 111)]),
        429,
        200,
    );
    assert_eq!(told, expected);
}

#[test]
fn a_customer_that_moves_to_another_plan_keeps_its_counter() {
    moves(|gateway, files, csv| edit(std::slice::from_ref(gateway), files, csv), &[]);
}

#[test]
fn with_watch_a_saved_file_of_consumers_is_enough() {
    let reloads =
        |gateway: &Gateway| gateway.metric("tollgate_config_reloads_total", &["result=\"success\""]);
    moves(
        |gateway, files, csv| {
            let before = reloads(gateway);
            files.write("consumers.csv", csv);
            eventually("a reload without a signal", || (reloads(gateway) > before).then_some(()));
        },
        &["--watch"],
    );
}

/// Sends requests with this key until `stop`; their statuses without repetition.
fn statuses_until(stop: &AtomicBool, gateway: &Gateway, one: &str) -> Vec<u16> {
    let (mut client, mut statuses) = (Client::connect(gateway.addr()), Vec::new());
    while !stop.load(Ordering::SeqCst) {
        let response = client.get("/report", &key(one));
        statuses.push(response.status);
        statuses.dedup();
        if response.closed {
            client = Client::connect(gateway.addr());
        }
    }
    statuses
}

#[test]
fn a_key_is_rotated_without_a_gap() {
    let (service, files) = (Service::start(), Files::with_consumers("key,name,tier\nold-key-1,acme,pro\n"));
    let toml = configuration(&service, &files, "").replace("1000/min", "1000000/min");
    let gateways = [Gateway::start(&toml)];
    let [gateway] = &gateways;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let old = scope.spawn(|| statuses_until(&stop, gateway, "old-key-1"));
        edit(&gateways, &files, "key,name,tier\nold-key-1,acme,pro\nnew-key-1,acme,pro\n");
        let new = scope.spawn(|| statuses_until(&stop, gateway, "new-key-1"));
        let counted = || gateway.metric("tollgate_auth_total", &["result=\"accepted\""]);
        let before = counted();
        eventually("traffic on both keys", || (counted() > before + 100.0).then_some(()));
        edit(&gateways, &files, "key,name,tier\nnew-key-1,acme,pro\n");
        let refused = || gateway.metric("tollgate_auth_total", &["result=\"invalid\""]);
        eventually("the old key to be refused", || (refused() > 20.0).then_some(()));
        stop.store(true, Ordering::SeqCst);
        assert_eq!(old.join().expect("no panic"), [200, 401], "until it was removed, and then never again");
        assert_eq!(new.join().expect("no panic"), [200], "from the moment that it was added");
    });
    ask(gateway, "old-key-1").expect(401);
    ask(gateway, "new-key-1").expect(200);
}

#[test]
fn the_dashboard_lists_the_heaviest_consumers_by_name_and_tier() {
    let (service, files) = (Service::start(), Files::with_consumers(ACME_IS_PRO));
    let gateway = Gateway::start(&configuration(&service, &files, ""));
    for _ in 0..20 {
        ask(&gateway, "key-acme").expect(200);
    }
    for _ in 0..12 {
        ask(&gateway, "key-zeta");
    }
    ask(&gateway, "key-nope").expect(401);
    let keys = eventually("the counts of all workers", || {
        let told = api(&gateway, "limits/api/keys?by=requests");
        (told["requests"] == 32).then(|| told["keys"].clone())
    });
    let told: Vec<Value> = keys
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| json!([one["key"], one["tier"], one["requests"], one["admitted"], one["refused"]]))
        .collect();
    assert_eq!(told, [json!([["acme"], "pro", 20, 20, 0]), json!([["zeta"], "free", 12, 10, 2])]);
    let one = api(&gateway, "limits/api/keys/zeta");
    assert_eq!((&one["tier"], &one["key"], &one["refused"]), (&json!("free"), &json!(["zeta"]), &json!(2)));
    let tiers = &api(&gateway, "limits")["limits"][0]["tiers"];
    assert_eq!(tiers.as_array().map(Vec::len), Some(2), "{tiers}");
    for (tier, decision, count) in
        [("pro", "allowed", 20.0), ("free", "allowed", 10.0), ("free", "limited", 2.0), ("", "allowed", 0.0)]
    {
        let labels = ["limit=\"api\"", &format!("tier=\"{tier}\""), &format!("decision=\"{decision}\"")];
        let counted = gateway.metric("tollgate_tier_decisions_total", &labels);
        assert!((counted - count).abs() < 0.1, "{labels:?}: {counted}");
    }
}

#[test]
fn three_gateways_on_one_redis_agree() {
    type Statuses = BTreeMap<u16, usize>;
    let service = Service::start();
    let told: [Statuses; 4] = within_a_minute(|| {
        let (files, redis) = (Files::with_consumers(ACME_IS_PRO), Redis::start());
        let store = redis.store_table();
        let toml = configuration(&service, &files, &store);
        let gateways = [(); 3].map(|()| Gateway::start(&toml));
        for gateway in &gateways {
            eventually("the store", || (gateway.metric("tollgate_store_up", &[]) > 0.5).then_some(()));
        }
        let addresses: Vec<_> = gateways.iter().map(Gateway::addr).collect();
        let run =
            |requests, one: &str| Load { requests, concurrency: 6 }.run_over(&addresses, |_| request(one));
        let (pro, free) = (run(1_100, "key-acme"), run(40, "key-zeta"));
        edit(&gateways, &files, "key,name,tier\nkey-acme,acme,free\nkey-zeta,zeta,pro\n");
        [pro, free, run(1_100, "key-zeta"), run(20, "key-acme")]
    });
    let statuses = |admitted, refused| Statuses::from([(200, admitted), (429, refused)]);
    assert_eq!(told[0], statuses(1_000, 100), "the pro plan");
    assert_eq!(told[1], statuses(10, 30), "the free plan");
    assert_eq!(told[2], statuses(990, 110), "moved to pro, with its counter");
    assert_eq!(told[3], Statuses::from([(429, 20)]), "moved to free, with its counter");
}
