//! A log of calls of Envoy's rate limit service, replayed with the same file, gives the same decisions.

use rustix::process::Signal;
use serde_json::json;
use tollgate::rate_limit_service::RateLimitDescriptor;

use crate::harness::replayed::{numbers, replay};
use crate::harness::{Client, Gateway, RateLimitClient, descriptor, message};

/// Rules with several limits, costs, reports, a ban, and secrets as values. Little is given back while the test runs,
/// however slow the machine.
const FILE: &str = r#"
[server]
workers = 1
[decisions]
listen = "127.0.0.1:0"
[log]
file = "access.log"
fields = ["time", "method", "host", "path", "route", "status", "duration_ms", "client", "limit", "decision", "remaining", "cost"]

[limits.bucket]
algorithm = "token-bucket"
key = "descriptor:remote_address"
rate = "60/h"
burst = 20
[limits.spaced]
algorithm = "gcra"
key = "descriptor:api_key"
rate = "60/h"
burst = 7
[limits.window]
algorithm = "fixed-window"
key = ["descriptor:generic_key", "descriptor:remote_address"]
rate = ["3/h", "5/day"]
[limits.budget]
algorithm = "sliding-window"
key = "descriptor:plan"
rate = "100/h"
[limits.shadow]
algorithm = "fixed-window"
key = "global"
rate = "100/s"
mode = "shadow"
[limits.banning]
algorithm = "fixed-window"
key = "descriptor:tenant"
rate = "6/h"
ban = { after = 5, within = "1min", for = "1s" }

[[descriptors]]
domain = "shop"
match = { remote_address = "*" }
limits = ["bucket", "shadow"]
[[descriptors]]
match = { api_key = "*" }
limits = ["spaced"]
[[descriptors]]
match = { api_key = "known to the file" }
limits = ["spaced"]
cost = 2
[[descriptors]]
match = { generic_key = "*", remote_address = "*" }
limits = ["window"]
[[descriptors]]
match = { plan = "*" }
limits = ["budget"]
[[descriptors]]
match = { plan = "*", done = "yes" }
limits = ["budget"]
report = true
[[descriptors]]
match = { tenant = "*" }
limits = ["banning"]
"#;

const CALLS: u32 = 3_000;

/// Limits that an application names.
const NAMED: &str = r#"
[server]
workers = 1
[decisions]
listen = "127.0.0.1:0"
[log]
file = "access.log"
fields = ["time", "method", "host", "path", "route", "status", "duration_ms", "client", "limit", "decision", "remaining", "cost"]
[auth.keys]
type = "api-key"
from = "header:x-key"
file = "consumers.csv"
[limits.by-address]
algorithm = "token-bucket"
key = "ip"
rate = "60/h"
burst = 40
[limits.by-key]
algorithm = "sliding-window"
key = ["header:x-api-key", "path"]
rate = "20/h"
[limits.by-consumer]
algorithm = "fixed-window"
key = "consumer"
rate = "5/h"
tiers.gold.rate = "50/h"
[limits.everybody]
algorithm = "fixed-window"
key = "global"
rate = "300/h"
"#;

const NAMED_CALLS: u32 = 600;

fn one(random: &mut impl FnMut() -> u32) -> RateLimitDescriptor {
    let address = format!("192.0.2.{}", random() % 20);
    let text = (random() % 6).to_string();
    let entries: &[(&str, &str)] = match random() % 8 {
        0 | 1 => &[("remote_address", &address)],
        2 => &[("api_key", &format!("a-secret-{text}"))],
        3 => &[("api_key", "known to the file")],
        4 => &[("generic_key", &format!("path /{text};a=b,c*2")), ("remote_address", &address)],
        5 => &[("plan", &text)],
        6 => &[("plan", &text), ("done", "yes")],
        _ => &[("tenant", &text)],
    };
    let hits = match random() % 5 {
        0 => Some(u64::from(random() % 4)),
        _ => None,
    };
    descriptor(entries, hits)
}

