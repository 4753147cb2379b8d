//! A log of the gateway, replayed with the same file, gives the same decisions.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::replayed::{numbers, replay};
use crate::harness::{Gateway, eventually};

/// Every algorithm, several keys, costs from the request, tiers, bans, shadow limits, several limits and rates on a route.
/// Each limit refuses and admits many times, whether the machine serves a thousand requests a second or fifty thousand.
const FILE: &str = r#"
[server]
workers = WORKERS
trusted_proxies = ["127.0.0.1"]
# Each line of the log counts: no gateway of another test looks for a server that has ended at this address.
listen = ["127.0.0.2:0"]

[log]
file = "access.log"
fields = ["time", "method", "host", "path", "route", "status", "bytes_in", "bytes_out", "duration_ms", "client", "consumer",
          "tier", "limit", "decision", "remaining", "cost", "reserved", "settled", "error", "header:x-tenant"]

[auth.keys]
type = "api-key"
from = "header:x-api-key"
file = "consumers.csv"
failures = "wrong"

[limits.wrong]
algorithm = "token-bucket"
key = "ip"
rate = "1/20s"

[limits.bucket]
algorithm = "token-bucket"
key = "header:x-tenant"
rate = "30/10s"
burst = 20

[limits.gcra]
algorithm = "gcra"
key = "ip"
rate = "10/5s"
burst = 7

[limits.fixed]
algorithm = "fixed-window"
key = ["ip", "path"]
rate = "9/5s"

[limits.sliding]
algorithm = "sliding-window"
key = "query:user"
rate = ["20/5s", "30/10s"]

[limits.log]
algorithm = "sliding-log"
key = "ip"
rate = "8/5s"
count_denied = true

[limits.leaky]
algorithm = "leaky-bucket"
key = "header:x-tenant"
rate = "60/s"
queue = 1

[limits.shadow]
algorithm = "gcra"
key = "ip"
rate = "3/2s"
mode = "shadow"

[limits.banning]
algorithm = "fixed-window"
key = "ip"
rate = "6/2s"
ban = { after = 5, within = "5s", for = "1s" }

[limits.tiers]
algorithm = "token-bucket"
key = "consumer"
rate = "5/s"
[limits.tiers.tiers.pro]
rate = "30/s"

[limits.settled]
algorithm = "token-bucket"
key = "ip"
rate = "40/s"

[limits.early]
algorithm = "gcra"
key = "ip"
rate = "2/2s"
burst = 10
before_auth = true

[limits.early-shadow]
algorithm = "fixed-window"
key = "header:x-tenant"
rate = "5/2s"
mode = "shadow"
before_auth = true

[upstreams.echo]
servers = ["builtin:echo"]

[[routes]]
path = "/two/*"
upstream = "echo"
limits = ["early-shadow", "bucket", "gcra"]

[[routes]]
path = "/cost"
upstream = "echo"
limits = ["fixed", "sliding"]
cost = { from = "query:n", max = 5, missing = 1 }

[[routes]]
path = "/log"
upstream = "echo"
limits = ["log", "shadow"]

[[routes]]
path = "/leaky"
upstream = "echo"
limits = ["leaky"]

[[routes]]
path = "/ban"
upstream = "echo"
limits = ["banning"]

[[routes]]
path = "/consumer"
upstream = "echo"
auth = ["keys"]
limits = ["tiers", "early"]

[[routes]]
path = "/settled"
upstream = "echo"
limits = [{ name = "settled", cost = { reserve = 2, settle = "status", status = { "2xx" = 3 } } }]

[[routes]]
path = "/free"
upstream = "echo"
"#;

const CONSUMERS: &str = "key,name,tier\nkey-0001,anna,pro\nkey-0002,ben,\nkey-0003,carla,basic\n";

const CONNECTIONS: u32 = 4;
const BATCHES: u32 = 50;
/// Of the test with two workers.
const FEWER_BATCHES: u32 = 15;
const BATCH: u32 = 500;

/// The requests of one connection, pipelined. The sequence is fixed by its number.
fn batch(number: u32, settles: bool) -> String {
    let mut random = numbers(number);
    let mut text = String::new();
    for index in 0..BATCH {
        let (user, client, tenant) = (random() % 30, random() % 40, random() % 12);
        let (target, more) = match random() % 9 {
            0 | 1 => (format!("/two/{user}"), format!("x-tenant: t{tenant}\r\n")),
            2 => (format!("/cost?user={user}&n={}", random() % 7), String::new()),
            3 => ("/log".to_owned(), String::new()),
            4 if index % 8 == 0 => ("/leaky".to_owned(), format!("x-tenant: t{tenant}\r\n")),
            5 => ("/ban".to_owned(), String::new()),
            6 => (
                "/consumer".to_owned(),
                match random() % 6 {
                    0 => String::new(),
                    1 => "x-api-key: wrong\r\n".to_owned(),
                    _ => format!("x-api-key: key-000{}\r\n", random() % 3 + 1),
                },
            ),
            7 if index % 4 == 0 && settles => ("/settled".to_owned(), String::new()),
            _ => (
                ["/free", "/nowhere", "/Log/", "/two/%61"][(random() % 4) as usize].to_owned(),
                String::new(),
            ),
        };
        let last = if index + 1 == BATCH { "connection: close\r\n" } else { "" };
        text += &format!(
            "GET {target} HTTP/1.1\r\nhost: a\r\nx-forwarded-for: 198.51.100.{client}\r\n{more}{last}\r\n"
        );
    }
    text
}

