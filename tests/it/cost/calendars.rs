//! Settled costs of consumers on windows of a calendar, in memory and in Redis.

use rustix::process::Signal;

use crate::harness::metered::{begin, comes_to_use, json, metered, parrot, used};
use crate::harness::{Gateway, Redis, eventually};

const MONTH: &str =
    "algorithm = \"fixed-window\"\nrate = \"400/month\"\nstarts = 31\ntime_zone = \"Pacific/Chatham\"";

/// A consumer's month is settled to the unit, also when it moves to another tier, and its quota is never exceeded.
fn settles_a_month(store: &str) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("consumers.csv");
    let move_to = |tier: &str| {
        std::fs::write(&file, format!("key,name,tier\nsecret-1,acme,{tier}\nanother-1,globex,\n")).unwrap();
    };
    move_to("free");
    let backend = parrot();
    let rest = format!(
        "[auth.c]\ntype = \"api-key\"\nfrom = \"header:x-key\"\nfile = \"{}\"\n\
         [limits.x.tiers.free]\n[limits.x.tiers.pro]\nrate = \"2000/month\"\n{store}",
        file.display()
    );
    let toml = metered(&backend.url(), &["{ reserve = 100, settle = \"json:/total\" }"], MONTH, &rest)
        .replace("header:x-client", "consumer")
        .replace("upstream = \"api\"\n", "upstream = \"api\"\nauth = \"c\"\n");
    let gateway = Gateway::start(&toml);
    if !store.is_empty() {
        let is_up = || (gateway.metric("tollgate_store_up", &[]) > 0.5).then_some(());
        eventually("the store to be up", is_up);
    }
    let ask = |key: &str, total: u32| {
        let answer = json(&format!("{{\"total\":{total}}}"));
        begin(&gateway, 0, "-", &format!("x-key: {key}\r\n"), &answer).read()
    };
    // More and less than was reserved.
    for (total, sum) in [(30, 30), (250, 280), (0, 280)] {
        ask("secret-1", total).expect(200);
        comes_to_use(&gateway, "acme", sum);
    }
    ask("secret-1", 120).expect(200);
    comes_to_use(&gateway, "acme", 400);
    let refused = ask("secret-1", 1);
    assert_eq!(refused.status, 429);
    let policy = refused.header("ratelimit-policy").expect("a policy").to_owned();
    let days =
        policy.strip_prefix("\"x\";q=400;w=").expect(&policy).parse::<u64>().expect("seconds") / 86_400;
    assert!((27..=32).contains(&days), "{policy}");
    // Another consumer has a month of its own.
    ask("another-1", 10).expect(200);
    assert_eq!(used(&gateway, "acme"), 400);
    // In another tier the month goes on.
    move_to("pro");
    let reloads = || gateway.metric("tollgate_config_reloads_total", &["result=\"success\""]);
    let before = reloads();
    gateway.signal(Signal::HUP);
    eventually("a reload", || (reloads() > before).then_some(()));
    ask("secret-1", 50).expect(200);
    comes_to_use(&gateway, "acme", 450);
    ask("secret-1", 1_549).expect(200);
    comes_to_use(&gateway, "acme", 1_999);
    ask("secret-1", 1).expect(429);
}

#[test]
fn a_month_in_memory_is_settled() {
    settles_a_month("");
}

#[test]
fn a_month_in_redis_is_settled() {
    let redis = Redis::start();
    settles_a_month(&redis.store_table());
}