#[test]
fn each_call_is_decided_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let toml = FILE.replace("\"access.log\"", &format!("{:?}", folder.path().join("access.log")));
    std::fs::write(folder.path().join("gateway.toml"), &toml).unwrap();
    let mut gateway = Gateway::start(&toml);
    let client = RateLimitClient::connect(gateway.decisions_addr());
    let mut random = numbers(7);
    // One after the other: a call is decided once its body is there, and the log has the time of its head.
    for call in 0..CALLS {
        let count = [1, 1, 2, 3][random() as usize % 4];
        let descriptors: Vec<_> = (0..count).map(|_| one(&mut random)).collect();
        let domain = ["shop", "other"][random() as usize % 8 / 7];
        assert!(client.ask(&message(domain, &descriptors)).is_ok(), "call {call}");
    }
    drop(client);
    gateway.signal(Signal::TERM);
    assert!(gateway.wait_for_exit().success());
    let log = std::fs::read_to_string(folder.path().join("access.log")).unwrap();
    assert_eq!(log.lines().count(), CALLS as usize);
    assert!(!log.contains("a-secret-"));
    let replayed = replay(folder.path(), &[]);
    let decisions = &replayed["log_decisions"];
    assert_eq!(decisions["different"], 0, "{decisions:#}");
    assert_eq!(decisions["same"], CALLS);
    let count = |decision: &str| log.matches(&format!("\"decision\":\"{decision}\"")).count();
    assert!(count("limited") > 100 && count("banned") > 5, "{} {}", count("limited"), count("banned"));
    assert_eq!(replayed["refused"], count("limited") + count("banned"));
    for limit in replayed["limits"].as_array().unwrap() {
        let (refused, requests) = (limit["refused"].as_u64().unwrap(), limit["requests"].as_u64().unwrap());
        let is_tried = limit["name"] == "shadow" || refused > 5;
        assert!(is_tried && requests > refused + 5, "each limit is tried: {limit}");
    }
}

/// Limits that an application names, with secrets, tiers and costs in the key: decided again as they were.
#[test]
fn each_call_on_named_limits_is_decided_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| format!("{:?}", folder.path().join(name));
    let toml = NAMED.replace("\"access.log\"", &file("access.log"));
    let toml = toml.replace("\"consumers.csv\"", &file("consumers.csv"));
    let consumers = "key,name,tier\nacme-5d1c9b7e0a42,acme,gold\ninitech-93b1e7d40c58,initech,\n";
    std::fs::write(folder.path().join("consumers.csv"), consumers).unwrap();
    std::fs::write(folder.path().join("gateway.toml"), &toml).unwrap();
    let mut gateway = Gateway::start(&toml);
    let mut client = Client::connect(gateway.decisions_addr());
    let mut random = numbers(11);
    let consumers = ["acme", "initech"];
    for call in 0..NAMED_CALLS {
        let text = random() % 6;
        let (limits, key) = match random() % 4 {
            0 => (
                json!([{"name": "by-address", "cost": 1 + random() % 3}]),
                json!({"ip": format!("192.0.2.{text}")}),
            ),
            1 => (
                json!([{"name": "by-key"}, {"name": "everybody"}]),
                json!({"header:x-api-key": format!("a-secret, of * client; {text}"), "path": format!("/a%20b/{text}")}),
            ),
            2 => (json!([{"name": "by-consumer"}]), json!({"consumer": consumers[text as usize % 2]})),
            _ => (json!([{"name": "everybody", "cost": 2}]), json!({})),
        };
        let body = json!({"limits": limits, "key": key, "peek": random().is_multiple_of(10)}).to_string();
        let response = client.exchange(format!(
            "POST /v1/decide HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        ));
        assert_eq!(response.status, 200, "call {call}: {body} {response:?}");
    }
    drop(client);
    gateway.signal(Signal::TERM);
    assert!(gateway.wait_for_exit().success());
    let log = std::fs::read_to_string(folder.path().join("access.log")).unwrap();
    assert!(!log.contains("a-secret, of"));
    assert!(log.contains("/by-address=192.0.2.3*2"), "{log}");
    let replayed = replay(folder.path(), &[]);
    let decisions = &replayed["log_decisions"];
    assert_eq!(decisions["different"], 0, "{decisions:#}");
    assert_eq!(decisions["same"], log.lines().count());
    assert!(replayed["limits"].to_string().contains("by-consumer"), "{replayed:#}");
}