fn send(address: SocketAddr, number: u32, settles: bool) {
    let mut stream = TcpStream::connect(address).unwrap();
    let mut reader = stream.try_clone().unwrap();
    let writer =
        std::thread::spawn(move || stream.write_all(batch(number, settles).as_bytes()).map(|()| stream));
    std::io::copy(&mut reader, &mut std::io::sink()).unwrap();
    writer.join().unwrap().unwrap();
}

/// The log, as far as it was read.
struct Log {
    file: File,
    lines: usize,
}

impl Log {
    /// Waits until it has this many lines. The gateway drops lines if its log is far behind, as on a busy machine.
    fn wait_for(&mut self, lines: usize) {
        let mut text = Vec::new();
        eventually("the log to be written", || {
            text.clear();
            self.file.read_to_end(&mut text).expect("it can be read");
            self.lines += memchr::memchr_iter(b'\n', &text).count();
            (self.lines >= lines).then_some(())
        });
    }
}

/// The result of the replay, and the log.
fn record(workers: u32, batches: u32, settles: bool) -> (Value, String) {
    let folder = tempfile::tempdir().unwrap();
    let toml = FILE
        .replace("WORKERS", &workers.to_string())
        .replace("\"consumers.csv\"", &format!("{:?}", folder.path().join("consumers.csv")))
        .replace("\"access.log\"", &format!("{:?}", folder.path().join("access.log")));
    std::fs::write(folder.path().join("consumers.csv"), CONSUMERS).unwrap();
    std::fs::write(folder.path().join("gateway.toml"), &toml).unwrap();
    let mut gateway = Gateway::start(&toml);
    let address = gateway.addr();
    let mut log = Log { file: File::open(folder.path().join("access.log")).unwrap(), lines: 0 };
    for batch in 0..batches {
        std::thread::scope(|scope| {
            for connection in 0..CONNECTIONS {
                scope.spawn(move || send(address, batch * CONNECTIONS + connection, settles));
            }
        });
        log.wait_for(((batch + 1) * CONNECTIONS * BATCH) as usize);
    }
    gateway.signal(Signal::TERM);
    assert!(gateway.wait_for_exit().success());
    let log = std::fs::read_to_string(folder.path().join("access.log")).unwrap();
    assert_eq!(log.lines().count(), (CONNECTIONS * batches * BATCH) as usize);
    (replay(folder.path(), &[]), log)
}

#[test]
fn with_one_worker_each_of_100000_decisions_is_the_same() {
    let (replayed, log) = record(1, BATCHES, false);
    let decisions = &replayed["log_decisions"];
    assert_eq!(decisions["different"], 0, "{decisions:#}");
    assert_eq!(decisions["same"], CONNECTIONS * BATCHES * BATCH);
    assert_eq!(replayed["requests"], CONNECTIONS * BATCHES * BATCH);
    let count = |decision: &str| log.matches(&format!("\"decision\":\"{decision}\"")).count();
    let refused = count("limited") + count("banned");
    assert_eq!(replayed["refused"], refused);
    assert_eq!(replayed["delayed"], count("delayed"));
    for limit in replayed["limits"].as_array().unwrap() {
        let (refused, requests) = (limit["refused"].as_u64().unwrap(), limit["requests"].as_u64().unwrap());
        let is_tried = match limit["name"].as_str().unwrap() {
            // Its delays take time: there are few such requests.
            "leaky" => requests > 1_000,
            "settled" => true,
            _ => refused > 20 && requests > 20 + refused,
        };
        assert!(is_tried, "each limit is tried: {limit}");
    }
}

/// Two workers read the clock apart from each other: requests of the same microseconds may be decided in another order. On
/// an idle machine that is one in a thousand. On a busy one, a worker loses its processor between the reading and the
/// decision: all decisions of the other worker meanwhile come first, and the sums stay.
/// And a cost is settled some microseconds before its request has ended, which is the time that the log has.
#[test]
fn with_two_workers_a_decision_may_differ_and_the_sums_do_not() {
    let (replayed, log) = record(2, FEWER_BATCHES, true);
    let decisions = &replayed["log_decisions"];
    let different = decisions["different"].as_u64().unwrap();
    let all = u64::from(CONNECTIONS * FEWER_BATCHES * BATCH);
    assert!(different <= all / 10, "{decisions:#}");
    assert_eq!(decisions["same"].as_u64().unwrap() + different, all);
    let refused =
        ["limited", "banned"].map(|word| log.matches(&format!("\"decision\":\"{word}\"")).count() as u64);
    let apart = replayed["refused"].as_u64().unwrap().abs_diff(refused.iter().sum());
    assert!(apart <= all / 100, "{apart} of {all}: {decisions:#}");
}
