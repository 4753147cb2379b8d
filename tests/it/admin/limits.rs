//! What each limit said lately.

use serde_json::{Value, json};

use crate::harness::api::{api, samples_with};
use crate::harness::{Backend, Gateway, Load, everything_to};

const LIMITS: &str = "limits = [\"five\", \"two\"]\n[limits.five]\nalgorithm = \"token-bucket\"\nkey = [\"ip\", \"header:x-key\"]\nrate = \"1/day\"\nburst = 5\n\
    [limits.two]\nalgorithm = \"fixed-window\"\nkey = \"header:x-key\"\nrate = [\"2/366day\", \"3/366day\"]\nmode = \"shadow\"\n[admin]\nlisten = \"127.0.0.1:0\"\n";

fn keyed(number: usize, keys: usize) -> String {
    format!("GET / HTTP/1.1\r\nhost: test\r\nx-key: a-long-key-{}\r\n\r\n", number % keys)
}

fn run(gateway: &Gateway, requests: usize, keys: usize) {
    Load { requests, concurrency: 8 }.run(gateway.addr(), |number| keyed(number, keys));
}

fn limit(gateway: &Gateway, index: usize) -> Value {
    api(gateway, "limits")["limits"][index].clone()
}

#[test]
fn a_minute_and_an_hour_count_what_each_limit_said() {
    let backend = Backend::ok();
    let gateway = Gateway::start(&everything_to(&backend, LIMITS));
    run(&gateway, 120, 12);
    samples_with(&gateway, 120);
    let spans = |admitted, refused, in_shadow, keys| json!({ "admitted": admitted, "delayed": 0, "refused": refused, "in_shadow": in_shadow, "refused_keys": keys });
    let five = json!({
        "name": "five", "mode": "enforce", "trial": null, "algorithm": "token-bucket", "key": ["ip", "header:x-key"],
        "policies": ["1/day, burst 5"], "tiers": [], "routes": ["all"], "failures": null,
        "minute": spans(60, 60, 0, 12), "hour": spans(60, 60, 0, 12), "bans": 0, "shadow_bans": 0, "ban": null, "keys": null, "max_keys": null, "lease": null, "settles": false, "usage": false, "in_flight": null,
    });
    assert_eq!(limit(&gateway, 0), five);
    // Of 5 that `five` admits 2 pass here, too; it would have refused the others, and those that `five` refuses.
    let two = json!({
        "name": "two", "mode": "shadow", "trial": null, "algorithm": "fixed-window", "key": ["header:x-key"],
        "policies": ["2/366day", "3/366day"], "tiers": [], "routes": ["all"], "failures": null,
        "minute": spans(24, 96, 96, 12), "hour": spans(24, 96, 96, 12), "bans": 0, "shadow_bans": 0, "ban": null, "keys": null, "max_keys": null, "lease": null, "settles": false, "usage": false, "in_flight": null,
    });
    assert_eq!(limit(&gateway, 1), two);
}

#[test]
fn many_keys_are_estimated() {
    let backend = Backend::ok();
    let toml = everything_to(&backend, LIMITS).replace("burst = 5", "burst = 1");
    let gateway = Gateway::start(&toml);
    run(&gateway, 4_000, 2_000);
    samples_with(&gateway, 4_000);
    let answer = api(&gateway, "limits");
    let five = &answer["limits"][0];
    assert_eq!((&five["hour"]["admitted"], &five["hour"]["refused"]), (&2_000.into(), &2_000.into()));
    let keys = five["hour"]["refused_keys"].as_f64().unwrap();
    // Four standard deviations.
    assert!((keys / 2_000.0 - 1.0).abs() < 4.0 * answer["keys_error"].as_f64().unwrap(), "{keys}");
}

#[test]
fn a_reload_keeps_the_counts() {
    let backend = Backend::ok();
    let toml = everything_to(&backend, LIMITS);
    let gateway = Gateway::start(&toml);
    run(&gateway, 60, 6);
    samples_with(&gateway, 60);
    let before = limit(&gateway, 0);
    gateway.reload(&toml.replace("burst = 5", "burst = 6"), "reloaded");
    run(&gateway, 12, 6);
    samples_with(&gateway, 72);
    let after = limit(&gateway, 0);
    assert_eq!((&before["minute"]["refused"], &before["minute"]["refused_keys"]), (&30.into(), &6.into()));
    let minute = &after["minute"];
    assert_eq!(minute["admitted"].as_u64().unwrap() + minute["refused"].as_u64().unwrap(), 72);
    assert_eq!(after["hour"]["refused_keys"], 6);
}
